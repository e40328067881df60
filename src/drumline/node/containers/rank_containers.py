"""
Ranks in containers, as their agent has them: the program that becomes the rank's process (``rank_process.py``), the
command line of its engine, and what is left of a container whose processes were killed.

In a node's folder for temporary files there is one for containers: a file a container, named as that is, with the kind
of its engine and the number of the rank's process in it, and for each rank's process the number of the first process in
its container. The job can write there too, so nothing in it is trusted.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import resource
import stat
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import open_plain
from drumline.contract.record import NamedTuple, compile_late
from drumline.linux import cgroups
from drumline.node import hook_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


ENGINES = ("podman", "docker")
"""Those whose containers have names; an apptainer's is nothing but its processes."""

_NAME = compile_late(r"drumline-[0-9a-f]{16}")
_FOLDER = "containers"
_REMOVE_TIMEOUT_S = 20.0

_CLIENT_VARIABLES = compile_late(
    r"HOME|PATH|LD_LIBRARY_PATH|LD_PRELOAD|XDG_\w*|CONTAINERS_\w*|CONTAINER_(HOST|CONNECTION|SSHKEY)|BUILDAH_[A-Z]+"
    r"|DOCKER_(HOST|CONTEXT|CONFIG|CERT_PATH|TLS\w*|API_VERSION|DEFAULT_PLATFORM|CONTENT_TRUST|CONTENT_TRUST_SERVER)",
    re.ASCII,
)
"""
Variables that a client of an engine heeds: a job's own are for its program alone, and reach it under other names.
"""


def wrap_command(
    container: Mapping[str, Any],
    argv: Iterable[str],
    variables: Mapping[str, str],
    own: Iterable[str],
    cwd: str,
    scratch: str,
) -> tuple[list[str], dict[str, str]]:
    """
    Return what to start instead of ``argv``, and with which variables. ``own``: the names of variables that the rank
    always gets; it gets others where they differ from the agent's own.
    """
    named = set(own) | {name for name, value in variables.items() if os.environ.get(name) != value}
    hook = hook_folder.HOOK if variables.get("PYTHONPATH", "").startswith(hook_folder.HOOK) else ""
    if "PYTHONPATH" not in own:
        named.discard("PYTHONPATH")
    apart = {name: variables[name] for name in sorted(named) if _CLIENT_VARIABLES.fullmatch(name)}
    if os.getuid() and container["kind"] in ENGINES:
        # The image knows nothing of this user.
        apart = {"HOME": variables.get("TMPDIR", "/tmp"), "USER": f"user-{os.getuid()}", **apart}  # noqa: S108
    told = {
        **container,
        "program": find_engine_program(container["kind"]),
        "names": sorted(name for name in named if name in variables),
        "set": sorted(apart),
        "cwd": cwd,
        "hook": hook,
        "state": os.path.join(scratch, _FOLDER) if scratch else "",
    }
    env = {name: value for name, value in variables.items() if name not in apart}
    env.update({name: os.environ[name] for name in apart if name in os.environ})
    # Not in words: every user can read a command line.
    env.update({APART_PREFIX + name: value for name, value in apart.items()})
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_process.py")
    return [sys.executable, "-I", "-S", program, json.dumps(told), *argv], env


def find_engine_program(kind: str) -> str:
    """Return the engine's program with its path, where it is on this machine's PATH, else its name."""
    import shutil

    names = ("apptainer", "singularity") if kind == "apptainer" else (kind,)
    return next(filter(None, map(shutil.which, names)), kind)


def get_pid_file(state: str, pid: int) -> str:
    return os.path.join(state, f"pid-{pid}")


def find_inner_pid(scratch: str, pid: int) -> int:
    """Return the first process in the container of the rank's process ``pid``; that itself where there is none."""
    found = read_number(get_pid_file(os.path.join(scratch, _FOLDER), pid))
    return found if found and os.path.exists(f"/proc/{found}") else pid


