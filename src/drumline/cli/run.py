"""``drumline run``: a program on several nodes, attached, without a job file."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import Parser, add_warm, add_workspace, in_workspace
from drumline.cli.supervise import Standby
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import NoReturn

    from drumline.contract.folder import RunFolder
    from drumline.control.submit import Submitted
    from drumline.spec.command import Command

_CLOSED_PIPE = 141
_INTERRUPTED = 130
_PATIENCE_S = 5.0
"""For an engine elsewhere to end a job at once, before the command leaves it to that."""

_PASSED_ON = (signal.SIGINT, signal.SIGTERM)
_SETTINGS = ("grace", "hang_after", "hang_action", "max_restarts", "once", "warm", "chief", "evaluator")
"""Options that are keys of ``drumline:``."""


def main(argv: list[str]) -> int:
    own, program = _split(argv)
    arguments = _parser().parse_args(own)
    program = program or arguments.program
    for option, count in (("--nodes", arguments.nodes), ("--procs", arguments.procs)):
        if count is not None and count < 1:
            raise UsageError(f"{option}: {count} is not a number of at least 1")
    if arguments.env:
        from drumline.cli import hide

        hide.values(arguments.env)
    if not program:
        raise UsageError("what is to run is missing", "drumline run --nodes 2 --procs 2 -- python train.py")
    with in_workspace(arguments.workspace_name):
        return _run(arguments, program)


def _run(arguments: Namespace, program: list[str]) -> int:
    folder = _current_folder()
    _check_program(program[0])
    standby = Standby() if arguments.compute is None else None
    from drumline.control.submit import Run, plan, submit

    job = _job(arguments, program)
    run = Run(in_place=folder, argv=tuple(program))
    if arguments.ranks:
        from drumline.control import stream

        stream.labels_of(arguments.ranks, plan(job, run))
    # A Ctrl-C while the job is being submitted waits until there is something to pass it on to.
    # An engine that has to be asked for minutes may be interrupted.
    waits = _PASSED_ON if standby is not None else ()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waits)
    try:
        # Not checked as a whole: it was made here, of options that were.
        submitted = submit(job, run, start=standby, check=False)
        # The supervisor has work to do meanwhile.
        from drumline.control import stream
        from drumline.control.terminal import clean

        if not arguments.detach:
            _cancel_on_signals(_canceler(submitted))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    for warning in submitted.warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)
    if arguments.detach:
        print(submitted.name)
        return 0
    try:
        return _attend(submitted.folder, stream.Show(arguments.ranks, arguments.prefix))
    except _NotEndedError:
        from drumline.control import jobs

        show = f"drumline job show {jobs.as_arguments(submitted.name)}"
        print(f"job {submitted.name} was asked to end and has not ended yet; see {show}", file=sys.stderr)
        return _INTERRUPTED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _current_folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder does not exist any more", "cd to one that does") from error


def _check_program(program: str) -> None:
    """torchrun takes a script by its name; here the program is what would be typed in a shell."""
    if program.endswith(".py") and "/" not in program and os.path.isfile(program):
        import shutil

        if shutil.which(program) is None:
            raise UsageError(
                f"{program!r} is a script, not a program", f"drumline run ... -- python {program}"
            )


def _seconds(text: str) -> float:
    """Raises ValueError, which argparse makes a message of, for what is no number of seconds."""
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise ValueError(text)
    return seconds


_seconds.__name__ = "number of seconds"  # argparse: invalid number of seconds value: '-1'


def _parser() -> Parser:
    parser = _Parser(
        prog="drumline run",
        usage="drumline run [options] [--] PROGRAM [arguments]",
        description="Run a program once per rank in the current folder, and show what all ranks print. "
        "Ctrl-C ends the job; a second one at once. The exit code is the job's.",
    )
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--procs", type=int, metavar="P", help="processes on each node; default 1")
    parser.add_argument(
        "--distribution",
        choices=("pytorch", "mpi", "tensorflow", "ray", "plain"),
        default="pytorch",
        help="default pytorch",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        default=None,
        help="the program is a launcher: run it on node 0 alone; its ssh and pdsh reach the others",
    )
    parser.add_argument("--compute", metavar="NAME", help="an attached compute; default: this machine")
    add_workspace(parser)
    parser.add_argument("--workers", type=int, help="tensorflow: how many workers; default one a node")
    parser.add_argument("--ps", type=int, help="tensorflow: how many parameter servers; default 0")
    parser.add_argument("--chief", action="store_true", default=None, help="tensorflow: with a chief")
    parser.add_argument(
        "--evaluator", action="store_true", default=None, help="tensorflow: with an evaluator"
    )
    parser.add_argument("--name", help="the job's name; default: a new one")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="may be given again; without a value, that of this shell",
    )
    parser.add_argument("--timeout", type=int, metavar="S", help="seconds after which the job is ended")
    parser.add_argument(
        "--grace", type=_seconds, metavar="S", help="seconds between SIGTERM and SIGKILL; default 30"
    )
    parser.add_argument(
        "--hang-after",
        type=_seconds,
        metavar="S",
        help="seconds without a sign of life of any rank, after which it is said where they are; default 300, 0: never",
    )
    parser.add_argument(
        "--hang-action",
        choices=("report", "end", "restart"),
        help="what then happens to the job; default report",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        metavar="N",
        help="start all ranks again when one fails, so often; default 0",
    )
    add_warm(parser, "DRUMLINE_WARM, else auto")
    parser.add_argument("--ranks", default="", help="show only these: 0,3-5")
    parser.add_argument(
        "--prefix",
        action="store_true",
        default=None,
        help="[RANK|node-N] before every line, also of one rank",
    )
    parser.add_argument("--no-prefix", action="store_false", dest="prefix")
    parser.add_argument("-d", "--detach", action="store_true", help="print the job's name and return")
    parser.add_argument("program", nargs="...", help="the program and its arguments")
    return parser


_OF_OTHERS = {
    "-n": "--procs, the processes on each node",
    "-np": "--procs, the processes on each node",
    "--nproc-per-node": "--procs",
    "--nproc_per_node": "--procs",
    "--num_processes": "--procs, the processes on each node",
    "--nnodes": "--nodes",
    "--num_machines": "--nodes",
}
"""Options of mpirun, torchrun and accelerate, and ours for the same."""


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        for word in message.replace("=", " ").split():
            if word in _OF_OTHERS:
                raise UsageError(message, f"here it is {_OF_OTHERS[word]}")
        super().error(message)


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    if "--" in argv:
        at = argv.index("--")
        return argv[:at], argv[at + 1 :]
    return argv, []


def _job(arguments: Namespace, program: list[str]) -> Command:
    import shlex

    from drumline.spec.command import command
    from drumline.spec.names import default_experiment_name

    return command(
        name=arguments.name,
        display_name=arguments.name,
        experiment_name=default_experiment_name(os.getcwd()),
        # What is shown; what runs is the words as they are, which may be any bytes.
        command=shlex.join(program).encode("utf-8", "backslashreplace").decode(),
        distribution=_distribution(arguments),
        compute=_compute(arguments.compute),
        instance_count=arguments.nodes,
        environment_variables=_variables(arguments.env),
        timeout=arguments.timeout,
        drumline={name: value for name in _SETTINGS if (value := getattr(arguments, name)) is not None},
    )


def _compute(name: str | None) -> str | None:
    """Raises NotFoundError; a job file's name may be of another place, one that was typed here is not."""
    if name is None:
        return None
    from drumline.control import computes

    name = computes.name_of(name)
    return f"azureml:{name if name == 'local' else computes.get(name).name}"


