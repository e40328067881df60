"""
What scripts/chaos runs: every named point, every signal to everybody, every fault, and random sequences, as often as it
is told to; a table of what was tried and what held.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from chaos import POINTS
from chaos_faults import FAULTS, LONG_FAULTS, CannotTryError
from chaos_isolated import IsolatedTrial
from chaos_machine import run_machine
from chaos_matrix import CELLS, Tried, try_cell, try_point
from isolated_nodes import find_obstacle

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "reliability.md"
BEGIN, END = "<!-- begin: chaos -->", "<!-- end: chaos -->"
ISOLATED = "on isolated nodes"
_LEFT_OUT = "not tried here: "


class Row:
    def __init__(self, what: str) -> None:
        self.what = what
        self.tried = 0
        self.held = 0
        self.longest_s = 0.0
        self.note = ""

    def attempt(self, step: Callable[[Path], object], count: int = 1) -> None:
        """Once, in a folder and a home of its own; ``count``: for how many trials that stands."""
        with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
            os.environ["DRUMLINE_HOME"] = os.path.join(folder, "home")
            copies = Path(folder, "copies")
            copies.mkdir()
            try:
                done = step(copies)
                self.longest_s = max(self.longest_s, done.gone_s if isinstance(done, Tried) else 0.0)
            except CannotTryError as reason:
                self.note = _LEFT_OUT + str(reason)
                return
            except Exception:  # noqa: BLE001 - whatever does not hold is counted, and told
                print(f"does not hold: {self.what}, number {self.tried}", file=sys.stderr)
                traceback.print_exc()
            else:
                self.held += count
            self.tried += count

    def __str__(self) -> str:
        held = "" if self.note else self.held
        longest = f"{self.longest_s:.1f} s" if self.longest_s else ""
        return f"| {self.what} | {self.note or self.tried} | {held} | {longest} |"


def rows(times: int, runs: int) -> list[Row]:
    points = Row(f"SIGKILL at one of {len(POINTS)} named points of supervisor and agent")
    for point in POINTS * times:
        points.attempt(lambda folder, point=point: try_point(folder, point))
    say(points)
    done = [points]
    for cell in CELLS:
        row = Row(f"{signal.Signals(cell.number).name} to {_NAMES[cell.target]}, at a random moment")
        for seed in range(times * 4):
            row.attempt(lambda folder, cell=cell, seed=seed: try_cell(folder, cell, seed))
        done.append(say(row))
    done += isolated_rows(times)
    for fault in [*FAULTS, *(LONG_FAULTS if times > 1 else ())]:
        row = Row(fault.__name__.replace("_", " "))
        # A thousand jobs once are enough.
        for _ in range(1 if fault in LONG_FAULTS else times):
            row.attempt(fault)
        done.append(say(row))
    sequences = Row("random sequences of all of the above signals, cancels and preemptions, to two jobs")
    sequences.attempt(lambda folder: run_machine(folder, runs, is_fixed=False), runs)
    done.append(say(sequences))
    return done


def isolated_rows(times: int) -> list[Row]:
    why_not = find_obstacle()

    def check_obstacle() -> None:
        if why_not:
            raise CannotTryError(why_not)

    def at_point(folder: Path, point: str) -> Tried:
        check_obstacle()
        return try_point(folder, point, IsolatedTrial)

    def at_a_moment(folder: Path, index: int) -> Tried:
        check_obstacle()
        return try_cell(folder, CELLS[index % len(CELLS)], index // len(CELLS), IsolatedTrial)

    points = Row(f"{ISOLATED}: SIGKILL at one of {len(POINTS)} named points")
    for point in POINTS * times:
        points.attempt(lambda folder, point=point: at_point(folder, point))
    moments = Row(f"{ISOLATED}: one of these signals to one of these processes, at a random moment")
    for index in range(len(CELLS) * times):
        moments.attempt(lambda folder, index=index: at_a_moment(folder, index))
    return [say(points), say(moments)]


_HEAD = ["| what happens | tried | held | nothing left after at most |", "| --- | --- | --- | --- |"]

_NAMES = {
    "cli": "the command",
    "supervisor": "the supervisor",
    "agent": "an agent",
    "rank": "a rank",
    "child": "what a rank has started",
}


def say(row: Row) -> Row:
    print(row, flush=True)
    return row


def replace_isolated(table: list[str], own: list[str]) -> list[str]:
    """The table with these rows in place of its rows of isolated nodes, behind those of signals."""
    others = [line for line in table if not line.startswith(f"| {ISOLATED}")]
    last = max(index for index, line in enumerate(others) if line.startswith("| SIG"))
    return [*others[: last + 1], *own, *others[last + 1 :]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument(
        "--times", type=int, default=5, help="of each point and fault; four times that of each signal"
    )
    parser.add_argument("--runs", type=int, default=500, help="random sequences")
    parser.add_argument("--isolated", action="store_true", help="those of isolated nodes alone")
    parser.add_argument("--write", action="store_true", help="the table into docs/howto/reliability.md")
    arguments = parser.parse_args()
    begin = time.monotonic()
    found = isolated_rows(arguments.times) if arguments.isolated else rows(arguments.times, arguments.runs)
    table = [*_HEAD, *map(str, found)]
    minutes = (time.monotonic() - begin) / 60
    print(f"{sum(row.held for row in found)} of {sum(row.tried for row in found)} held, {minutes:.0f} min")
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        known, _, after = rest.partition(END)
        if arguments.isolated:
            table = replace_isolated(known.strip().splitlines(), table[len(_HEAD) :])
        PAGE.write_text("\n".join([before + BEGIN, *table, END]) + after)
    return 0 if all(row.held == row.tried for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
