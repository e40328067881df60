"""
Every benchmark, one after the other, each on a quiet machine, and its tables into the documents.

    benchmarks/all                          all of them, which takes hours
    benchmarks/all --only cli,snapshot      some
    benchmarks/all --only cli -- --rounds 9 what comes after -- goes to each script

Before each one it waits until the load has fallen. If the machine got busy meanwhile the benchmark is repeated, and the
table says so when no attempt was undisturbed. The Python that runs it needs Drumline and PyTorch (scripts/setup torch).
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import marked
import quiet

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ROUNDS = 5
SKIPPED = 3
"""The exit code of a benchmark that this machine cannot run, and that has said why."""

PERFORMANCE = "docs/explanation/performance.md"
"""What users ask."""

BENCHMARKS = "docs/development/benchmarks.md"
"""What developers do."""

STUDIO = "docs/development/studio.md"
"""What developers of the page do."""


class Bench(NamedTuple):
    """``levels``: how much deeper its headings are in ``page``. ``has_rounds``: whether it repeats its cases."""

    script: str
    arguments: tuple[str, ...] = ()
    page: str = PERFORMANCE
    levels: int = 0
    writes_itself: bool = False
    has_rounds: bool = True


def _into_reliability(script: str) -> Bench:
    """A count of cases, which the script puts into its page itself."""
    return Bench(script, ("--write",), page="docs/howto/reliability.md", writes_itself=True)


BENCHES = {
    "launch": Bench("launch/run.py", ("--cases", "2x2,2x4,2x16,allreduce,stop")),
    "warm": Bench("launch/run.py", ("--cases", "torch,restart"), levels=1),
    "slurm": Bench("slurm/run.py", ("--many-rounds", str(ROUNDS))),
    "kubernetes": Bench("kubernetes/run.py"),
    "data": Bench("data/run.py", page=BENCHMARKS),
    "snapshot": Bench("snapshot/run.py", page=BENCHMARKS),
    "cli": Bench("cli/run.py", ("--rounds", "15"), page=BENCHMARKS),
    "system-metrics": Bench("system_metrics/run.py", page=BENCHMARKS),
    "steps": Bench("steps/run.py", page=BENCHMARKS),
    "isolation": Bench("isolation/run.py"),
    "scale": Bench("scale/run.py", has_rounds=False),
    "stragglers": Bench("stragglers/run.py", has_rounds=False),
    "digits": Bench(
        "scale/example.py", ("--write",), page="examples/digits-ddp/README.md", writes_itself=True
    ),
    "tune": Bench("tune/run.py", has_rounds=False),
    "logs": Bench("logs/run.py"),
    "supervisor": Bench("supervisor/run.py", page=BENCHMARKS),
    "studio": Bench("studio/run.py", page=STUDIO),
    "cascades": _into_reliability("verdict/run.py"),
    "endings": _into_reliability("verdict/run_endings.py"),
    "hangs": _into_reliability("verdict/hangs.py"),
}


def say(text: str) -> None:
    print(f"all: {text}", file=sys.stderr, flush=True)


def parse(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(BENCHES), help="comma list of " + " ".join(BENCHES))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"interleaved rounds, at least ({ROUNDS})")
    parser.add_argument(
        "--load", type=float, default=0.3 * len(os.sched_getaffinity(0)), help="load to wait for"
    )
    parser.add_argument("--attempts", type=int, default=3, help="of a benchmark that is disturbed (3)")
    parser.add_argument("--now", action="store_true", help="do not wait, and repeat nothing")
    parser.add_argument("extra", nargs="*", metavar="-- WORD", help="for each script")
    found = parser.parse_args(words)
    found.only = found.only.split(",")
    for name in found.only:
        if name not in BENCHES:
            parser.error(f"there is no benchmark {name!r}; there are {', '.join(BENCHES)}")
    return found


def command(bench: Bench, rounds: int, markdown: Path, extra: Sequence[str]) -> list[str]:
    words = [sys.executable, str(HERE / bench.script)]
    if not bench.writes_itself:
        words += ["--markdown", str(markdown)]
        if bench.has_rounds:
            words += ["--rounds", str(rounds)]
    return [*words, *bench.arguments, *extra]


def _git(*words: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit() -> str:
    """The commit at hand, and whether something has changed since."""
    number = _git("rev-parse", "--short", "HEAD")
    changed = _git("status", "--porcelain", "--", "src", "benchmarks")
    return number + (" with changes" if changed else "")


def notes(watch: quiet.Watch, attempt: int) -> str:
    """What a reader of a table needs to know of the machine meanwhile."""
    loads = ", ".join(f"{load:.1f}" for load in watch.loads[:: max(1, len(watch.loads) // 10)])
    text = f"- commit: {commit()}\n- load average meanwhile: {loads}\n- cores used by others: {watch.others:.2f}\n"
    if watch.others > quiet.MOST_OTHERS:
        text += f"- the machine was busy with other work in each of {attempt} attempts\n"
    elif attempt > 1:
        text += f"- repeated {attempt - 1} times, because the machine got busy\n"
    return text


def with_notes(table: str, text: str) -> str:
    """The notes after the list with which every script begins."""
    lines = table.lstrip().splitlines(keepends=True)
    end = next((place for place, line in enumerate(lines) if not line.startswith("- ")), len(lines))
    return "".join(lines[:end]) + text + "".join(lines[end:])


def run(name: str, given: argparse.Namespace) -> str:
    """Why it failed; empty when its tables are in their page."""
    bench = BENCHES[name]
    attempts = 1 if given.now else given.attempts
    with tempfile.TemporaryDirectory() as folder:
        markdown = Path(folder, "table.md")
        for attempt in range(1, attempts + 1):
            if not given.now:
                quiet.wait(given.load, lambda text: say(f"{name}: {text}"))
            say(f"{name}: attempt {attempt} of at most {attempts}")
            with quiet.Watch() as watch:
                words = command(bench, given.rounds, markdown, given.extra)
                done = subprocess.run(words, cwd=ROOT, check=False)
            if done.returncode == SKIPPED:
                say(f"{name}: skipped, and its table stays as it was")
                return ""
            if done.returncode != 0:
                return f"exit code {done.returncode}"
            if watch.others <= quiet.MOST_OTHERS:
                break
            say(f"{name}: others used {watch.others:.2f} cores meanwhile")
        if bench.writes_itself:
            return ""
        table = marked.deeper(with_notes(markdown.read_text(), notes(watch, attempt)), bench.levels)
    page = ROOT / bench.page
    page.write_text(marked.replaced(page.read_text(), name, table))
    return ""


def main() -> int:
    given = parse(sys.argv[1:])
    quiet.reap_all()
    failed = {name: why for name in given.only if (why := run(name, given))}
    for name, why in failed.items():
        say(f"{name} failed: {why}; its table stays as it was")
    return 1 if failed else 0
