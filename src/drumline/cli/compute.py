"""``drumline compute``: the verbs of ``az ml compute``, for existing clusters."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, add_set, get_name, parse_overrides, run_verb
from drumline.cli.entity_flags import parse_tags
from drumline.contract.errors import UsageError
from drumline.contract.record import ABSENT

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs
    from drumline.spec.registered.compute import AmlCompute, Compute

_LIST_COLUMNS = ("name", "type", "partition", "max_instances", "description")
_NODE_COLUMNS = ("node", "state", "cores", "gpus", "memory_mb", "jobs", "reason")
_FREE_COLUMNS = ("free_cores", "free_gpus", "free_memory_mb")
_EXAMPLE = "drumline compute attach --type slurm --name gpu-cluster --partition gpu"


def main(argv: list[str]) -> int:
    return run_verb("compute", "Manage the machines that jobs run on.", VERBS, argv)


# attach, create

_SLURM_FIELDS = {
    "partition": "the partition of its jobs",
    "account": "the account that its jobs are charged to",
    "qos": "the quality of service of its jobs",
    "spot-partition": "the partition of jobs with job_tier: spot",
    "spot-qos": "the quality of service of jobs with job_tier: spot",
    "folder": "where the run folders of its jobs are; visible on all nodes",
    "scratch": "a folder on each node for temporary files",
    "python": "the Python on the nodes that has drumline",
    "cores-per-node": "cores of each node that a job gets",
    "gpus-per-node": "GPUs of each node that a job gets",
    "memory-per-node": "memory of each node that a job gets, such as 64G",
    "interface": "the network interface between ranks",
    "time-limit": "minutes, HH:MM:SS or D-HH:MM:SS",
}
"""Flags of a field each; ``-`` stands for ``_``."""

_KUBERNETES_FIELDS = {
    "kubeconfig": "the file with clusters and users; default: KUBECONFIG, else ~/.kube/config",
    "context": "the context of that file",
    "namespace": "the namespace of its jobs' objects",
    "image": "the image of its jobs' pods, with Python 3.11 or newer",
    "queue": "the queue of Kueue that its jobs wait in",
    "shm-size": "the size of /dev/shm in a pod, such as 8G",
}

_COMMON = {
    "max-instances": "the maximum number of nodes of one job",
    "tier": "dedicated, or low_priority: every job is spot",
}
_IGNORED = {
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
"""Flags of ``az ml compute create`` without a meaning here: each gets a warning."""


_REFUSED = ("resource-id", "ssh-port", "ssh-private-key-file")
"""Flags of ``attach`` and ``create`` for computes of Azure's other types, which are refused by their type."""


def _attach_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    parser.add_argument(
        "-t", "--type", type=str.lower, metavar="TYPE", help="slurm, kubernetes, local or amlcompute"
    )
    parser.add_argument("-f", "--file", help="the compute's file; - for standard input")
    add_set(parser, "priorities.high.qos=urgent")
    parser.add_argument("--size", help="a name for resources.instance_type")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="attach nothing; print the least Role that jobs on Kubernetes need, for kubectl apply",
    )
    for flag in _REFUSED:
        parser.add_argument(f"--{flag}", help=argparse.SUPPRESS)
    _add_fields(parser)


def _add_fields(parser: Parser) -> None:
    """Add the fields that ``attach`` and ``update`` share."""
    for flag, text in (_SLURM_FIELDS | _KUBERNETES_FIELDS | _COMMON).items():
        parser.add_argument(f"--{flag}", help=text)
    parser.add_argument(
        "--sbatch-option",
        action="append",
        dest="sbatch_options",
        metavar="OPTION",
        help="--sbatch-option=--constraint=a100; can be repeated",
    )
    parser.add_argument("--requeue", action=argparse.BooleanOptionalAction, help="let Slurm requeue its jobs")
    parser.add_argument("--description")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    parser.add_argument(
        "--no-check", action="store_true", help="do not check that it can be used from this machine"
    )
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    for flag, short in _IGNORED.items():
        parser.add_argument(*short, f"--{flag}", help=argparse.SUPPRESS)
    add_output(parser)


