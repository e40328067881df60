"""Computes by name: one YAML file each, ``$DRUMLINE_HOME/computes/<name>.yml``, for their owner alone."""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import (
    DrumlineError,
    EngineError,
    NotFoundError,
    PlanError,
    Problem,
    SpecError,
    UsageError,
)
from drumline.contract.folder import base_home, private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.control.readable import readable
from drumline.engines import engine_table
from drumline.spec.entity import to_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from drumline.engines.base import ClusterNode
    from drumline.spec.registered.compute import AmlCompute, Compute


LOCAL = "local"
_HERE = ("", LOCAL, "serverless")
"""What a job's ``compute`` says for this machine, with none attached."""


def _path(name: str) -> str:
    return os.path.join(base_home(), "computes", f"{name}.yml")


def names() -> list[str]:
    """List the names in alphabetical order."""
    try:
        with os.scandir(os.path.join(base_home(), "computes")) as entries:
            return sorted(
                entry.name[:-4] for entry in entries if entry.name.endswith(".yml") and entry.is_file()
            )
    except FileNotFoundError:
        return []


def get(name: str) -> Compute:
    """
    Return the compute of that name; ``local`` is this machine, which nobody attaches.

    Raises NotFoundError; SpecError for a file that was damaged.
    """
    from drumline.spec.load import load_compute
    from drumline.spec.registered.compute import AmlCompute, LocalCompute, to_slurm

    if name.lower() == LOCAL:
        return _identify(LocalCompute(name=LOCAL, description="this machine"), LOCAL)
    if name not in names():
        hint = f"{_alike(name)}; drumline compute attach --type local --name {name} makes it this machine"
        raise NotFoundError(f"there is no compute {name!r}", hint)
    try:
        compute = load_compute(_path(name))
    except SpecError as error:
        for problem in error.problems:
            problem.hint = "; ".join(filter(None, (problem.hint, f"or drumline compute detach -n {name}")))
        raise SpecError(list(error.problems)) from error
    if compute.name != name:
        what = f"{_path(name)} holds the compute {compute.name!r}, not {name!r}"
        raise SpecError(what, f"mend the file, or drumline compute detach -n {name}")
    # Somebody may have put Azure's own file there.
    return _identify(to_slurm(compute)[0] if isinstance(compute, AmlCompute) else compute, name)


def find(name: str, *, is_for_script: bool = False) -> Compute:
    """
    Return the compute that jobs mean by a name: this machine for one that nobody attached, where no cluster is.

    is_for_script: a script attaches what it does not find; beside Slurm it is to do so. Raises NotFoundError.
    """
    from drumline.engines.engine_table import engine
    from drumline.spec.registered.compute import LocalCompute

    try:
        return get(name)
    except NotFoundError:
        try:
            resolve(name)
        except PlanError as error:
            raise NotFoundError(error.message, error.hint) from None
        if is_for_script and engine("slurm").is_here():
            raise
        return _identify(LocalCompute(name=name, description="this machine"), name)


class MachineSize(NamedTuple):
    cores: int
    gpus: int
    memory_gb: float


def measure_machine() -> MachineSize:
    """Return the size of this machine."""
    from drumline.engines.local import resources

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return MachineSize(len(resources.cores()), len(resources.gpus()), round(memory / (1 << 30), 1))


def _identify(compute: Compute, name: str) -> Compute:
    compute.id = f"azureml:{name}"
    compute.provisioning_state = "Succeeded"
    return compute


def _alike(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, names(), n=1)
    return f"did you mean {close[0]!r}?" if close else "drumline compute list shows those there are"


def all(  # noqa: A001 - computes.all()
    type: str | None = None, *, damaged: Callable[[str], None] | None = None
) -> list[Compute]:
    """
    Return this machine, then the attached computes. ``type``: slurm or local alone; amlcompute is slurm.

    ``damaged``: told of each file that cannot be read; None: SpecError is raised.
    """
    wanted = (type or "").lower()
    wanted = "slurm" if wanted == "amlcompute" else wanted
    found = readable([LOCAL, *names()], get, damaged)
    return [compute for compute in found if not wanted or compute.type == wanted]


def attach(compute: Compute, *, check: bool = True) -> list[str]:
    """
    Create or replace it, and return the warnings. An amlcompute becomes a slurm compute, and changes only what it
    speaks of where one of its name is attached; on a machine without Slurm it becomes that machine.

    check: ask the engine whether it can be used from this machine.
    Raises SpecError, and PlanError with what the engine says; nothing has changed then.
    """
    from drumline.spec.registered.compute import RESERVED, AmlCompute, check_compute

    compute = check_compute(compute)
    if compute.name.lower() in RESERVED:
        what = f"name: {compute.name!r} is this machine, without being attached"
        raise PlanError(what, "give it another name", path="name")
    warnings = list(compute._warnings)
    if isinstance(compute, AmlCompute):
        compute, warnings = _ours(compute, check=check)
        compute = check_compute(compute)
    if check:
        _check_engine(compute)
    path = _path(compute.name)
    private_folder(os.path.dirname(path))
    write_whole(path, str(compute))
    return warnings


