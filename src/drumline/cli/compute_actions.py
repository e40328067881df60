"""The functions of the verbs of ``drumline compute``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import get_name, parse_overrides
from drumline.cli.compute import COMMON, IGNORED, KUBERNETES_FIELDS, REFUSED, SLURM_FIELDS
from drumline.cli.entity_flags import parse_tags
from drumline.contract.errors import UsageError
from drumline.contract.record import ABSENT
from drumline.control.machine import computes
from drumline.spec.entity import to_dict
from drumline.spec.load import load_compute
from drumline.spec.registered.compute import (
    AmlCompute,
    LocalCompute,
    check_type,
    describe_unused,
    from_dict,
    to_slurm,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.spec.registered.compute import Compute

_LIST_COLUMNS = ("name", "type", "partition", "max_instances", "description")


_NODE_COLUMNS = ("node", "state", "cores", "gpus", "memory_mb", "jobs", "reason")


_FREE_COLUMNS = ("free_cores", "free_gpus", "free_memory_mb")


_EXAMPLE = "drumline compute attach --type slurm --name gpu-cluster --partition gpu"


def attach_compute(arguments: Namespace) -> int:
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


def _collect_flags(arguments: Namespace, flags: Any) -> dict[str, Any]:
    """Return the fields that were given, by their keys in YAML."""
    values = {flag.replace("-", "_"): getattr(arguments, flag.replace("-", "_"), None) for flag in flags}
    return {key: value for key, value in values.items() if value is not None}


def _collect_own_fields(arguments: Namespace, kind: str | None) -> dict[str, Any]:
    """Return the fields that flags give a compute of that type; those of Slurm are refused by name elsewhere."""
    kubernetes = KUBERNETES_FIELDS if kind == "kubernetes" else ()
    return _collect_flags(arguments, (*SLURM_FIELDS, "sbatch-options", "requeue", *kubernetes))


def _collect_notes(arguments: Namespace) -> dict[str, Any]:
    """Return description and tags, which a compute of any type may have."""
    return {**_collect_flags(arguments, ("description",)), **parse_tags(arguments)}


def _list_unused(arguments: Namespace) -> list[str]:
    is_here = arguments.verb != "update" and arguments.type == "local"
    is_kubernetes = arguments.type == "kubernetes"
    more = (*(COMMON if is_here else ()), *(() if is_kubernetes else KUBERNETES_FIELDS))
    given = _collect_flags(arguments, (*IGNORED, *REFUSED, *more))
    return [f"{field}: not used; the machines exist already" for field in given]


def _from_flags(arguments: Namespace) -> Compute:
    values = {"name": get_name(arguments, "compute"), "type": arguments.type, **_collect_notes(arguments)}
    if arguments.type in ("local", "kubernetes", "slurm"):
        values |= _collect_own_fields(arguments, arguments.type)
    if arguments.type != "local":
        values |= _collect_flags(arguments, COMMON)
    if arguments.type == "slurm" and arguments.size:
        values["instance_types"] = {arguments.size: {}}
    elif arguments.type not in ("kubernetes", "slurm"):
        values |= _collect_flags(arguments, ("size",))
    made = from_dict(values, params_override=parse_overrides(arguments.set))
    return _adapt_amlcompute(made, arguments) if isinstance(made, AmlCompute) else made


def _from_file(arguments: Namespace) -> Compute:
    """Build a compute from ``--file``; flags win over it."""

    name = arguments.name or arguments.given
    changes = {
        **_collect_notes(arguments),
        **_collect_flags(arguments, COMMON),
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
    if file in ("-", "/dev/stdin"):
        return load_compute(sys.stdin.buffer, params_override=changes)
    return load_compute(file, params_override=changes)


def _adapt_amlcompute(aml: AmlCompute, arguments: Namespace) -> Compute:
    """Give Azure's compute fields of Slurm, or make it this machine, where the flags say so."""

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
    changed = from_dict({**to_dict(compute), **fields})
    changed._warnings = compute._warnings
    return changed


def show_compute(arguments: Namespace) -> int:
    output.show(computes.describe(get_name(arguments, "compute")), arguments.output, arguments.query)
    return 0


def list_computes(arguments: Namespace) -> int:
    found = computes.all(arguments.type, damaged=lambda said: output.print_warnings([said]))
    shown = [computes.settings(compute) for compute in found[: arguments.max_results]]
    output.show(shown, arguments.output, arguments.query, _LIST_COLUMNS)
    return 0


def list_nodes(arguments: Namespace) -> int:
    found = computes.nodes(get_name(arguments, "compute"))
    columns: tuple[str, ...] = _NODE_COLUMNS
    if any(node.free_cores is not ABSENT for node in found):
        columns = (*_NODE_COLUMNS[:-2], *_FREE_COLUMNS, *_NODE_COLUMNS[-2:])
    output.show(found, arguments.output, arguments.query, columns)
    if any(node.free_cores is None for node in found):
        said = "what is free is not known: that needs the right to list the pods of all namespaces"
        output.print_warnings([said])
    return 0


def update_compute(arguments: Namespace) -> int:
    name = get_name(arguments, "compute")
    if arguments.add:
        raise UsageError("--add: set the whole list", "--set sbatch_options='[\"--constraint=a100\"]'")
    changes: dict[str, Any] = {}
    for change in parse_overrides(arguments.set):
        changes |= change
    arguments.type = computes.get(name).type if name in computes.names() else None
    own = _collect_own_fields(arguments, arguments.type)
    changes |= own | _collect_flags(arguments, COMMON) | _collect_notes(arguments)
    if not changes and not arguments.remove and not _list_unused(arguments):
        raise UsageError("nothing to change", f"drumline compute update -n {name} --set max_instances=4")
    warnings = computes.update(name, changes, remove=arguments.remove, check=not arguments.no_check)
    output.print_warnings([*warnings, *_list_unused(arguments)])
    output.show(computes.settings(computes.get(name)), arguments.output, arguments.query)
    return 0
