"""Lines of ranks on a text stream, each behind its prefix."""

from __future__ import annotations

import io
import select
from typing import TYPE_CHECKING

from drumline.control import terminal

if TYPE_CHECKING:
    from typing import TextIO

    from drumline.control.logs.follow import Block


class Printer:
    """
    Prints lines without control sequences for a person, else byte by byte.

    Waits for a slow reader, whose memory the lines then take, not ours. Raises BrokenPipeError.
    """

    def __init__(self, out: TextIO) -> None:
        # Bytes go past the text layer, and must not overtake what is still in there.
        out.flush()
        self._out = out
        self._is_for_person = out.isatty()
        self._binary = getattr(out, "buffer", None)
        self.is_raw = self._binary is not None and not self._is_for_person

    def write(self, prefix: str, lines: bytes) -> None:
        """Write whole lines, each with its newline."""
        if self.is_raw:
            self._write(put_behind(prefix.encode(), lines))
            return
        text = terminal.clean_lines(lines, colours=self._is_for_person)
        if prefix:
            text = prefix + text[:-1].replace("\n", "\n" + prefix) + "\n"
        if self._binary is None:
            self._out.write(text)
        else:
            self._write(text.encode(self._out.encoding, self._out.errors or "strict"))

    def flush(self) -> None:
        while True:
            try:
                self._out.flush()
            except BlockingIOError:
                self._wait()
            else:
                return

    def _write(self, data: bytes) -> None:
        """
        Write all of the data; another process with the same pipe or terminal may have made it one that does not wait.
        """
        assert self._binary is not None
        view = memoryview(data)
        while view:
            try:
                written = self._binary.write(view)
            except BlockingIOError as error:
                written = error.characters_written
                self._wait()
            else:
                if not isinstance(self._binary, io.RawIOBase):
                    return
                # That of PYTHONUNBUFFERED, which takes a part, or None where it would have to wait.
                if written is None:
                    self._wait()
            view = view[written or 0 :]

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._out.fileno(), select.POLLOUT)
        poller.poll()


def put_behind(prefix: bytes, lines: bytes) -> bytes:
    """Return whole lines, each behind the prefix."""
    return prefix + lines[:-1].replace(b"\n", b"\n" + prefix) + b"\n" if prefix else lines


def prefix_of(block: Block) -> str:
    return f"[{block.label}|node-{block.node}] "
