"""
``python -m drumline.engines.kubernetes.courier RUN_FOLDER``: the one process that asks the API server about a job.

It carries what the pods print to the run folder here, requests from there to the supervisor's pod, and removes all
objects when everything has arrived. It may be killed: whoever next looks at the job starts another, which reads the
pods' output again and leaves out what is here.
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

from drumline.contract import status
from drumline.contract.errors import EngineError
from drumline.contract.folder import RunFolder, write_whole
from drumline.contract.plan import Plan
from drumline.engines.kubernetes import cluster_view, manifests, pods
from drumline.engines.kubernetes.client import ApiRefusedError, ApiSilentError, open_api
from drumline.engines.kubernetes.receiver import PodLogs
from drumline.engines.kubernetes.submission import Replacements
from drumline.linux import kernel

if TYPE_CHECKING:
    from drumline.engines.kubernetes.access import Manifest
    from drumline.engines.kubernetes.client import Api

_PAUSE_S = 1.0
_SHORT_PAUSE_S = 0.3
"""While the pods of a job start."""

_LONGEST_PAUSE_S = 10.0
"""While the server does not answer, or refuses."""

_MOST_OBEYED_S = 120.0
"""Of the time after which a busy server wants to be asked again."""

_MOST_REFUSALS = 60
"""Of a server, one after the other, before a job that is nobody's any more is left to itself."""

_LAST_WORDS_S = 30.0
"""After the supervisor's pod has ended, and without a word, for the pods of the nodes to say the rest."""

_END_WORDS_S = 600.0
"""Likewise for the pod of the supervisor: removing it would lose how the job ended."""

_GONE_S = 60.0
"""After a courier's start, before a job without objects is taken to be gone."""

_SUBMISSION_S = 600.0
"""Likewise, while its submitter may still be at it."""

_CANCELED_S = 30.0
"""Likewise, of a job that was canceled before it ran: what its submitter has sent may be on its way."""

_MISSING_S = 5.0
"""Without the objects of a job, look after look, before a courier believes that they are gone."""

_MISSING_LOOKS = 3

_CUT_OFF_S = 120.0
"""Between the first object of a job and the last, at most: a submitter that takes longer was killed."""


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


