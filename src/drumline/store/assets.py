"""
What is registered: a YAML file for each version of each name, and nothing that has to agree with another file.

``$DRUMLINE_HOME/assets/<kind>/<name>/``::

    <version>.yml       the record; its first line is ``created_at``
    archived/<version>  there when that version is archived; ``archived/.all`` when the name is
    labels/<label>      the version that the label is on

A version is there by one ``link``, so exactly one of many processes at once makes it, on a network file system too.
All of it is for its owner alone: folders 0700, files 0600.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from drumline.contract.errors import NotFoundError, Problem, SpecError, UsageError
from drumline.contract.folder import private_folder, write_whole

if TYPE_CHECKING:
    from typing import Any

KINDS = ("data", "model", "environment", "component", "datastore")
LATEST = "latest"

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"
_VERSION = r"[^\s/\\@]{1,200}"
_ALL = ".all"
_END = ".yml"
_MOST_NAME_BYTES = 230
"""A file's name has 255, of which some are ours, while it is being written too."""
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_FIRST = "created_at: "
_FIRST_BYTES = 200


def check_name(name: str, what: str = "name") -> str:
    """The name, which is safe as a file's; whatever it is that is none. Raises UsageError."""
    if isinstance(name, str) and re.fullmatch(_NAME, name):
        return name
    hint = "letters, digits, '_', '-' and '.', beginning with a letter or digit, 255 at most"
    raise UsageError(f"{name!r} cannot be a {what}", hint)


def check_version(version: str) -> str:
    """Raises UsageError."""
    if _is_version(version):
        return version
    raise UsageError(f"{version!r} cannot be a version", "printable characters but spaces, '/', '\\' and '@'")


def check_label(label: str) -> str:
    """One that can be set. Raises UsageError."""
    if check_name(label, "label") == LATEST:
        raise UsageError(f"the label {LATEST!r} is always on what was created last", "choose another label")
    if len(label) > _MOST_NAME_BYTES:
        raise UsageError(f"a label of {len(label)} characters", f"{_MOST_NAME_BYTES} at most")
    return label


def _is_version(text: str) -> bool:
    known = re.fullmatch(_VERSION, text) is not None and text.isprintable()
    return known and len(_encoded(text)) <= _MOST_NAME_BYTES


