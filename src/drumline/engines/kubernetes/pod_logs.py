"""What the pods of a job print, written to its run folder: each piece once, however often a log is read."""

from __future__ import annotations

import collections
import errno
import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import EngineError
from drumline.engines.kubernetes import frames, objects, pods
from drumline.engines.kubernetes.api.failures import LogQuietError
from drumline.engines.kubernetes.arrivals import left_out
from drumline.engines.kubernetes.arrivals.receiver import EVENTS, Receiver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.folder import RunFolder
    from drumline.engines.kubernetes.client import Api

_PAUSE_S = 1.0

_MARGIN_S = 60
"""Of a log that is asked for again: what came on its way before its connection died is read once more."""

_PASSING_ERRORS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.EROFS,
    errno.ENOMEM,
)
"""Of this machine; others are of a piece, such as one whose file is a folder here."""

_LINES_KEPT = 5
_LONGEST_LINE = 1000

_JOB_ENDED = b'"type":"JobEnded"'


class PodLogs:
    """
    The logs of one job's pods, each followed by a thread. ``news`` is set when a pod has said all.

    ``written``: by pod, the number of the last piece that an earlier reader has written; they are left out.
    """

    def __init__(self, folder: RunFolder, news: threading.Event, written: Mapping[str, int]) -> None:
        self.heard = 0.0
        """When a piece has come last, on the monotonic clock."""

        self._folder = folder
        self._news = news
        self._receiver = Receiver(folder.path)
        self._lock = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}
        self._ended: set[str] = set()
        self._last_lines: dict[str, collections.deque[str]] = {}
        self._last_heard: dict[str, float] = {}
        """By pod, when this reader has heard a piece of it last; none: its log is read from the beginning."""

        self._written = dict(written)
        self._taken = dict(written)
        """By pod, the number of the last piece that was taken: written, or held."""

        self._events_taken = 0
        """The number of the supervisor's last piece of events that this reader has taken: it needs all of them."""

        self._events_end = b""
        """The last bytes of those."""

        self._held: list[tuple[str, frames.Frame]] = []
        """The end of the events: the job has ended here when its outputs are here."""

    @property
    def has_followed(self) -> bool:
        """Return whether a pod of the job was seen to run."""
        return bool(self._threads)

    def list_written(self) -> dict[str, int]:
        """Return by pod the number of the last piece that is in the run folder, with all before it."""
        with self._lock:
            return dict(self._written)

    def list_last_lines(self, pod: str) -> list[str]:
        """Return the last lines of a pod's log that are no pieces of files."""
        return list(self._last_lines.get(pod, ()))

    def has_said_all(self, pod: str) -> bool:
        return pod in self._ended

    def has_end(self) -> bool:
        """Return whether the end of the job is in its events here, or about to be."""
        with self._lock:
            return bool(self._held) or self.has_written_end()

    def has_written_end(self) -> bool:
        """Return whether the end of the job is in its events here."""
        return any(isinstance(event, e.JobEnded) for event in self._folder.read_events())

    def follow(self, api: Api, pod: Mapping[str, Any]) -> None:
        """Have the pod's log be read, where it has one and nobody reads it."""
        name = str(pod["metadata"]["name"])
        thread = self._threads.get(name)
        if name in self._ended or not pods.has_started(pod) or (thread and thread.is_alive()):
            return
        thread = threading.Thread(target=self._read, args=(api, name, dict(pod)), daemon=True)
        self._threads[name] = thread
        thread.start()

    def release_end(self, *, late: bool) -> None:
        """Write down the end when all pods have said the rest, or it is too late to wait for them. Raises OSError."""
        with self._lock:
            if not (late or (self._held and self._threads.keys() <= self._ended)):
                return
            left_out.tell(self._folder)
            while self._held:
                pod, frame = self._held[0]
                self._receiver.take(frame)
                del self._held[0]
                self._written[pod] = max(self._written.get(pod, 0), frame.number)

    def _read(self, api: Api, name: str, pod: Mapping[str, Any]) -> None:
        heard = self._last_heard.pop(name, None)
        since_s = None if heard is None else math.ceil(time.monotonic() - heard) + _MARGIN_S
        try:
            for line in api.follow_log(name, since_s):
                frame = frames.decode(line)
                if frame is not None and frame.end:
                    self._end(name)
                    return
                if frame is None:
                    self._note_line(name, line)
                    continue
                if since_s and frame.number > self._taken.get(name, 0) + 1:
                    # More is missing than was thought: all of it, from the beginning.
                    return
                self._take(name, pods.role_of(pod), frame)
                heard = time.monotonic()
        except LogQuietError:
            # The next look follows it again.
            if heard is not None:
                self._last_heard[name] = heard
            return
        except (EngineError, OSError) as error:
            sys.stderr.write(f"{name}: {error}\n")
            time.sleep(_PAUSE_S)
            return
        # Of a pod that had ended before, this was all; a server may close other logs too.
        if pods.has_ended(pod):
            self._end(name)

    def _note_line(self, name: str, line: str) -> None:
        """Keep the last lines that are no pieces, such as those of a program that did not start."""
        if line.strip():
            self._last_lines.setdefault(name, collections.deque(maxlen=_LINES_KEPT)).append(
                line[:_LONGEST_LINE]
            )

    def _end(self, name: str) -> None:
        self._ended.add(name)
        self._news.set()

    def _take(self, name: str, role: str, frame: frames.Frame) -> None:
        """Write a piece, once. Raises OSError where it may be written later."""
        with self._lock:
            last = self._taken.get(name, 0)
            is_event = frame.path == EVENTS and role == objects.SUPERVISOR
            if frame.number and frame.number <= (self._events_taken if is_event else last):
                return
            if frame.number > last + 1:
                sys.stderr.write(f"{name}: {frame.number - last - 1} pieces are lost: its log was cut\n")
            self.heard = time.monotonic()
            if is_event:
                self._take_events(name, frame)
            elif frame.path != EVENTS:
                self._write(name, frame)
            self._taken[name] = max(last, frame.number)
            if all(one != name for one, _ in self._held):
                self._written[name] = self._taken[name]

    def _take_events(self, name: str, frame: frames.Frame) -> None:
        end = self._events_end + frame.data
        if self._held or _JOB_ENDED in end:
            self._held.append((name, frame))
        else:
            self._write(name, frame)
        self._events_end = end[-len(_JOB_ENDED) :]
        self._events_taken = frame.number

    def _write(self, name: str, frame: frames.Frame) -> None:
        try:
            self._receiver.take(frame, name)
        except OSError as error:
            if error.errno in _PASSING_ERRORS:
                raise
            sys.stderr.write(f"{name}: {frame.path} is left out: {error.strerror or error}\n")
