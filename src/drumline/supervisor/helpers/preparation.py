"""
The preparation before the ranks start, and the work after their end: data that is elsewhere, inputs that are mounted,
and the environment.

Each is the work of a process of its own, so that this one imports no library of a cloud, and all of it can be stopped
at any time. What such a process prints, a JSON object a line, becomes events.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.channel import Lines
from drumline.contract.errors import NodeError
from drumline.linux import kernel, mounts
from drumline.supervisor.clocks import wall_time

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


_PROGRESS_S = 2.0
"""Between two events of one transfer's progress."""

_CANCEL_POLL_S = 0.5
"""How often a request for the end is looked for."""

_END_S = 5.0
"""Between SIGTERM and SIGKILL."""

_TRANSFER = "drumline.staging.transfer"
_ENVIRONMENT = "drumline.staging.environments"


def is_needed(plan: Plan) -> bool:
    """Return whether anything has to be fetched or built; quick."""
    for target in (fetch.target for fetch in plan.fetches):
        # A folder that is empty was only made, and its content is still to come.
        if not os.path.isfile(target) and not (os.path.isdir(target) and os.listdir(target)):
            return True
    return _is_to_be_built(plan)


def _is_to_be_built(plan: Plan) -> bool:
    if plan.build is None:
        return False
    from drumline.staging.environments.environment_builder import is_ready

    return not is_ready(plan.build)


def begin_preparation(folder: RunFolder, plan: Plan) -> HelperProcesses:
    """Start to fetch and build, in the background. Raises OSError."""
    helpers = HelperProcesses(folder, plan)
    try:
        if plan.fetches:
            helpers.start("fetching its data", _TRANSFER, "fetch", folder.path)
        if plan.build is not None:
            if _is_to_be_built(plan):
                helpers.start("building its environment", _ENVIRONMENT, folder.path)
            else:
                from drumline.staging.environments.environment_builder import note_use

                note_use(plan.build, folder.path)
                ready = e.EnvironmentReady(
                    wall_time(), plan.build.digest, plan.build.prefix, 0.0, reused=True
                )
                folder.append(ready)
    except BaseException:
        helpers.end()
        raise
    return helpers


def upload_outputs(
    folder: RunFolder,
    plan: Plan,
    *,
    always_only: bool,
    canceled: Callable[[], bool],
    wake: int,
    limit_s: float | None = None,
) -> bool:
    """
    Write outputs where they are to be; False when that was ``canceled``, or took longer than ``limit_s``. Blocks.
    Raises NodeError.
    """
    helpers = HelperProcesses(folder, plan)
    try:
        more = ["--always-only"] if always_only else []
        helpers.start("writing its outputs", _TRANSFER, "upload", folder.path, *more)
        return helpers.wait(canceled, wake, limit_s)
    finally:
        helpers.end()


