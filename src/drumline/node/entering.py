"""
A command beside a rank: with its environment variables, working folder and cores, in its container if it has one.

It is no part of the rank. It is not below the agent, has no marker of the run and no place for notes of failures, so
nothing that watches the job counts it. It ends with the job at the latest, with everything that it has started.

    python -m drumline.node enter RUN_FOLDER LABEL PID AGENT_PID [WORD...]    WORD: the command; none: a shell

Two processes look after it. The first waits; the second starts the command, and ends everything that is left of it,
even if the first is killed. If the second is killed, the command dies with it, and the first ends the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.folder import MARKER
from drumline.contract.record import NamedTuple
from drumline.linux import descendants, kernel, namespaces
from drumline.node import hook_folder
from drumline.node.containers import rank_containers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

JOB_ENDED = 129
"""The exit code where the job ended first: that of a program whose terminal was closed."""

NOT_FOUND, NOT_EXECUTABLE = 127, 126

_NOTES = "DRUMLINE_FAILURES"
_TOKEN = "DRUMLINE_BESIDE"  # noqa: S105 - the name of a variable
_TERMINAL = ("TERM", "COLORTERM", "COLUMNS", "LINES")
"""Variables of the terminal that the command has, which is not that of the rank."""

_GRACE_S = 1.0
_MAX_BYTES = 4 << 20

_INSIDE = """\
for name in $1; do eval "export $name=\\"\\$DRUMLINE_APART_$name\\"; unset DRUMLINE_APART_$name"; done
shift
[ $# -gt 0 ] || set -- "$(command -v bash || echo sh)"
exec "$@"
"""
"""What starts the command in a container; the first argument: names of variables."""


class BesideCommand(NamedTuple):
    """
    A command with all that it starts with. ``token``: in its environment, by which what it has started is found.
    ``spaces``: descriptors and kinds of the namespaces of the rank's node that are not this process's.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    cores: set[int]
    token: str
    spaces: tuple[tuple[int, int], ...] = ()


def make_command(run_folder: str, label: str, pid: int, words: Sequence[str]) -> BesideCommand:
    """
    Return the command for the place of the rank whose process is ``pid``. Raises NotFoundError when that has ended,
    UsageError for another user's.
    """
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
        if owner != os.geteuid():
            raise UsageError(f"rank {label} belongs to another user; only the owner of a job can enter it")
        variables = _read_variables(pid)
        cwd = os.readlink(f"/proc/{pid}/cwd")
        cores = os.sched_getaffinity(pid)
        arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")
        spaces = namespaces.open_others(pid)
    except OSError as error:
        raise NotFoundError(f"rank {label} has ended") from error
    if os.path.realpath(variables.get(MARKER, "/")) != os.path.realpath(run_folder):
        raise NotFoundError(f"rank {label} has ended")
    token = os.urandom(8).hex()
    if len(arguments) > 4 and arguments[3].endswith(b"/node/containers/rank_process.py"):
        told = json.loads(arguments[4])
        argv, env = _enter_container(told, label, pid, variables, words, token)
        return BesideCommand(argv, env, "/", cores, token)
    argv = list(words) or [variables.get("SHELL") or "/bin/sh"]
    return BesideCommand(argv, make_variables(variables, os.environ, token), cwd, cores, token, spaces)


def make_variables(rank: Mapping[str, str], own: Mapping[str, str], token: str) -> dict[str, str]:
    """Return the variables of a command beside a rank that has those; ``own``: of the process that starts it."""
    env = {name: value for name, value in rank.items() if name not in (MARKER, _NOTES, *_TERMINAL)}
    env.update({name: own[name] for name in _TERMINAL if name in own})
    paths = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path != hook_folder.HOOK]
    env["PYTHONPATH"] = os.pathsep.join(paths)
    if not env["PYTHONPATH"]:
        del env["PYTHONPATH"]
    env[_TOKEN] = token
    return env


def _enter_container(
    told: Mapping[str, Any],
    label: str,
    pid: int,
    client: Mapping[str, str],
    words: Sequence[str],
    token: str,
) -> tuple[list[str], dict[str, str]]:
    """Return the client's command line and variables. ``told``: as of ``rank_containers.wrap_command``."""
    if told["kind"] not in rank_containers.ENGINES:
        # It isolates nothing but paths: another container of the image is the same place.
        facts = rank_containers.gather_facts(told, os.devnull)._replace(log="")
        env = make_variables(client, os.environ, token)
        told = {**told, "names": [*told["names"], _TOKEN], "hook": ""}
        inside = [*words] or ["/bin/sh"]
        return rank_containers.build_command_line(told, facts, inside), rank_containers.build_variables(
            told, env
        )
    inner = rank_containers.read_number(rank_containers.get_pid_file(told["state"], pid))
    name = rank_containers.find_name(told["state"], pid)
    if not inner or not name:
        raise NotFoundError(f"the container of rank {label} is not there yet, or no longer")
    env = make_variables(_read_variables(inner), os.environ, token)
    apart = {name: value for name, value in env.items() if name.isidentifier()}
    argv = [told["program"], "exec", "--interactive", *(["--tty"] if os.isatty(0) and os.isatty(1) else [])]
    argv += ["--workdir", told["cwd"]]
    for variable in apart:
        # By name alone: values are nobody's who lists processes.
        argv += ["--env", rank_containers.APART_PREFIX + variable]
    argv += [name, "/bin/sh", "-c", _INSIDE, "sh", " ".join(apart), *words]
    own = {one: value for one, value in client.items() if one not in (MARKER, _NOTES)}
    return argv, {**own, **{rank_containers.APART_PREFIX + one: value for one, value in apart.items()}}


