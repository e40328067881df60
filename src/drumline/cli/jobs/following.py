"""The logs of a job until it ends: ``drumline job stream``, and commands that submit a job and stay with it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import get_name
from drumline.cli.colour import paint_ending
from drumline.contract import status
from drumline.control.facts import doubts
from drumline.control.jobs import lookup
from drumline.control.logs import printer, stream

if TYPE_CHECKING:
    from argparse import Namespace

_INTERRUPTED = 130


def follow_job(
    name: str, out: Any, ranks: str = "", prefix: bool | None = None, *, as_lines: bool = False
) -> int:
    """
    Show the logs until the job ends, or on a terminal the table of its steps or trials; return 0 if it completed, else
    1. Ctrl-C leaves the job running.
    """
    folder = lookup.folder_of(name)
    try:
        if out.isatty() and os.path.exists(folder.graph) and not (as_lines or ranks) and _can_draw():
            from drumline.cli.views import live

            outcome = live.follow_parts(folder, out)
            ending = live.format_ending(folder, outcome)
        else:
            out.write(stream.header(folder))
            out.flush()
            progress = output.choose_progress()
            shown = printer.LogView(out, prefix=prefix, progress=progress, warn=doubts.list_warnings)
            outcome = stream.follow(folder, shown, ranks)
            ending = stream.summary(folder, outcome, shown)
    except KeyboardInterrupt:
        print(
            f"\njob {name} is still running; to stop it: drumline job cancel {lookup.as_arguments(name)}",
            file=sys.stderr,
        )
        return _INTERRUPTED
    if out.isatty():
        ending = paint_ending(ending, out)
    out.write(ending)
    out.flush()
    return 0 if outcome.status == status.COMPLETED else 1


def _can_draw() -> bool:
    """Return whether the terminal has the control sequences that a table needs to be drawn over itself."""
    return os.environ.get("TERM") not in (None, "", "dumb")


def stream_job(arguments: Namespace) -> int:
    """Follow the job that was named."""
    return follow_job(
        get_name(arguments, "job"), sys.stdout, arguments.ranks, arguments.prefix, as_lines=arguments.lines
    )
