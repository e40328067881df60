"""``drumline job top``: what the nodes and ranks of a job use, once or live."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import Parser, add_name, add_output, get_name
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

_REFRESH_S = 1.0
_REMOTE_REFRESH_S = 5.0
"""The refresh of a job whose engine has to be asked for its state."""

_ENTER = "\x1b[?1049h\x1b[?25l"
"""The other screen, no cursor. Source: xterm, Control Sequences, DECSET."""

_LEAVE = "\x1b[?25h\x1b[?1049l"
_UP, _DOWN = (b"\x1b[A", b"\x1bOA", b"k"), (b"\x1b[B", b"\x1bOB", b"j")
_PAGE_UP, _PAGE_DOWN = (b"\x1b[5~", b"b"), (b"\x1b[6~", b" ")
_QUIT = (b"q", b"Q")


class _Signaled(BaseException):
    """The end by a signal. No handler of errors catches it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def _add_arguments(parser: Parser) -> None:
    add_name(parser, "job")
    parser.add_argument(
        "--once", action="store_true", help="print one table and return; the default without a terminal"
    )
    parser.add_argument("--node", type=int, help="only this node and its ranks")
    add_output(parser)


def _top(arguments: Namespace) -> int:
    """Show the table. Blocks until the job ends, or until ``q`` or Ctrl-C."""
    name = get_name(arguments, "job")
    described = _take_snapshot(name, arguments.node)
    if arguments.query or arguments.output not in (None, "table"):
        from drumline.cli import output

        output.show(described, arguments.output, arguments.query)
        return 0
    is_asked_once = arguments.once or arguments.output is not None
    is_live = not is_asked_once and sys.stdin.isatty() and sys.stdout.isatty()
    if is_live and not _is_over(described):
        code = _show_live(name, arguments.node)
        if code or not _is_over(described := _take_snapshot(name, arguments.node)):
            return code
    sys.stdout.write("".join(f"{line}\n" for line in _format_lines(described)))
    return 0


def _take_snapshot(name: str, node: int | None) -> dict[str, Any]:
    from drumline.control.jobs.lookup import folder_of
    from drumline.control.jobs.recovery import recover
    from drumline.control.observing import usage

    folder = folder_of(name)
    described = usage.describe_usage(folder, recover(folder))
    if node is None:
        return described
    if described["type"] != "command":
        raise UsageError(f"--node: job {name} is a {described['type']}, which has no nodes")
    chosen = {part: [one for one in described[part] if one["node"] == node] for part in ("nodes", "ranks")}
    if not chosen["nodes"] and not chosen["ranks"] and (described["nodes"] or described["ranks"]):
        raise UsageError(f"--node: job {name} has no node {node}")
    return {**described, **chosen}


def _format_lines(described: dict[str, Any]) -> list[str]:
    from drumline.control.observing import top

    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    return top.format_usage(described, width or None)


def _is_over(described: dict[str, Any]) -> bool:
    from drumline.control.observing import usage

    return usage.is_over(described)


def _show_live(name: str, node: int | None) -> int:
    """Show the table live; return the exit code, 0 when the job has ended or the user quits."""
    screen = _Screen()
    try:
        screen.enter()
        while True:
            described = _take_snapshot(name, node)
            if _is_over(described):
                return 0
            refresh_s = _REFRESH_S if described["engine"] in ("", "local") else _REMOTE_REFRESH_S
            if not screen.show(_format_lines(described), refresh_s):
                return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except _Signaled as ended:
        return 128 + ended.number
    finally:
        screen.leave()


class _Screen:
    """The terminal while the table is shown. ``leave`` restores it."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None
        self._handlers: dict[int, Any] = {}
        self._top = 0
        self._wake, self._waker = os.pipe()

    def enter(self) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)
        os.set_blocking(self._waker, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._take_terminal()

    def leave(self) -> None:
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        self._restore_terminal()
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake)
        os.close(self._waker)

    def show(self, lines: list[str], refresh_s: float) -> bool:
        """Show the lines until new ones are due; return False when the user quits."""
        until = monotonic() + refresh_s
        while (left_s := until - monotonic()) > 0:
            self._draw(lines)
            ready, _, _ = select.select([sys.stdin.fileno(), self._wake], [], [], left_s)
            if self._wake in ready:
                os.read(self._wake, 512)
            if sys.stdin.fileno() in ready and not self._handle_keys(
                os.read(sys.stdin.fileno(), 64), len(lines)
            ):
                return False
        return True

    def _handle_keys(self, keys: bytes, count: int) -> bool:
        if keys in _QUIT or (not keys and _is_gone(sys.stdin.fileno())):
            return False
        page = os.get_terminal_size(sys.stdout.fileno()).lines - 1
        step = -1 if keys in _UP else 1 if keys in _DOWN else -page if keys in _PAGE_UP else 0
        step = page if keys in _PAGE_DOWN else step
        self._top = max(0, min(self._top + step, count - page))
        return True

    def _draw(self, lines: list[str]) -> None:
        size = os.get_terminal_size(sys.stdout.fileno())
        self._top = max(0, min(self._top, len(lines) - 1))
        shown = lines[self._top : self._top + max(1, size.lines - 1)]
        below = len(lines) - self._top - len(shown)
        keys = "q: quit" + (f", arrows: {below} more lines below" if below or self._top else "")
        rows = [*shown, *[""] * (size.lines - 1 - len(shown)), keys]
        text = "\r\n".join(f"{row[: size.columns]}\x1b[K" for row in rows[: size.lines])
        sys.stdout.write(f"\x1b[H{text}\x1b[J")
        sys.stdout.flush()

    def _take_terminal(self) -> None:
        import termios
        import tty

        self._before = termios.tcgetattr(sys.stdin.fileno())
        tty.setcbreak(sys.stdin.fileno())
        # Ctrl-Z can discard typed keys before they are read; the read must not wait for the next key then.
        attributes = termios.tcgetattr(sys.stdin.fileno())
        attributes[6][termios.VMIN] = attributes[6][termios.VTIME] = 0
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, attributes)
        _write_past_buffer(_ENTER)

    def _restore_terminal(self) -> None:
        import termios

        if self._before is None:
            return
        # A terminal that is gone needs nothing.
        with contextlib.suppress(OSError):
            _write_past_buffer(_LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)
        self._before = None

    def _suspend(self, *_: object) -> None:
        """Handle Ctrl-Z: give the shell its terminal as it was, and draw the table again after ``fg``."""
        self._restore_terminal()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._take_terminal()


def _write_past_buffer(text: str) -> None:
    """Write directly: Ctrl-Z may interrupt a write, and Python refuses another one to the same buffer."""
    os.write(sys.stdout.fileno(), text.encode())


def _is_gone(terminal: int) -> bool:
    poller = select.poll()
    poller.register(terminal, select.POLLIN)
    # One that is not gone, and has nothing to read, says nothing; a file that stands for one is always at its end.
    return bool(poller.poll(0))


def _end(number: int, _: object) -> None:
    raise _Signaled(number)


VERBS = {"top": (_add_arguments, _top)}
