"""
What a merged view of the logs of 8 ranks costs: of a job that has ended, of one that writes as fast as it can, and how
soon a line is seen. See README.md beside it.
"""

import argparse
import os
import pty
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish

RANK = str(Path(__file__).resolve().parent / "rank.py")
RANKS = 8
STAMPED_S = 6.0
STAMP = re.compile(rb"@(\d+)@")


class Seen(NamedTuple):
    """``span_s``: from the first byte to the last. ``late_s``: of each stamped line, from its writing to its coming."""

    lines: int
    span_s: float
    late_s: list[float]


def read_all(descriptor: int) -> Seen:
    lines, first, last, late = 0, 0.0, 0.0, []
    while data := _read(descriptor):
        last = time.monotonic()
        first = first or last
        lines += data.count(b"\n")
        if b"@" in data:
            late += [last - int(stamp) / 1e9 for stamp in STAMP.findall(data)]
    os.close(descriptor)
    return Seen(lines, last - first, late)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 20)
    except OSError:  # a terminal whose other end has closed
        return b""


class Bench:
    """``folder``: everything goes there."""

    def __init__(self, python: str, folder: Path, lines: int) -> None:
        self.python = python
        self.folder = folder
        self.lines = lines
        self.environment = {**os.environ, "DRUMLINE_HOME": str(folder / "home"), "DRUMLINE_WARM": "off"}
        self.jobs = 0
        self.logs: list[str] = []

    def drumline(self, *arguments: str) -> list[str]:
        return [self.python, "-m", "drumline", *arguments]

    def make_ended_job(self) -> None:
        argv = self.drumline("run", "--name", "ended", "--procs", str(RANKS), "--", self.python, RANK)
        subprocess.run(
            [*argv, "flood", str(self.lines)], env=self.environment, check=True, stdout=subprocess.DEVNULL
        )
        folder = self.folder / "home" / "jobs" / "ended" / "user_logs"
        self.logs = sorted(str(path) for path in folder.glob("std_log*"))

    # ------------------------------------------------------------ a job that has ended

    def ended(self) -> dict[str, list[str]]:
        sed = "; ".join(f"sed 's/^/[{n}|node-0] /' \"${n + 1}\"" for n in range(RANKS))
        return {
            "cat": ["cat", *self.logs],
            "Drumline": self.drumline("job", "stream", "-n", "ended"),
            "sed, a file after the other": ["sh", "-c", sed, "sh", *self.logs],
        }

    def view_ended(self, argv: list[str], *, terminal: bool) -> dict[str, float]:
        """Seconds and CPU seconds of the contender, its start included."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.monotonic()
        if terminal:
            ours, theirs = pty.openpty()
        else:
            ours, theirs = os.pipe()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL, env=self.environment
        )
        os.close(theirs)
        seen = read_all(ours)
        if process.wait() != 0 or seen.lines < RANKS * self.lines:
            raise RuntimeError(f"{argv[:4]}: code {process.returncode}, {seen.lines} lines")
        took = time.monotonic() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return {"s": took, "cpu": cpu}

    # ------------------------------------------------------------ a job that runs

    def live(self) -> dict[str, Callable[[list[str], int], list[subprocess.Popen[bytes]]]]:
        """Each is started with the rank's command and where to write, and returns what is to be waited for."""
        found = {"one pipe, no prefix": self._one_pipe, "Drumline": self._drumline}
        torchrun = os.path.join(os.path.dirname(self.python), "torchrun")
        if os.path.exists(torchrun):
            found["torchrun --tee 3"] = self._torchrun
        if shutil.which("mpirun"):
            found["mpirun --tag-output"] = self._mpirun
        return {**found, "tail -F of 8 files": self._tail}

    def view_live(
        self, start: Callable[[list[str], int], list[subprocess.Popen[bytes]]], *words: str
    ) -> Seen:
        ours, theirs = os.pipe()
        processes = start([self.python, RANK, *words], theirs)
        os.close(theirs)
        seen = read_all(ours)
        for process in processes:
            process.wait()
        return seen

    def _start(self, argv: list[str], out: int, **variables: str) -> subprocess.Popen[bytes]:
        env = {**self.environment, **variables}
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, env=env
        )

    def _one_pipe(self, rank: list[str], out: int) -> list[subprocess.Popen[bytes]]:
        return [self._start(rank, out, RANK=str(number)) for number in range(RANKS)]

    def _drumline(self, rank: list[str], out: int) -> list[subprocess.Popen[bytes]]:
        return [self._start(self.drumline("run", "--procs", str(RANKS), "--", *rank), out)]

    def _torchrun(self, rank: list[str], out: int) -> list[subprocess.Popen[bytes]]:
        options = ["--nproc-per-node", str(RANKS), "--tee", "3", "--log-dir", str(self.folder / "torchrun")]
        torchrun = os.path.join(os.path.dirname(self.python), "torchrun")
        return [self._start([torchrun, "--standalone", *options, *rank[1:]], out)]

    def _mpirun(self, rank: list[str], out: int) -> list[subprocess.Popen[bytes]]:
        root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        return [
            self._start(["mpirun", *root, "--oversubscribe", "--tag-output", "-n", str(RANKS), *rank], out)
        ]

    def _tail(self, rank: list[str], out: int) -> list[subprocess.Popen[bytes]]:
        """It ends with the last rank; which file a line is from it says above the lines."""
        self.jobs += 1
        paths = [self.folder / f"tail-{self.jobs}-{number}" for number in range(RANKS)]
        ranks = []
        for number, path in enumerate(paths):
            with path.open("wb") as file:
                ranks.append(self._start(rank, file.fileno(), RANK=str(number)))
        pids = [f"--pid={process.pid}" for process in ranks]
        tail = self._start(["tail", "-n", "+1", "-F", *pids, *map(str, paths)], out)
        # One that nobody waits for is there for ever, to tail.
        return [*(Reaped(process).process for process in ranks), tail]


