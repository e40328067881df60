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
from importlib import import_module

from drumline import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

COMMANDS = {
    "job": "submit and manage jobs: create, show, stream, list, cancel, download ...",
    "compute": "manage the machines that jobs run on: attach, show, list, list-nodes, update, detach",
    "run": "run a program on several nodes, without a job file",
    "python": "run a Python script that is written for Azure's SDKs, unchanged",
    "notebook": "start Jupyter for notebooks that are",
    "azure": "do so for a shell as well: python, notebook, shell",
    "sweep": "search hyperparameters of a program, without a job file",
    "lint": "find what a job file and its code most likely do not mean",
    "plan": "show what a job file would run, rank by rank",
    "drill": "make a failure on purpose in a job that runs, to see whether it survives",
    "rehearse": "run a job undisturbed and once for each drill, and show what it survives",
    "scale": "run a job at several sizes, and show how far it scales",
    "tune": "run a job with several settings, and write the job file of the fastest",
    "ps": "list what runs and waits now",
    "data": "manage the files and folders that jobs read: create, show, list, update, archive, restore",
    "environment": "manage environments: create, show, list, update, build, archive, restore",
    "model": "manage models: create, show, list, update, download, archive, restore",
    "component": "manage components, the steps of pipelines: create, show, list, update, download, archive, restore",
    "datastore": "manage datastores: create, show, list, update, delete",
    "mcp": "answer a coding agent: submit, show, why, logs, lint, cancel, drill",
    "studio": "show jobs, ranks, logs and metrics as web pages",
    "tensorboard": "show the event files of jobs in TensorBoard",
    "mlflow": "show what jobs have logged in MLflow's web pages",
    "cache": "manage the cache of downloaded data: show, list, prune, clear, limit",
    "df": "show what takes up the disk, and how much of it can go",
    "doctor": "check this machine for what keeps jobs from running well",
    "prune": "remove old jobs, and what nothing needs any more",
    "warm": "manage warm interpreters: list, stop",
    "workspace": "manage workspaces: list, show, create, update, delete",
    "configure": "set the default workspace",
    "init": "write a first job file, from options, questions and a look at the folder",
    "completion": "print the completion script of a shell: bash, zsh, fish",
    "schema": "print the JSON Schema of a kind of file, for editors",
}
_ROOMS = {
    **dict.fromkeys(("job", "run", "sweep", "plan", "lint"), "jobs."),
    "ps": "views.",
    **dict.fromkeys(("drill", "rehearse", "scale", "tune"), "measuring."),
    **dict.fromkeys(("mcp", "studio", "tensorboard", "mlflow"), "web."),
    **dict.fromkeys(("cache", "df", "doctor", "prune", "warm"), "upkeep."),
    **dict.fromkeys(("data", "environment", "model", "component", "datastore"), "assets."),
    **dict.fromkeys(("configure", "completion", "schema", "init"), "guide."),
}
"""The folder of a command's module, where it is in one."""
SHORT = {"python": "azure", "notebook": "azure"}
"""Commands that are verbs of another."""

HELP = f"""usage: drumline COMMAND [arguments]

Run distributed-training jobs written for Azure ML on your own machines.

commands:
{"".join(f"  {name:<11} {text}{chr(10)}" for name, text in COMMANDS.items())}
  drumline run --nodes 2 --procs 2 -- python train.py
  drumline job create --file job.yml --stream

options:
  -h, --help     show this help; after a command, the command's help, as drumline help COMMAND does
  -V, --version  show the version
  --debug        with a command: show the traceback of an error
  --color WHEN   colour our own words: auto, always or never
"""

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code. Raises nothing."""
    _open_missing_streams()
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in _cut_program(argv)
    if debug:
        argv.remove("--debug")
    try:
        _take_color(argv)
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
    """Run the installed command, and exit without the interpreter's cleanup, which takes 4 ms and has nothing to do."""
    code = main()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(code)


def _open_missing_streams() -> None:
    """Open standard streams that are closed; else the next file that is opened would become our output."""
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
    """Discard the rest of the output, whose reader is gone or whose disk is full, so that exit flushes nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(text: str) -> int:
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _cut_program(argv: list[str]) -> list[str]:
    """Return the arguments before those of a program."""
    azure = argv[:1] == ["azure"]
    if argv[azure : azure + 1] in (["python"], ["notebook"]) or argv[:2] in (
        ["azure", "az"],
        ["azure", "shell"],
    ):
        return argv[: azure + 1]
    return argv[: argv.index("--")] if "--" in argv else argv


def _take_color(argv: list[str]) -> None:
    """
    Remove ``--color WHEN`` from the arguments and obey it; words of a program, and those of ``drumline run`` without
    ``--``, are not ours. Raises UsageError.
    """
    end = 0 if argv[:1] == ["run"] and "--" not in argv else len(_cut_program(argv))
    for at, word in enumerate(argv[:end]):
        option, equals, when = word.partition("=")
        if option == "--color":
            from drumline.cli import colour

            colour.choose(when if equals else "".join(argv[at + 1 : min(at + 2, end)]))
            del argv[at : at + (1 if equals else 2)]
            return


def _dispatch(argv: list[str]) -> int:
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    if not argv or argv[0] in ("-h", "--help"):
        return _print(HELP)
    if argv[0] in ("-V", "--version", "version"):
        return _print(f"drumline {__version__}\n")
    name = argv[0]
    if name == "__complete":
        from drumline.cli.guide import completion

        return _print(completion.complete(argv[1:], COMMANDS, list_modules()))
    if name not in COMMANDS:
        from drumline.cli.guide import foreign_words
        from drumline.contract.errors import UsageError

        raise UsageError(f"there is no command {name!r}", foreign_words.suggest(argv, list_modules()))
    try:
        code: int = import_module(find_module(name)).main(argv if name in SHORT else argv[1:])
    except SystemExit as ended:  # argparse, after its help
        code = int(ended.code or 0)
    sys.stdout.flush()
    return code


def find_module(command: str) -> str:
    """Return the name of the module that has a command's ``main``."""
    return f"drumline.cli.{_ROOMS.get(command, '')}{SHORT.get(command, command)}"


def list_modules() -> dict[str, str]:
    """Return the name of each command's module."""
    return {command: find_module(command) for command in COMMANDS}


def _explain(error: Exception, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    from drumline.cli.output import explain

    for line in explain(error):
        print(line, file=sys.stderr)
    if not hasattr(error, "hint") and not isinstance(error, OSError):
        print("hint: run the command with --debug to see where", file=sys.stderr)
    exit_code: int = getattr(error, "exit_code", 1)
    return exit_code
