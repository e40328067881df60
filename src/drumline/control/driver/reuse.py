"""
The reuse of a step that has run before: same code, command, environment, distribution, nodes and inputs.

``<home>/reuse/<key>``: which job has run, and what its outputs hold, or, in its run folder, when they were written.
Data is compared by content; of a large file that has not changed the digest is remembered.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder, home, open_text, private_folder, write_whole
from drumline.contract.record import NamedTuple
from drumline.control.assets import references
from drumline.control.jobs.job_outcome import read_outcome
from drumline.control.jobs.job_outputs import output_path
from drumline.control.jobs.lookup import folder_of
from drumline.control.submission import planning
from drumline.spec import paths
from drumline.spec.jobs.job import to_dict
from drumline.staging import file_copy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from drumline.contract.outcome import Outcome


_VERSION = 3
"""Of what is compared; another one finds nothing of those before it."""

_PART_DIGITS = 16
_PARTS = {
    "code": "code",
    "command": "command",
    "environment_variables": "environment variables",
    "distribution": "distribution",
    "instance_count": "number of nodes",
    "drumline": "drumline",
}
"""Other keys of what is compared, and how their parts are named."""


class Fingerprint(NamedTuple):
    """Everything that decides the outputs of a step."""

    key: str
    """A digest of it all; empty for a step that always runs."""

    parts: Mapping[str, str]
    """A digest of each part by its name, such as ``code`` or ``input data``; empty for data that may change unseen."""


def fingerprint_of(job: Any) -> Fingerprint:
    """Return the fingerprint of a step whose inputs are there. Blocks."""
    if job.type != "command" or not job._is_deterministic:
        return Fingerprint("", {})
    try:
        content = _content(job)
    except (OSError, DrumlineError):
        return Fingerprint("", {})
    return Fingerprint(_digest(content), dict(_digest_parts(content)))


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _digest_parts(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in ("inputs", "outputs"):
        for name, value in content[key].items():
            is_known = not any(isinstance(one, _Unknown) for one in value)
            yield f"{key.removesuffix('s')} {name}", _digest(value)[:_PART_DIGITS] if is_known else ""
    yield "environment", _digest([content["environment"], content["recipe"]])[:_PART_DIGITS]
    for key, word in _PARTS.items():
        yield word, _digest(content[key])[:_PART_DIGITS]


class _Unknown(str):
    """A value that equals no other."""

    __slots__ = ()


def _content(job: Any) -> dict[str, Any]:
    plain = to_dict(job, absolute=True)
    conda = getattr(job.environment, "conda_file", None)
    python = planning.find_interpreter()
    known = references.resolve_references(job, python, is_local=False)
    return {
        "version": _VERSION,
        "code": job._snapshots.get("code", ""),
        "command": plain.get("command"),
        "environment": [
            plain.get("environment"),
            known.found.get("environment"),
            known.build.digest if known.build else known.interpreter or python,
            dict(known.variables),
        ],
        "recipe": digest_of(paths.resolve(job.environment, conda)) if isinstance(conda, str) else "",
        "environment_variables": plain.get("environment_variables"),
        "distribution": plain.get("distribution"),
        "instance_count": (plain.get("resources") or {}).get("instance_count") or 1,
        "drumline": plain.get("drumline"),
        "inputs": {
            name: _input(job, value, known.found.get(f"inputs.{name}.asset", ""))
            for name, value in known.job.inputs.items()
        },
        "outputs": {name: _output(value) for name, value in known.job.outputs.items()},
    }


def _output(output: Any) -> list[Any]:
    written = [output.type, output.path, output.name, output.version]
    return [*written, _unknown()] if paths.is_remote(str(output.path or "")) else written


def _unknown() -> _Unknown:
    """Return a value for remote data, which may change unseen."""
    return _Unknown(os.urandom(16).hex())


def _input(job: Any, value: Any, asset: str) -> Any:
    """Return what of an input counts. ``asset``: its version, whose content is meant to stay; empty for none."""
    if not hasattr(value, "path"):
        return str(value)
    place = str(value.path)
    if paths.is_remote(place):
        is_same = asset or value.mode == "direct"
        return [str(value.type), value.mode, place, asset if is_same else _unknown()]
    full = paths.resolve(job, place)
    # By the end of a file's name a program may know how to read it; where a folder is says nothing.
    name = "" if os.path.isdir(full) else os.path.basename(full)
    return [str(value.type), value.mode, name, digest_of(full)]


def find(key: str, outputs: Iterable[str]) -> str:
    """Return the earlier job whose outputs are unchanged; empty for none."""
    record = _read_record(key)
    name = str(record.get("job") or "")
    if not name:
        return ""
    try:
        outcome = read_outcome(folder_of(name))
        # Another job may have its name by now.
        if outcome.status != status.COMPLETED or outcome.created != record.get("created"):
            return ""
        kept = record.get("outputs") or {}
        folder = RunFolder.for_job(name)
        if _has_lost_outputs(outcome, folder):
            return ""
        is_whole = all(_as_it_is(folder, output) == kept.get(output) for output in outputs)
    except (DrumlineError, OSError):
        return ""
    return name if is_whole else ""


def is_there(job: str) -> bool:
    """Return whether a completed job is still there, with its outputs."""
    try:
        folder = folder_of(job)
        return not _has_lost_outputs(read_outcome(folder), folder)
    except (DrumlineError, OSError):
        return False


def _has_lost_outputs(outcome: Outcome, folder: RunFolder) -> bool:
    """Return whether outputs were removed, also those that no output of the step declares."""
    return bool(outcome.pruned.keys() & {"outputs", "named-outputs"}) or not os.path.isdir(folder.outputs)


def _as_it_is(folder: RunFolder, output: str) -> str:
    """Return a digest of an output: of its times in the run folder, else of its content, as others may overwrite it."""
    path, own = output_path(folder.name, output), os.path.realpath(folder.path)
    return digest_of(path, by_stamp=os.path.commonpath((own, os.path.realpath(path))) == own)


def remember(job: str, key: str, outputs: Iterable[str]) -> None:
    """Record the completed job of a step for reuse. Raises OSError, DrumlineError."""
    folder = folder_of(job)
    digests = {output: _as_it_is(folder, output) for output in outputs}
    _write_record(key, {"job": job, "created": read_outcome(folder).created, "outputs": digests})


def _read_record(name: str) -> dict[str, Any]:
    """Read a file of the folder; empty for none, and for a damaged one."""
    try:
        with open_text(os.path.join(home(), "reuse", name)) as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _write_record(name: str, record: Mapping[str, Any]) -> None:
    path = os.path.join(home(), "reuse", name)
    private_folder(os.path.dirname(path))
    write_whole(path, json.dumps(record))


# the last runs of steps, by which one that runs again says why


_FORMAT = 1


def note(experiment: str, step: str, job: str, parts: Mapping[str, str]) -> None:
    """Record that the step has completed as this job. ``parts``: as in ``reuse.Fingerprint``. Raises OSError."""
    _write_record(_name_last(experiment, step), {"format": _FORMAT, "job": job, "parts": dict(parts)})


def explain(experiment: str, step: str, parts: Mapping[str, str]) -> str:
    """
    Return why a step that runs now takes over nothing from the job that it ran as last; empty if it never ran.

    ``parts``: what it runs with now.
    """
    last = _read_record(_name_last(experiment, step))
    job, before = last.get("job"), last.get("parts")
    if last.get("format") != _FORMAT or not isinstance(job, str) or not isinstance(before, dict):
        return ""
    changed = [name for name in {**parts, **before} if parts.get(name) != before.get(name)]
    if changed:
        return f"changed since job {job}: {', '.join(changed)}"
    remote = [name for name, digest in parts.items() if not digest]
    if remote:
        return f"remote data may have changed since job {job}: {', '.join(remote)}"
    return f"job {job}, which did the same, no longer has the outputs that it wrote"


def _name_last(experiment: str, step: str) -> str:
    digest = hashlib.sha256(f"{experiment}\0{step}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"last-{digest[:32]}"


# digests of files and folders


_KNOWN_FILES = "contents.json"
_WORTH_BYTES = 1 << 20
"""A smaller file is read sooner than looked up."""

_MOST_KEPT = 20_000
MOST_BYTES = 4 << 30
"""Of one input; what holds more is compared by names, sizes and times, which tell every change."""

MOST_FILES = 1_000_000
MOST_S = 30.0
"""What takes longer to look through is not compared."""


class _HashedFile(NamedTuple):
    relative: str
    """Of a folder with a slash at its end."""

    path: str
    facts: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.facts.st_mode)

    @property
    def is_program(self) -> bool:
        return stat.S_ISREG(self.facts.st_mode) and bool(self.facts.st_mode & stat.S_IXUSR)

    @property
    def stamp(self) -> list[int]:
        """Return a stamp that differs after every change, and after a copy too."""
        return [self.facts.st_size, self.facts.st_mtime_ns, self.facts.st_ctime_ns, self.facts.st_ino]


def digest_of(path: str, *, by_stamp: bool = False) -> str:
    """
    Return a digest of the names and contents beneath ``path``; links are followed, but not in circles. Blocks.

    Raises OSError, also for a pipe or a device, and for more than MOST_FILES or MOST_S.

    by_stamp: read nothing; sizes and times tell of every change, and of a copy.
    """
    deadline = time.monotonic() + MOST_S
    files = [_file("", path)] if not os.path.isdir(path) else sorted(_files(path, deadline))
    by_stamp = by_stamp or sum(file.facts.st_size for file in files) > MOST_BYTES
    known = {} if by_stamp else _read_record(_KNOWN_FILES)
    fresh: dict[str, Any] = {}
    whole = hashlib.sha256()
    try:
        for file in files:
            held = repr(file.stamp) if by_stamp and not file.is_folder else _held_by(file, known, fresh)
            mark = "x" if file.is_program else ""
            whole.update(f"{file.relative}\0{held}{mark}\n".encode("utf-8", "surrogateescape"))
            _check_time(file.path, deadline)
    finally:
        if fresh:
            # Of two processes at once the last wins, and the other's files are read again.
            with contextlib.suppress(OSError):
                _write_record(_KNOWN_FILES, dict(list({**known, **fresh}.items())[-_MOST_KEPT:]))
    return whole.hexdigest()


def _check_time(path: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise OSError(errno.ETIMEDOUT, "too much to compare", path)


def _file(relative: str, path: str) -> _HashedFile:
    facts = os.lstat(path)
    if stat.S_ISLNK(facts.st_mode) and os.path.exists(path):
        facts = os.stat(path)
    if not (stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode)):
        raise OSError(errno.EINVAL, "neither a file nor a folder", path)
    return _HashedFile(relative, path, facts)


def _files(root: str, deadline: float) -> list[_HashedFile]:
    found: list[_HashedFile] = []
    waiting: list[tuple[str, tuple[str, ...]]] = [(root, (os.path.realpath(root),))]
    """Folders to look into, each with the real paths of those on the way down."""
    while waiting:
        folder, above = waiting.pop()
        _check_time(root, deadline)
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir():
                    found.append(_file(os.path.relpath(entry.path, root), entry.path))
                    continue
                found.append(_HashedFile(os.path.relpath(entry.path, root) + "/", entry.path, entry.stat()))
                real = os.path.realpath(entry.path)
                if real not in above:
                    waiting.append((entry.path, (*above, real)))
        if len(found) + len(waiting) > MOST_FILES:
            raise OSError(errno.EFBIG, "too many files", root)
    return found


def _held_by(file: _HashedFile, known: dict[str, Any], fresh: dict[str, Any]) -> str:
    if file.is_folder:
        return ""  # It may be empty, and is there.
    if stat.S_ISLNK(file.facts.st_mode):
        return "to " + os.readlink(file.path)  # Which is not there.
    real = os.path.realpath(file.path)
    before = known.get(real)
    if isinstance(before, list) and before[:4] == file.stamp:
        return str(before[4])
    digest = _read_digest(file, real)
    if file.facts.st_size >= _WORTH_BYTES and file_copy.is_settled(file.facts):
        fresh[real] = [*file.stamp, digest]
    return digest


def _read_digest(file: _HashedFile, real: str) -> str:
    """
    Read a file's digest. Raises OSError if it is another file by now, such as a pipe in its place, or changes
    meanwhile.
    """
    stamp = file_copy.stamp_of(file.facts)
    try:
        descriptor = file_copy.open_unchanged(real, stamp)
        try:
            digest = file_copy.compute_digest(descriptor).hex()
            file_copy.check_unchanged(descriptor, real, stamp)
        finally:
            os.close(descriptor)
    except file_copy.ChangedError as error:
        raise OSError(errno.EAGAIN, "changed while it was compared", file.path) from error
    return digest
