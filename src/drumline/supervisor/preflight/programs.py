"""Judges of Python, packages, code and users, and of what of Drumline the kernel lets work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract import mpi
from drumline.supervisor.preflight.findings import error, find_odd, list_nodes, ok, warning

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.supervisor.preflight.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]

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


def judge_drivers(reports: Nodes, _: Demands) -> Iterator[Finding]:
    def read(one: NodeReport) -> str:
        found = one.get("gpus").get("gpus", ())
        return ", ".join(dict.fromkeys(gpu["driver_version"] for gpu in found))

    for one, own, usual, others in find_odd(reports, read):
        yield warning(
            one.node,
            f"its NVIDIA driver is {own}, and {usual} on {list_nodes(others)}",
            "install the same driver on all nodes, with a fabric manager of the same version",
        )


def judge_code(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one, _own, _usual, others in find_odd(reports, lambda one: one.get("code").get("digest", "")):
        yield error(
            one.node,
            f"the programs in {one.get('code')['folder']} differ from those on {list_nodes(others)}",
            "put the code on a file system that all nodes share, or let Drumline snapshot it",
        )


def judge_user(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("user")
        if facts and not facts["home_writable"]:
            yield warning(
                one.node,
                f"its home {facts['home']} cannot be written to",
                "set HOME; caches of programs go there",
            )
        if facts and facts["umask"] & 0o700:
            yield warning(
                one.node,
                f"its umask {facts['umask']:03o} takes the rights from the owner of new files",
                "set umask 022",
            )
    for what, name in (("user ID", "uid"), ("home", "home"), ("umask", "umask")):
        for one, own, usual, others in find_odd(reports, lambda one, name=name: one.get("user").get(name)):  # type: ignore[misc]
            shown = (f"{own:03o}", f"{usual:03o}") if name == "umask" else (own, usual)
            yield warning(
                one.node,
                f"its {what} is {shown[0]}, and {shown[1]} on {list_nodes(others)}",
                "make users alike on all nodes: shared files belong to a number",
            )


def judge_features(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        facts = one.get("features")
        if not facts:
            continue
        if not facts["pidfd"]:
            yield error(
                one.node,
                f"its kernel {facts['kernel']} has no pidfd, which Drumline needs",
                "use Linux 5.3 or newer",
            )
        off = []
        if not facts["control_group"]:
            off.append("control groups (a process that leaves its session is found by its parents instead)")
        if not facts["user_namespaces"] and not facts["root"]:
            off.append("user namespaces (no isolated nodes)")
        if facts["ptrace_scope"] > 1 and not facts["root"]:
            off.append(f"ptrace (its scope is {facts['ptrace_scope']}: py-spy shows no stacks)")
        if off:
            yield warning(
                one.node, f"off here: {'; '.join(off)}", "docs/howto/doctor.md says how to get each"
            )
        elif facts["pidfd"]:
            yield ok(f"Linux {facts['kernel']}, all on", one.node)
