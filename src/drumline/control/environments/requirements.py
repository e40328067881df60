"""
Lines for pip, as a conda file has them below ``pip:``: files that they name are taken in, their paths are in full.

Source: https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING

from drumline.contract.errors import Problem
from drumline.spec.paths import is_remote, local_part
from drumline.spec.reading.source import problem_at

if TYPE_CHECKING:
    from io import BufferedReader

    from drumline.spec.reading.tree import Node

_MOST_BYTES = 1 << 20
_DEEPEST = 8
_COMMENT = re.compile(r"(?:^|\s)#.*$")
_PASSWORD = re.compile(
    r"//[^/@\s]*:(?!\$\{\w+\}@)[^/@\s]+@|/t/(?!\$\{\w+\})[^/\s]+/"
    r"|https?://(?:gh[a-z]_|github_pat_|glpat-|[^/@\s:${}]{20})[^/@\s]*@"
    r"|[?&](?:sig|X-Amz-Signature)=(?!\$\{\w+\})\w"
)
"""Or a token: in the place of a user's name, where it is longer than names are, or as a signature."""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*"
    r"(?:@\s*(?P<at>\S.*)|\(?\s*(?:(?:===|[<>!~=]=|[<>])[^;]+)?)?\s*(?:;.*|\s--.*)?"
)
_PATH = re.compile(
    r"(?:\.{0,2}/|file:|~/)|[^\s@]*\.(?:whl|zip|tar\.gz|tgz|tar\.bz2)(?:\[[^\]]*\])?$", re.IGNORECASE
)
_OPTIONS = (
    "-i", "--index-url", "--extra-index-url", "--no-index", "--pre", "--prefer-binary", "--no-binary", "--only-binary",
    "--trusted-host", "--require-hashes", "--use-feature", "--use-pep517",
)  # fmt: skip
_SHORT = {"-r": "--requirement", "-c": "--constraint", "-e": "--editable", "-f": "--find-links"}


def has_password(text: str) -> bool:
    """
    Return whether an address holds a password, and not the name of a variable in its place.

    >>> has_password("https://me:secret@host/simple"), has_password("https://me:${TOKEN}@host/simple")
    (True, False)
    """
    return bool(_PASSWORD.search(text))


def leads_away(line: str) -> bool:
    """
    Return whether a line names another file.

    >>> leads_away("-r more.txt"), leads_away("./a.whl"), leads_away("torch"), leads_away("--pre")
    (True, True, False, False)
    """
    if line.startswith(("-r", "-c", "-f", "--requirement", "--constraint", "--find-links")):
        return True
    return bool(_PATH.match(line)) and not is_remote(line)


