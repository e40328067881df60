"""``drumline compute``: the verbs of ``az ml compute``, for clusters that are there already."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, add_set, name_of, overrides, run_verb
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from drumline.spec.compute import AmlCompute, Compute

_LIST_COLUMNS = ("name", "type", "partition", "max_instances", "description")
_NODE_COLUMNS = ("node", "state", "cores", "gpus", "memory_mb", "jobs", "reason")
_EXAMPLE = "drumline compute attach --type slurm --name gpu-cluster --partition gpu"


def main(argv: list[str]) -> int:
    return run_verb("compute", "Name the machines that jobs run on.", VERBS, argv)


def _name(parser: Parser) -> None:
    add_name(parser, "compute")


def _name_of(arguments: Namespace) -> str:
    return name_of(arguments, "compute")


def _warn(warnings: Any) -> None:
    from drumline.control.terminal import clean

    for warning in warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)


# attach, create

_SLURM = {
    "partition": "where its jobs go",
    "account": "who pays for them",
    "qos": "their quality of service",
    "spot-partition": "where jobs with job_tier: spot go",
    "spot-qos": "their quality of service",
    "folder": "where the run folders of its jobs are; all nodes see it",
    "scratch": "a folder on each node for temporary files",
    "python": "the nodes' Python that has drumline",
    "cores-per-node": "how many cores of each node a job has",
    "gpus-per-node": "how many GPUs of each node a job has",
    "memory-per-node": "such as 64G",
    "interface": "the network interface between ranks",
    "time-limit": "minutes, HH:MM:SS or D-HH:MM:SS",
}
"""Flags of a field each; ``-`` stands for ``_``."""

_BOTH = {
    "max-instances": "most nodes of one job",
    "tier": "dedicated, or low_priority: every job is spot",
}
_AZURE = {
    "min-instances": (),
    "idle-time-before-scale-down": ("-d",),
    "location": ("-l",),
    "ssh-public-access-enabled": ("-p",),
    "admin-username": (),
    "admin-password": (),
    "ssh-key-value": (),
    "identity-type": (),
    "user-assigned-identities": ("-i",),
    "user-object-id": (),
    "user-tenant-id": (),
    "subnet": (),
    "vnet-name": (),
    "enable-node-public-ip": (),
}
"""What ``az ml compute create`` takes, and has no meaning here: each is answered with a warning."""


_OTHERS = ("resource-id", "namespace", "ssh-port", "ssh-private-key-file")
"""Flags of ``attach`` and ``create`` for computes of Azure's other types, which are refused by their type."""


def _attach_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-t", "--type", type=str.lower, metavar="TYPE", help="slurm, local or amlcompute")
    parser.add_argument("-f", "--file", help="the compute's file; - is standard input")
    add_set(parser, "priorities.high.qos=urgent")
    parser.add_argument("--size", help="a name for resources.instance_type")
    for flag in _OTHERS:
        parser.add_argument(f"--{flag}", help=argparse.SUPPRESS)
    _add_fields(parser)


def _add_fields(parser: Parser) -> None:
    """Those of ``attach`` and ``update``."""
    for flag, text in (_SLURM | _BOTH).items():
        parser.add_argument(f"--{flag}", help=text)
    parser.add_argument(
        "--sbatch-option",
        action="append",
        dest="sbatch_options",
        metavar="OPTION",
        help="--sbatch-option=--constraint=a100; may be given again",
    )
    parser.add_argument(
        "--requeue", action=argparse.BooleanOptionalAction, help="Slurm may start its jobs again"
    )
    parser.add_argument("--description")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("--no-check", action="store_true", help="do not ask whether it can be used from here")
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    for flag, short in _AZURE.items():
        parser.add_argument(*short, f"--{flag}", help=argparse.SUPPRESS)
    add_output(parser)


def _given(arguments: Namespace, flags: Any) -> dict[str, Any]:
    """Fields that were given, by their keys in YAML."""
    values = {flag.replace("-", "_"): getattr(arguments, flag.replace("-", "_"), None) for flag in flags}
    return {key: value for key, value in values.items() if value is not None}


def _slurm_fields(arguments: Namespace) -> dict[str, Any]:
    return _given(arguments, (*_SLURM, "sbatch-options", "requeue"))


def _notes(arguments: Namespace) -> dict[str, Any]:
    """What a compute of any type may have: description and tags."""
    notes = _given(arguments, ("description",))
    for text in arguments.tags or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"--tags: {text!r} is not of the form NAME=VALUE", "--tags team=vision")
        notes.setdefault("tags", {})[key] = value
    return notes


def _unused(arguments: Namespace) -> list[str]:
    is_here = getattr(arguments, "type", None) == "local"
    given = _given(arguments, (*_AZURE, *_OTHERS, *(_BOTH if is_here else ())))
    return [f"{field}: not used; the machines are there already" for field in given]


def _attach(arguments: Namespace) -> int:
    from drumline.control import computes
    from drumline.spec.compute import check_type

    if not arguments.type and not arguments.file:
        raise UsageError(f"{arguments.verb} needs --type or --file", _EXAMPLE)
    if arguments.type:
        check_type(arguments.type)
    compute = _from_file(arguments) if arguments.file else _from_flags(arguments)
    warnings = computes.attach(compute, check=not arguments.no_check)
    _warn([*warnings, *_unused(arguments)])
    output.show(computes.settings(computes.get(compute.name)), arguments.output, arguments.query)
    return 0


