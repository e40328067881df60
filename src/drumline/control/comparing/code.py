"""The differences between the stored code of two jobs, file by file."""

from __future__ import annotations

import difflib
import os
import stat
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    return [_compare(*pair) for pair in found[:_MOST_FILES]], max(0, len(found) - _MOST_FILES)


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


def _compare(name: str, a: _StoredFile | None, b: _StoredFile | None) -> dict[str, Any]:
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
    from drumline.staging import file_copy

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
