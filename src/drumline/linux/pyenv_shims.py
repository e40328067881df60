"""
Looks through a shim: a script of pyenv's or asdf's that stands for a Python, finds it, and changes variables for it.

Source: https://github.com/pyenv/pyenv#understanding-shims
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Optional

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHIM_EXEC = re.compile(rb"\bexec\b[^\n]*\b(pyenv|asdf)[\"']?\s+exec\s")
_MAX_BYTES = 1 << 13
_ANSWER_TIMEOUT_S = 20.0
_PRINT_TARGET = """\
import json, os, sys
with open("/proc/self/environ", "rb") as file:
    pairs = [os.fsdecode(pair) for pair in file.read().split(b"\\0") if pair]
print(json.dumps([sys.executable, pairs]))
"""


class ShimTarget(NamedTuple):
    python: str
    """The interpreter, absolute."""

    env: dict[str, str]
    """What it is started with."""


def is_shim(path: str) -> bool:
    """Return whether that file is a shim for programs of several versions."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES)
    except OSError:
        return False
    return text.startswith(b"#!") and bool(_SHIM_EXEC.search(text))


def resolve_shim(shim: str, env: Mapping[str, str], cwd: Optional[str] = None) -> ShimTarget:
    """
    Return the program that the shim would start with these variables in that folder, which choose the version.

    Blocks while it is asked. Raises OSError with its message where it finds none.
    """
    said = ""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own
            [shim, "-I", "-S", "-c", _PRINT_TARGET],
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
        said = done.stderr.decode(errors="replace").strip()
        python, pairs = json.loads(done.stdout)
        if not os.path.isabs(python):
            raise ValueError(python)
        return ShimTarget(python, dict(pair.split("=", 1) for pair in pairs if "=" in pair))
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired) as error:
        first = next(iter((said or str(error)).splitlines()), "it starts none")
        raise OSError(0, f"the shim {shim} finds no Python: {first}", shim) from error


def resolve_interpreter(path: str, env: Mapping[str, str]) -> str:
    """Return the interpreter that a path stands for: itself, if it is no shim. Raises OSError as ``resolve_shim``."""
    return resolve_shim(path, env).python if is_shim(path) else path


def find_on_path(name: str, env: Mapping[str, str], path: Optional[str] = None) -> str:
    """
    Return the first interpreter of that name on a path, by default that of ``env``; empty for none.

    A shim of a version that is not chosen starts no Python, and is passed over.
    """
    for folder in (env.get("PATH", "") if path is None else path).split(os.pathsep):
        found = shutil.which(name, path=folder) if folder else None
        try:
            if found:
                return resolve_interpreter(found, env)
        except OSError:
            continue
    return ""
