"""``drumline job top``: what the nodes and ranks of a job use, once or live."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import get_name
from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.words import format_duration, format_rate, format_size
from drumline.control.facts.steps import list_parts
from drumline.control.facts.usage import describe_usage
from drumline.control.jobs.lookup import as_arguments, folder_of
from drumline.control.jobs.recovery import recover
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.control.facts.usage import JobUsage, NodeUsage


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


def show_usage(arguments: Namespace) -> int:
    """Show the table. Blocks until the job ends, or until ``q`` or Ctrl-C."""
    name = get_name(arguments, "job")
    described = _take_snapshot(name, arguments.node)
    if arguments.query or arguments.output not in (None, "table"):
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


def _take_snapshot(name: str, node: int | None) -> JobUsage:
    folder = folder_of(name)
    described = describe_usage(folder, recover(folder))
    if node is None:
        return described
    if described.type != "command":
        raise UsageError(f"--node: job {name} is a {described.type}, which has no nodes")
    nodes = [use for use in described.nodes or () if use.node == node]
    ranks = [rank for rank in described.ranks or () if rank["node"] == node]
    if not nodes and not ranks and (described.nodes or described.ranks):
        raise UsageError(f"--node: job {name} has no node {node}")
    return described._replace(nodes=nodes, ranks=ranks)


def _format_lines(described: JobUsage) -> list[str]:
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    return format_usage(described, width or None)


def _is_over(described: JobUsage) -> bool:
    return described.status in status.TERMINAL


def _show_live(name: str, node: int | None) -> int:
    """Show the table live; return the exit code, 0 when the job has ended or the user quits."""
    screen = _Screen()
    try:
        screen.enter()
        while True:
            described = _take_snapshot(name, node)
            if _is_over(described):
                return 0
            refresh_s = _REFRESH_S if described.engine in ("", "local") else _REMOTE_REFRESH_S
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


# The screen of ``drumline job top``: a snapshot of ``control.usage`` as lines.


_STALE_S = 15.0
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LEFT_OUT = (
    *("SWAP", "HEAT", "PROCS", "THREADS", "POWER", "PID", "LOAD", "DISK READ", "DISK WRITE"),
    *("READ", "WRITE", "WRITTEN", "PEAK", "NET IN", "NET OUT", "HOST", "GPU MEM", "OUTPUT"),
)
"""Columns that a narrow terminal does without, in this order."""


def format_usage(described: JobUsage, width: int | None = None) -> list[str]:
    """
    Format a title, then the nodes, GPUs and ranks; for a pipeline or a sweep, of each job under way.

    ``width``: of the terminal; columns that do not fit are left out. None: as wide as it takes.
    """
    if described.type == "command":
        return [_title(described), *_list_steps(described, width), *_tables(described, width)]
    lines = [_title(described)]
    for one in described.jobs or ():
        step, *rest = format_usage(one, width)
        lines += ["", clean(f"{one.step}: {step}"), *rest]
    if not described.jobs:
        kind = "step" if described.type == "pipeline" else "trial"
        hint = f"drumline job show {as_arguments(described.name)}"
        lines.append(f"no {kind} of it is under way now; each is a job of its own: {hint}")
    return lines


def _title(described: JobUsage) -> str:
    name, seconds = described.name, described.seconds
    if described.type == "command" and _is_over(described):
        took = "" if seconds is None else f" after {format_duration(seconds)}"
        if not described.nodes:
            return clean(f"job {name} is {described.status}{took}; it was not sampled")
        return clean(f"job {name} is {described.status}{took}: means and peaks of its last attempt")
    since = "after" if _is_over(described) else "for"
    lasted = "" if seconds is None else f" {since} {format_duration(seconds)}"
    reason = f": {described.reason}" if described.reason else ""
    title = f"job {name} is {described.status}{lasted}{reason}"
    if described.type == "command" and not described.nodes:
        title += "; there is no sample yet"
    return _clean_line(title)


def _clean_line(text: str) -> str:
    """Return what a job says as one line of a terminal."""
    return " ".join(clean(text).split())


def _list_steps(described: JobUsage, width: int | None) -> list[str]:
    training = described.training
    if not training:
        return []
    parts = [_clean_line(part) for part in list_parts(training, is_over=_is_over(described))]
    together = "; ".join(parts)
    return parts if width and len(together) > width else [together]


def _tables(described: JobUsage, width: int | None) -> list[str]:
    over = _is_over(described)
    tables = [_nodes(described.nodes or (), over), _gpus(described.nodes or ())]
    tables.append(_ended_ranks(described.ranks or ()) if over else _ranks(described))
    lines: list[str] = []
    missing: dict[str, None] = {}
    for rows in tables:
        if len(rows) > 1:
            fitting, left_out = _choose_columns(rows, width)
            missing |= dict.fromkeys(left_out)
            lines += ["", *_align(fitting)]
    if missing:
        lines += ["", f"left out, for {width} columns: {', '.join(missing)}"]
    return lines


def _nodes(nodes: Iterable[NodeUsage], over: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("NODE", "CPU", "MEMORY", "SWAP", "NET IN", "NET OUT", "DISK READ", "DISK WRITE", "LOAD", "HOST")
    ]
    for node in nodes:
        limit = node.memory_limit
        memory = f"{format_size(node.memory_bytes)} of {format_size(node.memory_total_bytes)}"
        if limit:
            memory += f" ({format_size(limit.used_bytes)} of its limit of {format_size(limit.bytes)})"
        late = "" if over or node.age_seconds < _STALE_S else f" {format_duration(node.age_seconds)} ago"
        rows.append(
            (
                str(node.node),
                f"{_percent(node.cpu_percent)} of {node.cores}",
                memory,
                format_size(node.swap_bytes),
                format_rate(node.received_bytes_per_second),
                format_rate(node.sent_bytes_per_second),
                format_rate(node.read_bytes_per_second),
                format_rate(node.written_bytes_per_second),
                f"{node.load:.2f}",
                _clean_line(f"{node.host or '-'}{late}"),
            )
        )
    return rows


def _gpus(nodes: Iterable[NodeUsage]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("NODE", "GPU", "BUSY", "MEMORY", "POWER", "HEAT", "RANKS", "NAME")]
    rows += [
        (
            str(node.node),
            clean(gpu.gpu),
            _percent(gpu.busy_percent),
            f"{format_size(gpu.memory_bytes)} of {format_size(gpu.memory_total_bytes)}",
            "-" if gpu.watts is None else f"{gpu.watts:.0f} W",
            "-" if gpu.celsius is None else f"{gpu.celsius} °C",
            ", ".join(map(str, gpu.ranks)) or "-",
            clean(gpu.name),
        )
        for node in nodes
        for gpu in node.gpus
    ]
    return rows


def _ranks(described: JobUsage) -> list[tuple[str, ...]]:
    heading = ("RANK", "NODE", "PID", "STATE", "CPU", "MEMORY", "PEAK", "READ", "WRITE")
    rows: list[tuple[str, ...]] = [(*heading, "PROCS", "THREADS", "GPU", "GPU MEM", "OUTPUT")]
    rows += [_row(rank["label"], rank) for rank in described.ranks or ()]
    for node in described.nodes or ():
        if node.others:
            rows.append(_row("(others)", {"node": node.node, "state": "-", **node.others}))
    return rows


def _row(label: str, rank: Mapping[str, Any]) -> tuple[str, ...]:
    age = rank.get("seconds_since_output")
    return (
        clean(label),
        str(rank["node"]),
        str(rank.get("pid") or "-"),
        rank["state"],
        _percent(rank.get("cpu_percent")),
        format_size(rank.get("memory_bytes")),
        format_size(rank.get("peak_memory_bytes")),
        format_rate(rank.get("read_bytes_per_second")),
        format_rate(rank.get("written_bytes_per_second")),
        str(rank.get("processes", "-")),
        str(rank.get("threads", "-")),
        _percent(rank.get("gpu_busy_percent")),
        format_size(rank.get("gpu_memory_bytes")),
        "-" if age is None else f"{format_duration(age)} ago",
    )


def _ended_ranks(ranks: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("RANK", "NODE", "STATE", "MEAN CPU", "PEAK MEMORY", "READ", "WRITTEN")]
    rows += [
        (
            clean(rank["label"]),
            str(rank["node"]),
            rank["state"],
            _percent(rank.get("mean_cpu_percent")),
            format_size(rank.get("peak_memory_bytes")),
            format_size(rank.get("read_bytes")),
            format_size(rank.get("written_bytes")),
        )
        for rank in ranks
    ]
    return rows


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} %"


def _choose_columns(
    rows: Sequence[tuple[str, ...]], width: int | None
) -> tuple[Sequence[tuple[str, ...]], list[str]]:
    """Return the table without columns that do not fit, empty ones first, and the headings of the others."""
    heads = rows[0]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    empty = [head for head, *cells in zip(*rows, strict=True) if all(cell == "-" for cell in cells)]
    kept = list(range(len(heads)))
    left_out: list[str] = []
    for head in dict.fromkeys((*empty, *_LEFT_OUT)):
        if width is None or sum(widths[at] + 2 for at in kept) - 2 <= width:
            break
        if head in heads:
            kept.remove(heads.index(head))
            left_out += [head] if head not in empty else []
    return [tuple(row[at] for at in kept) for row in rows], left_out


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