def find_name(state: str, pid: int) -> str:
    """Return the name of the container of the rank's process ``pid``; empty where there is none."""
    with contextlib.suppress(OSError):
        for name in filter(_NAME.fullmatch, os.listdir(state)):
            if _read_record(state, name)[1:2] == [str(pid)]:
                return name
    return ""


def read_number(path: str) -> int:
    """Return the number that is in a file as a line; 0 where there is none."""
    try:
        with open_plain(path) as file:
            line = file.read(20)
    except OSError:
        return 0
    return int(line) if line.endswith(b"\n") and line.strip().isdigit() else 0


def remove_containers(scratch: str) -> None:
    """
    Have the engine forget, and end, what is left of the containers of a node; its processes are killed before, where
    they are ours. Blocks, for seconds at most where there are any. Never raises.
    """
    folder = os.path.join(scratch, _FOLDER)
    try:
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError:
        return
    for kind in ENGINES:
        left = [name for name in names if _read_record(folder, name)[:1] == [kind]]
        if left:
            _remove_from_engine(kind, left)
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def _read_record(folder: str, name: str) -> list[str]:
    """Return the lines of a container's file: its engine, and the rank's process; none where there is no such file."""
    try:
        with open_plain(os.path.join(folder, name)) as file:
            return file.read(64).decode("ascii", "replace").split("\n")
    except OSError:
        return []


def _remove_from_engine(kind: str, names: Iterable[str]) -> None:
    import subprocess

    # Without a limit of its own podman waits ten seconds before it kills.
    at_once = ["--ignore", "--time", "0"] if kind == "podman" else []
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(  # noqa: S603 - one of two programs, with names that were checked
            [find_engine_program(kind), "rm", "--force", *at_once, *names],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVE_TIMEOUT_S,
            check=False,
        )


# The command line of an engine of containers for one rank. Paths, user and limits are the same inside and outside, the
# processes are those of the machine, and PATH, HOME and the libraries are the image's.
# Sources: podman-run(1), https://docs.docker.com/reference/cli/docker/container/run/,
# https://apptainer.org/docs/user/main/cli/apptainer_exec.html


APART_PREFIX = "DRUMLINE_APART_"
"""Before the name of a variable that is for the program alone, and not for the engine's client."""

_INSIDE = """\
echo $$ >"$1" || exit 126
[ -z "$2" ] || exec </dev/null >>"$2" 2>&1
[ -z "$3" ] || export PYTHONPATH="$3${PYTHONPATH:+:$PYTHONPATH}"
for name in $4; do eval "export $name=\\"\\$DRUMLINE_APART_$name\\"; unset DRUMLINE_APART_$name"; done
shift 4
exec "$@"
"""
"""
What starts the program in its container: the number of its process is written down; what it prints goes straight to
the log; the folder of our hook comes before the image's own PYTHONPATH; variables that were not for the client get
their names. The arguments: those three, the names, then the program.
"""

UNLIMITED = -1


class HostFacts(NamedTuple):
    """Facts that are only known where the rank starts."""

    name: str
    """Of the container."""

    user: int
    group: int
    limits: Mapping[str, tuple[int, int]]
    """``nofile``: what is allowed, and what it may be raised to; ``UNLIMITED``."""

    shared_bytes: int
    """The size of the machine's shared memory."""

    cores: tuple[int, ...]
    """Processor numbers to keep to; empty: all."""

    has_gpus: bool
    described_gpus: bool
    """Whether the machine has a description of its GPUs for containers (CDI)."""

    gpu_devices: tuple[str, ...]
    """Device files."""

    mounts: tuple[str, ...]
    """Absolute paths that exist."""

    pid_file: str
    log: str
    """Where the program writes; empty: to the engine's client."""


