"""The differences between two jobs: what was asked for, what ran, the stored code, and what came of it."""

from __future__ import annotations

import contextlib
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
from drumline.control.facts import metrics
from drumline.control.facts.start import ALL_RUNNING, list_phases, read_start
from drumline.control.jobs import lookup, stored_code
from drumline.control.jobs.recovery import recover
from drumline.staging import file_copy
from drumline.staging.snapshot.partial_folder import snapshot_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.contract.outcome import Outcome

    _ListValues = Callable[["_Side"], Iterable[tuple[str, Any]]]


SECTIONS = {
    "spec": "field",
    "code": "",
    "environment": "package",
    "variables": "variable",
    "inputs": "input",
    "machine": "field",
    "plan": "field",
}
"""What may be the same in both jobs, in the order in which it is shown, and the key that names what differs."""

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


class _Hidden(NamedTuple):
    """A value that is not shown, and still differs from another one."""

    value: str


def compare_jobs(a: str, b: str) -> dict[str, Any]:
    """
    Return what differs, section by section; a section without differences is empty. Blocks. Raises NotFoundError.

    Values of secret variables are ``(hidden)``. Times are in seconds. Raises DamagedError for a job whose files are not
    as they were written.
    """
    try:
        return _compare((_read(a), _read(b)))
    except DrumlineError:
        raise
    except DAMAGED as error:
        what = f"a file of job {a} or {b} is damaged: {type(error).__name__}"
        raise DamagedError(what, f"drumline job show {lookup.as_arguments(a)}") from error


def _read(name: str) -> _Side:
    folder = lookup.folder_of(name)
    outcome = recover(folder)
    spec = lookup.read_spec(folder)
    return _Side(
        folder, outcome, spec, folder.read_json(folder.plan) or {}, folder.read_json(folder.graph) or {}
    )


def _compare(sides: tuple[_Side, _Side]) -> dict[str, Any]:
    def pair(key: str, list_values: _ListValues, *, with_equal: bool = False) -> list[dict[str, Any]]:
        a, b = (dict(list_values(side)) for side in sides)
        return [
            {key: name, "a": _show(a.get(name)), "b": _show(b.get(name))}
            for name in dict.fromkeys((*a, *b))
            if with_equal or a.get(name) != b.get(name)
        ]

    return {
        "jobs": [
            {
                "name": side.folder.name,
                "type": side.outcome.kind,
                "status": side.outcome.status,
                "exit_code": side.outcome.exit_code,
                "reason": side.outcome.reason,
            }
            for side in sides
        ],
        "spec": pair("field", _list_fields),
        "code": _compare_code(sides),
        "environment": pair("package", _list_packages),
        "variables": pair("variable", _list_variables),
        "inputs": _leave_out_equal_inputs(pair("input", _list_inputs)),
        "machine": pair("field", _list_machine),
        "plan": pair("field", _list_plan),
        "metrics": sorted(
            (
                {**metric, "difference": _subtract(metric["a"], metric["b"])}
                for metric in pair("metric", _list_metrics, with_equal=True)
            ),
            key=lambda metric: metric["metric"],
        ),
        "times": pair("time", _list_times, with_equal=True),
        "phases": pair("phase", _list_phases, with_equal=True),
    }


def _show(value: Any) -> Any:
    return HIDDEN if isinstance(value, _Hidden) else value


# what was asked for


def _list_fields(side: _Side) -> Iterator[tuple[str, Any]]:
    asked = {key: value for key, value in side.spec.items() if key not in _OWN_FIELDS}
    return (leaf for leaf in _list_leaves(asked) if not leaf[0].startswith(_OWN_PROPERTIES))


def _list_leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its dotted path; a secret's is hidden, but told from another one."""
    if isinstance(value, dict) and value:
        for key, inside in value.items():
            yield from _list_leaves(inside, f"{path}.{key}" if path else str(key))
    elif path:
        if isinstance(value, list):
            value = json.dumps(value, ensure_ascii=False)
        if "environment_variables." in path and is_secret(path.rpartition(".")[2]):
            value = _Hidden(str(value))
        yield path, hide_in_text(value) if isinstance(value, str) else value


# code and environment


class FileDifference(NamedTuple):
    """A file that differs. ``a`` and ``b``: hashes, None where it is not there; ``diff``: None of binaries."""

    path: str
    change: str
    a: str | None
    b: str | None
    diff: str | None


