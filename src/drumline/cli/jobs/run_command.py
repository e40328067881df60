"""The work of ``drumline run``: a job from its arguments, and its logs until it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import (
    Parser,
    add_env,
    add_python,
    add_variables,
    add_warm,
    add_workspace,
    enter_workspace,
    parse_variables,
    use_python,
)
from drumline.cli.jobs.standby import Standby
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import NoReturn

    from drumline.contract.folder import RunFolder
    from drumline.control.submission.submit import Submitted
    from drumline.spec.jobs.command import Command

_CLOSED_PIPE = 141
_INTERRUPTED = 130
_END_TIMEOUT_S = 5.0
"""For an engine elsewhere to end a job at once, before the command leaves it to that."""

_FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SETTINGS = ("grace", "hang_after", "hang_action", "max_restarts", "once", "warm", "chief", "evaluator")
"""Options that are keys of ``drumline:``."""


def main(argv: list[str], standby: Standby | None = None) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    arguments = _make_parser().parse_args(argv[:at])
    program = argv[at + 1 :] or arguments.program
    for option, count in (("--nodes", arguments.nodes), ("--procs", arguments.procs)):
        if count is not None and count < 1:
            raise UsageError(f"{option} must be at least 1; got {count}")
    if arguments.env or arguments.secret:
        from drumline.cli import variables

        variables.hide_values(arguments.env)
        variables.hide_typed(arguments.secret)
    if not program:
        raise UsageError(
            "the program to run is missing", "drumline run --nodes 2 --procs 2 -- python train.py"
        )
    use_python(arguments.python)
    with enter_workspace(arguments.workspace_name):
        return _run(arguments, program, standby)


def _run(arguments: Namespace, program: list[str], standby: Standby | None) -> int:
    try:
        folder = os.getcwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder no longer exists", "cd to an existing folder") from error
    _check_program(program[0], is_here=arguments.compute is None)
    program = _name_python(program, arguments.python)
    if arguments.compute is None:
        standby = standby or Standby()
    from drumline.control.submission.planning import RunOptions, plan
    from drumline.control.submission.submit import submit

    job = _build_job(arguments, program)
    if arguments.secret:
        from drumline.cli import variables

        variables.set_secrets(job, arguments.secret)
    run = RunOptions(in_place=folder, argv=tuple(program))
    if arguments.ranks:
        from drumline.control.logs import printer

        printer.labels_of(arguments.ranks, plan(job, run))
    # A Ctrl-C while the job is being submitted waits until there is something to pass it on to.
    # An engine that has to be asked for minutes may be interrupted.
    waits = _FORWARDED_SIGNALS if standby is not None else ()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waits)
    try:
        # Not checked as a whole: it was made here, of options that were.
        submitted = submit(job, run, start=standby, check=False)
        # The supervisor has work to do meanwhile.
        from drumline.control.terminal import clean

        if not arguments.detach:
            _cancel_on_signals(_make_canceler(submitted))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    from drumline.control.jobs import stored_code

    if not arguments.secret:  # Whose files may lie in the folder.
        stored_code.store_code(submitted.folder, folder)
    for warning in submitted.warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)
    if arguments.detach:
        print(submitted.name)
        return 0
    try:
        return _follow(submitted.folder, arguments)
    except _NotEndedError:
        from drumline.control.jobs import lookup

        show = f"drumline job show {lookup.as_arguments(submitted.name)}"
        print(f"job {submitted.name} was canceled and has not ended yet; see {show}", file=sys.stderr)
        return _INTERRUPTED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _check_program(program: str, *, is_here: bool) -> None:
    """Refuse a script without its interpreter, which torchrun takes, a line in quotes (ssh does), and a job file."""
    if " " not in program and not program.endswith((".py", ".yml", ".yaml")):
        return
    import shlex
    import shutil

    if program.endswith((".yml", ".yaml")) and shutil.which(program) is None:
        hint = f"drumline job create -f {shlex.quote(program)} runs a job file"
        raise UsageError(f"{program!r} is not a program", hint)
    if is_here and " " in program and not os.path.exists(program) and shutil.which(program) is None:
        hint = f"without the quotes: drumline run ... -- {program}; a line of the shell: bash -c {shlex.quote(program)}"
        raise UsageError(f"there is no program {program!r}", hint)
    if (
        program.endswith(".py")
        and "/" not in program
        and os.path.isfile(program)
        and not shutil.which(program)
    ):
        # Of Debian's programs, none is "python".
        python = "python" if shutil.which("python") else "python3"
        raise UsageError(f"{program!r} is a script, not a program", f"drumline run ... -- {python} {program}")


def _name_python(program: list[str], named: str | None) -> list[str]:
    """Return the program with the Python that ``--python`` names, unless ``python`` of its folder is the same file."""
    if named is None or program[0] != "python":
        return program
    from drumline.control.environments import environment_builds

    python = environment_builds.find_named(named)
    try:
        is_same = os.path.samefile(os.path.join(os.path.dirname(python), "python"), python)
    except OSError:
        is_same = False
    return program if is_same else [python, *program[1:]]


def _parse_seconds(text: str) -> float:
    """Parse seconds. Raises ValueError, which argparse turns into a message."""
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


_parse_seconds.__name__ = "number of seconds"  # argparse: invalid number of seconds value: '-1'


def _make_parser() -> Parser:
    parser = _RunParser(
        prog="drumline run",
        usage="drumline run [options] [--] PROGRAM [arguments]",
        description="Run a program once per rank in the current folder, and show the output of all ranks. "
        "Ctrl-C stops the job; a second Ctrl-C kills it. The exit code is the job's.",
    )
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="the number of nodes; default 1")
    parser.add_argument("--procs", type=int, metavar="P", help="processes on each node; default 1")
    parser.add_argument(
        "--distribution",
        choices=("pytorch", "mpi", "tensorflow", "ray", "plain"),
        default="pytorch",
        help="how ranks find each other; default pytorch",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        default=None,
        help="run the program on node 0 alone: it is a launcher; its ssh and pdsh reach the other nodes",
    )
    parser.add_argument("--compute", metavar="NAME", help="an attached compute; default: this machine")
    parser.add_argument(
        "--isolate",
        action="store_true",
        help="give each node its own network, host name and shared memory, as on a cluster",
    )
    parser.add_argument(
        "--link",
        metavar="RATE[,LATENCY[,LOSS]]",
        help="with --isolate: the line between nodes, such as 1gbit or 1gbit,5ms,1%%",
    )
    add_python(parser)
    add_workspace(parser)
    parser.add_argument("--workers", type=int, help="tensorflow: the number of workers; default one per node")
    parser.add_argument("--ps", type=int, help="tensorflow: the number of parameter servers; default 0")
    parser.add_argument("--chief", action="store_true", default=None, help="tensorflow: add a chief")
    parser.add_argument("--evaluator", action="store_true", default=None, help="tensorflow: add an evaluator")
    parser.add_argument("--name", help="the job's name; default: a generated one")
    add_env(parser)
    add_variables(parser)
    parser.add_argument("--timeout", type=int, metavar="S", help="the time limit of the job in seconds")
    parser.add_argument(
        "--grace", type=_parse_seconds, metavar="S", help="seconds between SIGTERM and SIGKILL; default 30"
    )
    parser.add_argument(
        "--hang-after",
        type=_parse_seconds,
        metavar="S",
        help="seconds without progress of any rank after which a hang is reported; default 300, 0: never",
    )
    parser.add_argument(
        "--hang-action",
        choices=("report", "end", "restart"),
        help="what to do when the job hangs; default report",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="how often to start all ranks again after one fails; default 0",
    )
    add_warm(parser, "DRUMLINE_WARM, else auto")
    parser.add_argument("--ranks", default="", help="show only these ranks: 0,3-5")
    parser.add_argument(
        "--prefix",
        action="store_true",
        default=None,
        help="begin every line with [RANK|node-N], with one rank too",
    )
    parser.add_argument("--no-prefix", action="store_false", dest="prefix", help="begin no line with it")
    parser.add_argument("-d", "--detach", action="store_true", help="print the job's name and return")
    parser.add_argument("program", nargs="...", help="the program and its arguments")
    return parser


_FOREIGN_OPTIONS = {
    "-n": "--procs, the processes on each node",
    "-np": "--procs, the processes on each node",
    "--nproc-per-node": "--procs",
    "--nproc_per_node": "--procs",
    "--num_processes": "--procs, the processes on each node",
    "--nnodes": "--nodes",
    "--num_machines": "--nodes",
}
"""Options of mpirun, torchrun and accelerate, and ours for the same."""


class _RunParser(Parser):
    def error(self, message: str) -> NoReturn:
        for word in message.replace("=", " ").split():
            if word in _FOREIGN_OPTIONS:
                raise UsageError(message, f"use {_FOREIGN_OPTIONS[word]}")
        super().error(message)


def _build_job(arguments: Namespace, program: list[str]) -> Command:
    import shlex

    from drumline.spec.jobs.command import command
    from drumline.spec.paths import default_experiment_name

    compute, variables = None, {}
    if arguments.compute is not None:
        from drumline.control.machine import computes

        # Unlike a job file's, a typed name must exist here.
        compute = computes.refer_to(arguments.compute)
    if arguments.env_file:
        from drumline.cli.variables import read_env_files

        variables = read_env_files(arguments.env_file)
    return command(
        name=arguments.name,
        display_name=arguments.name,
        experiment_name=default_experiment_name(os.getcwd()),
        # For display; the job runs the words themselves, which may be any bytes.
        command=shlex.join(program).encode("utf-8", "backslashreplace").decode(),
        distribution=_build_distribution(arguments),
        compute=compute,
        instance_count=arguments.nodes,
        environment_variables={**variables, **parse_variables(arguments.env)},
        timeout=arguments.timeout,
        properties=_describe_isolation(arguments),
        drumline={name: value for name in _SETTINGS if (value := getattr(arguments, name)) is not None},
    )


def _describe_isolation(arguments: Namespace) -> dict[str, str]:
    """Return the property that asks for isolated nodes, if the options do. Raises UsageError, SpecError."""
    if not arguments.isolate:
        if arguments.link is not None:
            raise UsageError(
                "--link needs --isolate", "nodes that share this machine have no line between them"
            )
        return {}
    from drumline.control.machine import computes
    from drumline.control.submission.run_folder import ISOLATION

    return {ISOLATION: computes.describe_nodes(arguments.link or "")}


def _build_distribution(arguments: Namespace) -> dict[str, Any] | None:
    kind = arguments.distribution
    given = {
        "--procs": (arguments.procs, ("pytorch", "mpi")),
        "--workers": (arguments.workers, ("tensorflow",)),
        "--ps": (arguments.ps, ("tensorflow",)),
        "--chief": (arguments.chief, ("tensorflow",)),
        "--evaluator": (arguments.evaluator, ("tensorflow",)),
    }
    for option, (value, kinds) in given.items():
        if value is not None and kind not in kinds:
            raise UsageError(f"{option} needs --distribution {' or '.join(kinds)}; got {kind}")
    if kind == "plain":
        return None
    if kind == "ray":
        return {"type": kind}
    if kind != "tensorflow":
        return {"type": kind, "process_count_per_instance": 1 if arguments.procs is None else arguments.procs}
    return {
        "type": kind,
        "worker_count": arguments.nodes if arguments.workers is None else arguments.workers,
        "parameter_server_count": arguments.ps or 0,
    }


class _NotEndedError(BaseException):
    """A job of a remote engine was killed and has not ended for a while. Nothing else catches it."""


def _make_canceler(submitted: Submitted) -> Callable[[bool], object]:
    """Return what a signal does to that job. It must not block, so a remote engine is not asked here."""
    from drumline.control.jobs import ending
    from drumline.engines.engine_table import is_elsewhere

    if submitted.plan is None or not is_elsewhere(submitted.plan.engine):
        return lambda at_once: ending.cancel(submitted.name, at_once=at_once)

    def leave(_number: int, _frame: object) -> None:
        raise _NotEndedError

    def ask(at_once: bool) -> None:
        # The process that follows the job sees the request, and removes the job from the queue.
        ending.request(submitted.folder, at_once=at_once)
        ending.wake(submitted.folder)
        if at_once:
            signal.signal(signal.SIGALRM, leave)
            signal.setitimer(signal.ITIMER_REAL, _END_TIMEOUT_S)

    return ask


def _cancel_on_signals(cancel: Callable[[bool], object]) -> None:
    """
    Handle signals: the first sends TERM to the ranks, the second KILL, the third leaves the job to its supervisor.

    The handler runs between any two steps of the rest, in the middle of an import or a print too: it neither
    imports nor prints.
    """
    count = 0

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        if count > 2:
            raise KeyboardInterrupt
        said = b"stopping the job; press Ctrl-C again to kill it\n" if count == 1 else b"killing the job\n"
        with contextlib.suppress(OSError):
            os.write(2, said)
        cancel(count > 1)

    for number in _FORWARDED_SIGNALS:
        signal.signal(number, on_signal)


def _follow(folder: RunFolder, arguments: Namespace) -> int:
    from drumline.control.facts import doubts
    from drumline.control.jobs.ending import cancel, wait_for_end
    from drumline.control.logs import printer, stream

    progress = None
    if sys.stderr.isatty():
        from drumline.cli import output

        progress = output.choose_progress()
    try:
        view = printer.LogView(
            sys.stdout, prefix=arguments.prefix, progress=progress, warn=doubts.list_warnings
        )
        outcome = stream.follow(folder, view, arguments.ranks)
    except OSError as error:
        # `drumline run ... | head`: the reader is gone, so the job is canceled; on a full disk too.
        cancel(folder.name, by="drumline run, because its output was closed")
        wait_for_end(folder)
        if not isinstance(error, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    shown = None
    with contextlib.suppress(BrokenPipeError):
        # Of one terminal, file or pipe, and so with the same reader.
        with contextlib.suppress(OSError):
            shown = view if os.path.samestat(os.fstat(1), os.fstat(2)) else None
        ending = stream.ending(folder, outcome, shown)
        if sys.stderr.isatty():
            from drumline.cli.colour import paint_ending

            ending = paint_ending(ending, sys.stderr)
        print(ending, end="", file=sys.stderr)
    return outcome.exit_code if outcome.exit_code is not None else 1
