"""
Where programs of this node ask the agent for something: a socket in the node's scratch folder, for its owner alone.

Beside it lies what asks there: ``bin/rank``, which an MPI's daemon starts in the place of a rank, and ``bin/ssh``,
``bin/rsh`` and ``bin/pdsh``, which reach the other nodes of the job (``standin``).

A request is ten digits, the length of what follows, and words separated by zero bytes. The answer is one line:
``exited CODE``, ``signal NUMBER``, ``not ours`` or ``refused``. Whoever hangs up before has been killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING

from drumline.node import standin

if TYPE_CHECKING:
    import select
    from collections.abc import Callable

_HEADER = 10
_LONGEST = 16 * 1024 * 1024


class Door:
    """
    ``on_request(caller, words)`` for a whole request, ``on_gone(caller)`` for a caller that hung up unanswered.

    A caller is a descriptor; one request each.
    """

    def __init__(
        self,
        scratch: str,
        address: str,
        on_request: Callable[[int, list[bytes]], None],
        on_gone: Callable[[int], None],
    ) -> None:
        self.bin = os.path.join(scratch, "bin")
        path = os.path.join(scratch, "door")
        _write_programs(self.bin, path, address)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(path)
        self._server.listen(1024)
        self._server.setblocking(False)
        self._callers: dict[int, socket.socket] = {}
        self._heard: dict[int, bytes] = {}
        self._on_request = on_request
        self._on_gone = on_gone

    def register(self, poller: select.poll) -> None:
        self._poller = poller
        poller.register(self._server, 1)  # POLLIN

    def hear(self, ready: set[int]) -> None:
        """Serve those of the descriptors that are ours."""
        if self._server.fileno() in ready:
            self._accept()
        for descriptor in ready & self._callers.keys():
            self._hear_caller(descriptor)

    def _accept(self) -> None:
        try:
            caller, _ = self._server.accept()
        except OSError:
            return
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid != os.getuid():
            caller.close()
            return
        self._callers[caller.fileno()] = caller
        self._heard[caller.fileno()] = b""
        self._poller.register(caller, 1)

    def _hear_caller(self, descriptor: int) -> None:
        try:
            data = self._callers[descriptor].recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._drop(descriptor)
            self._on_gone(descriptor)
            return
        heard = self._heard[descriptor] = self._heard[descriptor] + data
        length = int(heard[:_HEADER]) if heard[:_HEADER].isdigit() and len(heard) >= _HEADER else -1
        if length > _LONGEST or (length < 0 and len(heard) >= _HEADER):
            self._drop(descriptor)
        elif 0 <= length <= len(heard) - _HEADER:
            self._heard[descriptor] = b""
            self._on_request(descriptor, heard[_HEADER : _HEADER + length].split(b"\0"))

    def answer(self, caller: int, text: str) -> None:
        """Nothing happens when the caller is gone."""
        if caller in self._callers:
            with contextlib.suppress(OSError):
                self._callers[caller].sendall(text.encode() + b"\n")
            self._drop(caller)

    def _drop(self, descriptor: int) -> None:
        self._poller.unregister(descriptor)
        self._callers.pop(descriptor).close()
        del self._heard[descriptor]


def _write_programs(folder: str, door: str, address: str) -> None:
    os.mkdir(folder, 0o700)
    source = os.path.join(folder, "standin.py")
    with open(source, "wb") as file:
        file.write(_source())
    for name in ("rank", "ssh", "rsh", "pdsh"):
        words = [sys.executable, "-I", "-S", source, door, address, name]
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("#!/bin/sh\nexec " + " ".join(map(_quoted, words)) + ' "$@"\n')
        os.chmod(path, 0o700)


def _source() -> bytes:
    """By the loader, since the package may be a zip file."""
    loader = standin.__spec__.loader if standin.__spec__ else None
    data: bytes = loader.get_data(standin.__file__)  # type: ignore[union-attr]
    return data


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"