def _from_flags(arguments: Namespace) -> Compute:
    from drumline.spec.compute import AmlCompute, from_dict

    values = {"name": _name_of(arguments), "type": arguments.type, **_notes(arguments)}
    if arguments.type == "local":
        values |= _slurm_fields(arguments)  # to be refused by name
        values |= _given(arguments, ("size",))
    elif arguments.type == "slurm":
        values |= _slurm_fields(arguments) | _given(arguments, _BOTH)
        values |= {"instance_types": {arguments.size: {}}} if arguments.size else {}
    else:
        values |= _given(arguments, (*_BOTH, "size"))
    made = from_dict(values, params_override=overrides(arguments.set))
    return _of_amlcompute(made, arguments) if isinstance(made, AmlCompute) else made


def _from_file(arguments: Namespace) -> Compute:
    """The flags win over the file."""
    from drumline.spec.compute import AmlCompute

    name = arguments.name or arguments.given
    changes = {**_notes(arguments), **_given(arguments, _BOTH), **({"name": name} if name else {})}
    loaded = _load(arguments.file, [*overrides(arguments.set), changes])
    if isinstance(loaded, AmlCompute):
        loaded.size = arguments.size or loaded.size
        return _of_amlcompute(loaded, arguments)
    if arguments.type not in (None, loaded.type):
        raise UsageError(f"--type {arguments.type}: {arguments.file} is of type {loaded.type}")
    return _with(loaded, _slurm_fields(arguments))


def _load(file: str, changes: list[dict[str, Any]]) -> Compute:
    from drumline.spec.load import load_compute

    if file in ("-", "/dev/stdin"):
        return load_compute(sys.stdin.buffer, params_override=changes)
    return load_compute(file, params_override=changes)


def _of_amlcompute(aml: AmlCompute, arguments: Namespace) -> Compute:
    """Azure's file may be given fields of Slurm, or be this machine."""
    from drumline.spec.compute import LocalCompute, to_slurm, unused

    if arguments.type == "local":
        local = LocalCompute(name=aml.name, description=aml.description, tags=aml.tags, size=aml.size)
        local._warnings = unused(aml)
        return local
    if arguments.type != "slurm" and not _slurm_fields(arguments):
        return aml
    slurm, warnings = to_slurm(aml)
    slurm._warnings = warnings
    return _with(slurm, _slurm_fields(arguments))


def _with(compute: Compute, fields: dict[str, Any]) -> Compute:
    from drumline.spec.compute import from_dict, to_dict

    changed = from_dict({**to_dict(compute), **fields})
    changed._warnings = compute._warnings
    return changed


# show, list, list-nodes


def _show_arguments(parser: Parser) -> None:
    _name(parser)
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control import computes

    output.show(computes.describe(_name_of(arguments)), arguments.output, arguments.query)
    return 0


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-t", "--type", type=str.lower, help="slurm or local alone")
    parser.add_argument("-r", "--max-results", type=int, help="default: all")
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control import computes

    found = computes.all(arguments.type, damaged=lambda said: _warn([said]))
    shown = [computes.settings(compute) for compute in found[: arguments.max_results]]
    output.show(shown, arguments.output, arguments.query, _LIST_COLUMNS)
    return 0


def _list_nodes(arguments: Namespace) -> int:
    from drumline.control import computes

    found = computes.nodes(_name_of(arguments))
    output.show(found, arguments.output, arguments.query, _NODE_COLUMNS)
    return 0


# update, detach, delete


def _update_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)
    _add_fields(parser)


def _update(arguments: Namespace) -> int:
    from drumline.control import computes

    name = _name_of(arguments)
    if arguments.add:
        raise UsageError("--add: set the whole list", "--set sbatch_options='[\"--constraint=a100\"]'")
    changes: dict[str, Any] = {}
    for change in overrides(arguments.set):
        changes |= change
    changes |= _slurm_fields(arguments) | _given(arguments, _BOTH) | _notes(arguments)
    if not changes and not arguments.remove and not _unused(arguments):
        raise UsageError("nothing to change", f"drumline compute update -n {name} --set max_instances=4")
    warnings = computes.update(name, changes, remove=arguments.remove, check=not arguments.no_check)
    _warn([*warnings, *_unused(arguments)])
    output.show(computes.settings(computes.get(name)), arguments.output, arguments.query)
    return 0


def _detach_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-y", "--yes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)


def _detach(arguments: Namespace) -> int:
    from drumline.control import computes

    computes.detach(_name_of(arguments))
    return 0


VERBS: dict[str, tuple[str, Callable[[Parser], None], Callable[[Any], int]]] = {
    "attach": ("give a cluster, or this machine, a name that jobs can say", _attach_arguments, _attach),
    "create": ("the same as attach", _attach_arguments, _attach),
    "show": ("the settings of a compute, and what it says of itself now", _show_arguments, _show),
    "list": ("the computes there are", _list_arguments, _list),
    "list-nodes": ("the nodes of a compute, and what they do", _show_arguments, _list_nodes),
    "update": ("change settings; jobs that were submitted keep theirs", _update_arguments, _update),
    "detach": ("forget a compute; its jobs go on", _detach_arguments, _detach),
    "delete": ("the same as detach", _detach_arguments, _detach),
}
