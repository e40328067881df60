"""
One line on a terminal that says how far something has come: drawn over itself by tqdm, and gone when it is done.

Nothing is drawn where standard error is no terminal, with NO_COLOR, or with ``--color never``; whoever draws then says
in whole lines what a reader needs. tqdm is imported when the first line is drawn.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from drumline.contract.words import format_rate, format_size
from drumline.control import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Any, Self, TextIO

    from tqdm import tqdm

IS_ALLOWED: ContextVar[bool] = ContextVar("drumline_progress_bar", default=True)
"""Whether lines may be drawn over themselves in this process: not with ``--color never``."""

_BYTES = "{desc}  {percentage:3.0f}% |{bar}| {done} of {all}  {speed}  {remaining} left"
_NARROWEST = 20


class ProgressBar:
    """
    A line on a terminal, for one thing at a time.

    ``out``: standard error by default. ``is_drawn``: whether anything is; all other methods do nothing if not.
    """

    def __init__(self, out: TextIO | None = None, *, interval_s: float = 0.0) -> None:
        """``interval_s``: between two drawings of bytes that are counted in many small steps."""
        self._out = out or sys.stderr
        self._interval_s = interval_s
        self._bar: tqdm | None = None
        self._name = ""
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.is_drawn = IS_ALLOWED.get() and not is_plain and self._out.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def show_bytes(self, name: str, done: int, total: int) -> None:
        """Draw how many bytes of all are there."""
        if not self.is_drawn:
            return
        if self._bar is None or self._name != name:
            self._begin(
                name,
                desc=_clean(name),
                total=total,
                initial=done,
                bar_format=_BYTES,
            )
        assert self._bar is not None
        self._bar.total = max(total, done)
        self._bar.update(done - self._bar.n)

    def add(self, count: int) -> None:
        """Count so many bytes more, of what ``show_bytes`` was last called for."""
        if self._bar is not None:
            self._bar.update(count)

    def show_work(self, what: str, seconds: float, said: str = "") -> None:
        """Draw what is being done, of which nobody knows how much is left. ``said``: last, by the tool that does it."""
        if not self.is_drawn:
            return
        if self._bar is None or self._name != what:
            self._begin(what, bar_format="{desc}")
        assert self._bar is not None
        self._display(f"{_clean(what)}  {self._bar.format_interval(max(0.0, seconds))}  {_clean(said)}")

    def show_text(self, text: str) -> None:
        """Draw a line; none for an empty text."""
        if not self.is_drawn or not text:
            return
        if self._bar is None or self._name:
            self._begin("", bar_format="{desc}")
        self._display(_clean(text))

    def _display(self, text: str) -> None:
        from tqdm.utils import disp_trim

        if self._bar is None or self._bar.disable:
            return  # By a variable of tqdm's own.
        # In the last column some terminals begin another line.
        width = max(_NARROWEST, (self._bar.format_dict["ncols"] or 80) - 1)
        self._bar.display(disp_trim(text.rstrip(), width))

    def clear(self) -> None:
        """Take the line away before another one is written; what is drawn next has the same rate and times."""
        if self._bar is not None:
            self._bar.clear()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _begin(self, name: str, **settings: Any) -> None:
        import threading

        from tqdm import tqdm

        self.close()

        def describe(bar: tqdm) -> Mapping[str, Any]:
            known = tqdm.format_dict.fget(bar)
            speed = known["rate"] or (known["n"] - known["initial"]) / max(known["elapsed"], 0.001)
            sizes = {"done": format_size(known["n"]), "all": format_size(known["total"])}
            return {**known, **sizes, "speed": format_rate(speed)}

        # One of our own: no thread that watches it, and no semaphore for processes that draw too.
        ours: type[tqdm] = type("tqdm", (tqdm,), {"monitor_interval": 0, "format_dict": property(describe)})
        ours.set_lock(threading.RLock())
        self._name = name
        self._bar = ours(
            file=self._out,
            leave=False,
            dynamic_ncols=True,
            position=0,  # Lines of other bars of this process are not looked for.
            miniters=0,
            mininterval=self._interval_s,
            **settings,
        )


def _clean(text: str) -> str:
    return " ".join(terminal.clean(text).split())
