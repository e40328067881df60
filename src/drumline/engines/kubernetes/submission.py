"""The objects of a job, made in the cluster: all of them, or none; later, pods for nodes that are missing."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError
from drumline.contract.words import format_seconds
from drumline.engines.kubernetes import manifests, pods
from drumline.engines.kubernetes.client import ApiRefusedError, ApiSilentError
from drumline.engines.kubernetes.manifests import find_dropped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from drumline.engines.kubernetes.access import Manifest
    from drumline.engines.kubernetes.client import Api


PATIENCE_S = 60.0
"""With a server that does not answer."""

_GOING_S = 20.0
"""For what is left of an earlier job of that name, which goes by itself."""

_TOLD_S = 5.0
"""With fewer pods than nodes, before that is a reason why a job waits."""

_REPLACED_S = 30.0
"""
Likewise, before another Job is made. A Job waits 10 s before it replaces a first pod, and twice as long for each other:
for 6 minutes at most, from 1.28 on for 10.
"""

_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0


def send_patiently(open_api: Callable[[], Api], make: Callable[[Api], manifests.Objects]) -> str:
    """Make the objects, and return the uid of the first; a server that is away is waited for. Raises EngineError."""
    until = time.monotonic() + PATIENCE_S
    pause_s = _PAUSE_S
    while True:
        try:
            with open_api() as api:
                return send(api, make(api))
        except ApiSilentError as error:
            if time.monotonic() + pause_s > until:
                raise
            if pause_s == _PAUSE_S:
                said = "".join(one if one.isprintable() else " " for one in error.message)
                sys.stderr.write(f"waiting for Kubernetes: {said}\n")
                sys.stderr.flush()
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def send(api: Api, made: manifests.Objects) -> str:
    """
    Make the objects that are not there yet, and return the uid of the first, which owns the others and starts last: a
    submission that was killed has started nothing, what it left goes with that one, and it can be completed.

    Raises EngineError; nothing is left where the server has said no.
    """
    name = made.supervisor["metadata"]["name"]
    until = time.monotonic() + _GOING_S
    owner, is_new = _make_owner(api, made, until)
    if not is_new and _has_begun(owner):
        return str(owner["metadata"]["uid"])
    try:
        if is_new:
            _check_kept(made.supervisor, owner)
        for thing in (*made.secrets, made.service, made.group, made.nodes):
            if thing:
                _make_owned(api, manifests.own(thing, owner), may_be_there=not is_new, until=until)
        api.patch("Job", name, {"spec": {"parallelism": 1}})
    except ApiRefusedError:
        with contextlib.suppress(EngineError):
            api.delete_job(name)
        raise
    return str(owner["metadata"]["uid"])


def _has_begun(owner: Mapping[str, Any]) -> bool:
    """Return whether the server had all objects of the job: its supervisor was let go."""
    return bool(owner.get("spec", {}).get("parallelism"))


def _make_owner(api: Api, made: manifests.Objects, until: float) -> tuple[Manifest, bool]:
    """Return the Job as the server has it, and whether it is new: an earlier try of the same may have made it."""
    job = made.supervisor
    name = job["metadata"]["name"]
    while True:
        try:
            return api.create(job), True
        except ApiRefusedError as error:
            if error.status != 409:
                raise
            there = api.get("Job", name)
            if there is not None and _is_of_one_submission(job, there):
                if _has_begun(there) or len(made.secrets) == 1:
                    return there, False
                # Parts of an archive that was packed anew do not go with those of the first.
                api.delete_job(name)
                there = None
            is_going = there is None or "deletionTimestamp" in there["metadata"]
            if not is_going or time.monotonic() > until:
                what = f"Kubernetes has a Job {name} already, of another job of that name"
                hint = "another name; else wait for its end, and for what is left of it to go"
                raise ApiRefusedError(what, hint, status=409) from error
        time.sleep(_PAUSE_S)


def _is_of_one_submission(sent: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    metadata = there["metadata"]
    own = sent["metadata"]["annotations"].get(manifests.SUBMISSION_ANNOTATION)
    return (
        bool(own)
        and "deletionTimestamp" not in metadata
        and (metadata.get("annotations") or {}).get(manifests.SUBMISSION_ANNOTATION) == own
    )


def _make_owned(api: Api, thing: Mapping[str, Any], *, may_be_there: bool, until: float) -> None:
    """Make an object. ``may_be_there``: one that is there is taken for this submission's own."""
    while True:
        try:
            _check_kept(thing, api.create(thing))
        except ApiRefusedError as error:
            if error.status == 409 and may_be_there:
                return
            if error.status != 409 or time.monotonic() > until:
                raise
        else:
            return
        time.sleep(_PAUSE_S)


