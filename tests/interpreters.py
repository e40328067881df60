"""The Pythons that tests of what runs in users' environments run in."""

import shutil
import subprocess
import sys
from pathlib import Path


def oldest_and_this() -> list[str]:
    """Return this Python, and a Python 3.9, the oldest that is promised, where the machine has one."""
    candidates = [*map(str, Path.home().glob(".pyenv/versions/3.9*/bin/python")), shutil.which("python3.9")]
    return [sys.executable, *[path for path in candidates if path and _is_python_3_9(path)][:1]]


def _is_python_3_9(path: str) -> bool:
    # A shim of pyenv's may be there without such a Python.
    done = subprocess.run([path, "-V"], capture_output=True, text=True, env={}, check=False)
    return done.stdout.startswith("Python 3.9")
