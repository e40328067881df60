"""
``python -m drumline.engines.kubernetes.courier RUN_FOLDER``: the one process that asks the API server about a job.

It carries what the pods print to the run folder here, requests from there to the supervisor's pod, and removes all
objects when everything has arrived. It may be killed: whoever next looks at the job starts another, which reads the
pods' output again from its beginning.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract import status
from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan
from drumline.engines.kubernetes import frames, objects, pods, view
from drumline.engines.kubernetes.client import ApiSilentError, open_api
from drumline.engines.kubernetes.manifests import gang
from drumline.linux import kernel

if TYPE_CHECKING:
    from drumline.engines.kubernetes.client import Api

_PAUSE_S = 1.0
_SHORT_PAUSE_S = 0.3
"""While the pods of a job start."""

_LONGEST_PAUSE_S = 10.0
"""While the server does not answer, or refuses."""

_MOST_REFUSALS = 60
"""Of a server, one after the other, before a job whose run folder was removed is left to itself."""

_LAST_WORDS_S = 30.0
"""After the supervisor's pod has ended, for the pods of the nodes to say the rest."""

_GONE_S = 60.0
"""After the submission, before a job without objects is taken to be gone: its submitter may still be at it."""

_JOB_ENDED = b'"type":"JobEnded"'


