"""The Python of the ranks, its packages, MPI, and the program that they run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import compare, find_odd
from drumline.contract import installed_mpi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeReport


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
""".replace("PATTERN", repr(installed_mpi.LIBRARY.pattern))
"""
Packages by the names of their folders: importlib.metadata opens a file of each package, of which there are hundreds,
and takes ten times as long.
"""

_MOST_FILES = 5000


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
    found = installed_mpi.recognize_mpi("mpirun", done.stdout)
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


_MUST_AGREE = ("torch", "tensorflow", "jax", "deepspeed", "horovod", "ray")
_OLDEST = (3, 9)
_SAME_ENVIRONMENT = "give all nodes the same environment"


def judge_python(node: NodeReport) -> Iterator[Finding]:
    facts = node.get("python")
    if not facts:
        return
    python, version = facts["python"], facts["version"]
    if not python:
        yield node.warning("there is no python on the search path", "install one, or add it to PATH")
    elif facts.get("error"):
        yield node.warning(f"{python} does not start: {facts['error']}", "install it again")
    elif tuple(map(int, version.split(".")[:2])) < _OLDEST:
        yield node.warning(
            f"{python} is Python {version}, older than 3.9", "use a newer Python for the ranks"
        )
    else:
        yield node.ok(f"Python {version}, {python}")


def compare_pythons(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def read(node: NodeReport) -> str:
        return ".".join(str(node.get("python").get("version", "")).split(".")[:2])

    return compare(nodes, read, "its Python is", _SAME_ENVIRONMENT)


def judge_packages(node: NodeReport) -> Iterator[Finding]:
    if node.get("python"):
        packages = sorted(node.get("python").get("packages", {}).items())
        known = ", ".join(f"{name} {version}" for name, version in packages)
        yield node.ok(known or "no PyTorch, TensorFlow or JAX")


def compare_packages(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    for name in sorted({name for node in nodes for name in node.get("python").get("packages", ())}):

        def read(node: NodeReport, name: str = name) -> str:
            facts = node.get("python")
            return str(facts.get("packages", {}).get(name, "missing")) if facts.get("version") else ""

        is_sure = name in _MUST_AGREE or name.startswith("nvidia-nccl")
        yield from compare(
            nodes, read, f"its {name} is", _SAME_ENVIRONMENT, "error" if is_sure else "warning"
        )


def judge_mpi(node: NodeReport) -> Iterator[Finding]:
    facts = node.get("python")
    if not facts:
        return
    kind = facts.get("mpi_kind", "")
    other = installed_mpi.find_other_library(kind, facts.get("mpi_libraries", ())) if kind else ""
    if other:
        what = f"its mpirun is {kind}'s, and its mpi4py loads {other} of {installed_mpi.recognize_library(other)}"
        yield node.warning(what, "have MPI4PY_MPIABI (openmpi, mpich) name that of mpirun")
    else:
        yield node.ok(facts["mpi"] or "no mpirun")


def compare_mpis(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def read(node: NodeReport) -> str:
        return str(node.get("python")["mpi"] or "missing") if node.get("python") else ""

    return compare(nodes, read, "its mpirun is", "install the same MPI on all nodes")


def compare_code(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    for node, _own, _usual, others in find_odd(nodes, lambda node: node.get("code").get("digest", "")):
        yield node.error(
            f"the programs in {node.get('code')['folder']} differ from those on {others}",
            "put the code on a file system that all nodes share, or let Drumline snapshot it",
        )
