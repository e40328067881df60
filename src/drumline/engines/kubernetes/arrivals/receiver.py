"""The frames of pods, written to a run folder."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from drumline.engines.kubernetes.arrivals.event_lines import SupervisorEvents
from drumline.engines.kubernetes.arrivals.log_writers import LogWriters, Writer, is_log

if TYPE_CHECKING:
    from drumline.engines.kubernetes.frames import Frame

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
