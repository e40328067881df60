"""What arrives from the pods of a job, written to its run folder here: frames, events, logs, each piece once."""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import math
import os
import re
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from drumline.contract import events as e
from drumline.contract.errors import EngineError
from drumline.contract.folder import LONGEST_EVENT, open_plain, read_plain
from drumline.contract.record import NamedTuple
from drumline.engines.kubernetes import frames, manifests, pods
from drumline.engines.kubernetes.client import LogQuietError
from drumline.engines.kubernetes.frames import LEFT_OUT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drumline.contract.folder import RunFolder
    from drumline.engines.kubernetes.client import Api
    from drumline.engines.kubernetes.frames import Frame


# The events of a job's supervisor, appended to those here: people's own changes are in the same file.
#
# Nothing is kept of how far this went: whoever begins anew is given the supervisor's file from its beginning, and
# leaves out the lines that are here.

_BEGIN = b'{"type":"'
_ATTEMPT_ENDED = e.begin_of(e.AttemptEnded)


class SupervisorEvents:
    """Appends each line of the supervisor's file once, in one write, as all who append to events do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0
        """How much of the supervisor's file was taken."""

        self._rest = b""
        """Of that, the beginning of a line."""

        self._is_cut = False
        """Whether the next line may lack its beginning, which was lost."""

        self._here: Counter[bytes] | None = None
        """Lines that were here already, and have not come yet; None: not looked yet."""

        self._attempts_ended = 0

    def count_ended_attempts(self) -> int:
        """Count the attempts that have ended by the events here. Raises OSError."""
        self._look()
        return self._attempts_ended

    def take(self, at: int, data: bytes) -> None:
        """Take a piece of the supervisor's file. Raises OSError; the piece may be given again then."""
        here = self._look()
        if at > self._at:
            self._at, self._rest, self._is_cut = at, b"", True
        data = data[self._at - at :]
        while data:
            line, end, data = data.partition(b"\n")
            whole = self._rest + line + end
            if end:
                if not self._is_cut or whole.startswith(_BEGIN):
                    self._add(here, whole)
                self._is_cut, whole = False, b""
            elif len(whole) > LONGEST_EVENT:
                self._is_cut, whole = True, b""
            self._at, self._rest = self._at + len(line) + len(end), whole

    def _look(self) -> Counter[bytes]:
        if self._here is None:
            here: Counter[bytes] = Counter()
            with contextlib.suppress(FileNotFoundError), open_plain(self._path) as file:
                while (line := file.readline(LONGEST_EVENT)).endswith(b"\n"):
                    here[line] += 1
                    self._count(line)
            self._here = here
        return self._here

    def _count(self, line: bytes) -> None:
        if line.startswith(_ATTEMPT_ENDED):
            event = e.from_line(line)
            if isinstance(event, e.AttemptEnded):
                self._attempts_ended = max(self._attempts_ended, event.attempt + 1)

    def _add(self, here: Counter[bytes], line: bytes) -> None:
        if line in here:
            here[line] -= 1
            if not here[line]:
                del here[line]
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            # A writer that was killed may have left the beginning of a line.
            begins = not size or os.pread(descriptor, 1, size - 1) == b"\n"
            whole = line if begins else b"\n" + line
            if os.write(descriptor, whole) < len(whole):
                with contextlib.suppress(OSError):
                    os.write(descriptor, b"\n")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
        finally:
            os.close(descriptor)
        self._count(line)


# The pod that has written each log: the log of a lost pod is kept when its replacement writes another.

_FILE = "courier-logs.jsonl"
_LOG = re.compile(r"user_logs/(?!(?:.*/)?attempt-\d+/).+|system_logs/node-\d+\.log", re.DOTALL)


def is_log(path: str) -> bool:
    """Return whether each attempt writes a file of that name."""
    return _LOG.fullmatch(path) is not None


class Writer(NamedTuple):
    """A pod, and how many attempts had ended by the events here when its first piece came."""

    pod: str
    ended: int