def _collect_flags(arguments: Namespace, flags: Any) -> dict[str, Any]:
    """Return the fields that were given, by their keys in YAML."""
    values = {flag.replace("-", "_"): getattr(arguments, flag.replace("-", "_"), None) for flag in flags}
    return {key: value for key, value in values.items() if value is not None}


def _collect_own_fields(arguments: Namespace, kind: str | None) -> dict[str, Any]:
    """Return the fields that flags give a compute of that type; those of Slurm are refused by name elsewhere."""
    kubernetes = _KUBERNETES_FIELDS if kind == "kubernetes" else ()
    return _collect_flags(arguments, (*_SLURM_FIELDS, "sbatch-options", "requeue", *kubernetes))


def _collect_notes(arguments: Namespace) -> dict[str, Any]:
    """Return description and tags, which a compute of any type may have."""
    return {**_collect_flags(arguments, ("description",)), **parse_tags(arguments)}


def _list_unused(arguments: Namespace) -> list[str]:
    is_here = arguments.verb != "update" and arguments.type == "local"
    is_kubernetes = arguments.type == "kubernetes"
    more = (*(_COMMON if is_here else ()), *(() if is_kubernetes else _KUBERNETES_FIELDS))
    given = _collect_flags(arguments, (*_IGNORED, *_REFUSED, *more))
    return [f"{field}: not used; the machines exist already" for field in given]


def _attach(arguments: Namespace) -> int:
    from drumline.control.machine import computes
    from drumline.spec.registered.compute import check_type

    if not arguments.type and not arguments.file:
        raise UsageError(f"{arguments.verb} needs --type or --file", _EXAMPLE)
    if arguments.type:
        check_type(arguments.type)
    compute = _from_file(arguments) if arguments.file else _from_flags(arguments)
    if arguments.dry_run:
        sys.stdout.write(computes.render_rights(compute))
        return 0
    warnings = computes.attach(compute, check=not arguments.no_check)
    output.print_warnings([*warnings, *_list_unused(arguments)])
    output.show(computes.settings(computes.get(compute.name)), arguments.output, arguments.query)
    return 0


def _from_flags(arguments: Namespace) -> Compute:
    from drumline.spec.registered.compute import AmlCompute, from_dict

    values = {"name": get_name(arguments, "compute"), "type": arguments.type, **_collect_notes(arguments)}
    if arguments.type in ("local", "kubernetes", "slurm"):
        values |= _collect_own_fields(arguments, arguments.type)
    if arguments.type != "local":
        values |= _collect_flags(arguments, _COMMON)
    if arguments.type == "slurm" and arguments.size:
        values["instance_types"] = {arguments.size: {}}
    elif arguments.type not in ("kubernetes", "slurm"):
        values |= _collect_flags(arguments, ("size",))
    made = from_dict(values, params_override=parse_overrides(arguments.set))
    return _adapt_amlcompute(made, arguments) if isinstance(made, AmlCompute) else made


def _from_file(arguments: Namespace) -> Compute:
    """Build a compute from ``--file``; flags win over it."""
    from drumline.spec.registered.compute import AmlCompute

    name = arguments.name or arguments.given
    changes = {
        **_collect_notes(arguments),
        **_collect_flags(arguments, _COMMON),
        **({"name": name} if name else {}),
    }
    loaded = _load(arguments.file, [*parse_overrides(arguments.set), changes])
    if isinstance(loaded, AmlCompute):
        loaded.size = arguments.size or loaded.size
        return _adapt_amlcompute(loaded, arguments)
    if arguments.type not in (None, loaded.type):
        raise UsageError(f"--type {arguments.type}: {arguments.file} is of type {loaded.type}")
    return _change_fields(loaded, _collect_own_fields(arguments, loaded.type))


def _load(file: str, changes: list[dict[str, Any]]) -> Compute:
    from drumline.spec.load import load_compute

    if file in ("-", "/dev/stdin"):
        return load_compute(sys.stdin.buffer, params_override=changes)
    return load_compute(file, params_override=changes)