def build_command_line(told: Mapping[str, Any], facts: HostFacts, program: Sequence[str]) -> list[str]:
    """
    Return the words that start the program in a container.

    ``told``: kind, image, pull, shm_bytes, arguments of ``Plan.container``; cwd; hook, the folder of ours, or empty;
    names, of the variables that the rank gets; and ``set``, of those that the client must not see itself.
    """
    apart = "" if told["kind"] == "apptainer" else " ".join(told["set"])
    # The user's own PYTHONPATH replaces the image's, and has the hook in it.
    hook = "" if "PYTHONPATH" in told["names"] else told["hook"]
    inside = ["-c", _INSIDE, "sh", facts.pid_file, facts.log, hook, apart, *program]
    if told["kind"] == "apptainer":
        return [*_build_apptainer_words(told, facts), told["image"], "/bin/sh", *inside]
    return [*_build_run_words(told, facts), told["image"], *inside]


def build_variables(told: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of the client. An apptainer takes the rank's variables from its own, under other names."""
    if told["kind"] != "apptainer":
        return dict(environ)
    prefix = "SINGULARITYENV_" if os.path.basename(told["program"]) == "singularity" else "APPTAINERENV_"
    given = {name: environ[name] for name in _list_names(told) if name in environ}
    given |= {name: environ[APART_PREFIX + name] for name in told["set"]}
    others = {name: value for name, value in environ.items() if not name.startswith(APART_PREFIX)}
    return {**others, **{prefix + name: value for name, value in given.items()}}


def has_private_memory(told: Mapping[str, Any], facts: HostFacts) -> bool:
    """Return whether each rank has its own shared memory, because the job asks for more than the machine's."""
    return told["kind"] != "apptainer" and bool(told["shm_bytes"]) and told["shm_bytes"] > facts.shared_bytes


def _build_run_words(told: Mapping[str, Any], facts: HostFacts) -> list[str]:
    docker = told["kind"] == "docker"
    words = [told["program"], "run", "--rm", "--name", facts.name, f"--pull={told['pull']}"]
    words += ["--network", "host", "--pid", "host"]
    words += ["--shm-size", str(told["shm_bytes"])] if has_private_memory(told, facts) else ["--ipc", "host"]
    words += ["--security-opt", "label=disable", "--log-driver", "none", "--entrypoint", "/bin/sh"]
    for name, (soft, hard) in facts.limits.items():
        words += ["--ulimit", f"{name}={soft}:{hard}"]
    # Whoever the image's own user is.
    words += ["--user", f"{facts.user}:{facts.group}"]
    if docker:
        words += ["--cpuset-cpus", ",".join(map(str, facts.cores))] if facts.cores else []
    else:
        # What watches the container stays in the control group that ends with the job.
        words += ["--cgroups", "no-conmon"]
        words += ["--userns", "keep-id"] if facts.user else []
    words += _build_gpu_words(facts, docker=docker)
    for path in facts.mounts:
        words += _build_mount_words(path)
    words += ["--workdir", told["cwd"]]
    # By name alone: values are nobody's who lists processes.
    for name in (*_list_names(told), *(APART_PREFIX + one for one in told["set"])):
        words += ["--env", name]
    return [*words, *told["arguments"]]


def _build_gpu_words(facts: HostFacts, *, docker: bool) -> list[str]:
    """Return the words that pass all GPUs on; CUDA_VISIBLE_DEVICES says which are the job's, as without a container."""
    if not facts.has_gpus:
        return []
    if docker:
        return ["--gpus", "all"]
    if facts.described_gpus:
        return ["--device", "nvidia.com/gpu=all"]
    # For the older way, a hook of podman's that reads these.
    words = ["--env", "NVIDIA_VISIBLE_DEVICES=all", "--env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    for device in facts.gpu_devices:
        words += ["--device", device]
    return words


def _build_mount_words(path: str) -> list[str]:
    """Return the words that mount a path at its own place. Raises ValueError for a path that no word can hold."""
    if ":" not in path:
        return ["--volume", f"{path}:{path}"]
    if "," not in path:
        return ["--mount", f"type=bind,source={path},target={path}"]
    raise ValueError(f"{path} has ':' and ',' in it, and cannot be mounted in a container")


def _build_apptainer_words(told: Mapping[str, Any], facts: HostFacts) -> list[str]:
    words = [told["program"], "--quiet", "exec", "--cleanenv", "--no-home", "--pwd", told["cwd"]]
    words += ["--nv"] if facts.has_gpus else []
    for path in facts.mounts:
        if ":" in path or "," in path:
            raise ValueError(f"{path} has ':' or ',' in it, and cannot be mounted in a container")
        words += ["--bind", path]
    return words


def _list_names(told: Mapping[str, Any]) -> list[str]:
    return [name for name in told["names"] if name not in told["set"]]


# Facts of a rank's container that are only known where it starts: paths that exist, limits, GPUs, the log.

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - measured alone
_LIMITS = {
    "nofile": resource.RLIMIT_NOFILE,
    "nproc": resource.RLIMIT_NPROC,
    "memlock": resource.RLIMIT_MEMLOCK,
}


def gather_facts(told: Mapping[str, Any], pid_file: str) -> HostFacts:
    has_gpus = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    paths = sorted(glob.glob("/dev/nvidia*")) if has_gpus else ()
    nodes = [path for path in paths if stat.S_ISCHR(os.stat(path).st_mode)]
    cores = os.sched_getaffinity(0)
    return HostFacts(
        name=f"drumline-{os.urandom(8).hex()}",
        user=os.getuid(),
        group=os.getgid(),
        limits=_read_limits(),
        shared_bytes=_read_size(_SHARED_MEMORY),
        cores=tuple(sorted(cores)) if len(cores) < (os.cpu_count() or 0) else (),
        has_gpus=has_gpus,
        described_gpus=any(glob.glob(f"{folder}/*nvidia*") for folder in ("/etc/cdi", "/run/cdi")),
        gpu_devices=tuple(nodes) if has_gpus else (),
        mounts=list_mounts(told),
        pid_file=pid_file,
        log=_find_log(),
    )


def list_mounts(told: Mapping[str, Any]) -> tuple[str, ...]:
    """List the paths that exist, and where links among them lead; without those below another."""
    # The hook answers azureml's Run from the package that it is part of.
    hook = [os.path.join(told["hook"], "..", "..")] if told["hook"] else []
    wanted = [*told["mounts"], told["state"], told["cwd"], *hook]
    if os.environ.get("TMPDIR"):
        wanted.append(os.environ["TMPDIR"])
    there = {os.path.abspath(path) for path in wanted if os.path.exists(path)}
    there |= {os.path.realpath(path) for path in there if os.path.islink(path)}
    chosen: list[str] = []
    for path in sorted(there):
        if not any(path == other or path.startswith(f"{other}/") for other in chosen) and path != "/":
            chosen.append(path)
    return tuple(chosen)


def _find_log() -> str:
    """Return the file that standard output and error both go to; empty if they go to no file, or to two."""
    try:
        both = [os.fstat(number) for number in (1, 2)]
        path = os.readlink("/proc/self/fd/1")
        known = os.stat(path)
    except OSError:
        return ""
    same = {(one.st_dev, one.st_ino) for one in (*both, known)}
    return path if len(same) == 1 and stat.S_ISREG(known.st_mode) else ""


def _read_limits() -> dict[str, tuple[int, int]]:
    found = {name: resource.getrlimit(number) for name, number in _LIMITS.items()}
    most = cgroups.read_number("/proc/sys/kernel/pid_max") or 1 << 15
    # Podman lowers its own to this, and may not be allowed to raise a container's above that.
    soft, hard = (most if one == resource.RLIM_INFINITY else min(one, most) for one in found["nproc"])
    found["nproc"] = (soft, hard)
    return {
        name: (
            UNLIMITED if soft == resource.RLIM_INFINITY else soft,
            UNLIMITED if hard == resource.RLIM_INFINITY else hard,
        )
        for name, (soft, hard) in found.items()
    }


def _read_size(folder: str) -> int:
    try:
        known = os.statvfs(folder)
    except OSError:
        return 0
    return known.f_frsize * known.f_blocks