def _ours(aml: AmlCompute, *, check: bool) -> tuple[Compute, list[str]]:
    """
    Return the compute that stands for Azure's: the one attached under its name, with its settings, else a new one.
    """
    from drumline.spec.registered.compute import LocalCompute, SlurmCompute, check_compute, to_slurm

    slurm, warnings = to_slurm(aml)
    before = get(aml.name) if aml.name in names() else None
    if before is None and check and not engine_table.engine("slurm").is_here():
        check_compute(slurm)  # What no cluster could be is no name of this machine either.
        here = LocalCompute(name=aml.name, description=aml.description, tags=aml.tags, size=aml.size)
        why = f"compute {aml.name!r} is this machine, which has no Slurm; on one that has, "
        why += f"drumline compute attach --type slurm --name {aml.name} makes it a cluster"
        return here, [*aml._warnings, why]
    if before is None:
        return slurm, warnings
    if isinstance(before, LocalCompute):
        before.size = aml.size or before.size
        return before, [*warnings, f"compute {aml.name!r} is this machine, and stays so"]
    said = {key: value for key, value in to_dict(slurm).items() if key != "type"}
    kept = {key: value for key, value in to_dict(before).items() if key != "type"}
    sizes = {**said.get("instance_types", {}), **kept.get("instance_types", {})}
    return SlurmCompute(**{**kept, **said, "instance_types": sizes or None}), warnings


def _check_engine(compute: Compute) -> None:
    said = engine_table.engine(compute.type).check(to_dict(compute))
    if said:
        hint = "--no-check attaches it all the same"
        if compute.type != LOCAL:
            hint += (
                f"; drumline compute attach --type local --name {compute.name} runs its jobs on this machine"
            )
        problems = [Problem(f"compute {compute.name!r}: {what}", hint=hint) for what in map(str, said)]
        raise PlanError(problems)


def detach(name: str) -> None:
    """
    Forget a compute; its jobs go on.

    Raises NotFoundError; UsageError for this machine.
    """
    if name.lower() == LOCAL:
        raise UsageError("'local' is this machine, and cannot be detached")
    if name in names():
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_path(name))
            return
    raise NotFoundError(f"there is no compute {name!r}", _alike(name))


def update(
    name: str, changes: Mapping[str, Any], *, remove: Sequence[str] = (), check: bool = True
) -> list[str]:
    """
    Change the settings of a compute.

    ``changes``: dotted path to new value; ``remove``: fields that are to be as if never set.

    Raises NotFoundError, UsageError, SpecError, PlanError; nothing has changed then.
    """
    from drumline.spec.registered.compute import CLUSTER_FIELDS, from_dict

    if name.lower() == LOCAL:
        raise UsageError(
            "'local' is this machine, and has no settings", "drumline compute attach --type local --name NAME"
        )
    fixed = [path for path in (*changes, *remove) if path in ("name", "type")]
    if fixed:
        raise UsageError(f"the {fixed[0]} of a compute cannot be changed", "attach another one")
    before = get(name)
    values = to_dict(before)
    for path in remove:
        _remove(values, path)
    meant = {
        path: value for path, value in changes.items() if before.type != "local" or path not in CLUSTER_FIELDS
    }
    unused = [f"{path}: not used; compute {name!r} is this machine" for path in changes if path not in meant]
    return [*attach(from_dict(values, params_override=[meant]), check=check), *unused]


def _remove(values: dict[str, Any], path: str) -> None:
    *steps, last = path.split(".")
    holder: Any = values
    for step in steps:
        holder = holder.get(step) if isinstance(holder, dict) else None
    if isinstance(holder, list) and last.isdecimal() and int(last) < len(holder):
        del holder[int(last)]
    elif isinstance(holder, dict) and last in holder:
        del holder[last]
    else:
        raise UsageError(f"--remove: there is no {path!r}", "drumline compute show has what there is")


def settings(compute: Compute) -> dict[str, Any]:
    """Return a compute as ``az ml compute list`` prints it."""
    return {**to_dict(compute), "id": f"azureml:{compute.name}", "provisioning_state": "Succeeded"}


def describe(name: str) -> dict[str, Any]:
    """
    Return the settings, and what the engine says now under the engine's name.

    ``reason``: why the engine says nothing; empty when it does. Raises NotFoundError.
    """
    compute = get(name)
    try:
        facts = dict(engine_table.engine(compute.type).describe(to_dict(compute)))
    except (DrumlineError, OSError) as error:
        return {**settings(compute), "reason": getattr(error, "message", "") or str(error)}
    return {**settings(compute), "reason": "", compute.type: facts}


