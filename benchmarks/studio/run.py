"""
What a person waits for in the studio: a real browser before a real server, on a home with 10,000 jobs, 512 ranks, a
million lines and a million points. See README.md beside it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE))

import homes  # noqa: E402
import visits  # noqa: E402
from machine import describe_machine, publish  # noqa: E402
from studio_server import StudioServer, run_studio  # noqa: E402
from waiting import wait_until  # noqa: E402


class Row(NamedTuple):
    """``budget``: of the median; empty for what has none."""

    key: str
    text: str
    unit: str = "ms"
    budget: float | None = None


ROWS = (
    Row("ready", "the server is ready, from its start", budget=1000),
    Row("list", "first rows of {jobs:,} jobs, new browser", budget=500),
    Row("list again", "first rows, browser that has been there", budget=500),
    Row("list, new server", "first rows, server just started"),
    Row("grid", "grid of 512 ranks, from another tab", budget=100),
    Row("grid, first", "grid of 512 ranks, the first time"),
    Row("heat", "grid and heat map of 512 ranks x 300 s"),
    Row("heat, first", "grid and heat map, the first time in a browser"),
    Row("line", "any line of {lines:,}", budget=150),
    Row("line, first", "the log of {lines:,} lines, never read before"),
    Row("curve", "{points:,} points", budget=200),
    Row("curve, first", "{points:,} points, never read before"),
    Row("live line", "a line, from when a rank printed it", budget=300),
    Row("memory", "memory of the server, ten tabs", "MB", 60),
    Row("memory, most", "the most that it had", "MB"),
)


def main() -> None:
    arguments = _parse()
    machine = describe_machine()
    with tempfile.TemporaryDirectory() as folder:
        for name in [one for one in os.environ if one.startswith(("DRUMLINE_", "MLFLOW_"))]:
            del os.environ[name]
        os.environ.update(DRUMLINE_HOME=f"{folder}/home", DRUMLINE_CONTAINER="none")
        homes.make_home(arguments.jobs, arguments.lines, arguments.points)
        _index(arguments.jobs)
        samples, browser = _measure(Path(folder), arguments)
    facts = {**machine, "browser": browser, "versions": f"drumline {version('drumline')}"}
    text = "".join(f"- {name}: {value}\n" for name, value in facts.items())
    text += f"- rounds: {arguments.rounds}, each with a new server\n\n" + _table(samples, arguments)
    publish(text, {"machine": machine, "samples": samples}, arguments)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--listen", type=float, default=8.0, help="seconds for which lines are awaited (8)")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _index(jobs: int) -> None:
    """Have all jobs in the index, as those of somebody who lists them now and then."""
    with run_studio() as studio:
        wait_until(lambda: _is_whole(studio, jobs), 300, "all jobs to be in the index")


def _is_whole(studio: StudioServer, jobs: int) -> bool:
    told = studio.get("/jobs?limit=1")
    return not told["pending"] and told["total"] >= jobs


def _measure(folder: Path, arguments: argparse.Namespace) -> tuple[visits.Samples, str]:
    from playwright.sync_api import sync_playwright

    samples: visits.Samples = defaultdict(list)
    # Chromium has no sandbox of its own where it is run as root.
    words = ["--no-sandbox"] if os.geteuid() == 0 else []
    with homes.RunningJob(folder), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=visits.find_browser(), args=words)
        name = f"Chromium {browser.version}, without a window"
        for number in range(arguments.rounds):
            _measure_round(browser, samples, arguments)
            print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        browser.close()
    return samples, name


def _measure_round(browser: Any, samples: visits.Samples, arguments: argparse.Namespace) -> None:
    began = time.perf_counter()
    with run_studio() as studio:
        studio.get("/me")
        samples["ready"].append(1000 * (time.perf_counter() - began))
        visits.visit(browser, studio, samples, lines=arguments.lines, listen_s=arguments.listen)


def _table(samples: visits.Samples, arguments: argparse.Namespace) -> str:
    head = ["what", "budget", "median", "min", "max", "samples"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for row in ROWS:
        found = samples[row.key]
        figures = [f"{one:,.0f}" for one in (statistics.median(found), min(found), max(found))]
        budget = "" if row.budget is None else f"{row.budget:,.0f} {row.unit}"
        text = row.text.format(**vars(arguments))
        lines.append([text, budget, f"{figures[0]} {row.unit}", *figures[1:], str(len(found))])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