def _check_kept(sent: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Refuse a server that has dropped a field, as one does that does not know it. Raises ApiRefusedError."""
    dropped = find_dropped(sent, kept)
    if dropped:
        what = f"Kubernetes has left {dropped} out of the {sent['kind']} {sent['metadata']['name']}"
        raise ApiRefusedError(
            what, "its version does not know the field, which a setting of the compute needs"
        )


class Replacements:
    """Asks for nodes that are missing while the job goes on, where the cluster makes no pods for them by itself."""

    def __init__(self, name: str, sent: Mapping[str, Any] | None) -> None:
        """``name``: of the job's objects. ``sent``: the Job of its nodes as it was made; None: nothing is asked for."""
        self._name = name
        self._sent = sent
        self._missing_since: float | None = None
        self._whole_since: float | None = None
        self._patience_s = _REPLACED_S

    def ask(self, api: Api, found: Sequence[Mapping[str, Any]], count: int, *, is_held: bool) -> str:
        """
        Ask where it is time; return what is done about the missing nodes, and nothing where none is missing or the
        cluster is at it. ``is_held``: it has said why it makes none. Raises EngineError.
        """
        lasting = [pod for pod in found if pods.role_of(pod) == manifests.NODE and pods.is_lasting(pod)]
        if len(lasting) >= count or self._sent is None:
            self._missing_since, self._whole_since = None, self._whole_since or time.monotonic()
            # Pods that fail as soon as they have come are not what was asked for.
            if time.monotonic() - self._whole_since >= self._patience_s:
                self._patience_s = _REPLACED_S
            return ""
        self._whole_since = None
        self._missing_since = self._missing_since or time.monotonic()
        waited_s = time.monotonic() - self._missing_since
        if waited_s < _TOLD_S:
            return ""
        jobs = self._read_jobs(api)
        promised = sum(pods.count_wanted(job) for job in jobs)
        if promised >= count and is_held:
            return ""
        if waited_s < self._patience_s:
            return f"Kubernetes makes no other pod yet; Drumline asks for one after {format_seconds(self._patience_s)}"
        # Ever more rarely, as long as nothing comes of it.
        self._missing_since, self._patience_s = None, self._patience_s * 2
        try:
            if promised >= count:
                promised = sum(self._stop_waiting(api, job) for job in jobs)
            if promised < count:
                self._make(api, jobs, count - promised)
        except ApiRefusedError as error:
            sys.stderr.write(f"no other pod can be asked for: {error.message}\n")
        return ""

    def _read_jobs(self, api: Api) -> list[Manifest]:
        """Return the Jobs of the nodes. The first may have been deleted."""
        found = [api.get("Job", manifests.name_nodes(self._name))]
        while (job := api.get("Job", manifests.name_nodes(self._name, len(found) + 1))) is not None:
            found.append(job)
        return [job for job in found if job is not None]

    def _stop_waiting(self, api: Api, job: Mapping[str, Any]) -> int:
        """
        Have a Job that waits ever longer before it makes another pod make none; return how many it keeps. One that a
        queue has admitted keeps its size.
        """
        wanted = pods.count_wanted(job)
        active = int(job.get("status", {}).get("active") or 0)
        labels = job["metadata"].get("labels") or {}
        if active >= wanted or manifests.QUEUE_LABEL in labels or job.get("spec", {}).get("suspend"):
            return wanted
        api.patch("Job", job["metadata"]["name"], {"spec": {"parallelism": active}})
        return active

    def _make(self, api: Api, jobs: Sequence[Mapping[str, Any]], count: int) -> None:
        owner = api.get("Job", self._name)
        if owner is None or self._sent is None:
            return
        taken = {job["metadata"]["name"] for job in jobs}
        number = 2
        while manifests.name_nodes(self._name, number) in taken:
            number += 1
        metadata = {**self._sent["metadata"], "name": manifests.name_nodes(self._name, number)}
        spec = {**self._sent["spec"], "completions": count, "parallelism": count}
        api.create(manifests.own({**self._sent, "metadata": metadata, "spec": spec}, owner))
        sys.stderr.write(f"{metadata['name']} is made for {count} missing nodes\n")