class Records:
    """Those of one kind in one home. ``name`` and ``version`` may come from a user: they are checked here."""

    def __init__(self, home: str, kind: str) -> None:
        self.kind = kind
        self._root = os.path.join(home, "assets", kind)

    # reading

    def names(self) -> list[str]:
        """In the order of the alphabet; archived ones too."""
        return [name for name in _listed(self._root) if re.fullmatch(_NAME, name) and self._files(name)]

    def versions(self, name: str) -> list[str]:
        """Created last first; archived ones too. Empty when there is no such name."""
        keys = {version: (self._created(name, version), *_order(version)) for version in self._files(name)}
        return sorted(keys, key=keys.__getitem__, reverse=True)

    def read(self, name: str, version: str) -> dict[str, Any]:
        """The record, with ``created_at``. Raises NotFoundError; SpecError for a file that was damaged."""
        path = self._path(name, version)
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                text = file.read()
        except FileNotFoundError:
            raise NotFoundError(f"there is no {self.kind} {name!r} of version {version!r}") from None
        return _parsed(text, path)

    def find(self, name: str, label: str) -> str:
        """The version that a label is on; ``latest`` is on the one created last and not archived. Empty for none."""
        if label == LATEST:
            active = (version for version in self.versions(name) if not self.is_archived(name, version))
            return next(active, "")
        version = self.labels(name).get(label, "")
        return version if version in self._files(name) else ""

    def labels(self, name: str) -> dict[str, str]:
        """Those that were set, with their versions; ``latest`` is not among them."""
        folder = os.path.join(self._folder(name), "labels")
        found = {}
        for label in _listed(folder):
            path = os.path.join(folder, label)
            with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
                found[label] = file.read()
        return found

    def is_archived(self, name: str, version: str | None = None) -> bool:
        """Whether that version is, or its whole name; without ``version``: whether the name is."""
        folder = os.path.join(self._folder(name), "archived")
        marks = [_ALL] if version is None else [_ALL, _encoded(check_version(version))]
        return any(os.path.exists(os.path.join(folder, mark)) for mark in marks)

    # writing

    def create(self, name: str, version: str | None, values: dict[str, Any]) -> str:
        """
        The version that was made: the next whole number without one. ``values``: what YAML can hold.

        Raises FileExistsError when that version is there, UsageError, OSError.
        """
        wanted = version if version is None else check_version(version)
        folder = self._folder(name)
        try:
            private_folder(folder)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error
        while True:
            made = wanted or self._next(name)
            try:
                _link_new(self._path(name, made), _text(self._now(name), values))
            except FileExistsError:
                if wanted is not None:
                    raise
            else:
                return made

    def replace(self, name: str, version: str, values: dict[str, Any]) -> None:
        """Another content for a version that is there, which stays as old as it is. Raises OSError."""
        write_whole(self._path(name, version), _text(self._created(name, version) or self._now(name), values))

    def remove(self, name: str, version: str) -> None:
        """Raises NotFoundError."""
        try:
            os.unlink(self._path(name, version))
        except FileNotFoundError:
            raise NotFoundError(f"there is no {self.kind} {name!r} of version {version!r}") from None

    def archive(self, name: str, version: str | None = None) -> None:
        """That version, or the name with all versions, those to come too."""
        folder = os.path.join(self._folder(name), "archived")
        private_folder(folder)
        mark = _ALL if version is None else _encoded(check_version(version))
        os.close(os.open(os.path.join(folder, mark), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def restore(self, name: str, version: str | None = None) -> None:
        """That version, or the name with all versions, however they were archived."""
        folder = os.path.join(self._folder(name), "archived")
        marks = _listed(folder) if version is None else [_encoded(check_version(version))]
        for mark in marks:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, mark))

    def set_label(self, name: str, label: str, version: str) -> None:
        """Put it on that version, and off any other. Raises UsageError for one that cannot be set."""
        folder = os.path.join(self._folder(name), "labels")
        path = os.path.join(folder, check_label(label))
        private_folder(folder)
        write_whole(path, version)

    def remove_label(self, name: str, label: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._folder(name), "labels", check_name(label, "label")))

    # files

    def _folder(self, name: str) -> str:
        return os.path.join(self._root, check_name(name))

    def _path(self, name: str, version: str) -> str:
        return os.path.join(self._folder(name), _encoded(check_version(version)) + _END)

    def _files(self, name: str) -> list[str]:
        """The versions there are, in no order; a file that is none of ours, such as a copy, is none."""
        files = (file[: -len(_END)] for file in _listed(self._folder(name)) if file.endswith(_END))
        found = ((file, _decoded(file)) for file in files)
        return [version for file, version in found if _is_version(version) and _encoded(version) == file]

    def _next(self, name: str) -> str:
        numbers = [int(version) for version in self._files(name) if _is_number(version)]
        return str(max(numbers, default=0) + 1)

    def _created(self, name: str, version: str) -> str:
        """Empty for a file that says nothing of it."""
        try:
            with open(self._path(name, version), "rb") as file:
                line = file.readline(_FIRST_BYTES).decode("ascii", "replace")
        except OSError:
            return ""
        return line.removeprefix(_FIRST).strip().strip("'\"") if line.startswith(_FIRST) else ""

    def _now(self, name: str) -> str:
        """Later than what is there, whatever the clocks of several machines say."""
        newest = max((self._created(name, version) for version in self._files(name)), default="")
        now = datetime.now(UTC)
        with contextlib.suppress(ValueError, OverflowError):
            now = max(now, datetime.strptime(newest, _TIME).replace(tzinfo=UTC) + timedelta(microseconds=1))
        return now.strftime(_TIME)


def _listed(folder: str) -> list[str]:
    """The names in it, sorted, without files that are being written."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if not re.search(r"\.[0-9a-f]{8,16}\.partial\Z", name))


def _is_number(version: str) -> bool:
    return re.fullmatch(r"[0-9]+", version) is not None


def _order(version: str) -> tuple[int, str]:
    """For versions made in the same microsecond."""
    return (int(version) if _is_number(version) else -1, version)


def _encoded(version: str) -> str:
    """
    The version as a file's name.

    >>> _encoded("1"), _encoded("2024-01-01"), _encoded("a:b"), _encoded("..")
    ('1', '2024-01-01', 'a%3Ab', '%2E.')
    """
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", version):
        return version
    raw = version.encode("utf-8", "replace")
    text = "".join(
        chr(byte) if re.fullmatch(r"[A-Za-z0-9_.-]", chr(byte)) else f"%{byte:02X}" for byte in raw
    )
    return f"%2E{text[1:]}" if text.startswith(".") else text


def _decoded(file: str) -> str:
    raw = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), os.fsencode(file))
    return raw.decode("utf-8", "replace")


def _link_new(path: str, text: str) -> None:
    """The file, whole from its first moment on. Raises FileExistsError when there is one."""
    partial = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        try:
            os.link(partial, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write_new(path, text)
    finally:
        os.unlink(partial)


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Of a file system without hard links, as of some network shares."""


def _write_new(path: str, text: str) -> None:
    """As ``_link_new``, but for the moment in which it is being written."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def _text(created_at: str, values: dict[str, Any]) -> str:
    import yaml

    kept = {key: value for key, value in values.items() if key != "created_at"}
    # Not libyaml's, which has no words for a path that is not UTF-8.
    body = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=10_000) if kept else ""
    return f"{_FIRST}'{created_at}'\n{body}"


def _parsed(text: str, path: str) -> dict[str, Any]:
    import yaml

    hint = "mend the file, or move it away"
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        what = " ".join(str(getattr(error, "problem", None) or error).split())
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise SpecError([Problem(what, file=path, line=line, column=column, hint=hint)]) from error
    if not isinstance(values, dict):
        raise SpecError([Problem("this is not the record of an asset", file=path, hint=hint)])
    return values