def _adapt_amlcompute(aml: AmlCompute, arguments: Namespace) -> Compute:
    """Give Azure's compute fields of Slurm, or make it this machine, where the flags say so."""
    from drumline.spec.registered.compute import LocalCompute, describe_unused, to_slurm

    if arguments.type == "local":
        local = LocalCompute(name=aml.name, description=aml.description, tags=aml.tags, size=aml.size)
        local._warnings = describe_unused(aml)
        return local
    fields = _collect_own_fields(arguments, "slurm")
    if arguments.type != "slurm" and not fields:
        return aml
    slurm, warnings = to_slurm(aml)
    slurm._warnings = warnings
    return _change_fields(slurm, fields)


def _change_fields(compute: Compute, fields: dict[str, Any]) -> Compute:
    from drumline.spec.entity import to_dict
    from drumline.spec.registered.compute import from_dict

    changed = from_dict({**to_dict(compute), **fields})
    changed._warnings = compute._warnings
    return changed


# show, list, list-nodes


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control.machine import computes

    output.show(computes.describe(get_name(arguments, "compute")), arguments.output, arguments.query)
    return 0


def _list_arguments(parser: Parser) -> None:
    parser.add_argument(
        "-t", "--type", type=str.lower, help="only computes of this type: slurm, kubernetes or local"
    )
    parser.add_argument("-r", "--max-results", type=int, help="default: all")
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control.machine import computes

    found = computes.all(arguments.type, damaged=lambda said: output.print_warnings([said]))
    shown = [computes.settings(compute) for compute in found[: arguments.max_results]]
    output.show(shown, arguments.output, arguments.query, _LIST_COLUMNS)
    return 0


def _list_nodes(arguments: Namespace) -> int:
    from drumline.control.machine import computes

    found = computes.nodes(get_name(arguments, "compute"))
    columns: tuple[str, ...] = _NODE_COLUMNS
    if any(node.free_cores is not ABSENT for node in found):
        columns = (*_NODE_COLUMNS[:-2], *_FREE_COLUMNS, *_NODE_COLUMNS[-2:])
    output.show(found, arguments.output, arguments.query, columns)
    if any(node.free_cores is None for node in found):
        said = "what is free is not known: that needs the right to list the pods of all namespaces"
        output.print_warnings([said])
    return 0


# update, detach, delete


def _update_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)
    _add_fields(parser)


def _update(arguments: Namespace) -> int:
    from drumline.control.machine import computes

    name = get_name(arguments, "compute")
    if arguments.add:
        raise UsageError("--add: set the whole list", "--set sbatch_options='[\"--constraint=a100\"]'")
    changes: dict[str, Any] = {}
    for change in parse_overrides(arguments.set):
        changes |= change
    arguments.type = computes.get(name).type if name in computes.names() else None
    own = _collect_own_fields(arguments, arguments.type)
    changes |= own | _collect_flags(arguments, _COMMON) | _collect_notes(arguments)
    if not changes and not arguments.remove and not _list_unused(arguments):
        raise UsageError("nothing to change", f"drumline compute update -n {name} --set max_instances=4")
    warnings = computes.update(name, changes, remove=arguments.remove, check=not arguments.no_check)
    output.print_warnings([*warnings, *_list_unused(arguments)])
    output.show(computes.settings(computes.get(name)), arguments.output, arguments.query)
    return 0


def _detach_arguments(parser: Parser) -> None:
    add_name(parser, "compute")
    parser.add_argument("-y", "--yes", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)


def _detach(arguments: Namespace) -> int:
    from drumline.control.machine import computes

    computes.detach(get_name(arguments, "compute"))
    return 0


VERBS: Verbs = {
    "attach": ("attach a cluster or this machine under a name that jobs can use", _attach_arguments, _attach),
    "create": ("the same as attach", _attach_arguments, _attach),
    "show": ("show a compute's settings and current state", _show_arguments, _show),
    "list": ("list computes", _list_arguments, _list),
    "list-nodes": ("list a compute's nodes and their state", _show_arguments, _list_nodes),
    "update": ("change settings; submitted jobs keep theirs", _update_arguments, _update),
    "detach": ("detach a compute; its jobs continue", _detach_arguments, _detach),
    "delete": ("the same as detach", _detach_arguments, _detach),
}
