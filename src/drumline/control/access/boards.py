"""Web pages about jobs that others have written, TensorBoard and MLflow, over the files of jobs that may have ended."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.contract.folder import RunFolder, home
from drumline.contract.mlflow_variables import ALLOW
from drumline.contract.outcome import fold
from drumline.contract.plan import Plan
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_seconds
from drumline.control.jobs import lookup
from drumline.linux import descendants, kernel
from drumline.linux.ports import lease_port
from drumline.tracking import event_files, mlflow_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_START_TIMEOUT_S = 60.0
_END_S = 3.0
_POLL_S = 0.1
_MOST_STEPS = 200
_HIGHEST_PORT = 65535


class EventFolder(NamedTuple):
    """A folder with event files, or one such file. ``label``: how TensorBoard calls it."""

    label: str
    path: str


def find_event_folders(names: Sequence[str]) -> list[EventFolder]:
    """
    Return the folders of these jobs, of their steps and trials too, in which there are event files.

    Raises NotFoundError for a job that is not there, and where no job has any.
    """
    found: list[EventFolder] = []
    for name in names:
        own = _find_in_job(lookup.folder_of(name), set())
        if not own:
            what = f"job {name} has no event files of TensorBoard"
            hint = "they are looked for beneath outputs/, logs/, named outputs and the working folder of its ranks"
            raise NotFoundError(what, hint)
        found += [one for one in own if one not in found]
    return found


def _find_in_job(folder: RunFolder, looked_at: set[str]) -> list[EventFolder]:
    if folder.name in looked_at:
        return []
    looked_at.add(folder.name)
    if os.path.exists(folder.graph):
        steps = [step for step in fold(folder.read_events()).steps.values() if step.job]
        jobs = [
            step.job for step in steps[-_MOST_STEPS:] if "/" not in step.job and step.job not in (".", "..")
        ]
        return [one for job in jobs for one in _find_in_job(RunFolder.for_job(job), looked_at)]
    places = {
        "outputs": folder.outputs,
        "logs": os.path.join(folder.path, "logs"),
        "named-outputs": folder.named_outputs,
    }
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        plan = Plan.read(folder.plan)
        if plan.cwd == folder.code:
            places |= _list_own(folder.code)
        else:
            places["code"] = os.path.join(plan.cwd, "outputs")
        places |= {f"services-{one.name}": one.folder for one in plan.services if "/" not in one.name}
    there = {
        label: os.path.realpath(path)
        for label, path in places.items()
        if event_files.is_there(path) or os.path.isfile(path)
    }
    outer = {
        label: path
        for label, path in there.items()
        if not any(path != other and path.startswith(other + os.sep) for other in there.values())
    }
    unique = {path: label for label, path in reversed(outer.items())}
    if len(unique) == 1:
        return [EventFolder(folder.name, next(iter(unique)))]
    return [EventFolder(f"{folder.name}/{label}", path) for path, label in unique.items()]


def _list_own(code: str) -> dict[str, str]:
    """List what a working folder has besides links, such as the one to the outputs, which TensorBoard would follow."""
    with os.scandir(code) as entries:
        return {
            f"code/{entry.name}": entry.path
            for entry in entries
            if entry.is_dir(follow_symlinks=False)
            or (".tfevents." in entry.name and entry.is_file(follow_symlinks=False))
        }


@contextlib.contextmanager
def serve_tensorboard(folders: Sequence[EventFolder], port: int, python: str = "") -> Iterator[str]:
    """
    Run TensorBoard over these folders for the length of a ``with``, and give its address, which holds a secret.

    ``port`` 0: one that is free. ``python``: whose TensorBoard; empty: of this Python, else of the first on the PATH.
    Nothing of it is left afterwards. Raises DrumlineError.
    """
    from drumline.supervisor.helpers import service_programs

    _check_port(port)
    with open(service_programs.PROGRAM, encoding="utf-8") as file:
        program = file.read()
    with _everything_removed("drumline-tensorboard-") as shown:
        for one in folders:
            link = os.path.join(shown, one.label)
            os.makedirs(os.path.dirname(link), exist_ok=True)
            os.symlink(one.path, link)
        told = {"folder": shown, "port": port, "secret": secrets.token_urlsafe(16)}
        problems = []
        for candidate in _list_pythons(python, "tensorboard"):
            # Not in a folder of a job: Python takes modules from where it is started.
            process = _start([candidate, "-c", program], "/", feed=json.dumps(told))
            said = process.stdout.readline().decode("utf-8", "replace").strip() if process.stdout else ""
            if said and not said.startswith("error: "):
                yield said
                return
            problems.append(said.removeprefix("error: ") or f"TensorBoard does not start with {candidate}")
        raise DrumlineError(problems[-1])


def _check_free(port: int) -> None:
    """Raise DrumlineError if the port is taken: its listener would be mistaken for the server that is to start."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise DrumlineError(
            f"port {port} cannot be had: {os.strerror(error.errno or 0)}", "leave out --port"
        ) from error


