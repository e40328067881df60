"""
The shims that an MPI's daemons start in the place of ranks, on this node: shells that wait, since a Python for each
rank would take as long to start as the rank.

Beside each other lie named pipes, for their owner alone: ``asking``, on which a shim says its process and its
rank, and one for each rank, on which it waits for its exit code. Its variables are read from the kernel, as its MPI
gave them. Whoever ends before it is answered has been killed.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_REQUEST_PIPE = "asking"

_NO_RANK_PIPE = "none"
"""Where those wait that stand for no rank that is expected here."""

_PROGRAM = """\
#!/bin/sh
folder={folder}
rank=${{OMPI_COMM_WORLD_RANK:-${{PMIX_RANK:-${{PMI_RANK:-$PMI_ID}}}}}}
case $rank in *[!0-9]*) rank={nobody} ;; esac
[ -p "$folder/$rank" ] || rank={nobody}
exec 9<"$folder/$rank" && echo "$$ $rank" >"$folder/{asking}" && read -r code <&9 && exit "$code"
exit 255
"""
"""It is read by the shell that is there already, or run. It opens its pipe before it asks: the name goes then."""


class RankShims:
    """
    The shims that stand for ranks. ``on_request(caller, variables)`` for one that asks, ``on_gone(caller)`` for one
    that was killed.
    """

    def __init__(
        self,
        folder: str,
        ranks: Iterable[int],
        poller: select.epoll,
        numbers: Iterator[int],
        on_request: Callable[[int, list[bytes]], None],
        on_gone: Callable[[int], None],
    ) -> None:
        """Make the folder with its pipes. Raises OSError."""
        os.mkdir(folder, 0o700)
        self._folder = folder
        self._poller = poller
        self._numbers = numbers
        self._on_request = on_request
        self._on_gone = on_gone
        self._asking = self._pipe(_REQUEST_PIPE)
        self._heard = b""
        self._answers = {name: self._pipe(name) for name in (_NO_RANK_PIPE, *map(str, ranks))}
        """By rank: where its answer is written. Held open, so that an agent's end is the end of what is read there."""

        self._waiting: dict[int, _RankShim] = {}
        """By the descriptor of the process."""

        poller.register(self._asking, select.EPOLLIN)

    def _pipe(self, name: str) -> int:
        path = os.path.join(self._folder, name)
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def program(self) -> str:
        """Return the text of a shim."""
        folder = "'" + self._folder.replace("'", "'\"'\"'") + "'"
        return _PROGRAM.format(folder=folder, nobody=_NO_RANK_PIPE, asking=_REQUEST_PIPE)

    def descriptors(self) -> set[int]:
        return {self._asking, *self._waiting}

    def hear(self, ready: set[int]) -> None:
        """Serve those of the descriptors that are ours. Raises OSError when there are no descriptors left."""
        for descriptor in ready & self._waiting.keys():
            number = self._waiting[descriptor].number
            self._drop(descriptor)
            self._on_gone(number)
        if self._asking not in ready:
            return
        try:
            self._heard += os.read(self._asking, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            pid, _, rank = line.decode(errors="replace").partition(" ")
            if pid.isdecimal() and rank in self._answers:
                self._meet(int(pid), rank)

    def _meet(self, pid: int, rank: str) -> None:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                variables = file.read().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            os.close(process)
            return
        if select.select([process], [], [], 0)[0]:
            # It was gone before this, and its variables may be those of another.
            os.close(process)
            return
        answer = self._answers[rank] if rank == _NO_RANK_PIPE else self._answers.pop(rank)
        if rank != _NO_RANK_PIPE:
            # A second one with this number does not wait for the first one's answer.
            os.unlink(os.path.join(self._folder, rank))
        number = next(self._numbers)
        self._waiting[process] = _RankShim(number, answer, answer != self._answers[_NO_RANK_PIPE])
        self._poller.register(process, select.EPOLLIN)
        self._on_request(number, variables)

    def answer(self, number: int, code: int) -> None:
        """Have it end with that code. Nothing happens when it is gone."""
        for process, one in list(self._waiting.items()):
            if one.number == number:
                os.write(one.answer, b"%d\n" % code)
                self._drop(process)

    def close(self) -> None:
        """Let go of all; who waits ends with 255."""
        for process in list(self._waiting):
            self._drop(process)
        for pipe in (self._asking, *self._answers.values()):
            os.close(pipe)

    def _drop(self, process: int) -> None:
        one = self._waiting.pop(process)
        self._poller.unregister(process)
        os.close(process)
        if one.is_own:
            os.close(one.answer)


class _RankShim:
    """A shim that stands for a rank. ``is_own``: whether nobody else waits where it does."""

    def __init__(self, number: int, answer: int, is_own: bool) -> None:
        self.number = number
        self.answer = answer
        self.is_own = is_own
