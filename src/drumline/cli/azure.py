"""``drumline azure``: programs that are written for Azure's SDKs and for ``az ml``, run as they are."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from argparse import SUPPRESS
from importlib import import_module
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import Parser, add_output, run_verb
from drumline.contract.errors import UsageError
from drumline.contract.folder import private_folder, write_whole
from drumline.contract.ownership import make_home
from drumline.contract.process_identity import user

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
    if words == ["run"] and rest and rest[:1] not in (["-h"], ["--help"]):
        return _run_with_server(rest[1:] if rest[0] == "--" else rest)
    return run_verb("azure", "Run programs that are written for Azure's SDKs and for az ml.", VERBS, argv)


def _run(words: list[str]) -> int:
    """Become a program for which Azure's modules are answered, and ``az`` too."""
    return _become(words, {**os.environ, **list_switches()})


def list_switches() -> dict[str, str]:
    """Return the variables of programs for which Azure's modules and ``az`` are answered."""
    return {_SWITCH: "1", "PATH": _add_az()}


def _add_az() -> str:
    """Write our ``az``, and return the PATH of programs that find it first."""
    folder = os.path.join(make_home(), "bin")
    private_folder(folder)
    drumline = shlex.join([sys.executable, "-P", "-m", "drumline"])
    # Scripts that run already may call it just now: it can be run from its first moment.
    write_whole(os.path.join(folder, "az"), _AZ.format(drumline=drumline), 0o700)
    before = os.environ.get("PATH", os.defpath)
    return before if before.split(os.pathsep)[0] == folder else os.pathsep.join([folder, before])


def _become(words: list[str], environ: dict[str, str]) -> int:
    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, environ)  # noqa: S606
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


# Microsoft's own client


def _serve(arguments: Namespace) -> int:
    # No surface knows another, so this one is loaded by its name.
    serving = import_module("drumline.rest.serving")
    serving.serve(arguments.port, ends_with=arguments.ends_with, new_key=arguments.new_key)
    return 0


def _list_variables(address: str) -> dict[str, str | None]:
    """Return the variables that lead Microsoft's client to the server there; None: one that is to be removed."""
    bundle = import_module("drumline.rest.certificate").write_bundle()
    found = import_module("drumline.rest.endpoint").list_variables(address, bundle)
    return {**found, "PATH": _add_az()}


def _print_variables(arguments: Namespace) -> int:
    address = import_module("drumline.rest.endpoint").find_running()
    if not address:
        raise UsageError("no server runs", "drumline azure serve & ; or drumline azure run -- COMMAND")
    shell = arguments.shell or os.path.basename(os.environ.get("SHELL", "sh"))
    for name, value in _list_variables(address).items():
        if shell == "fish":
            print(f"set -e {name}" if value is None else f"set -gx {name} {shlex.quote(value)}", end=";\n")
        elif shell in ("pwsh", "powershell"):
            quoted = "'" + str(value).replace("'", "''") + "'"
            print(
                f"Remove-Item Env:{name} -ErrorAction Ignore" if value is None else f"$Env:{name} = {quoted}"
            )
        else:
            print(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}", end=";\n")
    return 0


def _run_with_server(words: list[str]) -> int:
    """Run a program that finds the server; one is started for it where none runs, and ended after it."""
    if not words:
        raise UsageError("what is to be run is missing", "drumline azure run -- python submit.py")
    address = import_module("drumline.rest.endpoint").find_running()
    if address:
        return _become(words, _choose_environ(address))
    import subprocess

    serve = [sys.executable, "-P", "-m", "drumline", "azure", "serve", "--port", "0"]
    # In a session of its own: Ctrl-C is the program's, which may still ask the server something.
    server = subprocess.Popen(  # noqa: S603
        [*serve, "--ends-with", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        address = server.stdout.readline().strip() if server.stdout else ""
        if not address:
            return server.wait() or 1
        return _run_beside(words, _choose_environ(address))
    finally:
        server.terminate()
        server.wait()


def _run_beside(words: list[str], environ: dict[str, str]) -> int:
    import signal
    import subprocess

    try:
        program = subprocess.Popen(words, env=environ)  # noqa: S603
    except OSError as error:
        raise UsageError(f"could not start {words[0]}: {error.strerror}") from None
    # Those of a terminal reach the program as well, and others are passed on: it decides what they mean.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: program.send_signal(number))
    code = program.wait()
    return code if code >= 0 else 128 - code


def _choose_environ(address: str) -> dict[str, str]:
    environ = {**os.environ, **_list_variables(address)}
    return {name: value for name, value in environ.items() if value is not None}


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
        audience = _read_option(argv, "--resource", "--scope") or "https://management.azure.com"
        is_for_server = "IDENTITY_HEADER" in os.environ and any(host in audience for host in _SERVED)
        # An installed azure-identity asks so for who is signed in, to read data at Azure.
        if not is_for_server and real is not None and _run_quietly([real, *argv]):
            return 0
        return _show(argv, {**_make_token(audience), "subscription": _describe_account()["id"]})
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


_SERVED = ("//management.azure.com", "//management.core.windows.net", "//ml.azure.com")
"""Whom the tokens are for with which Microsoft's client asks the server."""


def _make_token(audience: str) -> dict[str, Any]:
    """Return a token for the server, where this program was led to one; else one that says nothing."""
    if "IDENTITY_HEADER" not in os.environ:
        return {"accessToken": "", "expiresOn": "2099-12-31 00:00:00.000000", "tokenType": "Bearer"}
    from datetime import UTC, datetime

    endpoint = import_module("drumline.rest.endpoint")
    token, until = endpoint.make_token(endpoint.get_key(), audience)
    local = datetime.fromtimestamp(until, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S.000000")
    return {
        "accessToken": token,
        "expiresOn": local,
        "expires_on": until,
        "tokenType": "Bearer",
        "tenant": "local",
    }


def _read_option(argv: list[str], *names: str) -> str:
    return next((after for word, after in pairwise(argv) if word in names), "")


def _describe_account() -> dict[str, Any]:
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


def _take_port(parser: Parser) -> None:
    parser.add_argument(
        "--port", type=int, metavar="N", help="default: 7979, or the next one that is free; 0: any"
    )
    parser.add_argument(
        "--new-key",
        action="store_true",
        help="let no token and no certificate of earlier servers be good any more",
    )
    parser.add_argument("--ends-with", type=int, default=0, help=SUPPRESS)


def _take_shell(parser: Parser) -> None:
    parser.add_argument(
        "--shell", choices=("bash", "zsh", "sh", "fish", "pwsh"), help="default: as SHELL says"
    )


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
    "serve": (
        "serve Azure ML's REST API on this machine, for Microsoft's own azure-ai-ml",
        _take_port,
        _serve,
    ),
    "env": ("print the variables that lead programs to that server", _take_shell, _print_variables),
    "run": (
        "run a program that finds that server, which is started where none runs",
        _take_program,
        _run_shell,
    ),
}
