"""The run folder in the hands of its supervisor: people may remove it, or give its name to another job, at any time."""

from __future__ import annotations

import errno
import os
import sys
from collections import deque
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import identity
from drumline.contract.folder import RunFolder

if TYPE_CHECKING:
    from drumline.supervisor.notifying.notices import JobNotices


_MOST_LOST = 1000


class SupervisedFolder(RunFolder):
    """A run folder that is written only while it is still this supervisor's. Raises OSError where there is none."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._inode = os.stat(path).st_ino
        self._me = identity.identify_process(os.getpid())
        self.notices: JobNotices | None = None
        """Who is told of some events."""

        self._lost: deque[e.Event] = deque(maxlen=_MOST_LOST)
        """Events that found no room, in their order."""

    def is_gone(self) -> bool:
        """Return whether it was removed or replaced; False while that cannot be seen."""
        try:
            inode = os.stat(self.path).st_ino
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        # Some file systems, such as sshfs, give a folder a new number now and then.
        if inode != self._inode and self.read_json(self.supervisor) == self._me:
            self._inode = inode
        return inode != self._inode

    def append(self, event: e.Event) -> None:
        """
        Append an event. Raises OSError where the folder was removed, or there is no room for the end of the job or of
        an attempt; a job goes on without every other event, which the next one that finds room brings along. The end of
        the job does not wait for them.
        """
        self._check_not_gone()
        try:
            if not isinstance(event, e.JobEnded):
                self.append_lost()
            super().append(event)
        except OSError as error:
            if isinstance(event, (e.AttemptEnded, e.JobEnded)):
                raise
            self._lost.append(event)
            print(f"could not record {event}: {error}", file=sys.stderr)
        if self.notices is not None:
            self.notices.take(event)

    def append_lost(self) -> None:
        """Append the events that found no room. Raises OSError where there is still none, or no folder."""
        while self._lost:
            self._check_not_gone()
            super().append(self._lost[0])
            self._lost.popleft()

    def write(self, path: str, text: str) -> None:
        self._check_not_gone()
        super().write(path, text)

    def _check_not_gone(self) -> None:
        if self.is_gone():
            raise FileNotFoundError(errno.ENOENT, "the run folder was removed", self.path)
