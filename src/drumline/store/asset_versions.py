"""
Registered assets: a YAML file for each version of each name, which no other file has to agree with.

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
from drumline.contract.folder import open_text, private_folder, write_whole

if TYPE_CHECKING:
    from typing import Any

KINDS = ("data", "model", "environment", "component", "datastore")
LATEST = "latest"

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}"
_VERSION = r"(?!\.\.?$)[^\s/\\@]{1,200}"
_ALL = ".all"
_END = ".yml"
_MOST_NAME_BYTES = 230
"""A file's name has 255, of which some are ours, while it is being written too."""
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"
_FIRST = "created_at: "
_FIRST_BYTES = 200


def check_name(name: str, what: str = "name") -> str:
    """Return the name, if it is safe as a file name; ``what`` it names is for the message. Raises UsageError."""
    if isinstance(name, str) and re.fullmatch(_NAME, name):
        return name
    hint = "letters, digits, '_', '-' and '.', beginning with a letter or digit, 255 at most"
    raise UsageError(f"{name!r} cannot be a {what}", hint)


def check_version(version: str) -> str:
    """Return the version, if it is valid. Raises UsageError."""
    if _is_version(version):
        return version
    raise UsageError(
        f"{version!r} cannot be a version",
        "use printable characters except spaces, '/', '\\' and '@', and not '.' or '..'",
    )


def check_label(label: str) -> str:
    """Return the label, if it can be set. Raises UsageError."""
    if check_name(label, "label") == LATEST:
        raise UsageError(f"the label {LATEST!r} always marks the newest version", "choose another label")
    if len(label) > _MOST_NAME_BYTES:
        raise UsageError(f"a label of {len(label)} characters", f"{_MOST_NAME_BYTES} at most")
    return label


def _is_version(text: str) -> bool:
    known = re.fullmatch(_VERSION, text) is not None and text.isprintable()
    return known and len(_encode(text)) <= _MOST_NAME_BYTES


