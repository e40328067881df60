"""
The recipe in a conda file, in the words of those who build it: a Python, conda packages, and lines for pip.

Paths in it are those of the file's own folder, as ``conda env create`` has it; what they lead to is taken in.
Source: https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#create-env-file-manually,
https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import Problem, SpecError
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_size
from drumline.spec.hints import did_you_mean
from drumline.spec.paths import is_remote, local_part
from drumline.spec.reading.source import Mapping, Scalar, Sequence, find, plain, problem_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

    from drumline.spec.reading.source import Node


# Lines for pip, as a conda file has them below ``pip:``: files that they name are taken in, their paths are in full.
#
# Source: https://pip.pypa.io/en/stable/reference/requirements-file-format/

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
        if not line.startswith("--"):
            name, value = line[:2], line[2:]  # -r file, -rfile
        else:
            name, _, value = line.partition("=" if "=" in line.split()[0] else " ")
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
            with _open_plain_file(full) as opened:
                self._into.files[full] = hashlib.file_digest(opened, "sha256").hexdigest()
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
            self._refuse(f"{full} is larger than {format_size(_MOST_BYTES)}")
            return
        inside = _RequirementSource(self._into, self._node, self._path, (*self._files, full))
        for number, line in _lines(text):
            inside._line, inside._text = number, line
            inside.take(line, os.path.dirname(full), lines)


_WHEEL = "make a wheel of it (pip wheel --no-deps), and name that"


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


def _open_plain_file(path: str) -> BufferedReader:
    """Open a plain file, or one that a link leads to. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
        raise OSError(code, os.strerror(code) if stat.S_ISDIR(kind) else "it is not a file", path)
    return open(descriptor, "rb")


