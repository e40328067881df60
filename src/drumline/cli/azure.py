"""``drumline azure``: programs that are written for Azure's SDKs and for ``az ml``, run as they are."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import Parser, add_output, run_verb
from drumline.contract.errors import UsageError
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.ownership import make_home

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs

_SWITCH = "DRUMLINE_AZURE"
_AZ = """\
#!/bin/sh
case $1 in
ml) shift ;;
configure) ;;
*) set -- azure az "$@" ;;
esac
exec {drumline} "$@"
"""
_NOTHING_TO_DO = {
    ("login",),
    ("logout",),
    ("upgrade",),
    ("extension", "add"),
    ("extension", "remove"),
    ("extension", "update"),
    ("account", "clear"),
    ("account", "set"),
    ("group", "create"),
    ("provider", "register"),
}


def main(argv: list[str]) -> int:
    words, rest = argv[:1], argv[1:]
    if words == ["az"]:
        return _answer_az(rest)
    # What follows is the program's, `--help` too.
    if words == ["python"] and rest[:1] not in (["-h"], ["--help"]):
        return _run([sys.executable, *rest])
    if words == ["notebook"] and rest[:1] not in (["-h"], ["--help"]):
        # Not with the modules that lie in the folder of a downloaded notebook.
        return _run([sys.executable, "-P", "-m", _find_notebook(), *rest])
    if words == ["shell"] and rest and rest[:1] not in (["-h"], ["--help"]):
        return _run([shutil.which("bash") or "/bin/sh", *rest])
    return run_verb("azure", "Run programs that are written for Azure's SDKs and for az ml.", VERBS, argv)


def _run(words: list[str]) -> int:
    """Become a program for which Azure's modules are answered, and ``az`` too."""
    folder = os.path.join(make_home(), "bin")
    private_folder(folder)
    drumline = shlex.join([sys.executable, "-P", "-m", "drumline"])
    # Scripts that run already may call it just now: it can be run from its first moment.
    write_whole(os.path.join(folder, "az"), _AZ.format(drumline=drumline), 0o700)
    environ = {
        **os.environ,
        _SWITCH: "1",
        "PATH": os.pathsep.join([folder, os.environ.get("PATH", os.defpath)]),
    }
    sys.stdout.flush()
    try:
        os.execve(words[0], words, environ)  # noqa: S606
    except OSError as error:
        raise UsageError(f"could not start {words[0]}: {error.strerror}") from None


def _find_notebook() -> str:
    from importlib.util import find_spec

    for module in ("jupyterlab", "notebook"):
        if find_spec(module) is not None:
            return module
    raise UsageError(
        f"{sys.executable} has neither jupyterlab nor notebook",
        "pip install jupyterlab; in a notebook of another server, %load_ext drumline.azure does the same",
    )


def _run_shell(arguments: Namespace) -> int:
    return _run([os.environ.get("SHELL") or "/bin/sh"])


# az


def _answer_az(argv: list[str]) -> int:
    """Answer what scripts call before ``az ml``, which ``_AZ`` passes on; leave the rest to a real ``az``."""
    words = [word for word in argv if not word.startswith("-")]
    if words[:1] == ["version"] or argv[:1] in (["--version"], ["-v"]):
        from drumline import __version__

        return _show(argv, {"azure-cli": f"drumline {__version__}", "extensions": {"ml": __version__}})
    if words[:2] == ["account", "show"] or words[:2] == ["account", "list"]:
        account = _describe_account()
        return _show(argv, [account] if words[1] == "list" else account)
    real = _find_real()
    os.environ.pop(_SWITCH, None)
    if words[:2] == ["account", "get-access-token"]:
        # An installed azure-identity asks so for who is signed in, to read data at Azure.
        if real is not None and _run_quietly([real, *argv]):
            return 0
        return _show(argv, {**_NO_TOKEN, "subscription": _describe_account()["id"]})
    if words[:2] == ["extension", "list"] or words[:2] == ["extension", "show"]:
        extension = {"name": "ml", "version": "2.0.0", "extensionType": "drumline"}
        return _show(argv, [extension] if words[1] == "list" else extension)
    if any(tuple(words[: len(known)]) == known for known in _NOTHING_TO_DO):
        print(f"{_name(argv)}: nothing to do: there is no cloud", file=sys.stderr)
        return 0
    if real is not None:
        os.execv(real, [real, *argv])  # noqa: S606
    raise UsageError(
        f"{_name(argv)}: Drumline answers az ml, az configure, and what only signs in or chooses; "
        "no other az is on the PATH",
        "az ml --help",
    )


def _find_real() -> str | None:
    for place in os.environ.get("PATH", os.defpath).split(os.pathsep):
        az = shutil.which("az", path=place)
        if az is not None and not _is_ours(az):
            return az
    return None


def _run_quietly(words: list[str]) -> bool:
    """Print what a program prints if it succeeds; return whether it did."""
    import subprocess

    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)  # noqa: S603
    if done.returncode == 0:
        sys.stdout.buffer.write(done.stdout)
    return done.returncode == 0


def _is_ours(az: str) -> bool:
    """Return whether it is one that ``_run`` wrote, for this home or another."""
    ours = _AZ.partition("exec")[0].encode()
    try:
        with open(az, "rb") as file:
            return file.read(len(ours)) == ours
    except OSError:
        return False


def _name(argv: list[str]) -> str:
    """Return the command, without what may be the value of an option: a password."""
    return " ".join(["az", *takewhile(lambda word: not word.startswith("-"), argv[:2])])


_NO_TOKEN = {"accessToken": "", "expiresOn": "2099-12-31 00:00:00.000000", "tokenType": "Bearer"}


def _describe_account() -> dict[str, Any]:
    from drumline.contract.process_identity import user
    from drumline.control.settings import defaults

    return {
        "id": defaults.read().get("subscription") or "local",
        "isDefault": True,
        "name": "this machine",
        "state": "Enabled",
        "tenantId": "local",
        "user": {"name": user(), "type": "user"},
    }


def _show(argv: list[str], result: Any) -> int:
    from drumline.cli import output

    parser = Parser(prog="az")
    add_output(parser)
    chosen, _ = parser.parse_known_args(argv)
    output.show(result, chosen.output or "json", chosen.query)
    return 0


def _take_program(parser: Parser) -> None:
    parser.add_argument(
        "program", nargs="*", metavar="ARGUMENT", help="options of Python, script, its arguments"
    )


VERBS: Verbs = {
    "python": (
        "run Python with Azure's modules answered by Drumline, as drumline python does",
        _take_program,
        _run_shell,
    ),
    "notebook": ("start Jupyter in that way, as drumline notebook does", _take_program, _run_shell),
    "shell": ("run a shell script, or start a shell, in which az is Drumline's", _take_program, _run_shell),
}
