"""The run folder as its supervisor has it: people may remove it, and give its name to another job, at any time."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from drumline.contract import identity
from drumline.contract.folder import RunFolder

if TYPE_CHECKING:
    from drumline.contract import events as e


class OwnFolder(RunFolder):
    """Raises OSError, when it is made, where there is none."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._inode = os.stat(path).st_ino
        self._me = identity.of(os.getpid())

    def is_gone(self) -> bool:
        """Whether it was removed, or another has taken its place. False while that cannot be seen."""
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
        self._check()
        super().append(event)

    def write(self, path: str, text: str) -> None:
        self._check()
        super().write(path, text)

    def _check(self) -> None:
        if self.is_gone():
            raise FileNotFoundError(errno.ENOENT, "the run folder was removed", self.path)