def forget_end(folder: RunFolder) -> None:
    """
    Forget what a courier has seen of objects that it found gone, before a submission that was cut off makes them again:
    it would be taken for the end of the job. Raises OSError.
    """
    if cluster_view.read(folder).state == "gone":
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_known_path(folder))
        cluster_view.forget(folder)


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
        self._name = cluster_view.read_place(folder).get("name") or manifests.name_of(self._plan, folder)
        self._warnings = cluster_view.Warnings()
        self._replacements = Replacements(self._name, cluster_view.read_nodes(folder))
        self._known = _read_known(folder)
        self._news = threading.Event()
        self._logs = PodLogs(folder, self._news, self._known["pods"])
        self._sent = ""
        self._runs = False
        self._began = time.monotonic()
        self._ended_at: float | None = None
        self._alone_since: float | None = None
        self._reasons = cluster_view.PodReasons(self._logs, self._plan.compute)
        self._missing: list[float] = []
        """When it has found no objects of the job, look after look."""

    def run(self) -> None:
        """Carry until all has arrived, and nothing of the job is left in the cluster."""
        # Each log that is followed is a connection.
        kernel.allow_open_files(len(self._plan.nodes))
        api: Api | None = None
        refusals, asked_s = 0, 0.0
        while True:
            # A job whose run folder was removed, or whose submission failed, is nobody's: nothing of it stays there.
            is_over = not os.path.exists(self._folder.plan) or cluster_view.is_withdrawn(self._folder)
            try:
                api = api or open_api({**self._plan.compute, **cluster_view.read_place(self._folder)})
                if is_over:
                    api.delete_job(self._name)
                if is_over or self._look(api):
                    return
                self._logs.release_end(late=False)
                self._write_known()
                refusals, asked_s = 0, 0.0
            except (EngineError, OSError) as error:
                # What could not be heard meanwhile may be there yet.
                self._ended_at = None
                refusals += 1
                if is_over and refusals > _MOST_REFUSALS:
                    return
                if not is_over:
                    self._tell(error)
                if isinstance(error, ApiRefusedError) and api is not None:
                    api.close()
                    api = None
                if isinstance(error, ApiSilentError):
                    asked_s = min(error.again_s or 0.0, _MOST_OBEYED_S)
            pause = _PAUSE_S if self._runs else _SHORT_PAUSE_S
            self._news.wait(max(asked_s, min(_LONGEST_PAUSE_S, pause * 2 ** min(refusals, 10))))
            self._news.clear()

    def _tell(self, error: EngineError | OSError) -> None:
        sys.stderr.write(f"{error}\n")
        if isinstance(error, EngineError):
            # A full disk passes, and a run folder that goes is seen at the next look.
            with contextlib.suppress(OSError):
                cluster_view.write(self._folder, "unknown", error.message)

    def _write_known(self) -> None:
        known = {**self._known, "pods": self._logs.list_written()}
        if known != self._known:
            write_whole(_known_path(self._folder), json.dumps(known))
            self._known = known

    def _look(self, api: Api) -> bool:
        """Look once; return whether everything is over. Raises EngineError and OSError."""
        job = api.get("Job", self._name)
        if job is None:
            return self._look_at_nothing()
        self._missing.clear()
        found = api.list("Pod", {manifests.JOB_LABEL: self._name})
        supervisor = self._find_supervisor(found)
        heard = [pod for pod in found if pod is supervisor or pods.role_of(pod) == manifests.NODE]
        for pod in heard:
            self._logs.follow(api, pod)
        is_waiting = supervisor is None or not pods.has_started(supervisor)
        if is_waiting and os.path.exists(self._folder.cancel):
            # Its supervisor could not hear of it.
            return self._remove(api, "it was canceled", status.CANCELED, 130)
        self._carry_requests(api, supervisor)
        count = len(self._plan.nodes)
        warnings = self._warnings.ask(api, pods.find_suspects(found, count, self._name))
        phase, reason = pods.describe(found, count, warnings, self._reasons.explain)
        self._reasons.warn_of_lost(self._folder, found)
        self._runs = phase == "runs"
        is_held = job.get("spec", {}).get("parallelism") == 0 and not self._known["supervisor"]
        has_supervisor = any(pods.role_of(pod) == manifests.SUPERVISOR for pod in found)
        if is_held and not has_supervisor and time.monotonic() - self._began > _CUT_OFF_S:
            return self._remove(api, "its submission was cut off", status.FAILED, 1)
        if self._are_alone_too_long(found, supervisor):
            why = f"the pod of its supervisor did not come: {reason}"
            return self._remove(api, why, status.FAILED, 1)
        is_lost = supervisor is None and bool(self._known["supervisor"])
        if is_lost or (supervisor is not None and pods.has_ended(supervisor)):
            return self._finish(api, heard, supervisor)
        if supervisor is not None and pods.has_started(supervisor) and not self._logs.has_end():
            asked = self._replacements.ask(api, found, count, is_held=bool(warnings))
            phase, reason = (
                ("waits", f"{reason}; {asked}") if asked and "; " not in reason else (phase, reason)
            )
        cluster_view.write(self._folder, phase, reason)
        return False

    def _look_at_nothing(self) -> bool:
        now = time.monotonic()
        self._missing.append(now)
        is_sure = len(self._missing) >= _MISSING_LOOKS and now - self._missing[0] >= _MISSING_S
        if not is_sure and not self._logs.has_written_end():
            return False
        has_run = self._logs.has_end() or self._logs.has_followed
        is_canceled = os.path.exists(self._folder.cancel) and not has_run and not self._known["supervisor"]
        patience_s = _GONE_S if cluster_view.was_sent(self._folder) else _SUBMISSION_S
        if not has_run and now - self._began < (_CANCELED_S if is_canceled else patience_s):
            return False
        self._logs.release_end(late=True)
        if is_canceled:
            return self._leave("it was canceled", status.CANCELED, 130)
        return self._leave("its objects are gone from Kubernetes", status.FAILED, 1)

    def _remove(self, api: Api, reason: str, end: str, exit_code: int) -> bool:
        # First, as the pods that could say it again go.
        self._logs.release_end(late=True)
        api.delete_job(self._name)
        return self._leave(reason, end, exit_code)

    def _leave(self, reason: str, end: str, exit_code: int) -> bool:
        """Write down how a job without objects has ended: as its supervisor has said, else so. Raises OSError."""
        if self._logs.has_end():
            reason, end, exit_code = "it has ended", "", 0
        cluster_view.write(self._folder, "gone", reason, end, exit_code)
        return True

    def _find_supervisor(self, found: list[Manifest]) -> Manifest | None:
        """
        Return the pod of the supervisor: the first that has run. An old server replaces one that is deleted; the other
        one knows nothing of the job's state.
        """
        first = self._known["supervisor"]
        there = [pod for pod in found if pods.role_of(pod) == manifests.SUPERVISOR]
        if first:
            return next((pod for pod in there if pod["metadata"]["name"] == first), None)
        supervisor = next(iter(there), None)
        if supervisor is not None and pods.has_started(supervisor):
            self._known = {**self._known, "supervisor": supervisor["metadata"]["name"]}
            write_whole(_known_path(self._folder), json.dumps(self._known))
        return supervisor

    def _are_alone_too_long(self, found: list[Manifest], supervisor: Manifest | None) -> bool:
        """Return whether pods hold nodes for a supervisor that has not come; one that is there gives them back."""
        has_come = supervisor is not None and pods.has_started(supervisor)
        if has_come or not any(pods.has_started(pod) for pod in found):
            self._alone_since = None
            return False
        self._alone_since = self._alone_since or time.monotonic()
        return time.monotonic() - self._alone_since > manifests.patience_s(self._plan.compute)

    def _finish(self, api: Api, heard: list[Manifest], supervisor: Manifest | None) -> bool:
        """Wait for the last words of all pods, then remove all objects; return whether that is done."""
        now = time.monotonic()
        self._ended_at = self._ended_at or now
        waits = [
            pod
            for pod in heard
            if pods.has_started(pod) and not self._logs.has_said_all(pod["metadata"]["name"])
        ]
        has_more = any(pod is supervisor for pod in waits) and not self._logs.has_end()
        silence = now - max(self._ended_at, self._logs.heard)
        if waits and silence < (_END_WORDS_S if has_more else _LAST_WORDS_S):
            return False
        how = self._reasons.explain(supervisor) if supervisor else "it was deleted"
        what = "did not start" if supervisor and not pods.has_begun(supervisor) else "was lost"
        return self._remove(api, f"the pod of its supervisor {what}: {how}", status.FAILED, 1)

    def _carry_requests(self, api: Api, supervisor: Manifest | None) -> None:
        if supervisor is None or not pods.has_started(supervisor):
            return
        wanted = {}
        for name in manifests.REQUEST_FILES:
            path = os.path.join(self._folder.path, name)
            with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
                wanted[name] = file.read()
        text = json.dumps(wanted, sort_keys=True)
        if wanted and text != self._sent:
            change = {"metadata": {"annotations": {manifests.REQUESTS: text}}}
            api.patch("Pod", supervisor["metadata"]["name"], change)
            self._sent = text


def _known_path(folder: RunFolder) -> str:
    return os.path.join(folder.path, "courier.json")


def _read_known(folder: RunFolder) -> dict[str, Any]:
    """Return what the courier before had written down: ``pods`` as of ``PodLogs``, and the pod of the supervisor."""
    known = folder.read_json(_known_path(folder)) or {}
    return {"pods": known.get("pods") or {}, "supervisor": known.get("supervisor") or ""}


def main() -> int:
    """Carry for ``RUN_FOLDER [DESCRIPTOR]``: of the lock, which was taken for this process where it is given."""
    folder = RunFolder(sys.argv[1])
    if len(sys.argv) == 2 and _take_lock(folder) is None:
        return 0
    kernel.lose_output_without_room()
    kernel.set_process_name("drumline-courier")
    kernel.forbid_core()
    Courier(folder).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