class CodeDifferences(NamedTuple):
    """The files that differ, how many more there are, and why code could not be compared."""

    files: list[FileDifference]
    left_out: int
    notes: list[str]


def _compare_code(sides: tuple[_Side, _Side]) -> CodeDifferences:
    a, b = map(_list_snapshots, sides)
    notes = [
        f"the code of job {side.folder.name} is not stored: {stored_code.explain_absence(side.folder)}"
        for side, snapshots in zip(sides, (a, b), strict=True)
        if snapshots is None
    ]
    if a is None or b is None or a == b:
        return CodeDifferences([], 0, notes)
    files, left_out = compare_trees(
        {place: path for place, path in a.items() if b.get(place) != path},
        {place: path for place, path in b.items() if a.get(place) != path},
    )
    return CodeDifferences(files, left_out, notes)


def _list_snapshots(side: _Side) -> dict[str, str] | None:
    """Return the folders of the code by their place in the job; None if some of it is not stored."""
    snapshots = {
        place: snapshot_path(side.folder.root, digest) for place, digest in dict(_find_digests(side)).items()
    }
    if not all(map(os.path.isdir, snapshots.values())):
        return None
    if side.plan and not snapshots:
        return None if stored_code.has_run_elsewhere(side.folder) else {}
    return snapshots


def _find_digests(side: _Side) -> Iterator[tuple[str, str]]:
    digest = side.plan.get("snapshot") or stored_code.read_record(side.folder).get("snapshot")
    if digest:
        yield "", str(digest)
    for place, digest in (side.graph.get("snapshots") or {}).items():
        yield "" if place == "code" else str(place), str(digest)
    yield from _find_step_digests(side.graph.get("steps") or ())


def _find_step_digests(steps: Iterable[Mapping[str, Any]], above: str = "") -> Iterator[tuple[str, str]]:
    for step in steps:
        place = f"{above}{step.get('name')}"
        for digest in (step.get("snapshots") or {}).values():
            yield place, str(digest)
        yield from _find_step_digests(step.get("steps") or (), f"{place}/")


def _list_packages(side: _Side) -> Iterator[tuple[str, Any]]:
    build, resolved = side.plan.get("build") or {}, side.plan.get("resolved") or {}
    yield "(environment)", resolved.get("environment") or build.get("name")
    yield "(kind)", build.get("kind")
    yield "(python)", resolved.get("environment.python")
    for place in (side.folder.path, str(build.get("prefix") or "")):
        data = read_plain(os.path.join(place, "environment.lock"), _MOST_BYTES) if place else b""
        lines = data.decode("utf-8", "replace").splitlines()
        packages = [match for line in lines if not line.startswith("#") and (match := _PACKAGE.match(line))]
        if packages:
            yield from ((package[1].lower(), package[2]) for package in packages)
            return
    yield "(digest)", build.get("digest")


def _list_variables(side: _Side) -> Iterator[tuple[str, Any]]:
    """Yield the variables that all ranks have, with what is the run's own written alike."""
    variables = {**(side.plan.get("env") or {}), **(side.plan.get("user_env") or {})}
    variables |= side.spec.get("environment_variables") or {}
    for name, value in variables.items():
        if not name.startswith(_OWN_VARIABLES):
            yield name, _Hidden(str(value)) if is_secret(name) else _generalize(side, str(value))


def _generalize(side: _Side, value: Any) -> Any:
    """
    Replace the name of the job in texts, which have its run folder too, also within lists and mappings, and hide the
    secrets of addresses.
    """
    if isinstance(value, dict):
        return {key: _generalize(side, inside) for key, inside in value.items()}
    if isinstance(value, list):
        return [_generalize(side, inside) for inside in value]
    if not isinstance(value, str):
        return value
    name = re.escape(side.folder.name)
    return hide_in_text(re.sub(rf"(?<![\w.-]){name}(?![\w.-])", "JOB", value))


# inputs


