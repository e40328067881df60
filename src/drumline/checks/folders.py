"""The folders that a job uses: room, speed, whether all nodes see the same, and how fast libraries are read."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import find_odd
from drumline.checks.software import find_python
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_seconds, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeReport


_WRITTEN = 1 << 20
_VISIBLE_S = 0.5
"""For a network file system to show on this node what was made on another."""


class TriedFolder(NamedTuple):
    """The free space of a folder, and the time of 1 MiB to the disk. ``inodes``: None where none are counted."""

    name: str
    path: str
    error: str = ""
    free: int = 0
    total: int = 0
    inodes: int | None = None
    write_s: float = 0.0


class DiskFacts(NamedTuple):
    folders: list[TriedFolder]


def gather_disk(settings: Mapping[str, Any]) -> DiskFacts:
    return DiskFacts([_try_folder(name, path) for name, path in dict(settings.get("paths", {})).items()])


def _try_folder(name: str, path: str) -> TriedFolder:
    path = path or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - whatever it is, it is what ranks use
    try:
        about = os.statvfs(path)
        # A file system that counts no inodes says 0 of 0.
        inodes = about.f_favail if about.f_files else None
        free, total = about.f_bavail * about.f_frsize, about.f_blocks * about.f_frsize
        return TriedFolder(name, path, "", free, total, inodes, _time_write(path))
    except OSError as error:
        return TriedFolder(name, path, error.strerror or str(error))


def _time_write(folder: str) -> float:
    path = os.path.join(folder, f".drumline-check-{os.urandom(8).hex()}")
    began = time.monotonic()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Gone from the folder at once, whoever is killed meanwhile.
        os.unlink(path)
        data = memoryview(bytes(_WRITTEN))
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return round(time.monotonic() - began, 3)


class SharedPath(NamedTuple):
    path: str
    error: str
    inode: int | None


class SharedFacts(NamedTuple):
    """The paths that all nodes need: whether each is there, and its inode."""

    paths: list[SharedPath]


def gather_shared(settings: Mapping[str, Any]) -> SharedFacts:
    return SharedFacts([_wait_for_path(path) for path in settings.get("shared", ())])


def _wait_for_path(path: str) -> SharedPath:
    began = time.monotonic()
    while True:
        try:
            return SharedPath(path, "", os.stat(path).st_ino)
        except OSError as error:
            if time.monotonic() - began > _VISIBLE_S:
                return SharedPath(path, error.strerror or str(error), None)
        # A network file system shows a new entry when its folder is read again.
        with contextlib.suppress(OSError):
            os.listdir(os.path.dirname(path))
        time.sleep(0.02)


_READ = 16 << 20
_LIBRARY = "lib/python3*/*-packages/torch/lib/libtorch_cpu.so"
"""Below the folder of a Python, in an environment or a system."""


class LibraryFacts(NamedTuple):
    """The bytes a second at which the first 16 MiB of PyTorch's largest library are read."""

    path: str = ""
    rate: int | None = None


def gather_library(settings: Mapping[str, Any]) -> LibraryFacts:
    python = find_python(settings)
    folder = os.path.dirname(os.path.dirname(python)) if python else ""
    # The ranks' Python may be another version than this one.
    found = glob.glob(os.path.join(glob.escape(folder), _LIBRARY)) if folder else []
    if not found:
        return LibraryFacts()
    path = sorted(found)[0]
    began = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        size = 0
        while size < _READ:
            data = file.read(1 << 20)
            if not data:
                break
            size += len(data)
    return LibraryFacts(path, int(size / max(time.monotonic() - began, 1e-6)))


_FREE_LEAST = 1 << 30
_INODES_LEAST = 1000
_WRITE_S = 1.0

_LIBRARY_RATE = 20e6


def judge_disk(node: NodeReport) -> Iterator[Finding]:
    deadline_s = node.find_deadline("disk")
    if deadline_s is not None:
        yield node.warning(
            f"writing to its folders takes longer than {format_seconds(deadline_s)}",
            "look for a file system that hangs: df, mount, dmesg",
        )
    facts = node.find("disk", DiskFacts)
    for folder in facts.folders if facts else ():
        yield _judge_folder(node, folder, f"the {folder.name} {folder.path}")


def _judge_folder(node: NodeReport, folder: TriedFolder, where: str) -> Finding:
    if folder.error:
        what = f"{where} cannot be written to: {folder.error}"
        return node.error(what, "free space there, or mend its rights")
    if folder.free < min(_FREE_LEAST, folder.total // 10):
        what = f"{where} has {format_size(folder.free)} left"
        return node.warning(what, "free space there: drumline df, drumline prune")
    if folder.inodes is not None and folder.inodes < _INODES_LEAST:
        what = f"{where} has room for {folder.inodes} files"
        return node.warning(what, "remove files there: df -i shows inodes")
    if folder.write_s > _WRITE_S:
        what = f"writing 1 MiB to {where} took {format_seconds(folder.write_s)}"
        return node.warning(what, "move it to a faster disk, or look for what keeps the disk busy")
    return node.ok(f"the {folder.name} has {format_size(folder.free)} left")


def judge_library(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("library", LibraryFacts)
    rate = facts.rate if facts else None
    if node.find_deadline("library") is not None or (rate is not None and rate < _LIBRARY_RATE):
        how = f"at {format_size(rate)}/s" if rate else "too slowly to be measured"
        yield node.warning(
            f"PyTorch's libraries are read {how}, so that its import takes minutes",
            "put the environment on a local disk",
        )


def compare_shared_paths(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    remedy = "put it on a file system that all nodes share"
    paths = []
    for node in nodes:
        if node.find_deadline("shared") is not None:
            yield node.warning(
                "its shared folders do not answer", "look for a mount that hangs: mount, dmesg"
            )
        for path in _list_paths(node):
            paths.append(path.path)
            if path.error:
                yield node.error(f"{path.path} is not there: {path.error}", remedy)
    for name in dict.fromkeys(paths):
        for node, _, _, others in find_odd(nodes, lambda node, name=name: _find_inode(node, name)):  # type: ignore[misc]
            yield node.warning(f"{name} is another folder than on {others}", remedy)


def _find_inode(node: NodeReport, name: str) -> int | None:
    return next((path.inode for path in _list_paths(node) if path.path == name), None)


def _list_paths(node: NodeReport) -> list[SharedPath]:
    facts = node.find("shared", SharedFacts)
    return facts.paths if facts else []