class HelperProcesses:
    """Processes of our own beside each other; whatever ends them, they are ended."""

    def __init__(self, folder: RunFolder, plan: Plan) -> None:
        self._folder = folder
        self._environment = dict(os.environ)
        if plan.compute.get("folder"):
            # All nodes see that folder, and perhaps no other.
            self._environment.setdefault("DRUMLINE_CACHE", os.path.join(str(plan.compute["folder"]), "cache"))
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        """By the descriptor of what they print."""

        self._lines: dict[int, Lines] = {}
        self._tasks: dict[int, str] = {}
        self._reported: dict[str, float] = {}
        self._failure: dict[str, Any] = {}

    def start(self, task: str, module: str, *arguments: str) -> None:
        """Start a process. ``task``: in words, for when the process says nothing itself. Raises OSError."""
        log = os.path.join(self._folder.system_logs, "preparation.log")
        process = _start_module(log, self._environment, module, *arguments)
        assert process.stdout is not None
        self._running[process.stdout.fileno()] = process
        self._lines[process.stdout.fileno()] = Lines(skips_others=True)
        self._tasks[process.stdout.fileno()] = task

    def wait(self, canceled: Callable[[], bool], wake: int, limit_s: float | None = None) -> bool:
        """Wait until all have ended; False when ``canceled`` first, or after ``limit_s``. Raises NodeError."""
        until = None if limit_s is None else time.monotonic() + limit_s
        while self._running:
            if canceled() or (until is not None and time.monotonic() > until):
                return False
            ready = select.select([*self._running, wake], [], [], _CANCEL_POLL_S)[0]
            for descriptor in ready:
                if descriptor == wake:
                    os.read(wake, 4096)
                else:
                    self._hear(descriptor)
        return True

    def end(self) -> None:
        """End the processes that still run."""
        for process in self._running.values():
            _signal_group(process, signal.SIGTERM)
        until = time.monotonic() + _END_S
        for process in self._running.values():
            import subprocess

            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            _signal_group(process, signal.SIGKILL)
            process.wait()
            if process.stdout:
                process.stdout.close()
        self._running.clear()

    def _hear(self, descriptor: int) -> None:
        data = os.read(descriptor, 1 << 16)
        for message in self._lines[descriptor].feed(data):
            self._take(message)
        if data:
            return
        process = self._running.pop(descriptor)
        code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
        if code == 0:
            return
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        log = os.path.join(self._folder.system_logs, "preparation.log")
        failure = self._failure or {"message": f"{self._tasks[descriptor]} {ended}; see {log}"}
        reason, hint = str(failure.get("message", "")), str(failure.get("hint") or "")
        raise NodeError(f"{reason} ({hint})" if hint else reason)

    def _take(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        if kind == "failed":
            self._failure = message
        elif kind == "progress":
            name, now = str(message.get("name")), time.monotonic()
            if now - self._reported.get(name, -_PROGRESS_S) >= _PROGRESS_S:
                self._reported[name] = now
                self._folder.append(_make_event(e.TransferProgress, message))
        elif kind in _EVENTS:
            self._folder.append(_make_event(_EVENTS[kind], message))


_EVENTS: dict[str, Any] = {
    "transferred": e.Transferred,
    "building": e.EnvironmentBuilding,
    "ready": e.EnvironmentReady,
}


def _make_event(kind: Any, message: dict[str, Any]) -> e.Event:
    """Make an event of now of what such a process has printed."""
    fields = {name: message[name] for name in kind._fields if name in message}
    event: e.Event = kind(**{**fields, "time": wall_time()})
    return event


def _start_module(
    log: str, environment: dict[str, str], module: str, *arguments: str
) -> subprocess.Popen[bytes]:
    """Start a module of ours, whose errors go to that log, and which ends with this process. Raises OSError."""
    import subprocess

    ours = os.getpid()
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as errors:
        return subprocess.Popen(  # noqa: S603 - our own modules
            [sys.executable, "-P", "-m", module, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
            # From its very beginning, for a moment later this process may be gone.
            preexec_fn=lambda: kernel.die_with_parent(signal.SIGKILL, ours),  # noqa: PLW1509 - no thread here
        )


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


# Inputs that are mounted: a process each beside the ranks of an attempt, and nothing of it left when that has ended.


_LIMIT_S = 60.0
"""For one to be mounted: its process starts and may ask for a token."""

_MOUNT_CANCEL_POLL_S = 0.2


class Mounts:
    """The mounts of one attempt; ``job/run.py`` ends them with everything else below this process."""

    def __init__(self, folder: RunFolder, plan: Plan) -> None:
        self._folder = folder
        noted = (os.path.join(folder.path, "mounts", f"{fetch.name}.json") for fetch in plan.fetches)
        self._names = [
            fetch.name for fetch, path in zip(plan.fetches, noted, strict=True) if os.path.exists(path)
        ]
        if plan.compute.get("folder"):
            self._environment = {"DRUMLINE_CACHE": os.path.join(str(plan.compute["folder"]), "cache")}
        else:
            self._environment = {}
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self, canceled: Callable[[], bool]) -> None:
        """Mount all, and block until they are mounted or it was ``canceled``. Raises NodeError, OSError."""
        if not self._names:
            return
        mounts.unmount_below(self._folder.path)
        environment = {**self._environment, **os.environ}
        self._running = [
            _start_module(self._log, environment, "drumline.staging.mount", self._folder.path, name)
            for name in self._names
        ]
        until = time.monotonic() + _LIMIT_S
        for name, process in zip(self._names, self._running, strict=True):
            message = _read_answer(process, until, canceled)
            if message is None:
                return
            if message.get("type") != "transferred":
                told = str(message.get("message") or f"{name} could not be mounted; see {self._log}")
                hint = str(message.get("hint") or "")
                raise NodeError(f"{told} ({hint})" if hint else told)
            self._folder.append(_make_event(e.Transferred, message))

    @property
    def _log(self) -> str:
        return os.path.join(self._folder.system_logs, "mounts.log")


def _read_answer(
    process: subprocess.Popen[bytes], until: float, canceled: Callable[[], bool]
) -> dict[str, Any] | None:
    """Read a process's first word; empty where it ended without one, or is late; None when it was ``canceled``."""
    assert process.stdout is not None
    lines = Lines(skips_others=True)
    while time.monotonic() < until:
        if canceled():
            return None
        if not select.select([process.stdout], [], [], _MOUNT_CANCEL_POLL_S)[0]:
            continue
        data = os.read(process.stdout.fileno(), 1 << 16)
        for message in lines.feed(data):
            return message
        if not data:
            break
    return {}