_NAME = re.compile(
    r"(?:(?P<channel>[^\s:]+)::)?(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]*)(?P<rest>[\s=<>!~\[*].*)?", re.DOTALL
)
_EXACT = re.compile(r"={0,2}(\d+(?:\.\d+){0,2})(?:\.\*|\*)?(?:=[\w.*]*)?")
_RANGE = re.compile(
    r"(?:(?:[<>]=?|[!~=]=)\d+(?:\.\d+)*(?:\.\*)?)(?:,(?:[<>]=?|[!~=]=)\d+(?:\.\d+)*(?:\.\*)?)*"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

PIPS_OWN = ("pip", "setuptools", "wheel")
"""Packages that are pip's as well as conda's."""

_KEYS = ("dependencies", "channels", "variables", "name", "prefix", "platforms")


class Package(NamedTuple):
    """A package of conda. ``name``: in lower case; ``text``: as written; ``node``: where."""

    name: str
    text: str
    rest: str
    node: Node
    path: str


class Recipe(NamedTuple):
    python: str
    """``3.11``, ``>=3.9,<3.12``; empty: none is named."""

    requirements: tuple[str, ...]
    """Lines of a requirements file, paths in full, as they stand below ``pip:``."""

    constraints: tuple[str, ...]
    files: dict[str, str]
    """Files that requirements name, with the digests of their contents."""

    packages: tuple[Package, ...]
    channels: tuple[str, ...]
    variables: dict[str, str]

    @property
    def of_conda(self) -> tuple[Package, ...]:
        """Return the packages that only conda has."""
        return tuple(one for one in self.packages if one.name not in ("python", *PIPS_OWN))

    @property
    def of_pip(self) -> tuple[str, ...]:
        """Return all that pip can install, as lines of requirements."""
        lines = []
        for package in self.packages:
            version = _version_of(package.rest)
            if package.name not in PIPS_OWN or version is None or (package.name == "pip" and not version):
                continue
            exact = version[:1].isdigit()
            lines.append(f"{package.name}=={version}.*" if exact else f"{package.name}{version}")
        return (*lines, *self.requirements)


def recipe_of(root: Node, folder: str, path: str) -> tuple[Recipe, list[Problem]]:
    """
    Return the recipe of a conda file and its problems.

    ``root``: its content; ``folder``: its folder; ``path``: the dotted one of the job's field.
    """
    reader = _RecipeReader(folder, path)
    reader.read(root)
    lines = reader.lines
    recipe = Recipe(
        reader.python,
        tuple(lines.requirements),
        tuple(lines.constraints),
        lines.files,
        tuple(reader.packages),
        tuple(reader.channels),
        reader.variables,
    )
    return recipe, [*reader.problems, *lines.problems]


def inline_requirements(root: Node, folder: str) -> Any:
    """
    Return the content of a conda file that is to be kept without its folder.

    The files that its ``-r`` lines name are inlined, other paths are absolute. Raises SpecError for what cannot be
    read.
    """
    content = plain(root)
    for index, one in enumerate(content.get("dependencies") or () if isinstance(content, dict) else ()):
        if not isinstance(one, dict) or not any(leads_away(str(line)) for line in one.get("pip") or ()):
            continue
        assert isinstance(root, Mapping)
        reader = _RecipeReader(folder, "conda_file")
        node = find(root, f"dependencies.{index}")
        assert isinstance(node, Mapping)
        reader._read_pip(node, f"conda_file.dependencies.{index}")
        problems = [*reader.problems, *reader.lines.problems]
        if reader.lines.constraints:
            what = "constraints of a file are not kept with an environment"
            problems.append(
                problem_at(node, what, path="conda_file", hint="write the versions where the packages are")
            )
        if problems:
            raise SpecError(problems)
        one["pip"] = reader.lines.requirements
    return content


class _RecipeReader:
    def __init__(self, folder: str, path: str) -> None:
        self.path = path
        self.python = ""
        self.packages: list[Package] = []
        self.channels: list[str] = []
        self.variables: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.lines = Requirements(folder)

    def _refuse(self, what: str, node: Node, path: str, hint: str = "") -> None:
        self.problems.append(problem_at(node, f"{path}: {what}", path=path, hint=hint))

    def read(self, root: Node) -> None:
        if not isinstance(root, Mapping):
            self._refuse("a conda file is a mapping with `dependencies`", root, self.path)
            return
        for key, key_node, _ in root:
            if key not in _KEYS:
                hint = did_you_mean(str(key), _KEYS)
                self._refuse(f"unknown key {str(key)!r}", key_node, f"{self.path}.{key}", hint)
        self._read_list(root, "dependencies", self._read_dependency)
        self._read_list(root, "channels", self._read_channel)
        self._read_variables(root.get("variables"))

    def _read_list(self, root: Mapping, key: str, read: Callable[[Node, str], None]) -> None:
        node, path = root.get(key), f"{self.path}.{key}"
        if node is None or (isinstance(node, Scalar) and node.value is None):
            return
        if not isinstance(node, Sequence):
            self._refuse("must be a list", node, path)
            return
        for index, item in enumerate(node.items):
            read(item, f"{path}.{index}")

    def _read_channel(self, node: Node, path: str) -> None:
        text = plain(node)
        if not isinstance(text, str) or not text.strip() or text.startswith("-") or not text.isprintable():
            self._refuse(f"{text!r} is not a channel", node, path)
        elif has_password(text):
            hint = "conda's own settings can hold it: conda config --help, channel_alias"
            self._refuse("the address holds a password, which would be kept with the job", node, path, hint)
            self.problems[-1].source_line = ""
        else:
            self.channels.append(text.strip())

    def _read_variables(self, node: Node | None) -> None:
        given = plain(node) if node is not None else None
        if given is not None and not isinstance(given, dict):
            assert node is not None
            self._refuse("must be a mapping", node, f"{self.path}.variables", "names, each with its value")
            return
        for name, value in (given or {}).items():
            if isinstance(name, str) and _VARIABLE.fullmatch(name) and "\0" not in str(value):
                self.variables[name] = str(value)
            else:
                assert node is not None
                self._refuse(f"{name!r} cannot be a variable's name", node, f"{self.path}.variables")

    def _read_dependency(self, node: Node, path: str) -> None:
        if isinstance(node, Mapping):
            self._read_pip(node, path)
            return
        text = plain(node)
        found = _NAME.fullmatch(text.strip()) if isinstance(text, str) and text.isprintable() else None
        if found is None:
            hint = "such as numpy=1.26; packages of pip stand in a list below `pip:`"
            self._refuse(f"{_shorten(text)} is not a package of conda", node, path, hint)
            return
        package = Package(
            found["name"].lower(), text.strip(), (found["rest"] or "").replace(" ", ""), node, path
        )
        if package.name == "python":
            version = _version_of(package.rest)
            if version is None:
                hint = "such as python=3.11, or python>=3.10,<3.13"
                self._refuse(f"{_shorten(package.text)} is no version of Python", node, path, hint)
            else:
                self.python = version
        self.packages.append(package)

    def _read_pip(self, node: Mapping, path: str) -> None:
        for key, key_node, value in node:
            where = f"{path}.{key}"
            if key != "pip":
                self._refuse(f"unknown key {str(key)!r}", key_node, where, "a list below `pip:`, or text")
                continue
            items = value.items if isinstance(value, Sequence) else [value]
            for index, item in enumerate(items):
                text = plain(item)
                at = f"{where}.{index}" if isinstance(value, Sequence) else where
                if isinstance(text, str):
                    self.lines.take(text, item, at)
                elif text is not None:
                    self._refuse(f"{_shorten(text)} is not a requirement", item, at, "such as torch==2.4.0")


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 62 else f"{text[:58]}...{text[-1]}"


def _version_of(rest: str) -> str | None:
    """
    Return a version that conda's text gives after a name, as uv wants it; None for what is no version.

    >>> _version_of("=3.10"), _version_of("=3.10=h1_0"), _version_of(">=3.9,<3.12"), _version_of("")
    ('3.10', '3.10', '>=3.9,<3.12', '')
    """
    if not rest or rest == "*":
        return ""
    exact = _EXACT.fullmatch(rest)
    if exact:
        return exact[1]
    return rest if _RANGE.fullmatch(rest) else None


def fits(version: tuple[int, ...], wanted: str) -> bool:
    """
    Return whether a Python is what a conda file asks for.

    >>> fits((3, 11, 7), "3.11"), fits((3, 11, 7), ">=3.9,<3.11"), fits((3, 11, 7), ""), fits((3, 11, 7), "~=3.10")
    (True, False, True, True)
    """
    if not wanted or wanted[0].isdigit():
        return not wanted or _begins(version, _numbers(wanted))
    return all(_fits_one(version, one) for one in wanted.split(","))


def _fits_one(version: tuple[int, ...], one: str) -> bool:
    found = re.fullmatch(r"([<>]=?|[!~=]=)(.*)", one)
    assert found is not None
    sign, limit = found[1], _numbers(found[2])
    if sign in ("==", "!="):
        same = (
            _begins(version, limit)
            if one.endswith(".*")
            else version[: max(3, len(limit))] == (*limit, 0, 0)[:3]
        )
        return same == (sign == "==")
    if sign == "~=":
        return version >= limit and _begins(version, limit[:-1])
    least = {"<": version < limit, "<=": version <= limit, ">": version > limit, ">=": version >= limit}
    return least[sign]


def _begins(version: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return version[: len(part)] == part


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(one) for one in text.split(".") if one.isdigit())
