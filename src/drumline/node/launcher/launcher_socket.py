"""
The socket where programs of this node ask the agent for something, in the node's scratch folder, for its owner alone.

Beside it lies what asks there (``ssh_shim``): ``bin/ssh``, ``bin/rsh`` and ``bin/pdsh``, which reach the other nodes of
the job, for an MPI ``bin/drumline-daemon``, by which its launcher does so, and ``bin/deepspeed`` (``deepspeed_shim``),
which runs DeepSpeed's launcher with the nodes of the job. What an MPI's daemons start in the place
of a rank, ``bin/drumline-rank``, asks over pipes (``rank_shims``). ``bin`` comes first on the PATH of the job.

A request is ten digits, the length of what follows, and words separated by zero bytes. The answer is one line:
``exited CODE``, ``signal NUMBER``, ``not ours`` or ``refused``. Whoever hangs up before has been killed. An experiment
of DeepSpeed's autotuner makes two: one when it begins, and when it ends another, which is answered with ``noted``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import marshal
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING

from drumline.node.launcher import deepspeed_shim, ssh_shim

if TYPE_CHECKING:
    import select
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    from drumline.node.launcher.rank_shims import RankShims

_HEADER_BYTES = 10
_MAX_REQUEST_BYTES = 16 * 1024 * 1024


class LauncherSocket:
    """
    The socket where programs of this node ask the agent. ``on_request(caller, words)`` for a whole request, of a rank's
    shim ``rank`` and its variables; ``on_gone(caller)`` for a caller that hung up unanswered.

    A caller is a number that is never used again; one request each.
    """

    def __init__(
        self,
        scratch: str,
        address: str,
        on_request: Callable[[int, list[bytes]], None],
        on_gone: Callable[[int], None],
    ) -> None:
        self.bin = os.path.join(scratch, "bin")
        path = os.path.join(scratch, "sock")
        self._numbers = itertools.count(1)
        self._rank_shims: RankShims | None = None
        self._scratch = scratch
        os.mkdir(self.bin, 0o700)
        words = [_write_shim(self.bin, ssh_shim), path, address]
        for name, mode in {"ssh": "ssh", "rsh": "ssh", "pdsh": "pdsh", "drumline-daemon": "daemon"}.items():
            _write_python(self.bin, name, [*words, mode])
        _write_python(self.bin, "deepspeed", [_write_shim(self.bin, deepspeed_shim), path])
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._server.bind(path)
        except OSError as error:
            # Python's own words do not name it.
            raise OSError(
                error.errno or errno.ENAMETOOLONG, f"TMPDIR is too long for a socket: {path}"
            ) from error
        self._server.listen(1024)
        self._server.setblocking(False)
        self._callers: dict[int, _Caller] = {}
        """By descriptor."""

        self._on_request = on_request
        self._on_gone = on_gone

    def register(self, poller: select.epoll) -> None:
        self._poller = poller
        poller.register(self._server, 1)  # EPOLLIN

    def expect(self, ranks: Iterable[int]) -> None:
        """Let a launcher's daemons start shims of these ranks. Raises OSError."""
        from drumline.node.launcher.rank_shims import RankShims

        self._rank_shims = RankShims(
            os.path.join(self._scratch, "ranks"),
            ranks,
            self._poller,
            self._numbers,
            lambda caller, variables: self._on_request(caller, [b"rank", *variables]),
            self._on_gone,
        )
        _write_program(self.bin, "drumline-rank", self._rank_shims.program())

    def first(self, ready: Sequence[int]) -> int:
        """Return the place of the first of our descriptors; if there is none, their number."""
        ours = {self._server.fileno(), *self._callers}
        if self._rank_shims:
            ours |= self._rank_shims.descriptors()
        return next((place for place, descriptor in enumerate(ready) if descriptor in ours), len(ready))

    def hear(self, ready: set[int]) -> None:
        """Serve those of the descriptors that are ours."""
        # Those first: a caller that is let in now may get a descriptor that was ready as something else.
        for descriptor in ready & self._callers.keys():
            self._hear_caller(descriptor)
        if self._rank_shims:
            self._rank_shims.hear(ready)
        if self._server.fileno() in ready:
            self._accept()

    def _accept(self) -> None:
        try:
            peer, _ = self._server.accept()
        except OSError:
            return
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid != os.getuid():
            peer.close()
            return
        peer.setblocking(False)
        self._callers[peer.fileno()] = _Caller(next(self._numbers), peer)
        self._poller.register(peer, 1)

    def _hear_caller(self, descriptor: int) -> None:
        caller = self._callers[descriptor]
        try:
            data = caller.peer.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(caller)
            self._on_gone(caller.number)
            return
        caller.heard += data
        # A second request may have come with the first.
        while self._callers.get(descriptor) is caller and self._take_request(caller):
            pass

    def _take_request(self, caller: _Caller) -> bool:
        """Handle one request if all of it is there; return whether it was."""
        heard = caller.heard
        if len(heard) < _HEADER_BYTES:
            return False
        length = int(heard[:_HEADER_BYTES]) if heard[:_HEADER_BYTES].isdigit() else -1
        if not 0 <= length <= _MAX_REQUEST_BYTES:
            self._drop(caller)
            self._on_gone(caller.number)
            return False
        end = _HEADER_BYTES + length
        if len(heard) < end:
            return False
        caller.heard = heard[end:]
        self._on_request(caller.number, heard[_HEADER_BYTES:end].split(b"\0"))
        return True

    def answer(self, number: int, text: str) -> None:
        """Answer a caller; nothing happens when the caller is gone."""
        if self._rank_shims:
            self._rank_shims.answer(number, ssh_shim.parse_exit_code(text))
        for caller in [caller for caller in self._callers.values() if caller.number == number]:
            with contextlib.suppress(OSError):
                caller.peer.sendall(text.encode() + b"\n")
            self._drop(caller)

    def _drop(self, caller: _Caller) -> None:
        del self._callers[caller.peer.fileno()]
        self._poller.unregister(caller.peer)
        caller.peer.close()


class _Caller:
    def __init__(self, number: int, peer: socket.socket) -> None:
        self.number = number
        self.peer = peer
        self.heard = b""


def _write_python(folder: str, name: str, words: list[str]) -> None:
    """Write a program that runs a Python file by our own Python, with its first words."""
    words = [sys.executable, "-I", "-S", *words]
    _write_program(folder, name, "#!/bin/sh\nexec " + " ".join(map(_quote, words)) + ' "$@"\n')


def _write_program(folder: str, name: str, text: str) -> None:
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(path, 0o700)


def _write_shim(folder: str, shim: ModuleType) -> str:
    """Write a shim compiled for this Python, which takes longer to compile it than to run it, and return its path."""
    from importlib.util import MAGIC_NUMBER

    loader = shim.__spec__.loader if shim.__spec__ else None
    code = loader.get_code(shim.__name__)  # type: ignore[union-attr]
    path = os.path.join(folder, shim.__name__.rpartition(".")[2] + ".pyc")
    with open(path, "wb") as file:
        # Neither a time nor a size of the source: as a program it is not compared with one.
        file.write(MAGIC_NUMBER + bytes(12) + marshal.dumps(code))
    return path


def _quote(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"