def ensure(folder: RunFolder) -> None:
    """Start a courier where none runs, in a session of its own and no child of this process. Raises OSError."""
    lock = _take_lock(folder)
    if lock is None:
        return
    try:
        log = os.open(
            os.path.join(folder.system_logs, "courier.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        try:
            program = [
                sys.executable,
                "-P",
                "-m",
                "drumline.engines.kubernetes.courier",
                folder.path,
                str(lock),
            ]
            # It inherits the lock, so that nobody starts another meanwhile.
            subprocess.run(  # noqa: S603 - our own program
                ["/bin/sh", "-c", '"$@" &', "courier", *program],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                check=False,
            )
        finally:
            os.close(log)
    finally:
        os.close(lock)


def _take_lock(folder: RunFolder) -> int | None:
    """Return the lock of the job's courier, which goes with its descriptors; None where one runs."""
    path = os.path.join(folder.path, "courier.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


class Courier:
    """One job's."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._plan = Plan.read(folder.plan)
        self._name = objects.name_of(self._plan, folder)
        self._receiver = frames.Receiver(folder.path)
        self._warnings = view.Warnings()
        self._lock = threading.Lock()
        self._followed: dict[str, threading.Thread] = {}
        self._ended: set[str] = set()
        """Pods that have said that this was all."""

        self._held: list[frames.Frame] = []
        """The end of the events: the job has ended here when its outputs are here."""

        self._news = threading.Event()

        self._sent = ""
        self._runs = False
        self._began = time.monotonic()
        self._ended_at: float | None = None
        self._alone_since: float | None = None

    def run(self) -> None:
        """Carry until all has arrived, and nothing of the job is left in the cluster."""
        api: Api | None = None
        refusals = 0
        while True:
            # A job whose run folder was removed is nobody's: nothing of it stays in the cluster either.
            is_removed = not os.path.exists(self._folder.plan)
            try:
                api = api or open_api({**self._plan.compute, **view.read_place(self._folder)})
                if is_removed:
                    api.delete_job(self._name)
                if is_removed or self._look(api):
                    return
                refusals = 0
            except EngineError as error:
                refusals += 1
                if is_removed and refusals > _MOST_REFUSALS:
                    return
                if not is_removed:
                    view.write(self._folder, "unknown", error.message)
                api = api if isinstance(error, ApiSilentError) else None
            pause = _PAUSE_S if self._runs else _SHORT_PAUSE_S
            self._news.wait(min(_LONGEST_PAUSE_S, pause * 2 ** min(refusals, 10)))
            self._news.clear()
            self._release_end(late=False)

    def _release_end(self, *, late: bool) -> None:
        """Write down the end when all pods have said the rest, or it is too late to wait for them."""
        with self._lock:
            if late or self._followed.keys() <= self._ended:
                for frame in self._held:
                    self._receiver.take(frame)
                self._held.clear()

    def _look(self, api: Api) -> bool:
        """Look once; return whether everything is over. Raises EngineError."""
        job = api.get("Job", self._name)
        if job is None:
            if not self._has_end() and time.monotonic() - self._began < _GONE_S and not self._followed:
                return False
            view.write(self._folder, "gone", "its objects are gone from Kubernetes", status.FAILED, 1)
            return True
        found = api.list("Pod", {objects.JOB_LABEL: self._name})
        supervisor = next((pod for pod in found if pods.role_of(pod) == objects.SUPERVISOR), None)
        for pod in found:
            self._follow(api, pod)
        if self._is_withdrawn(supervisor):
            api.delete_job(self._name)
            view.write(self._folder, "gone", "it was canceled", status.CANCELED, 130)
            return True
        self._carry_requests(api, supervisor)
        count = len(self._plan.nodes)
        warnings = self._warnings.ask(api, pods.find_suspects(found, count, self._name))
        phase, reason = pods.describe(found, count, warnings)
        self._runs = phase == "runs"
        if self._are_alone_too_long(found, supervisor):
            api.delete_job(self._name)
            view.write(
                self._folder, "gone", f"the pod of its supervisor did not come: {reason}", status.FAILED, 1
            )
            return True
        if supervisor is None or not pods.has_ended(supervisor):
            view.write(self._folder, phase, reason)
            return False
        return self._finish(api, found, supervisor)

    def _are_alone_too_long(self, found: list[dict[str, Any]], supervisor: dict[str, Any] | None) -> bool:
        """Return whether pods hold nodes for a supervisor that has not come; one that is there gives them back."""
        has_come = supervisor is not None and pods.has_started(supervisor)
        if has_come or not any(pods.has_started(pod) for pod in found):
            self._alone_since = None
            return False
        self._alone_since = self._alone_since or time.monotonic()
        return time.monotonic() - self._alone_since > gang.patience_s(self._plan.compute)

    def _finish(self, api: Api, found: list[dict[str, Any]], supervisor: dict[str, Any]) -> bool:
        """Wait for the last words of all pods, then remove all objects; return whether that is done."""
        self._ended_at = self._ended_at or time.monotonic()
        waits = [pod for pod in found if pods.has_started(pod) and pod["metadata"]["name"] not in self._ended]
        if waits and time.monotonic() - self._ended_at < _LAST_WORDS_S:
            return False
        self._release_end(late=True)
        api.delete_job(self._name)
        if self._has_end():
            view.write(self._folder, "gone", "it has ended")
        else:
            why = f"the pod of its supervisor was lost: {pods.why_ended(supervisor)}"
            view.write(self._folder, "gone", why, status.FAILED, 1)
        return True

    def _has_end(self) -> bool:
        with self._lock:
            return any(isinstance(event, e.JobEnded) for event in self._folder.read_events())

    def _is_withdrawn(self, supervisor: dict[str, Any] | None) -> bool:
        """Return whether the job was canceled before its supervisor could hear of it."""
        is_canceled = os.path.exists(self._folder.cancel)
        return is_canceled and (supervisor is None or not pods.has_started(supervisor))

    def _carry_requests(self, api: Api, supervisor: dict[str, Any] | None) -> None:
        if supervisor is None or not pods.has_started(supervisor):
            return
        wanted = {}
        for name in objects.REQUEST_FILES:
            path = os.path.join(self._folder.path, name)
            with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
                wanted[name] = file.read()
        text = json.dumps(wanted, sort_keys=True)
        if wanted and text != self._sent:
            change = {"metadata": {"annotations": {objects.REQUESTS: text}}}
            api.patch("Pod", supervisor["metadata"]["name"], change)
            self._sent = text

    def _follow(self, api: Api, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        thread = self._followed.get(name)
        if name in self._ended or not pods.has_started(pod) or (thread and thread.is_alive()):
            return
        thread = threading.Thread(target=self._read, args=(api, name), daemon=True)
        self._followed[name] = thread
        thread.start()

    def _read(self, api: Api, name: str) -> None:
        """Write down what a pod says. After an error it is read again from the beginning."""
        try:
            for line in api.follow_log(name):
                frame = frames.decode(line)
                if frame is None:
                    continue
                if frame.end:
                    self._ended.add(name)
                    self._news.set()
                    return
                self._take(frame)
        except (EngineError, OSError) as error:
            sys.stderr.write(f"{name}: {error}\n")
            time.sleep(_PAUSE_S)

    def _take(self, frame: frames.Frame) -> None:
        is_events = frame.path == "events.jsonl"
        with self._lock:
            if is_events and (self._held or _JOB_ENDED in frame.data):
                self._held.append(frame)
            else:
                self._receiver.take(frame)


def main() -> int:
    """Carry for ``RUN_FOLDER [DESCRIPTOR]``: of the lock, which was taken for this process where it is given."""
    folder = RunFolder(sys.argv[1])
    if len(sys.argv) == 2 and _take_lock(folder) is None:
        return 0
    kernel.set_process_name("drumline-courier")
    Courier(folder).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
