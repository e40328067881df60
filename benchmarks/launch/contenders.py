"""How each contender is told to start N nodes x P processes of one Python script."""

import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import environment

RUN_HERE = Path(__file__).resolve().with_name("run_here.sh")


@dataclass(frozen=True)
class Trial:
    """One start to measure: the script, with one argument, as node_count x proc_count ranks."""

    venv: Path
    script: Path
    argument: Path
    node_count: int
    proc_count: int

    @property
    def rank_count(self) -> int:
        return self.node_count * self.proc_count

    @property
    def own_home(self) -> Path:
        """A folder beside the trial's, for a contender that is to find nothing of earlier ones."""
        return self.argument.parent.with_name(f"{self.argument.parent.name}-home")

    @property
    def python(self) -> str:
        return self.tool("python")

    def tool(self, name: str) -> str:
        return str(self.venv / "bin" / name)

    @property
    def program(self) -> list[str]:
        """The script and its argument, for launchers that start Python themselves."""
        return [str(self.script), str(self.argument)]


@dataclass(frozen=True)
class Command:
    """One of the processes that together are a launch; they start at the same moment."""

    argv: list[str]
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """
    A launcher: `version` is None where it is not installed; `commands` start a trial with it.

    before: a launch that is not measured; closing: ends what it keeps for its next job; keeps:
    whether it is to keep something.
    """

    name: str
    version: Callable[[Path], str | None]
    commands: Callable[[Trial], list[Command]]
    before: Callable[[Trial], list[Command]] = lambda _trial: []
    closing: Callable[[Trial], Command] | None = None
    keeps: bool = False

    @property
    def product(self) -> str:
        """The name without what is in brackets."""
        return self.name.partition(" (")[0]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def loop(trial: Trial) -> list[Command]:
    """The same processes with nothing around them."""
    port = free_port()
    return [
        Command(
            [trial.python, *trial.program],
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(trial.rank_count),
                "LOCAL_RANK": str(rank % trial.proc_count),
                "LOCAL_WORLD_SIZE": str(trial.proc_count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank in range(trial.rank_count)
    ]


def drumline(trial: Trial, *options: str) -> list[Command]:
    sizes = ["--nodes", str(trial.node_count), "--procs", str(trial.proc_count)]
    start = [trial.tool("drumline"), "run", *sizes, *options]
    return [Command([*start, "--", trial.python, *trial.program])]


def drumline_mpi(trial: Trial) -> list[Command]:
    """The same, with the machine's mpirun to start the ranks."""
    return drumline(trial, "--distribution", "mpi")


def spawning(commands: Callable[[Trial], list[Command]]) -> Callable[[Trial], list[Command]]:
    """The same without a warm start, so that nothing is kept for a next job."""
    return lambda trial: [
        Command(command.argv, {**command.variables, "DRUMLINE_WARM": "off"}) for command in commands(trial)
    ]


def drumline_warm_stop(trial: Trial) -> Command:
    return Command([trial.tool("drumline"), "warm", "stop"])


def torchrun_static(trial: Trial) -> list[Command]:
    meeting = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    sizes = ["--nnodes", str(trial.node_count), "--nproc-per-node", str(trial.proc_count)]
    return [
        Command([trial.tool("torchrun"), *sizes, "--node-rank", str(node), *meeting, *trial.program])
        for node in range(trial.node_count)
    ]


def torchrun_c10d(trial: Trial, *options: str) -> list[Command]:
    meeting = [
        "--rdzv-backend",
        "c10d",
        "--rdzv-id",
        "b",
        "--rdzv-endpoint",
        f"127.0.0.1:{free_port()}",
    ]
    sizes = ["--nnodes", str(trial.node_count), "--nproc-per-node", str(trial.proc_count)]
    return [Command([trial.tool("torchrun"), *sizes, *meeting, *options, *trial.program])] * trial.node_count


def torchrun_one_node(trial: Trial) -> list[Command]:
    sizes = ["--standalone", "--nproc-per-node", str(trial.rank_count)]
    return [Command([trial.tool("torchrun"), *sizes, *trial.program])]


def mpirun(trial: Trial) -> list[Command]:
    """Open MPI over nodes that it believes remote; its daemons meet over loopback."""
    hosts = ",".join(f"node-{node}:{trial.proc_count}" for node in range(trial.node_count))
    # By a path without the spaces that the checkout's may have: Open MPI takes it for a command line.
    agent = trial.argument.with_name("run_here")
    if not agent.exists():
        agent.symlink_to(RUN_HERE)
    settings = {
        "plm_rsh_agent": str(agent),
        "plm_rsh_no_tree_spawn": "1",
        "routed": "direct",
        "oob_tcp_if_include": "lo",
    }
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    # Both "nodes" are this machine, and each would bind its ranks to the same first cores.
    options += ["--oversubscribe", "--bind-to", "none", "-x", "MASTER_ADDR", "-x", "MASTER_PORT"]
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [Command(["mpirun", *options, "-H", hosts, trial.python, *trial.program], variables)]


def accelerate(trial: Trial, *options: str) -> list[Command]:
    # --multi_gpu chooses its distributed launcher; the ranks need no GPU to start.
    options = ("--multi_gpu", "--mixed_precision", "no", "--dynamo_backend", "no", *options)
    sizes = ["--num_machines", str(trial.node_count), "--num_processes", str(trial.rank_count)]
    meeting = ["--main_process_ip", "127.0.0.1", "--main_process_port", str(free_port())]
    return [
        Command(
            [
                *(trial.tool("accelerate"), "launch", *options, *sizes, *meeting),
                *("--machine_rank", str(node), *trial.program),
            ]
        )
        for node in range(trial.node_count)
    ]


def torchx(trial: Trial) -> list[Command]:
    sizes = ["-j", f"{trial.node_count}x{trial.proc_count}", "--rdzv_port", str(free_port())]
    script, argument = trial.program
    run = [trial.tool("torchx"), "run", "-s", "local_cwd", "dist.ddp", *sizes, "--script", script]
    return [Command([*run, "--", argument])]


def packaged(distribution: str) -> Callable[[Path], str | None]:
    """The version of a Python distribution, by environment."""
    return lambda venv: environment.installed_version(venv, distribution)


def always(version: str) -> Callable[[Path], str | None]:
    return lambda _venv: version


def openmpi_version(_venv: Path) -> str | None:
    """Only Open MPI's mpirun: another MPI has other options."""
    if not shutil.which("mpirun"):
        return None
    text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    first = text.splitlines()[0] if text else ""
    return f"(Open MPI) {first.rsplit(' ', 1)[-1]}" if "Open MPI" in first else None


FLOOR = Contender("bare loop", always("-"), loop)
DRUMLINE = Contender("Drumline", packaged("drumline"), drumline, closing=drumline_warm_stop)
TORCHRUN = Contender("torchrun (static)", packaged("torch"), torchrun_static)
TORCHRUN_C10D = Contender("torchrun (c10d)", packaged("torch"), torchrun_c10d)
ACCELERATE = Contender("accelerate", packaged("accelerate"), accelerate)
MPIRUN = Contender("mpirun (Open MPI)", openmpi_version, mpirun)

DRUMLINE_MPI = Contender(
    "Drumline (mpi)",
    lambda venv: packaged("drumline")(venv) if openmpi_version(venv) else None,
    drumline_mpi,
    closing=drumline_warm_stop,
)

STARTERS = (
    FLOOR,
    DRUMLINE,
    DRUMLINE_MPI,
    TORCHRUN,
    TORCHRUN_C10D,
    MPIRUN,
    ACCELERATE,
    Contender("TorchX (local_cwd)", packaged("torchx"), torchx),
)
STOPPERS = (
    replace(DRUMLINE, commands=spawning(drumline)),
    replace(DRUMLINE_MPI, commands=spawning(drumline_mpi)),
    TORCHRUN,
    TORCHRUN_C10D,
    Contender("torchrun (one node)", packaged("torch"), torchrun_one_node),
    MPIRUN,
)
