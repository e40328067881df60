"""
The recipe in a conda file, in the words of those who build it: a Python, conda packages, and lines for pip.

Paths in it are those of the file's own folder, as ``conda env create`` has it; what they lead to is taken in.
Source: https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html#create-env-file-manually,
https://pip.pypa.io/en/stable/reference/requirements-file-format/
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import SpecError
from drumline.contract.record import NamedTuple
from drumline.control.environments.requirements import Requirements, has_password, leads_away
from drumline.spec.reading.source import problem_at
from drumline.spec.reading.tree import Mapping, Scalar, Sequence, find, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.contract.errors import Problem
    from drumline.spec.reading.tree import Node

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
        return (*_of_pips_own(self.packages), *self.requirements)


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
                from drumline.spec.hints import did_you_mean

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
            self._read_python(package)
        self.packages.append(package)

    def _read_python(self, package: Package) -> None:
        version = _version_of(package.rest)
        if version is None:
            hint = "such as python=3.11, or python>=3.10,<3.13"
            self._refuse(
                f"{_shorten(package.text)} is no version of Python", package.node, package.path, hint
            )
        else:
            self.python = version

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
    return text if len(text) <= 60 else text[:57] + "..."


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


def _of_pips_own(packages: Iterable[Package]) -> list[str]:
    """Return the conda packages that pip can install, as its requirements."""
    lines = []
    for package in packages:
        version = _version_of(package.rest)
        if package.name not in PIPS_OWN or version is None or (package.name == "pip" and not version):
            continue
        exact = version[:1].isdigit()
        lines.append(f"{package.name}=={version}.*" if exact else f"{package.name}{version}")
    return lines


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