class Records:
    """The records of one kind in one home. ``name`` and ``version`` may come from a user and are checked here."""

    def __init__(self, home: str, kind: str) -> None:
        self.kind = kind
        self.home = home
        self._root = os.path.join(home, "assets", kind)

    # reading

    def names(self) -> list[str]:
        """Return the sorted names, archived ones too."""
        return [
            name
            for name in _list_files(self._root)
            if re.fullmatch(_NAME, name) and self._list_versions(name)
        ]

    def versions(self, name: str) -> list[str]:
        """Return the versions, newest first, archived ones too; none if there is no such name."""
        keys = {
            version: (self._read_created(name, version), *_order(version))
            for version in self._list_versions(name)
        }
        return sorted(keys, key=keys.__getitem__, reverse=True)

    def read(self, name: str, version: str) -> dict[str, Any]:
        """Return the record, with ``created_at``. Raises NotFoundError; SpecError for a damaged file."""
        path = self._path(name, version)
        try:
            with open_text(path, "surrogateescape") as file:
                text = file.read()
        except FileNotFoundError:
            raise NotFoundError(f"there is no {self.kind} {name!r} of version {version!r}") from None
        return _parse(text, path)

    def find(self, name: str, label: str) -> str:
        """Return the version of a label; ``latest`` is the newest one that is not archived. Empty if there is none."""
        if label == LATEST:
            active = (version for version in self.versions(name) if not self.is_archived(name, version))
            return next(active, "")
        version = self.labels(name).get(label, "")
        return version if version in self._list_versions(name) else ""

    def labels(self, name: str) -> dict[str, str]:
        """Return the labels that were set, with their versions; ``latest`` is not among them."""
        folder = os.path.join(self._folder(name), "labels")
        found = {}
        for label in _list_files(folder):
            path = os.path.join(folder, label)
            with contextlib.suppress(OSError), open_text(path, "replace") as file:
                found[label] = file.read()
        return found

    def is_archived(self, name: str, version: str | None = None) -> bool:
        """Return whether that version is archived, or its whole name; without ``version``: whether the name is."""
        folder = os.path.join(self._folder(name), "archived")
        marks = [_ALL] if version is None else [_ALL, _encode(check_version(version))]
        return any(os.path.exists(os.path.join(folder, mark)) for mark in marks)

    # writing

    def create(self, name: str, version: str | None, values: dict[str, Any]) -> str:
        """
        Create a version and return it: the next whole number by default. ``values``: what YAML can hold.

        Raises FileExistsError when that version is there, UsageError, OSError.
        """
        wanted = version if version is None else check_version(version)
        folder = self._folder(name)
        try:
            private_folder(folder)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from error
        while True:
            made = wanted or self._next_number(name)
            try:
                _link_new(self._path(name, made), _text(self._next_time(name), values))
            except FileExistsError:
                if wanted is not None:
                    raise
            else:
                return made

    def replace(self, name: str, version: str, values: dict[str, Any]) -> None:
        """Replace the content of an existing version, which keeps its time of creation. Raises OSError."""
        write_whole(
            self._path(name, version),
            _text(self._read_created(name, version) or self._next_time(name), values),
        )

    def remove(self, name: str, version: str) -> None:
        """Remove a version. Raises NotFoundError."""
        try:
            os.unlink(self._path(name, version))
        except FileNotFoundError:
            raise NotFoundError(f"there is no {self.kind} {name!r} of version {version!r}") from None

    def archive(self, name: str, version: str | None = None) -> None:
        """Archive that version, or the name with all versions, future ones too."""
        folder = os.path.join(self._folder(name), "archived")
        private_folder(folder)
        mark = _ALL if version is None else _encode(check_version(version))
        os.close(os.open(os.path.join(folder, mark), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def restore(self, name: str, version: str | None = None) -> None:
        """Restore that version, or the name with all versions, however they were archived."""
        folder = os.path.join(self._folder(name), "archived")
        marks = _list_files(folder) if version is None else [_encode(check_version(version))]
        for mark in marks:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, mark))

    def set_label(self, name: str, label: str, version: str) -> None:
        """Move the label to that version. Raises UsageError for one that cannot be set."""
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
        return os.path.join(self._folder(name), _encode(check_version(version)) + _END)

    def _list_versions(self, name: str) -> list[str]:
        """Return the versions in no order; files that are not ours, such as copies, are left out."""
        files = (file[: -len(_END)] for file in _list_files(self._folder(name)) if file.endswith(_END))
        found = ((file, _decode(file)) for file in files)
        return [version for file, version in found if _is_version(version) and _encode(version) == file]

    def _next_number(self, name: str) -> str:
        numbers = [int(version) for version in self._list_versions(name) if _is_number(version)]
        return str(max(numbers, default=0) + 1)

    def _read_created(self, name: str, version: str) -> str:
        """Return the time of creation; empty if the file does not say it."""
        try:
            with open(self._path(name, version), "rb") as file:
                line = file.readline(_FIRST_BYTES).decode("ascii", "replace")
        except OSError:
            return ""
        return line.removeprefix(_FIRST).strip().strip("'\"") if line.startswith(_FIRST) else ""

    def _next_time(self, name: str) -> str:
        """Return a time later than that of every version, whatever the clocks of several machines say."""
        newest = max((self._read_created(name, version) for version in self._list_versions(name)), default="")
        now = datetime.now(UTC)
        with contextlib.suppress(ValueError, OverflowError):
            now = max(now, datetime.strptime(newest, _TIME).replace(tzinfo=UTC) + timedelta(microseconds=1))
        return now.strftime(_TIME)


def _list_files(folder: str) -> list[str]:
    """Return the sorted names in a folder, without files that are being written."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if not re.search(r"\.[0-9a-f]{8,16}\.partial\Z", name))


def _is_number(version: str) -> bool:
    return re.fullmatch(r"[0-9]+", version) is not None


def _order(version: str) -> tuple[int, str]:
    """Return a key that orders versions made in the same microsecond."""
    return (int(version) if _is_number(version) else -1, version)


def _encode(version: str) -> str:
    """
    Return the version as a file name.

    >>> _encode("1"), _encode("2024-01-01"), _encode("a:b"), _encode("..")
    ('1', '2024-01-01', 'a%3Ab', '%2E.')
    """
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", version):
        return version
    raw = version.encode("utf-8", "replace")
    text = "".join(
        chr(byte) if re.fullmatch(r"[A-Za-z0-9_.-]", chr(byte)) else f"%{byte:02X}" for byte in raw
    )
    return f"%2E{text[1:]}" if text.startswith(".") else text


def _decode(file: str) -> str:
    raw = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), os.fsencode(file))
    return raw.decode("utf-8", "replace")


def _link_new(path: str, text: str) -> None:
    """Create a file that is whole from its first moment on. Raises FileExistsError if it exists."""
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
            # Others may see it while it is being written.
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
    finally:
        os.unlink(partial)


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""Of a file system without hard links, as of some network shares."""


def _text(created_at: str, values: dict[str, Any]) -> str:
    import yaml

    kept = {key: value for key, value in values.items() if key != "created_at"}
    # Not libyaml's, which has no words for a path that is not UTF-8.
    body = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=10_000) if kept else ""
    return f"{_FIRST}'{created_at}'\n{body}"


def _parse(text: str, path: str) -> dict[str, Any]:
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