def _list_inputs(side: _Side) -> Iterator[tuple[str, Any]]:
    resolved = side.plan.get("resolved") or {}
    for name, value in (side.spec.get("inputs") or {}).items():
        if not isinstance(value, dict):
            yield name, hide_in_text(value) if isinstance(value, str) else value
            continue
        place = resolved.get(f"inputs.{name}.path") or value.get("path")
        asset = resolved.get(f"inputs.{name}.asset")
        facts = {"type": value.get("type"), "path": hide_secrets(str(place or "")), "asset": asset}
        yield name, {key: fact for key, fact in facts.items() if fact}


def _leave_out_equal_inputs(inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the hashes of data to inputs that differ, and leave out those whose content is the same."""
    different = []
    for entry in inputs:
        data = []
        for letter in ("a", "b"):
            if isinstance(entry[letter], dict):
                entry[letter]["hash"] = _hash_input(entry[letter])
                data.append((entry[letter]["hash"], entry[letter].get("type")))
        if len(data) < 2 or data[0][0] is None or data[0] != data[1]:
            different.append(entry)
    return different


def _hash_input(facts: Mapping[str, Any]) -> str | None:
    """Return a hash of local data as it is now; None for data elsewhere, or that is gone or too much."""
    path = str(facts.get("path") or "")
    if not os.path.isabs(path):
        return None
    from drumline.control.driver import reuse

    try:
        return reuse.digest_of(path)[:12]
    except OSError:
        return None


# machine and plan


def _list_machine(side: _Side) -> Iterator[tuple[str, Any]]:
    nodes = side.plan.get("nodes") or []
    yield "engine", side.plan.get("engine")
    yield "hosts", ", ".join(host for _, host in sorted(side.outcome.hosts.items())) or None
    yield "cores_per_node", [len(node.get("cores") or ()) for node in nodes] or None
    yield "gpus_per_node", [node.get("gpu_count") for node in nodes] or None
    yield "containment", side.outcome.containment or None
    yield from ((f"compute.{key}", value) for key, value in (side.plan.get("compute") or {}).items())


def _list_plan(side: _Side) -> Iterator[tuple[str, Any]]:
    nodes = side.plan.get("nodes") or []
    yield "nodes", len(nodes) or None
    yield "ranks_per_node", [len(node.get("ranks") or ()) for node in nodes] or None
    yield "launcher", _generalize(side, (side.plan.get("launcher") or {}).get("name"))
    yield from ((field, _generalize(side, side.plan.get(field))) for field in _PLAN_FIELDS)


# what came of it


def _list_metrics(side: _Side) -> Iterable[tuple[str, float | str]]:
    return metrics.read_latest(side.folder)[0].items()


def _subtract(a: Any, b: Any) -> float | str | None:
    return metrics.to_json_number(b - a) if isinstance(a, float) and isinstance(b, float) else None


def _list_times(side: _Side) -> Iterator[tuple[str, float | None]]:
    created, started, ended = side.outcome.created, side.outcome.started, side.outcome.ended
    for name, begin, end in (
        ("until_start_s", created, started),
        ("run_s", started, ended),
        ("total_s", created, ended),
    ):
        yield name, None if begin is None or end is None else round(end - begin, 3)


def _list_phases(side: _Side) -> Iterator[tuple[str, float | None]]:
    """Yield how long each phase of the latest start took, in seconds; nothing of a job without ranks."""
    with contextlib.suppress(UsageError):
        for phase in list_phases(read_start(side.folder.name).start):
            if phase.name != ALL_RUNNING:  # A moment.
                yield phase.name, phase.took_s


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


def compare_trees(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[list[FileDifference], int]:
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


def _compare_files(name: str, a: _StoredFile | None, b: _StoredFile | None) -> FileDifference:
    change = "added" if a is None else "removed" if b is None else "changed"
    hashes = (_hash(a) if a else None, _hash(b) if b else None)
    texts = [_read_text(one) if one else "" for one in (a, b)]
    if texts[0] is None or texts[1] is None:
        return FileDifference(name, change, *hashes, None)
    if a is not None and b is not None and a.is_program != b.is_program:
        change = "changed, now a program" if b.is_program else "changed, no longer a program"
    names = (f"a/{name}" if a else "/dev/null", f"b/{name}" if b else "/dev/null")
    lines = difflib.unified_diff(_split(texts[0]), _split(texts[1]), *names)
    diff = "".join(line if line.endswith("\n") else line + _NO_NEWLINE for line in lines)
    return FileDifference(name, change, *hashes, diff)


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
