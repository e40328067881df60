"""The Python of the ranks, its packages, MPI, and the program that they run."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import error, find_odd, list_nodes, ok, warning
from drumline.contract import mpi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]


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


_MUST_AGREE = ("torch", "tensorflow", "jax", "deepspeed", "horovod", "ray")
_OLDEST = (3, 9)


def judge_python(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("python")
        if not facts:
            continue
        if not facts["python"]:
            yield warning(one.node, "there is no python on the search path", "install one, or add it to PATH")
        elif facts.get("error"):
            yield warning(one.node, f"{facts['python']} does not start: {facts['error']}", "install it again")
        elif tuple(map(int, facts["version"].split(".")[:2])) < _OLDEST:
            yield warning(
                one.node,
                f"{facts['python']} is Python {facts['version']}, older than 3.9",
                "use a newer Python for the ranks",
            )
        else:
            yield ok(f"Python {facts['version']}, {facts['python']}", one.node)
    for one, own, usual, others in find_odd(reports, lambda one: _minor(one.get("python"))):
        yield warning(
            one.node,
            f"its Python is {own}, and {usual} on {list_nodes(others)}",
            "give all nodes the same environment",
        )


def _minor(facts: Mapping[str, str]) -> str:
    return ".".join(str(facts.get("version", "")).split(".")[:2])


def judge_packages(reports: Nodes, _: Demands) -> Iterator[Finding]:
    names = {name for one in reports for name in one.get("python").get("packages", ())}
    for name in sorted(names):
        sure = name in _MUST_AGREE or name.startswith("nvidia-nccl")
        for one, own, usual, others in find_odd(reports, lambda one, name=name: _find_version(one, name)):  # type: ignore[misc]
            yield (error if sure else warning)(
                one.node,
                f"its {name} is {own}, and {usual} on {list_nodes(others)}",
                "give all nodes the same environment",
            )
    if len(reports) == 1 and reports[0].get("python"):
        found = reports[0].get("python").get("packages", {})
        told = [f"{name} {version}" for name, version in sorted(found.items())]
        yield ok(", ".join(told) or "no PyTorch, TensorFlow or JAX", reports[0].node)


def _find_version(one: NodeReport, name: str) -> str:
    facts = one.get("python")
    return str(facts.get("packages", {}).get(name, "missing")) if facts.get("version") else ""


def judge_mpi(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one, own, usual, others in find_odd(reports, _read_mpi):
        yield warning(
            one.node,
            f"its mpirun is {own}, and {usual} on {list_nodes(others)}",
            "install the same MPI on all nodes",
        )
    for one in reports:
        kind = one.get("python").get("mpi_kind", "")
        other = mpi.find_other_library(kind, one.get("python").get("mpi_libraries", ())) if kind else ""
        if other:
            what = f"its mpirun is {kind}'s, and its mpi4py loads {other} of {mpi.recognize_library(other)}"
            yield warning(one.node, what, "have MPI4PY_MPIABI (openmpi, mpich) name that of mpirun")
    if len(reports) == 1 and reports[0].get("python"):
        yield ok(reports[0].get("python")["mpi"] or "no mpirun", reports[0].node)


def _read_mpi(one: NodeReport) -> str:
    facts = one.get("python")
    return str(facts["mpi"] or "missing") if facts else ""


def judge_code(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one, _own, _usual, others in find_odd(reports, lambda one: one.get("code").get("digest", "")):
        yield error(
            one.node,
            f"the programs in {one.get('code')['folder']} differ from those on {list_nodes(others)}",
            "put the code on a file system that all nodes share, or let Drumline snapshot it",
        )