def _distribution(arguments: Namespace) -> dict[str, Any] | None:
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
            raise UsageError(f"{option} is of --distribution {' and '.join(kinds)}, and this is {kind}")
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


def _variables(given: list[str]) -> dict[str, str]:
    variables = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals and name not in os.environ:
            raise UsageError(f"--env: {name!r} has no value here", f"export {name}, or write NAME=VALUE")
        variables[name] = value if equals else os.environ[name]
    return variables


class _NotEndedError(BaseException):
    """A job of an engine elsewhere was asked to end at once, and has not ended for a while. Nothing else catches it."""


def _canceler(submitted: Submitted) -> Callable[[bool], object]:
    """What a signal does to that job. It must not block, so an engine that may be silent is not asked here."""
    from drumline.control import cancel
    from drumline.engines.table import is_elsewhere

    if submitted.plan is None or not is_elsewhere(submitted.plan.engine):
        return lambda at_once: cancel.cancel(submitted.name, at_once=at_once)

    def leave(_number: int, _frame: object) -> None:
        raise _NotEndedError

    def ask(at_once: bool) -> None:
        # Whoever follows the job sees the request, and takes it out of the queue.
        cancel.request(submitted.folder, at_once=at_once)
        cancel.wake(submitted.folder)
        if at_once:
            signal.signal(signal.SIGALRM, leave)
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S)

    return ask


def _cancel_on_signals(cancel: Callable[[bool], object]) -> None:
    """
    First signal: TERM to the ranks; second: KILL; third: go away and leave the job to its supervisor.

    The handler runs between any two steps of the rest, in the middle of an import or a print too: it neither
    imports nor prints.
    """
    count = 0

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        if count > 2:
            raise KeyboardInterrupt
        said = b"ending the job; again to end it at once\n" if count == 1 else b"ending it at once\n"
        with contextlib.suppress(OSError):
            os.write(2, said)
        cancel(count > 1)

    for number in _PASSED_ON:
        signal.signal(number, on_signal)


def _attend(folder: RunFolder, show: Any) -> int:
    from drumline.control import stream
    from drumline.control.cancel import cancel
    from drumline.control.follow import wait_for_end

    try:
        outcome = stream.follow(folder, sys.stdout, show)
    except OSError as error:
        # `drumline run ... | head`: nobody reads any more, so nobody wants it to go on. A full disk likewise.
        cancel(folder.name, by="drumline run, whose output nobody reads any more")
        wait_for_end(folder)
        if not isinstance(error, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    with contextlib.suppress(BrokenPipeError):
        shown = show if _is_one_place(1, 2) else None
        print(stream.ending(folder, outcome, shown), end="", file=sys.stderr)
    return outcome.exit_code if outcome.exit_code is not None else 1


def _is_one_place(one: int, other: int) -> bool:
    """Whether two descriptors are of one terminal, file or pipe: who reads one of them reads the other."""
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False