class LogWriters:
    """The pods by log. It survives the process, as a line is written down before the log is."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, _FILE)
        self._known: dict[str, Writer] | None = None

    def find(self, path: str) -> Writer | None:
        """Return who has written a log last; None: nobody whom this knows. Raises OSError."""
        if self._known is None:
            self._known = dict(self._load())
        return self._known.get(path)

    def note(self, path: str, writer: Writer) -> None:
        """Write down who writes a log from now on. Raises OSError."""
        if self.find(path) == writer or self._known is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._path, flags, 0o600), "ab", buffering=0) as file:
            # The line before may be torn.
            file.write(b"\n" + json.dumps([path, *writer]).encode())
        self._known[path] = writer

    def _load(self) -> Iterator[tuple[str, Writer]]:
        try:
            with open_plain(self._path) as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                path, pod, ended = json.loads(line)
            except (ValueError, TypeError):
                continue
            yield str(path), Writer(str(pod), int(ended))


# The frames of pods, written to a run folder.

EVENTS = "events.jsonl"

_WIDEST_GAP = 1 << 30
"""Bytes that may be missing before a piece, as of a log that a node has cut; a job may print frames of its own."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Receiver:
    """Writes the frames of all pods of a job to its run folder here. No path leads out of it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._events = SupervisorEvents(os.path.join(folder, EVENTS))
        self._writers = LogWriters(folder)

    def take(self, frame: Frame, pod: str = "") -> None:
        """Write one piece of a pod. Raises OSError, as for a full disk."""
        if frame.path == EVENTS:
            self._events.take(frame.at, frame.data)
            return
        with contextlib.ExitStack() as opened:
            parent = _open_folder(self._folder, None)
            opened.callback(os.close, parent)
            *folders, name = frame.path.split("/")
            for one in folders:
                parent = _make_folder(one, parent)
                opened.callback(os.close, parent)
            self._write(parent, name, frame, pod)

    def _write(self, parent: int, name: str, frame: Frame, pod: str) -> None:
        descriptor = os.open(name, _FLAGS, 0o600, dir_fd=parent)
        try:
            size = os.fstat(descriptor).st_size
            if frame.at > size + _WIDEST_GAP:
                return
            if frame.begins:
                if size:
                    # Another file of that name, as of another attempt: readers of the one before keep that.
                    self._put_away(parent, name, frame.path, pod)
                    os.close(descriptor)
                    descriptor = os.open(name, _FLAGS, 0o600, dir_fd=parent)
                if is_log(frame.path):
                    self._writers.note(frame.path, Writer(pod, self._events.count_ended_attempts()))
            data, at = frame.data, frame.at
            if at > size:
                # What is missing ends with its line: the next one can be read.
                os.pwrite(descriptor, b"\n", at - 1)
            while data:
                written = os.pwrite(descriptor, data, at)
                data, at = data[written:], at + written
        finally:
            os.close(descriptor)

    def _put_away(self, parent: int, name: str, path: str, pod: str) -> None:
        """
        Remove a file that begins anew, or move the log of a pod that was lost to where its attempt's logs are. A pod
        that goes on has moved its own.
        """
        writer = self._writers.find(path) if is_log(path) else None
        if writer is not None and writer.pod != pod:
            ended = self._events.count_ended_attempts()
            # By the events here, which may be late.
            for attempt in (max(0, ended - 1), writer.ended):
                if _move_aside(parent, name, f"attempt-{attempt}"):
                    return
        os.unlink(name, dir_fd=parent)


def _move_aside(parent: int, name: str, aside: str) -> bool:
    """Move a file into a folder beside it; return False where that has one of its name."""
    place = _make_folder(aside, parent)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.stat(name, dir_fd=place, follow_symlinks=False)
            return False
        os.rename(name, name, src_dir_fd=parent, dst_dir_fd=place)
        return True
    finally:
        os.close(place)


def _make_folder(name: str, parent: int) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return _open_folder(name, parent)


def _open_folder(name: str, parent: int | None) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


# The outputs that pods did not send, told once: in a warning of the job.

_KIND = "outputs"
_MOST_NAMED = 3
_LONGEST_NAME = 200
_MOST_BYTES = 4 << 20


def warn_of_missing_outputs(folder: RunFolder) -> None:
    """Append a warning to the job's events where outputs are missing, and none is there yet. Raises OSError."""
    named: list[str] = []
    count = 0
    for path, reason, more in _read_lists(folder):
        count += more
        if reason and len(named) < _MOST_NAMED:
            named.append(f"{_shorten(path)} ({_shorten(reason)})")
    if not count or any(isinstance(one, e.JobWarned) and one.kind == _KIND for one in folder.read_events()):
        return
    others = count - len(named)
    what = "1 output was" if count == 1 else f"{count} outputs were"
    which = ", ".join(named) + (f" and {others} more" if others else "")
    text = (
        f"{what} not brought from the pods: {which}; "
        f"system_logs/{LEFT_OUT}*.jsonl has the list. A volume of the compute has room for such files: "
        "write below its path, or give the output a path there"
    )
    folder.append(e.JobWarned(time.time(), _KIND, text))


def _read_lists(folder: RunFolder) -> Iterator[tuple[str, str, int]]:
    """Yield path and reason of each output that a list names, and 1; nothing and how many more it has."""
    try:
        names = sorted(one for one in os.listdir(folder.system_logs) if one.startswith(LEFT_OUT))
    except FileNotFoundError:
        return
    for name in names:
        for line in read_plain(os.path.join(folder.system_logs, name), _MOST_BYTES).splitlines():
            try:
                one = json.loads(line)
                if "path" in one:
                    yield str(one["path"]), str(one["reason"]), 1
                else:
                    yield "", "", max(0, int(one["more"]))
            except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
                # A job may print frames of its own.
                continue


def _shorten(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _LONGEST_NAME else text[:_LONGEST_NAME] + "..."


# What the pods of a job print, written to its run folder: each piece once, however often a log is read.

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
            warn_of_missing_outputs(self._folder)
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
                    # Such as of a program that did not start.
                    if line.strip():
                        kept = self._last_lines.setdefault(name, collections.deque(maxlen=_LINES_KEPT))
                        kept.append(line[:_LONGEST_LINE])
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

    def _end(self, name: str) -> None:
        self._ended.add(name)
        self._news.set()

    def _take(self, name: str, role: str, frame: frames.Frame) -> None:
        """Write a piece, once. Raises OSError where it may be written later."""
        with self._lock:
            last = self._taken.get(name, 0)
            is_event = frame.path == EVENTS and role == manifests.SUPERVISOR
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
