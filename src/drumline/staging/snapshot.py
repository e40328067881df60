"""
The code of a job as it was submitted, stored once per content and never changed afterwards.

What is taken: every regular file under the folder, links inside it followed, but for what ``.amlignore`` names, or
``.gitignore`` where there is no ``.amlignore``; only the one at the root is read, and it is itself taken.
Never taken: what a link reaches outside the folder, devices, sockets, pipes.
Source: https://learn.microsoft.com/azure/machine-learning/how-to-save-write-experiment-files (ignore files).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from typing import TYPE_CHECKING, NamedTuple

from drumline.contract.errors import PlanError
from drumline.contract.folder import base_home, home_of, private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGE_BYTES = 100 * 1024 * 1024
"""Above this a snapshot is worth a warning. Source: azure-ai-ml's own."""

_CHUNK = 1 << 20
_TRIES = 3


class Taken(NamedTuple):
    """``digest`` names the snapshot; ``skipped`` says of each path left out why, in words."""

    digest: str
    size_bytes: int
    file_count: int
    skipped: tuple[str, ...]


class _File(NamedTuple):
    relative: str
    source: str
    executable: bool


def path_of(home: str, digest: str) -> str:
    return os.path.join(home, "snapshots", digest)


def take(code: str, home: str) -> Taken:
    """
    Store the folder, or the single file, ``code``; nothing is copied when its content is stored already. Blocks.

    Raises PlanError when there is nothing to take, when a file cannot be read, or keeps changing meanwhile.
    """
    skipped: list[str] = []
    try:
        files = _list(code, skipped, home)
        if not files:
            raise PlanError(f"the code folder {code} has no files to take")
        for _ in range(_TRIES):
            digest, size = _digest(files)
            if os.path.isdir(path_of(home, digest)) or _store(files, home, digest):
                return Taken(digest, size, len(files), tuple(skipped))
    except OSError as error:
        raise PlanError(f"could not take the code: {error.strerror}: {error.filename}") from error
    raise PlanError(f"the code in {code} keeps changing while it is being copied")


def lay_out(home: str, digest: str, target: str) -> None:
    """A copy of a snapshot that the job may write to. ``target`` does not exist yet. Raises OSError."""
    source = path_of(home, digest)
    os.mkdir(target, 0o700)
    for parent, folders, names in os.walk(source):
        inside = os.path.join(target, os.path.relpath(parent, source))
        for folder in folders:
            os.mkdir(os.path.join(inside, folder), 0o700)
        for name in names:
            path = os.path.join(parent, name)
            executable = os.stat(path).st_mode & stat.S_IXUSR
            copy = shutil.copyfile(path, os.path.join(inside, name))
            os.chmod(copy, 0o700 if executable else 0o600)


def _list(code: str, skipped: list[str], kept_in: str) -> list[_File]:
    """Sorted by relative path, so that equal folders have equal digests."""
    root = os.path.realpath(code)
    if os.path.isfile(root):
        return [_File(os.path.basename(code), root, os.access(root, os.X_OK))]
    return sorted(_walk(root, root, "", (root,), skipped, _ignore_rules(root), _kept(kept_in)))


def _kept(home: str) -> tuple[str, ...]:
    """Folders in which jobs are kept; with a workspace of a home, all of that home."""
    real = os.path.realpath(home)
    above = os.path.dirname(os.path.dirname(real))
    name = os.path.basename(real)
    return (base_home(), real, *((above,) if home_of(name, above) == real else ()))


def _walk(
    root: str,
    folder: str,
    prefix: str,
    above: tuple[str, ...],
    skipped: list[str],
    is_ignored: Callable[[str], bool],
    kept: tuple[str, ...],
) -> Iterator[_File]:
    """``above``: the real paths of the folders on the way down, so that a link cannot lead in a circle."""
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        relative = prefix + entry.name
        real = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
        # A folder is asked for with its slash: one that is ignored is not looked into.
        if is_ignored(relative + "/" if os.path.isdir(real) else relative):
            continue
        if entry.is_symlink() and os.path.commonpath((root, real)) != root:
            skipped.append(f"{relative}: a link to outside the folder")
        elif os.path.isdir(real):
            if real in kept:
                skipped.append(f"{relative}: the folder in which jobs are kept")
            elif real in above:
                skipped.append(f"{relative}: a link to a folder that it is in")
            else:
                yield from _walk(root, real, relative + "/", (*above, real), skipped, is_ignored, kept)
        elif os.path.isfile(real):
            yield _File(relative, real, bool(os.stat(real).st_mode & stat.S_IXUSR))
        else:
            skipped.append(f"{relative}: neither a file nor a folder")


def _ignore_rules(root: str) -> Callable[[str], bool]:
    for name in (".amlignore", ".gitignore"):
        path = os.path.join(root, name)
        if os.path.isfile(path):
            from pathspec import GitIgnoreSpec

            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
            rules = GitIgnoreSpec.from_lines(lines)
            if not any(line.startswith("!") for line in lines):
                return rules.match_file
            # As in Azure, a file may be taken again from a folder that is ignored, so all folders are looked into.
            return lambda relative: not relative.endswith("/") and rules.match_file(relative)
    return lambda _: False


def _digest(files: list[_File]) -> tuple[str, int]:
    whole = hashlib.sha256()
    size = 0
    for file in files:
        content = hashlib.sha256()
        with open(file.source, "rb") as source:
            while chunk := source.read(_CHUNK):
                content.update(chunk)
                size += len(chunk)
        whole.update(
            f"{file.relative}\0{file.executable}\0{content.hexdigest()}\n".encode("utf-8", "surrogateescape")
        )
    return whole.hexdigest(), size


def _store(files: list[_File], home: str, digest: str) -> bool:
    """Copy beside, look whether that is what was meant, then rename; False when the files changed meanwhile."""
    final = path_of(home, digest)
    partial = f"{final}.{os.getpid()}-{os.urandom(4).hex()}.partial"
    private_folder(os.path.dirname(final))
    try:
        os.mkdir(partial, 0o700)
        copies = []
        for file in files:
            target = os.path.join(partial, file.relative)
            private_folder(os.path.dirname(target))
            shutil.copyfile(file.source, target)
            os.chmod(target, 0o500 if file.executable else 0o400)
            copies.append(file._replace(source=target))
        if _digest(copies)[0] != digest:
            return False
        try:
            os.rename(partial, final)
        except OSError:
            return os.path.isdir(final)  # Somebody else stored the same at the same time.
        return True
    finally:
        shutil.rmtree(partial, ignore_errors=True)