def run_beside(command: BesideCommand, label: str, agent: int) -> int:
    """
    Run it with this process's input and output, and return its exit code, or JOB_ENDED. Blocks. ``agent``: a descriptor
    of the process of the rank's agent. To be called in the main thread of a process that has no children.
    """
    kernel.adopt_orphans()
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    restore_terminal = _remember_terminal()
    # The end of this process closes its end of the pipe.
    reader, writer = os.pipe()
    guard = os.fork()
    if guard == 0:
        code = 1
        try:
            os.close(writer)
            code = _guard(command, label, agent, reader)
        finally:
            os._exit(code)
    os.close(reader)
    code = _wait_for(guard)
    os.close(writer)
    _end_all(command.token)
    restore_terminal()
    kernel.adopt_orphans(wanted=False)
    for number, handler in before.items():
        signal.signal(number, handler)
    return code


def _wait_for(pid: int) -> int:
    """Return the exit code of a child as shells have it. Blocks."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code if code >= 0 else 128 - code


def _guard(command: BesideCommand, label: str, agent: int, parent: int) -> int:
    kernel.adopt_orphans()
    # A terminal that hangs up, or Ctrl-Z, must not take away the process that ends the others.
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    pid = _start(command)
    program = os.pidfd_open(pid)
    poller = select.poll()
    for descriptor in (program, agent, parent):
        poller.register(descriptor, select.POLLIN)
    ready = [descriptor for descriptor, _ in poller.poll()]
    if program in ready:
        code = _wait_for(pid)
        _end_all(command.token)
        return code
    _end_all(command.token)
    if agent in ready:
        os.write(2, f"\r\nthe job of rank {label} has ended, and with it this command\r\n".encode())
    return JOB_ENDED


def _start(command: BesideCommand) -> int:
    me = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = NOT_FOUND
    try:
        kernel.die_with_parent(signal.SIGKILL, me)
        kernel.become_ordinary()
        for number in (signal.SIGQUIT, signal.SIGTSTP):
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, command.cores)
        for space, kind in command.spaces:
            namespaces.enter(space, kind)
        os.chdir(command.cwd)
        os.execvpe(command.argv[0], command.argv, command.env)  # noqa: S606 - the user's own program
    except (OSError, ValueError) as error:
        code = NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND
        why = error.strerror if isinstance(error, OSError) else error
        os.write(2, f"could not start {command.argv[0]!r}: {why}\n".encode(errors="replace"))
    finally:
        os._exit(code)


def _end_all(token: str) -> None:
    """End everything below this process, and what a container's engine has started for it elsewhere."""
    # A shell at a terminal heeds this one alone.
    descendants.signal_all(signal.SIGHUP)
    descendants.end_descendants(_GRACE_S)
    marker = f"{_TOKEN}={token}".encode() + b"\0"
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if marker in _read(f"/proc/{name}/environ"):
                    os.kill(int(name), signal.SIGKILL)


def _remember_terminal() -> Any:
    """Return a function that gives the terminal the state that it has now: a program that is killed cannot."""
    try:
        import termios

        state, group = termios.tcgetattr(0), os.getpgrp()
    except (ImportError, OSError, termios.error):
        return lambda: None

    def restore() -> None:
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError, termios.error):
            os.tcsetpgrp(0, group)
            termios.tcsetattr(0, termios.TCSADRAIN, state)
        signal.signal(signal.SIGTTOU, before)

    return restore


def _read_variables(pid: int) -> dict[str, str]:
    """Read the variables of a process. Raises OSError."""
    pairs = (os.fsdecode(one).partition("=") for one in _read(f"/proc/{pid}/environ").split(b"\0") if one)
    return {name: value for name, equals, value in pairs if equals}


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(_MAX_BYTES)


def main(arguments: Sequence[str]) -> int:
    """Run a command beside a rank: ``RUN_FOLDER LABEL PID AGENT_PID [WORD...]``, on the rank's node."""
    run_folder, label, pid, agent, *words = arguments
    try:
        try:
            watched = os.pidfd_open(int(agent))
        except OSError as error:
            raise NotFoundError(f"rank {label} has ended") from error
        return run_beside(make_command(run_folder, label, int(pid), words), label, watched)
    except DrumlineError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