@contextlib.contextmanager
def serve_mlflow(port: int, python: str = "") -> Iterator[str]:
    """
    Run MLflow's web pages over the runs of this home for the length of a ``with``, and give their address.

    The rest is as of ``serve_tensorboard``; MLflow's pages have neither a password nor a secret address.
    """
    _check_port(port)
    store = mlflow_files.uri_of(home())
    if not os.path.isdir(os.path.join(home(), "mlruns")):
        raise NotFoundError(
            "no job of this workspace has logged to MLflow's file store", "drumline job metrics NAME"
        )
    interpreter = _list_pythons(python, "mlflow")[0]
    with contextlib.ExitStack() as held, _everything_removed("drumline-mlflow-") as empty:
        if port:
            _check_free(port)
        else:
            port, lease = lease_port("127.0.0.1")
            held.callback(lease.close)
        words = [
            interpreter,
            "-m",
            "mlflow",
            "server",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--workers",
            "1",
        ]
        words += ["--backend-store-uri", store, "--default-artifact-root", store, "--no-serve-artifacts"]
        process = _start(words, empty, env={ALLOW: "true"})
        address = f"http://127.0.0.1:{port}"
        _wait_until_served(process, address)
        yield address


def _wait_until_served(process: subprocess.Popen[bytes], address: str) -> None:
    """Wait until the address is served. Raises DrumlineError."""
    import urllib.error
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DrumlineError(f"MLflow ended with code {process.returncode} before it served anything")
        try:
            with opener.open(address + "/health", timeout=5.0):
                return
        except OSError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            time.sleep(_POLL_S)
    raise DrumlineError(f"MLflow has not answered for {format_seconds(_START_TIMEOUT_S)}")


def wait_for_interrupt(what: str) -> None:
    """Block until Ctrl-C, SIGTERM or SIGHUP. Raises DrumlineError when what was started here ends before."""
    try:
        while True:
            os.wait()
    except KeyboardInterrupt:
        return
    except ChildProcessError:
        raise DrumlineError(f"{what} has ended by itself") from None


def _raise_interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _everything_removed(prefix: str) -> Iterator[str]:
    """Give a new folder; at the end, end all that is below this process, whatever it has become, and remove that."""
    # Who had a signal ignored, as nohup does, keeps that.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    taken = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    for number in taken:
        signal.signal(number, _raise_interrupt)
    kernel.adopt_orphans()
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix=prefix)
        yield folder
    finally:
        # What ends now must not be cut off.
        for number in taken:
            signal.signal(number, signal.SIG_IGN)
        descendants.end_descendants(_END_S)
        kernel.adopt_orphans(wanted=False)
        shutil.rmtree(folder, ignore_errors=True)
        for number in taken:
            signal.signal(number, before[number])


def _check_port(port: int) -> None:
    """Raise UsageError if that is no port."""
    if not 0 <= port <= _HIGHEST_PORT:
        raise UsageError(f"{port} is no port", f"0 to {_HIGHEST_PORT}; 0: one that is free")


def _start(
    words: list[str], folder: str, *, feed: str = "", env: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program that dies with this process. ``feed``: its first line of input, which then stays open."""
    ours = os.getpid()
    process = subprocess.Popen(  # noqa: S603 - the program of a package
        words,
        stdin=subprocess.PIPE if feed else subprocess.DEVNULL,
        stdout=subprocess.PIPE if feed else sys.stderr.fileno(),
        cwd=folder,
        env={**os.environ, **(env or {})},
        # A Ctrl-C in the terminal is this process's to pass on.
        start_new_session=True,
        preexec_fn=lambda: kernel.die_with_parent(signal.SIGKILL, ours),  # noqa: PLW1509 - no thread here
    )
    if process.stdin:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(feed.encode() + b"\n")
            process.stdin.flush()
    return process


def _list_pythons(given: str, package: str) -> list[str]:
    """Return the Pythons that have a package, the best first. Raises UsageError without any."""
    given = os.path.abspath(given) if os.sep in given else given
    candidates = (
        [given] if given else [sys.executable, shutil.which("python") or "", shutil.which("python3") or ""]
    )
    tried = list(dict.fromkeys(filter(None, candidates)))
    found = [python for python in tried if _has_package(python, package)]
    if not found:
        import shlex

        what = f"{package} is not installed for {' or '.join(tried)}"
        raise UsageError(what, f"{shlex.quote(tried[0])} -m pip install {package}, or --python PATH")
    return found


def _has_package(python: str, package: str) -> bool:
    # By its metadata: mlflow-skinny has the module, and no pages.
    text = f"import importlib.metadata as m; m.version({package!r})"
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Python
            [python, "-c", text], capture_output=True, stdin=subprocess.DEVNULL, cwd="/", check=False
        )
    except OSError as error:
        raise UsageError(f"{python} cannot be started: {error.strerror}", "--python PATH") from error
    return done.returncode == 0
