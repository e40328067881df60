"""Facts of the Python of the ranks, its packages, and the program that they run."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import mpi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PYTHON = re.compile(r"python[0-9.]*$")

_ASK = """
import json, os, re, sys
wanted = "torch", "numpy", "tensorflow", "jax", "mpi4py", "deepspeed", "horovod", "ray"
found = {}
for folder in filter(None, sys.path):
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        match = re.match(r"([^-]+)-(.+?)(-py[0-9.]+)?[.](dist|egg)-info$", entry)
        name = match.group(1).lower().replace("_", "-") if match else ""
        if name in wanted or name.startswith("nvidia-nccl"):
            found.setdefault(name, match.group(2))
libraries = []
if "mpi4py" in found:
    try:
        import mpi4py
        mpi4py.rc.initialize = False
        from mpi4py import MPI
        with open("/proc/self/maps", "rb") as file:
            libraries = sorted({name.decode() for name in re.findall(PATTERN, file.read())})
    except Exception:
        pass
print(json.dumps({
    "version": ".".join(map(str, sys.version_info[:3])), "packages": found, "mpi_libraries": libraries
}))
""".replace("PATTERN", repr(mpi.LIBRARY.pattern))
"""
Packages by the names of their folders: importlib.metadata opens a file of each package, of which there are hundreds,
and takes ten times as long.
"""

_MOST_FILES = 5000
_READ = 16 << 20
_LIBRARY = "lib/python3*/*-packages/torch/lib/libtorch_cpu.so"
"""Below the folder of a Python, in an environment or a system."""


def gather_python(settings: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the version of the ranks' Python, of the packages that must agree, and of an MPI on the search path; and the
    MPI that mpi4py loads, which may be another.
    """
    python = find_python(settings)
    facts: dict[str, Any] = {"python": python, "version": "", "packages": {}, **_ask_mpi(settings)}
    if not python:
        return facts
    done = subprocess.run(  # noqa: S603 - what the ranks run
        [python, "-c", _ASK], check=False, capture_output=True, text=True, errors="replace", cwd="/"
    )
    try:
        facts.update(json.loads(done.stdout))
    except ValueError:
        said = done.stderr.strip().splitlines()
        facts["error"] = said[-1] if said else f"exit code {done.returncode}"
    return facts


def find_python(settings: Mapping[str, Any]) -> str:
    """Return the Python that the ranks run: the program itself, else the first on the search path."""
    program = str(settings.get("python") or "")
    path = settings.get("path")
    if _PYTHON.match(os.path.basename(program)):
        return shutil.which(program, path=path) or ""
    return shutil.which("python", path=path) or shutil.which("python3", path=path) or ""


def _ask_mpi(settings: Mapping[str, Any]) -> dict[str, str]:
    program = shutil.which("mpirun", path=settings.get("path"))
    if program is None:
        return {"mpi": "", "mpi_kind": ""}
    done = subprocess.run(  # noqa: S603 - what the ranks run
        [program, "--version"], check=False, capture_output=True, text=True, errors="replace"
    )
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    version = next((line for line in lines if "ersion" in line or "MPI" in line), lines[0] if lines else "")
    found = mpi.recognize_mpi("mpirun", done.stdout)
    if found is not None and version.startswith("Version:"):
        version = f"{found.kind} {version.split()[-1]}"
    return {"mpi": version[:100], "mpi_kind": found.kind if found else ""}


def gather_code(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a digest of the program's files, and how many there are."""
    folder = str(settings.get("code") or "")
    if not folder:
        return {"folder": "", "digest": "", "files": 0}
    digest = hashlib.sha256()
    count = 0
    for path in _list_programs(folder):
        if count == _MOST_FILES:
            break
        count += 1
        digest.update(os.path.relpath(path, folder).encode("utf-8", "surrogateescape") + b"\0")
        try:
            with open(path, "rb") as file:
                digest.update(hashlib.sha256(file.read()).digest())
        except OSError:
            digest.update(b"?")
    return {"folder": folder, "digest": digest.hexdigest()[:16], "files": count}


def _list_programs(folder: str) -> Iterator[str]:
    """Yield the programs in the folder, in one order everywhere; data and what ranks write there may differ."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if one != "__pycache__" and not one.startswith("."))
        for name in sorted(files):
            if name.endswith((".py", ".sh", ".yml", ".yaml", ".toml")):
                yield os.path.join(parent, name)


def gather_library(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bytes a second at which the first 16 MiB of PyTorch's largest library are read."""
    python = find_python(settings)
    folder = os.path.dirname(os.path.dirname(python)) if python else ""
    # The ranks' Python may be another version than this one.
    found = glob.glob(os.path.join(glob.escape(folder), _LIBRARY)) if folder else []
    if not found:
        return {"path": "", "rate": None}
    path = sorted(found)[0]
    began = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        size = 0
        while size < _READ:
            data = file.read(1 << 20)
            if not data:
                break
            size += len(data)
    return {"path": path, "rate": int(size / max(time.monotonic() - began, 1e-6))}