class Requirements:
    """Lines of requirements for pip. ``folder``: that relative paths are of."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.requirements: list[str] = []
        self.constraints: list[str] = []
        self.files: dict[str, str] = {}
        """Of what is installed from a file: the digest of its content, by path."""

        self.problems: list[Problem] = []

    def take(self, text: str, node: Node, path: str) -> None:
        """Take one item of a list below ``pip:``."""
        _RequirementSource(self, node, path).take(text, self._folder, self.requirements)


class _RequirementSource:
    """The source of lines, for messages about them: an item of a conda file, or a line of a file that it names."""

    def __init__(self, into: Requirements, node: Node, path: str, files: tuple[str, ...] = ()) -> None:
        self._into = into
        self._node = node
        self._path = path
        self._files = files
        self._line = 0
        self._text = ""

    def _refuse(self, what: str, hint: str = "") -> None:
        if self._files:
            problem = Problem(
                f"{self._path}: {what}",
                path=self._path,
                hint=hint,
                file=self._files[-1],
                line=self._line,
                column=1,
            )
            problem.source_line, problem.width = self._text[:120], max(1, len(self._text[:120]))
        else:
            problem = problem_at(self._node, f"{self._path}: {what}", path=self._path, hint=hint)
        self._into.problems.append(problem)

    def take(self, text: str, folder: str, lines: list[str]) -> None:
        line = _COMMENT.sub("", text).strip()
        if not line:
            return
        if not line.isprintable():
            self._refuse(f"{_shorten(line)} is not a requirement: it holds a control character")
        elif has_password(line):
            hint = "write ${NAME} in its place, and set that variable; or use PIP_INDEX_URL, UV_INDEX_URL, or ~/.netrc"
            self._refuse("the address holds a password, which would be kept with the job", hint)
            self._into.problems[-1].source_line = ""
        elif line.startswith("-"):
            self._option(line, folder, lines)
        elif _PATH.match(line) and not is_remote(line.split("[")[0]):
            self._local(line, "", folder, lines)
        else:
            self._requirement(line, folder, lines)

    def _option(self, line: str, folder: str, lines: list[str]) -> None:
        name, _, value = (
            line.partition("=") if line.startswith("--") and "=" in line.split()[0] else _split_option(line)
        )
        name, value = _SHORT.get(name, name), value.strip().strip("'\"")
        if name in ("--requirement", "--constraint"):
            self._file(value, folder, lines if name == "--requirement" else self._into.constraints)
        elif name == "--editable" and is_remote(value):
            lines.append(f"-e {value}")
        elif name == "--editable":
            self._refuse(f"{value!r} cannot be installed in place: the environment is shared by jobs", _WHEEL)
        elif name == "--find-links":
            place = value if is_remote(value) else _full(value, folder)
            lines.append(f"--find-links {place}")
        elif name in _OPTIONS:
            lines.append(f"{name} {value}".strip())
        else:
            self._refuse(
                f"{_shorten(name)} is no option of a requirements file", "one of " + ", ".join(_OPTIONS)
            )

    def _requirement(self, line: str, folder: str, lines: list[str]) -> None:
        if is_remote(line):
            lines.append(line)
            return
        found = _REQUIREMENT.fullmatch(line)
        if found is None:
            name, sign, version = line.partition("=")
            hint = (
                f"{name.strip()}=={version.strip()}"
                if sign and version[:1] != "="
                else "such as torch==2.4.0"
            )
            self._refuse(f"{_shorten(line)} is not a requirement", hint)
        elif found["at"] and not is_remote(found["at"]):
            self._local(found["at"], f"{line[: found.start('at')].strip()} ", folder, lines)
        else:
            lines.append(line)

    def _local(self, text: str, before: str, folder: str, lines: list[str]) -> None:
        """Add a wheel or an archive by its content, for another one may be there tomorrow."""
        file, _, rest = text.partition(" ")
        extras = re.search(r"\[[^\]]*\]$", file)
        full = _full(file[: extras.start()] if extras else file, folder)
        if os.path.isdir(full):
            self._refuse(f"{full} is a folder: the environment is shared by jobs, and built once", _WHEEL)
            return
        try:
            self._into.files[full] = _digest(full)
        except OSError as error:
            self._refuse(f"{full}: {(error.strerror or str(error)).lower()}")
            return
        lines.append(
            f"{before}{full if not before else 'file://' + full}{extras[0] if extras else ''} {rest}".strip()
        )

    def _file(self, value: str, folder: str, lines: list[str]) -> None:
        if is_remote(value):
            self._refuse(f"{value!r} is not fetched", "a file beside the conda file")
            return
        full = _full(value, folder)
        if full in self._files or len(self._files) >= _DEEPEST:
            self._refuse(f"{full} leads back to itself")
            return
        try:
            with _open_plain_file(full) as file:
                text = file.read(_MOST_BYTES + 1).decode("utf-8")
        except (OSError, ValueError) as error:
            self._refuse(
                f"cannot read {full}: {(getattr(error, 'strerror', None) or 'it is not UTF-8').lower()}"
            )
            return
        if len(text) > _MOST_BYTES:
            self._refuse(f"{full} is larger than {_MOST_BYTES >> 20} MB")
            return
        inside = _RequirementSource(self._into, self._node, self._path, (*self._files, full))
        for number, line in _lines(text):
            inside._line, inside._text = number, line
            inside.take(line, os.path.dirname(full), lines)


_WHEEL = "make a wheel of it (pip wheel --no-deps), and name that"


def _split_option(line: str) -> tuple[str, str, str]:
    """Split ``-r file``, ``-rfile`` and ``--requirement file``."""
    if line.startswith("--"):
        return line.partition(" ")
    return line[:2], "", line[2:]


def _lines(text: str) -> list[tuple[int, str]]:
    """Return the lines with their numbers; a backslash at the end continues a line."""
    found: list[tuple[int, str]] = []
    begun, before = 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        begun = begun or number
        if line.endswith("\\"):
            before += line[:-1].rstrip() + " "
            continue
        found.append((begun, before + line))
        begun, before = 0, ""
    return [*found, (begun, before)] if before else found


def _full(value: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, os.path.expanduser(local_part(value))))


def _digest(path: str) -> str:
    with _open_plain_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open_plain_file(path: str) -> BufferedReader:
    """Open a plain file, or one that a link leads to. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, os.strerror(code) if stat.S_ISDIR(kind) else "it is not a file", path)
    return open(descriptor, "rb")


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
