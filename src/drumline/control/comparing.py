"""The differences between two jobs: what was asked for, what ran, the stored code, and what came of it."""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DAMAGED, DamagedError, DrumlineError, UsageError
from drumline.contract.folder import read_plain
from drumline.contract.hiding import HIDDEN, hide_in_text, hide_secrets, is_secret
from drumline.contract.record import NamedTuple
from drumline.control.facts.start import describe_start
from drumline.control.jobs import lookup, stored_code
from drumline.control.jobs.recovery import recover
from drumline.staging import file_copy
from drumline.staging.snapshot.partial_folder import snapshot_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome


# The sections of a comparison of two jobs, in the order in which they are shown.

SECTIONS = {
    "spec": "field",
    "code": "",
    "environment": "package",
    "variables": "variable",
    "inputs": "input",
    "machine": "field",
    "plan": "field",
}
"""What may be the same in both jobs, and the key that names what differs."""


# The starts of two jobs, phase by phase.


def compare_phases(a: str, b: str) -> list[dict[str, Any]]:
    """
    Return how long each phase of the latest start of both jobs took, in seconds, None for one that a job lacks.

    A job without ranks has no phases. Raises NotFoundError.
    """
    sides = [_list_phases(name) for name in (a, b)]
    return [
        {"phase": phase, "a": sides[0].get(phase), "b": sides[1].get(phase)}
        for phase in dict.fromkeys((*sides[0], *sides[1]))
    ]


def _list_phases(name: str) -> dict[str, float | None]:
    try:
        told = describe_start(name)
    except UsageError:
        return {}
    # The last one is a moment.
    return {one["phase"]: one["took_s"] for one in told["phases"] if one["phase"] != "all running"}


Differences = list[dict[str, Any]]

_OWN_FIELDS = (
    "name",
    "display_name",
    "parent_job_name",
    "code",
    "inputs",
    "environment",
    "environment_variables",
)
"""Of the job file: of one run alone, or compared by what they led to."""

_OWN_PROPERTIES = ("properties.drumline.",)
_OWN_VARIABLES = ("MLFLOW_RUN_ID", "AZUREML_ROOT_RUN_ID", "AZURE_ML_INPUT_", "AZURE_ML_OUTPUT_")
_PLAN_FIELDS = (
    "distribution", "argv", "cwd", "grace_s", "timeout_s", "hang_after_s", "hang_action", "max_restarts",
    "restart_on", "cores_wanted", "warm", "remote_shell", "container", "asked",
)  # fmt: skip
_MOST_BYTES = 4 << 20
_PACKAGE = re.compile(r"\s*-?\s*([A-Za-z0-9][\w.-]*)\s*(?:==|=|\s@\s)\s*(\S+)")


class _Side(NamedTuple):
    """One of the two jobs."""

    folder: RunFolder
    outcome: Outcome
    spec: dict[str, Any]
    plan: dict[str, Any]
    graph: dict[str, Any]


def compare_jobs(a: str, b: str) -> dict[str, Any]:
    """
    Return what differs, section by section; a section without differences is empty. Blocks. Raises NotFoundError.

    Values of secret variables are ``(hidden)``. Times are in seconds. Raises DamagedError for a job whose files are not
    as they were written.
    """
    try:
        return _compare(a, b)
    except DrumlineError:
        raise
    except DAMAGED as error:
        what = f"a file of job {a} or {b} is damaged: {type(error).__name__}"
        raise DamagedError(what, f"drumline job show {lookup.as_arguments(a)}") from error


def _compare(a: str, b: str) -> dict[str, Any]:
    one, other = _read(a), _read(b)
    return {
        "jobs": [_describe(one), _describe(other)],
        "spec": _differ(_flatten_spec(one), _flatten_spec(other), "field"),
        "code": _compare_code(one, other),
        "environment": _differ(_list_environment(one), _list_environment(other), "package"),
        "variables": _compare_variables(one, other),
        "inputs": _compare_inputs(one, other),
        "machine": _differ(_describe_machine(one), _describe_machine(other), "field"),
        "plan": _differ(_describe_plan(one), _describe_plan(other), "field"),
        "metrics": _compare_metrics(one, other),
        "times": _compare_times(one, other),
        "phases": compare_phases(one.folder.name, other.folder.name),
    }


def _read(name: str) -> _Side:
    folder = lookup.folder_of(name)
    outcome = recover(folder)
    spec = lookup.read_spec(folder)
    return _Side(
        folder, outcome, spec, folder.read_json(folder.plan) or {}, folder.read_json(folder.graph) or {}
    )


