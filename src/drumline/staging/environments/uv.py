"""
A virtual environment by uv; without uv by ``venv`` and pip, which are slower.

Recipe: ``requirements`` and ``constraints`` (lines as in a requirements file, paths in full), ``python`` (what the
conda file asks for, as uv takes it; may be empty), ``base`` (a Python of this machine that fits; may be empty).
Source: https://docs.astral.sh/uv/reference/cli/
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import write_whole
from drumline.contract.words import format_count
from drumline.linux.pyenv_shims import find_on_path
from drumline.staging.environments.environment_folder import LOCK_FILE, make_build_folder
from drumline.staging.environments.tool import BuildError, Tool, ToolError, find_program, hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.plan import Build

_PLACES = ("~/.local/bin", "~/.cargo/bin", "/usr/local/bin")
_OFFLINE = re.compile(
    r"failed to (?:fetch|download)|error sending request|dns error|timed? ?out|connect", re.IGNORECASE
)
_PLACES_OF_PACKAGES = ("--index-url", "--extra-index-url", "--find-links", "-i ", "--no-index")
_NO_PYTHON = re.compile(
    r"no interpreter found|python-build-standalone|python <?[\d.]+ is not|no download", re.IGNORECASE
)


def find_uv() -> str:
    """Return the path of uv, from its wheel or the machine; empty if there is none."""
    return find_program("uv", *_PLACES)


def make(build: Build, tool: Tool) -> None:
    """Build the environment. Raises BuildError."""
    uv = find_uv()
    count = len(_packages(build.recipe["requirements"]))
    what = format_count(count, "package") if count else "no packages"
    by = "uv" if uv else "venv and pip, because there is no uv (pip install uv), which is quicker"
    tool.say(f"a virtual environment of {what}, by {by}")
    folder = make_build_folder(build.prefix)
    try:
        if uv:
            _by_uv(build, tool, uv, folder)
        else:
            _by_pip(build, tool, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _packages(lines: Iterable[str]) -> list[str]:
    return [line for line in lines if not line.startswith("-") or line.startswith("-e ")]


def _write_requirements(folder: str, flag: str, lines: Iterable[str]) -> list[str]:
    """Write a file of those lines, and return the arguments that name it; none for no lines."""
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return []
    path = os.path.join(folder, f"{os.urandom(4).hex()}.txt")
    write_whole(path, text)
    return [flag, path]


def _by_uv(build: Build, tool: Tool, uv: str, folder: str) -> None:
    recipe, prefix = build.recipe, build.prefix
    variables = {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    try:
        tool.run(
            [
                uv,
                "venv",
                "--python",
                str(recipe.get("base") or recipe.get("python") or sys.executable),
                prefix,
            ],
            env=variables,
        )
    except ToolError as error:
        if not _NO_PYTHON.search(error.output):
            raise
        why = "uv could not download one" if "download" in error.words else error.words
        what = f"there is no Python {recipe.get('python')} on this machine: {why}"
        raise BuildError(what, _PYTHON_HINT) from error
    python = os.path.join(prefix, "bin", "python")
    lines, flags = _translate_options(recipe["requirements"])
    install = [uv, "pip", "install", "--python", python, *flags]
    if _packages(lines):
        files = [
            *_write_requirements(folder, "-r", lines),
            *_write_requirements(folder, "-c", recipe["constraints"]),
        ]
        _with_cache_alone(tool, [*install, *files], variables)
    places = [line for line in lines if line.startswith(_PLACES_OF_PACKAGES)]
    _add_pip(tool, [*install, *_write_requirements(folder, "-r", [*places, "pip"])], python, variables)
    _write_lock(prefix, tool.output([uv, "pip", "freeze", "--python", python]))


def _write_lock(prefix: str, text: str) -> None:
    write_whole(os.path.join(prefix, LOCK_FILE), hide_secrets(text))


def _with_cache_alone(tool: Tool, argv: list[str], variables: dict[str, str]) -> None:
    """Run it, and once more offline if the network is why it failed: uv's cache may have all of it."""
    try:
        tool.run(argv, env=variables)
    except ToolError as error:
        if os.environ.get("UV_OFFLINE") or not _OFFLINE.search(error.output):
            raise
        tool.say("the index cannot be reached; with what uv has kept")
        try:
            tool.run(argv, env={**variables, "UV_OFFLINE": "1"})
        except ToolError:
            raise error from None


def _add_pip(tool: Tool, argv: list[str], python: str, variables: dict[str, str]) -> None:
    """Install pip, so that ``pip install`` does not find another environment's. Not worth a failure."""
    if os.path.exists(os.path.join(os.path.dirname(python), "pip")):
        return
    try:
        tool.run(argv, env=variables)
    except ToolError:
        try:
            tool.run([python, "-m", "ensurepip", "--default-pip"])
        except ToolError:
            tool.say("it has no pip")


def _by_pip(build: Build, tool: Tool, folder: str) -> None:
    recipe, prefix = build.recipe, build.prefix
    base = recipe.get("base") or _python_of(recipe)
    variables = {"NO_COLOR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off"}
    tool.run([base, "-m", "venv", prefix], env=variables)
    pip = [os.path.join(prefix, "bin", "python"), "-m", "pip", "--no-input"]
    lines = recipe["requirements"]
    if _packages(lines):
        files = [
            *_write_requirements(folder, "-r", lines),
            *_write_requirements(folder, "-c", recipe["constraints"]),
        ]
        tool.run([*pip, "install", *files], env=variables)
    _write_lock(prefix, tool.output([*pip, "freeze", "--all"], env=variables))


_PYTHON_HINT = (
    "install that Python, name another one in the conda file, or none to use the Python that submits"
)


def _python_of(recipe: Any) -> str:
    """Return a Python of that version on PATH. Raises BuildError."""
    wanted = str(recipe.get("python") or "")
    exact = re.fullmatch(r"(\d+(?:\.\d+)?)(?:\.\d+)?", wanted)
    found = find_on_path(f"python{exact[1]}", os.environ) if exact else ""
    if found or not wanted:
        return found or sys.executable
    raise BuildError(f"there is no Python {wanted} on this machine's PATH", f"{_PYTHON_HINT}; or install uv")


def _translate_options(lines: Iterable[str]) -> tuple[list[str], list[str]]:
    """Turn options that uv takes as flags alone into flags, and drop those that mean nothing to it."""
    flags: list[str] = []
    kept = []
    for line in lines:
        name, _, value = line.partition(" ")
        if name == "--pre":
            flags += ["--prerelease", "allow"]
        elif name == "--trusted-host":
            flags += ["--allow-insecure-host", value.strip()]
        elif name == "--require-hashes":
            flags.append(name)
        elif name not in ("--prefer-binary", "--use-feature", "--use-pep517"):
            kept.append(line)
    if any(line.startswith("--extra-index-url") for line in kept) and not os.environ.get("UV_INDEX_STRATEGY"):
        # To pip, for which the file was written, all indexes are one.
        flags += ["--index-strategy", "unsafe-best-match"]
    return kept, flags