class Reaped:
    """Waits for a process in a thread."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        import threading

        self.process = process
        threading.Thread(target=process.wait, daemon=True).start()


def rate(count: float) -> str:
    return f"{count / 1e6:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [" | ".join(head), " | ".join(["---"] + ["---:"] * (len(head) - 1)), *map(" | ".join, rows)]
    return "\n".join(f"| {line} |" for line in lines) + "\n"


def ended_table(samples: dict[str, list[dict[str, float]]], lines: int) -> str:
    floor = statistics.median(one["s"] for one in samples["cat"])
    rows = []
    for name, ones in samples.items():
        took = statistics.median(one["s"] for one in ones)
        cpu = statistics.median(one["cpu"] for one in ones)
        rows.append([name, f"{took:.2f}", f"{took / floor:.1f}", f"{cpu:.2f}", rate(lines / cpu)])
    return table(["contender", "median s", "x floor", "CPU s", "million lines/s a core"], rows)


def live_table(samples: dict[str, list[Seen]], late: dict[str, list[Seen]]) -> str:
    floor = statistics.median(one.span_s for one in next(iter(samples.values())))
    rows = []
    for name, ones in samples.items():
        span = statistics.median(one.span_s for one in ones)
        delays = sorted(1000 * delay for one in late[name] for delay in one.late_s)
        worst = delays[int(len(delays) * 0.99)]
        lines = rate(ones[0].lines / span)
        rows.append(
            [
                name,
                f"{span:.2f}",
                f"{span / floor:.1f}",
                lines,
                f"{statistics.median(delays):.1f}",
                f"{worst:.1f}",
            ]
        )
    head = ["contender", "s from first to last", "x floor", "million lines/s"]
    return table([*head, "ms until seen, median", "99 %"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--python", default=sys.executable, help="one that has Drumline, and torch for torchrun"
    )
    parser.add_argument("--lines", type=int, default=500_000, help="of each rank")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.python, Path(folder), arguments.lines)
        bench.make_ended_job()
        samples = measure(bench, arguments.rounds)
    text = "\n".join(f"- {name}: {value}" for name, value in machine.items())
    total = RANKS * arguments.lines
    text += f"\n- rounds: {arguments.rounds}\n"
    text += f"\n### {total:,} lines of 8 ranks that have ended, to a pipe\n\n" + ended_table(
        samples["pipe"], total
    )
    text += "\n### The same, to a terminal\n\n" + ended_table(samples["terminal"], total)
    text += f"\n### {total:,} lines while 8 ranks write them, and 5 lines/s of each\n\n"
    text += live_table(samples["live"], samples["late"])
    publish(text, {"machine": machine, "samples": samples}, arguments)


def measure(bench: Bench, rounds: int) -> dict[str, dict[str, list[Any]]]:
    """Contenders take turns, in another order each round."""
    samples: dict[str, dict[str, list[Any]]] = {"pipe": {}, "terminal": {}, "live": {}, "late": {}}
    for number in range(rounds):
        turn = 1 if number % 2 == 0 else -1
        for name, argv in list(bench.ended().items())[::turn]:
            for where in ("pipe", "terminal"):
                one = bench.view_ended(argv, terminal=where == "terminal")
                samples[where].setdefault(name, []).append(one)
        for name, start in list(bench.live().items())[::turn]:
            samples["live"].setdefault(name, []).append(bench.view_live(start, "flood", str(bench.lines)))
            samples["late"].setdefault(name, []).append(bench.view_live(start, "stamps", str(STAMPED_S)))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return samples


if __name__ == "__main__":
    main()