def _describe(side: _Side) -> dict[str, Any]:
    outcome = side.outcome
    return {
        "name": side.folder.name,
        "type": outcome.kind,
        "status": outcome.status,
        "exit_code": outcome.exit_code,
        "reason": outcome.reason,
    }


def _differ(a: Mapping[str, Any], b: Mapping[str, Any], label: str) -> Differences:
    names = dict.fromkeys((*a, *b))
    return [
        {label: name, "a": _show(a.get(name)), "b": _show(b.get(name))}
        for name in names
        if a.get(name) != b.get(name)
    ]


def _show(value: Any) -> Any:
    return HIDDEN if isinstance(value, _Hidden) else value


# what was asked for


def _flatten_spec(side: _Side) -> dict[str, Any]:
    asked = {key: value for key, value in side.spec.items() if key not in _OWN_FIELDS}
    flat = _flatten(asked)
    return {field: value for field, value in flat.items() if not field.startswith(_OWN_PROPERTIES)}


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return every leaf by its dotted path; a secret's is hidden, but told from another one."""
    if isinstance(value, dict) and value:
        found: dict[str, Any] = {}
        for key, inside in value.items():
            found |= _flatten(inside, f"{prefix}.{key}" if prefix else str(key))
        return found
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    return {prefix: _hide(prefix, value)} if prefix else {}


class _Hidden(NamedTuple):
    """A value that is not shown, and still differs from another one."""

    value: str


def _hide(path: str, value: Any) -> Any:
    is_variable = "environment_variables." in path
    if is_variable and is_secret(path.rpartition(".")[2]):
        return _Hidden(str(value))
    return hide_in_text(value) if isinstance(value, str) else value


# code and environment


def _compare_code(a: _Side, b: _Side) -> dict[str, Any]:
    trees = [_list_snapshots(side) for side in (a, b)]
    notes = [
        f"the code of job {side.folder.name} is not stored: {stored_code.explain_absence(side.folder)}"
        for side, found in zip((a, b), trees, strict=True)
        if found is None
    ]
    known_a, known_b = trees
    if known_a is None or known_b is None or known_a == known_b:
        return {"files": [], "left_out": 0, "notes": notes}
    files, left_out = compare_trees(
        {place: path for place, path in known_a.items() if known_b.get(place) != path},
        {place: path for place, path in known_b.items() if known_a.get(place) != path},
    )
    return {"files": files, "left_out": left_out, "notes": notes}


def _list_snapshots(side: _Side) -> dict[str, str] | None:
    """Return the folders of the code by their place in the job; None if some of it is not stored."""
    digests = dict(_find_digests(side))
    found = {place: snapshot_path(side.folder.root, digest) for place, digest in digests.items()}
    if not all(map(os.path.isdir, found.values())):
        return None
    if side.plan and not digests:
        return None if stored_code.has_run_elsewhere(side.folder) else {}
    return found


def _find_digests(side: _Side) -> Iterable[tuple[str, str]]:
    digest = side.plan.get("snapshot") or stored_code.read_record(side.folder).get("snapshot")
    if digest:
        yield "", str(digest)
    for place, one in (side.graph.get("snapshots") or {}).items():
        yield "" if place == "code" else str(place), str(one)
    yield from _find_step_digests(side.graph.get("steps") or ())


def _find_step_digests(steps: Iterable[Mapping[str, Any]], above: str = "") -> Iterable[tuple[str, str]]:
    for step in steps:
        place = f"{above}{step.get('name')}"
        for digest in (step.get("snapshots") or {}).values():
            yield place, str(digest)
        yield from _find_step_digests(step.get("steps") or (), f"{place}/")


def _list_environment(side: _Side) -> dict[str, Any]:
    build = side.plan.get("build") or {}
    found = {
        "(environment)": (side.plan.get("resolved") or {}).get("environment") or build.get("name"),
        "(kind)": build.get("kind"),
        "(python)": (side.plan.get("resolved") or {}).get("environment.python"),
    }
    for place in (side.folder.path, str(build.get("prefix") or "")):
        packages = _read_packages(os.path.join(place, "environment.lock")) if place else {}
        if packages:
            return found | packages
    return found | {"(digest)": build.get("digest")}


