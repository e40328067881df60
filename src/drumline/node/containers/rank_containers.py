"""
Ranks in containers, as their agent has them: the program that becomes the rank's process (``rank_process.py``), and
what is left of a container whose processes were killed.

In a node's folder for temporary files there is one for containers: a file a container, named as that is, with the kind
of its engine and the number of the rank's process in it, and for each rank's process the number of the first process in
its container. The job can write there too, so nothing in it is trusted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.folder import open_plain
from drumline.contract.record import compile_late
from drumline.node import hook_folder
from drumline.node.containers import command_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    env.update({command_line.APART_PREFIX + name: value for name, value in apart.items()})
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
