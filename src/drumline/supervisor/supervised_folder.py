"""The run folder in the hands of its supervisor: people may remove it, or give its name to another job, at any time."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from drumline.contract import events as e
from drumline.contract import identity
from drumline.contract.folder import RunFolder

if TYPE_CHECKING:
    from drumline.supervisor.notifying.notices import JobNotices


class SupervisedFolder(RunFolder):
    """A run folder that is written only while it is still this supervisor's. Raises OSError where there is none."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._inode = os.stat(path).st_ino
        self._me = identity.identify_process(os.getpid())
        self.notices: JobNotices | None = None
        """Who is told of some events."""

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
        an attempt; a job goes on without every other event.
        """
        self._check_not_gone()
        try:
            super().append(event)
        except OSError as error:
            if isinstance(event, (e.AttemptEnded, e.JobEnded)):
                raise
            print(f"could not record {event}: {error}", file=sys.stderr)
        if self.notices is not None:
            self.notices.take(event)

    def write(self, path: str, text: str) -> None:
        self._check_not_gone()
        super().write(path, text)

    def _check_not_gone(self) -> None:
        if self.is_gone():
            raise FileNotFoundError(errno.ENOENT, "the run folder was removed", self.path)