def _read_packages(path: str) -> dict[str, str]:
    lines = read_plain(path, _MOST_BYTES).decode("utf-8", "replace").splitlines()
    matches = [_PACKAGE.match(line) for line in lines if not line.startswith("#")]
    return {found[1].lower(): found[2] for found in matches if found}


def _compare_variables(a: _Side, b: _Side) -> Differences:
    return _differ(_list_variables(a), _list_variables(b), "variable")


def _list_variables(side: _Side) -> dict[str, Any]:
    """Return the variables that all ranks have, with what is the run's own written alike."""
    known = {**(side.plan.get("env") or {}), **(side.plan.get("user_env") or {})}
    known |= side.spec.get("environment_variables") or {}
    return {
        name: _Hidden(str(value)) if is_secret(name) else hide_in_text(_generalize(side, str(value)))
        for name, value in known.items()
        if not name.startswith(_OWN_VARIABLES)
    }


def _generalize(side: _Side, value: Any) -> Any:
    """Replace the name of the job in texts, which have its run folder too, also within lists and mappings."""
    if isinstance(value, dict):
        return {key: _generalize(side, inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_generalize(side, inside) for inside in value]
    if not isinstance(value, str):
        return value
    name = re.escape(side.folder.name)
    return re.sub(rf"(?<![\w.-]){name}(?![\w.-])", "JOB", value)


# inputs


def _compare_inputs(a: _Side, b: _Side) -> Differences:
    found = _differ(_list_inputs(a), _list_inputs(b), "input")
    for one in found:
        for side in ("a", "b"):
            if isinstance(one[side], dict):
                one[side] = {**one[side], "hash": _hash_input(one[side])}
    return [one for one in found if not _have_same_content(one["a"], one["b"])]


def _list_inputs(side: _Side) -> dict[str, Any]:
    resolved = side.plan.get("resolved") or {}
    listed: dict[str, Any] = {}
    for name, given in (side.spec.get("inputs") or {}).items():
        if not isinstance(given, dict):
            listed[name] = hide_in_text(given) if isinstance(given, str) else given
            continue
        place = resolved.get(f"inputs.{name}.path") or given.get("path")
        asset = resolved.get(f"inputs.{name}.asset")
        facts = {"type": given.get("type"), "path": hide_secrets(str(place or "")), "asset": asset}
        listed[name] = {key: value for key, value in facts.items() if value}
    return listed


def _hash_input(given: Mapping[str, Any]) -> str | None:
    """Return a hash of local data as it is now; None for data elsewhere, or that is gone or too much."""
    path = str(given.get("path") or "")
    if not os.path.isabs(path):
        return None
    from drumline.control.driver import reuse

    try:
        return reuse.digest_of(path)[:12]
    except OSError:
        return None


def _have_same_content(a: Any, b: Any) -> bool:
    if not isinstance(a, dict) or not isinstance(b, dict):
        return False
    return bool(a.get("hash")) and a.get("hash") == b.get("hash") and a.get("type") == b.get("type")


# machine and plan


def _describe_machine(side: _Side) -> dict[str, Any]:
    nodes = side.plan.get("nodes") or []
    compute = {f"compute.{key}": value for key, value in (side.plan.get("compute") or {}).items()}
    return {
        "engine": side.plan.get("engine"),
        "hosts": ", ".join(host for _, host in sorted(side.outcome.hosts.items())) or None,
        "cores_per_node": [len(node.get("cores") or ()) for node in nodes] or None,
        "gpus_per_node": [node.get("gpu_count") for node in nodes] or None,
        "containment": side.outcome.containment or None,
        **compute,
    }


def _describe_plan(side: _Side) -> dict[str, Any]:
    nodes = side.plan.get("nodes") or []
    planned = {
        "nodes": len(nodes) or None,
        "ranks_per_node": [len(node.get("ranks") or ()) for node in nodes] or None,
        "launcher": (side.plan.get("launcher") or {}).get("name"),
        **{field: side.plan.get(field) for field in _PLAN_FIELDS},
    }
    return {field: _shield(_generalize(side, value)) for field, value in planned.items()}


def _shield(value: Any) -> Any:
    """Hide secrets of addresses in the words of a command."""
    if isinstance(value, dict):
        return {key: _shield(inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_shield(inside) for inside in value]
    return hide_in_text(value) if isinstance(value, str) else value


# what came of it


def _compare_metrics(a: _Side, b: _Side) -> Differences:
    from drumline.control.facts import metrics

    values = [metrics.read_latest(side.folder)[0] for side in (a, b)]
    found = []
    for name in sorted({*values[0], *values[1]}):
        one, other = values[0].get(name), values[1].get(name)
        difference = None
        if isinstance(one, float) and isinstance(other, float):
            difference = metrics.to_json_number(other - one)
        found.append({"metric": name, "a": one, "b": other, "difference": difference})
    return found


def _compare_times(a: _Side, b: _Side) -> Differences:
    times = [_measure(side.outcome) for side in (a, b)]
    return [{"time": name, "a": times[0][name], "b": times[1][name]} for name in times[0]]


def _measure(outcome: Outcome) -> dict[str, float | None]:
    return {
        "until_start_s": _between(outcome.created, outcome.started),
        "run_s": _between(outcome.started, outcome.ended),
        "total_s": _between(outcome.created, outcome.ended),
    }


def _between(first: float | None, last: float | None) -> float | None:
    return None if first is None or last is None else round(last - first, 3)


# The differences between the stored code of two jobs, file by file.


_MOST_TEXT_BYTES = 1 << 20
"""A larger file is compared by its hash."""

_MOST_FILES = 500
_HASH_LETTERS = 12


_NO_NEWLINE = "\n\\ No newline at end of file\n"


class _StoredFile(NamedTuple):
    path: str
    facts: os.stat_result

    @property
    def is_program(self) -> bool:
        return bool(self.facts.st_mode & stat.S_IXUSR)


def compare_trees(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[list[dict[str, Any]], int]:
    """
    Return how the files of snapshots differ, and how many more there are. Blocks.

    ``a``, ``b``: folders by the place within the job that their code is of; empty for the job itself.
    """
    files_a, files_b = _list_all(a), _list_all(b)
    found = []
    for name in sorted({*files_a, *files_b}):
        one, other = files_a.get(name), files_b.get(name)
        if one is not None and other is not None and _are_equal(one, other):
            continue
        found.append((name, one, other))
    return [_compare_files(*pair) for pair in found[:_MOST_FILES]], max(0, len(found) - _MOST_FILES)


def _list_all(folders: Mapping[str, str]) -> dict[str, _StoredFile]:
    return {
        f"{place}/{relative}" if place else relative: file
        for place, folder in folders.items()
        for relative, file in _list_files(folder)
    }


def _list_files(root: str) -> Iterator[tuple[str, _StoredFile]]:
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with os.scandir(os.path.join(root, prefix)) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{prefix}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    yield prefix + entry.name, _StoredFile(entry.path, entry.stat(follow_symlinks=False))


def _are_equal(a: _StoredFile, b: _StoredFile) -> bool:
    """Return whether content and mode are equal; unchanged files of two snapshots are one file on the disk."""
    if os.path.samestat(a.facts, b.facts):
        return True
    same_kind = a.facts.st_size == b.facts.st_size and a.is_program == b.is_program
    return same_kind and _hash(a) == _hash(b)


def _compare_files(name: str, a: _StoredFile | None, b: _StoredFile | None) -> dict[str, Any]:
    change = "added" if a is None else "removed" if b is None else "changed"
    described: dict[str, Any] = {
        "path": name,
        "change": change,
        "a": _hash(a) if a else None,
        "b": _hash(b) if b else None,
    }
    texts = [_read_text(one) if one else "" for one in (a, b)]
    if texts[0] is None or texts[1] is None:
        return {**described, "diff": None}
    if a is not None and b is not None and a.is_program != b.is_program:
        described["change"] = "changed, now a program" if b.is_program else "changed, no longer a program"
    lines = difflib.unified_diff(
        _split(texts[0]),
        _split(texts[1]),
        f"a/{name}" if a else "/dev/null",
        f"b/{name}" if b else "/dev/null",
    )
    return {
        **described,
        "diff": "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines),
    }


def _split(text: str) -> list[str]:
    """Return the lines with their ends, as git counts them: a carriage return belongs to its line."""
    *lines, last = text.split("\n")
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _open(file: _StoredFile) -> int:
    return os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _hash(file: _StoredFile) -> str:
    descriptor = _open(file)
    try:
        return file_copy.compute_digest(descriptor).hex()[:_HASH_LETTERS]
    finally:
        os.close(descriptor)


def _read_text(file: _StoredFile) -> str | None:
    """Return the text of a small file; None for a binary or a large one."""
    if file.facts.st_size > _MOST_TEXT_BYTES:
        return None
    with open(_open(file), "rb") as opened:
        data = opened.read(_MOST_TEXT_BYTES)
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None
