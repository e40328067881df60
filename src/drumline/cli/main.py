"""
``drumline``: looks at the first word, loads that command's module alone, and turns every error into a message and
an exit code.

Exit codes: 0 ok, 1 the job or the operation failed, 2 usage or an invalid job, 3 not found, 130 interrupted;
``drumline run`` ends with the job's own.
"""

from __future__ import annotations

import contextlib
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMMANDS = {
    "job": "submit and look after jobs: create, show, stream, list, cancel, download ...",
    "compute": "name the machines that jobs run on: attach, show, list, list-nodes, update, detach",
    "run": "run a program on several nodes, without a job file",
    "plan": "show what a job file would run, rank by rank",
    "data": "name files and folders that jobs read: create, show, list, update, archive, restore",
    "environment": "name the Python that jobs run with: create, show, list, update, archive, restore",
    "model": "name what jobs have trained: create, show, list, update, download, archive, restore",
    "component": "name the steps of pipelines: create, show, list, update, download, archive, restore",
    "datastore": "say which folders azureml://datastores/... are: create, show, list, update, delete",
    "cache": "the data that jobs have fetched from elsewhere: show, list, prune, clear, limit",
    "warm": "interpreters that are held ready for ranks: list, stop",
    "workspace": "homes for jobs and assets, each its own: list, show, create, delete",
    "configure": "the workspace that commands are for when they name none",
}
HELP = f"""usage: drumline COMMAND [arguments]

Distributed-training jobs written for Azure ML, on machines that you own.

commands:
{"".join(f"  {name:<11} {text}{chr(10)}" for name, text in COMMANDS.items())}
  drumline run --nodes 2 --procs 2 -- python train.py
  drumline job create --file job.yml --stream

options:
  -h, --help   this text; after a command, its own
  --version    the version
  --debug      with a command: the traceback of an error
"""

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """The exit code. Nothing is raised."""
    _open_missing_streams()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    before_program = argv[: argv.index("--")] if "--" in argv else argv
    debug = "--debug" in before_program
    if debug:
        argv.remove("--debug")
    try:
        return _dispatch(argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return 0
    except Exception as error:  # noqa: BLE001 - the one place where any error becomes a message
        code = _explain(error, debug)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
        return code


def script() -> NoReturn:
    """The installed command: ends without the interpreter's own tidying, which takes 4 ms and has nothing to tidy."""
    code = main()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _open_missing_streams() -> None:
    """Those that whoever started us closed; else the next file that is opened would become our output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    # A terminal of another alphabet shows numbers instead of letters, and no error.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Whoever read our output has enough, or it is full. Nothing may be flushed there at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(text: str) -> int:
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _dispatch(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help", "help"):
        return _print(HELP)
    if argv[0] in ("--version", "version"):
        from drumline import __version__

        return _print(f"drumline {__version__}\n")
    name = argv[0]
    if name not in COMMANDS:
        from drumline.contract.errors import UsageError

        raise UsageError(f"there is no command {name!r}", _did_you_mean(name))
    from importlib import import_module

    try:
        code: int = import_module(f"drumline.cli.{name}").main(argv[1:])
    except SystemExit as ended:  # argparse, after its help
        code = int(ended.code or 0)
    sys.stdout.flush()
    return code


def _did_you_mean(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"did you mean {close[0]!r}?" if close else "drumline --help shows those there are"


def _explain(error: Exception, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    from drumline.control.terminal import clean

    exit_code: int = getattr(error, "exit_code", 1)
    problems = getattr(error, "problems", ())
    if len(problems) > 1 or any(problem.file for problem in problems):
        for problem in problems:
            print("error: " + clean(str(problem)), file=sys.stderr)
        if len(problems) > 1:
            print(f"({len(problems)} errors)", file=sys.stderr)
    elif hasattr(error, "hint"):
        print("error: " + clean(getattr(error, "message", str(error))), file=sys.stderr)
        if error.hint:
            print("hint: " + clean(error.hint), file=sys.stderr)
    elif isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        print(clean(f"error: {error.strerror or error}{where}"), file=sys.stderr)
    else:
        print(clean(f"error: this should not happen: {error!r}"), file=sys.stderr)
        print("hint: the same command with --debug shows where", file=sys.stderr)
    return exit_code
