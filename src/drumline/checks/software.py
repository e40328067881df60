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
from drumline.contract.record import NamedTuple

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


class PythonFacts(NamedTuple):
    """
    The ranks' Python, its packages that must agree, and an MPI on the search path. ``mpi_libraries``: what mpi4py
    loads, which may be of another one. ``error``: why the Python does not start.
    """

    python: str
    mpi: str
    mpi_kind: str
    version: str = ""
    packages: Mapping[str, str] = {}
    mpi_libraries: Sequence[str] = ()
    error: str = ""


def gather_python(settings: Mapping[str, Any]) -> PythonFacts:
    python = find_python(settings)
    facts = PythonFacts(python, *_ask_mpi(settings))
    if not python:
        return facts
    done = subprocess.run(  # noqa: S603 - what the ranks run
        [python, "-c", _ASK], check=False, capture_output=True, text=True, errors="replace", cwd="/"
    )
    try:
        return facts._replace(**json.loads(done.stdout))
    except ValueError:
        said = done.stderr.strip().splitlines()
        return facts._replace(error=said[-1] if said else f"exit code {done.returncode}")


def find_python(settings: Mapping[str, Any]) -> str:
    """Return the Python that the ranks run: the program itself, else the first on the search path."""
    program = str(settings.get("python") or "")
    path = settings.get("path")
    if _PYTHON.match(os.path.basename(program)):
        return shutil.which(program, path=path) or ""
    return shutil.which("python", path=path) or shutil.which("python3", path=path) or ""


def _ask_mpi(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return the version and the kind of MPI."""
    program = shutil.which("mpirun", path=settings.get("path"))
    if program is None:
        return "", ""
    done = subprocess.run(  # noqa: S603 - what the ranks run
        [program, "--version"], check=False, capture_output=True, text=True, errors="replace"
    )
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    version = next((line for line in lines if "ersion" in line or "MPI" in line), lines[0] if lines else "")
    found = installed_mpi.recognize_mpi("mpirun", done.stdout)
    if found is not None and version.startswith("Version:"):
        version = f"{found.kind} {version.split()[-1]}"
    return version[:100], found.kind if found else ""


class CodeFacts(NamedTuple):
    """A digest of the program's files, and how many there are."""

    folder: str = ""
    digest: str = ""
    files: int = 0


def gather_code(settings: Mapping[str, Any]) -> CodeFacts:
    folder = str(settings.get("code") or "")
    if not folder:
        return CodeFacts()
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
    return CodeFacts(folder, digest.hexdigest()[:16], count)


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
    facts = node.find("python", PythonFacts)
    if not facts:
        return
    python, version = facts.python, facts.version
    if not python:
        yield node.warning("there is no python on the search path", "install one, or add it to PATH")
    elif facts.error:
        yield node.warning(f"{python} does not start: {facts.error}", "install it again")
    elif tuple(map(int, version.split(".")[:2])) < _OLDEST:
        yield node.warning(
            f"{python} is Python {version}, older than 3.9", "use a newer Python for the ranks"
        )
    else:
        yield node.ok(f"Python {version}, {python}")


def compare_pythons(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def read(node: NodeReport) -> str:
        facts = node.find("python", PythonFacts)
        return ".".join(facts.version.split(".")[:2]) if facts else ""

    return compare(nodes, read, "its Python is", _SAME_ENVIRONMENT)


def judge_packages(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("python", PythonFacts)
    if facts:
        known = ", ".join(f"{name} {version}" for name, version in sorted(facts.packages.items()))
        yield node.ok(known or "no PyTorch, TensorFlow or JAX")


def compare_packages(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    for name in sorted({name for node in nodes for name in node.get("python").get("packages", ())}):

        def read(node: NodeReport, name: str = name) -> str:
            facts = node.find("python", PythonFacts)
            return str(facts.packages.get(name, "missing")) if facts and facts.version else ""

        is_sure = name in _MUST_AGREE or name.startswith("nvidia-nccl")
        yield from compare(
            nodes, read, f"its {name} is", _SAME_ENVIRONMENT, "error" if is_sure else "warning"
        )


def judge_mpi(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("python", PythonFacts)
    if not facts:
        return
    kind = facts.mpi_kind
    other = installed_mpi.find_other_library(kind, facts.mpi_libraries) if kind else ""
    if other:
        what = f"its mpirun is {kind}'s, and its mpi4py loads {other} of {installed_mpi.recognize_library(other)}"
        yield node.warning(what, "have MPI4PY_MPIABI (openmpi, mpich) name that of mpirun")
    else:
        yield node.ok(facts.mpi or "no mpirun")


def compare_mpis(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def read(node: NodeReport) -> str:
        facts = node.find("python", PythonFacts)
        return (facts.mpi or "missing") if facts else ""

    return compare(nodes, read, "its mpirun is", "install the same MPI on all nodes")


def compare_code(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def read(node: NodeReport) -> str:
        facts = node.find("code", CodeFacts)
        return facts.digest if facts else ""

    for node, _own, _usual, others in find_odd(nodes, read):
        yield node.error(
            f"the programs in {node.get('code')['folder']} differ from those on {others}",
            "put the code on a file system that all nodes share, or let Drumline snapshot it",
        )