def nodes(name: str) -> list[ClusterNode]:
    """List the nodes with state, cores, GPUs, memory and jobs. Raises NotFoundError, EngineError."""
    compute = get(name)
    return engine_table.engine(compute.type).list_nodes(to_dict(compute))


def resolve(text: str | None) -> Compute | None:
    """
    Return the compute that a job's ``compute`` names: ``azureml:NAME``, ``NAME`` or a resource id.

    None: this machine; because the job says so, or because no cluster is attached and the name is Azure's, like no
    other here.
    A LocalCompute is this machine too, under a name that somebody gave it.
    Raises PlanError for a name that is not among those attached.
    """
    name = name_of(text)
    if name.lower() in _HERE:
        return None
    known = names()
    if name in known:
        return get(name)

    def is_elsewhere(other: str) -> bool:
        try:
            return get(other).type != "local"
        except NotFoundError:
            return False
        except SpecError:
            return True  # It may be: its file is damaged.

    hint = _alike(name)
    if not any(_is_slip(name, other) for other in known) and not any(map(is_elsewhere, known)):
        return None
    if hint.startswith("drumline"):
        hint += f"; drumline compute attach --type local --name {name} makes it this machine"
    raise PlanError(f"compute: there is no compute {name!r}", hint, path="compute")


def _is_slip(one: str, other: str) -> bool:
    """
    Return whether one name is probably the other, mistyped: letters in another order, or one too many or too few.

    Another letter or digit may make another name.

    >>> _is_slip("labb", "lab"), _is_slip("gpu-cluster", "cpu-cluster"), _is_slip("node1", "node12")
    (True, False, False)
    """
    if re.sub(r"\D", "", one) != re.sub(r"\D", "", other):
        return False
    short, long = sorted((one, other), key=len)
    lacks_one = any(long[:place] + long[place + 1 :] == short for place in range(len(long)))
    return lacks_one or sorted(one) == sorted(other)


def name_of(text: str | None) -> str:
    """
    Return the compute's name in what a job says of it.

    >>> name_of("azureml:/subscriptions/s/providers/Microsoft.MachineLearningServices/workspaces/w/computes/gpu")
    'gpu'
    >>> name_of("azureml:local")
    'local'
    """
    name = (text or "").strip()
    name = name[8:] if name[:8].lower() == "azureml:" else name
    found = re.search(r"/computes/([^/]+)/?\Z", name, re.IGNORECASE)
    return found[1] if found else name


def refer_to(word: str) -> str:
    """Return what a job says of a compute that a person named. Raises NotFoundError: it must exist here."""
    name = name_of(word)
    return f"azureml:{name if name == LOCAL else get(name).name}"


# isolated nodes without a compute: --isolate of drumline run


_NAME = "node"


def describe_nodes(link: str = "") -> str:
    """
    Return the property. ``link``: rate, latency and loss with commas between them, each may be missing from the end.
    Raises SpecError.
    """
    words = [word.strip() for word in link.split(",")] if link else []
    given: dict[str, Any] = {"isolation": "namespace"}
    if words:
        given["link"] = {
            key: word for key, word in zip(("rate", "latency", "loss"), words, strict=False) if word
        }
    _check(given)
    return json.dumps(given)


def _check(given: dict[str, Any]) -> dict[str, Any]:
    from drumline.spec.registered.compute import from_dict

    return to_dict(from_dict({"name": _NAME, "type": "local", **given}))


def add_isolation(compute: str | None, text: str) -> dict[str, Any]:
    """
    Return the settings of a job's compute with those of its property. Raises PlanError, SpecError.
    """
    try:
        given = json.loads(text)
    except ValueError as error:
        raise PlanError(
            "properties: the settings of isolated nodes are no JSON", path="properties"
        ) from error
    found = resolve(compute)
    before = {} if found is None else to_dict(found)
    if found is not None and found.type != "local":
        raise PlanError(f"compute: isolated nodes are of this machine, and {found.name!r} is a cluster")
    return _check({**before, **given})


# rights that jobs need


def render_rights(compute: Compute) -> str:
    """
    Return the least Role and its binding as YAML; nothing is asked and nothing changes. Raises SpecError for a compute
    that cannot be attached, UsageError for one of another type.
    """
    from drumline.engines.kubernetes import access, client
    from drumline.spec.registered.compute import check_compute

    if compute.type != "kubernetes":
        hint = "without --dry-run it is attached"
        raise UsageError(
            f"--dry-run prints a Role of Kubernetes, and a {compute.type} compute needs none", hint
        )
    settings = to_dict(check_compute(compute))
    try:
        user = client.name_user(settings)
    except EngineError:
        # Whoever gives the rights may have no kubeconfig of the one who gets them.
        user = access.find_subject("", "")
    namespace = str(settings.get("namespace") or "default")
    return access.render(namespace, user, str(settings.get("gang") or ""))
