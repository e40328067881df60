"""
What Drumline adds to Slurm: the same ranks by a batch script with one srun, and by `drumline job create`.

    python benchmarks/slurm/run.py [--rounds 7] [--markdown slurm.md] [--json slurm.json]

The Python that runs it needs Drumline and PyTorch. The cluster is scripts/slurm-cluster's, made for this run alone, and
gone afterwards. See README.md beside it.
"""

import argparse
import contextlib
import importlib.metadata
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contenders import CONTENDERS, DRUMLINE, PLAIN, Case, Contender, Times
from environment import ROOT, say
from machine import describe_machine, publish

CASES = [
    Case("2x1", "2 nodes x 1 bare rank", 2, 1),
    Case("4x4", "4 nodes x 4 bare ranks", 4, 4),
    Case("allreduce", "4 nodes x 4 ranks, torch, gloo all-reduce", 4, 4, "allreduce"),
]
MANY = Case("many", "one bare rank each", 1, 1)
NAMES = (PLAIN.name, DRUMLINE.name)
SUBMITTERS = 8
JOB_END_S = 180.0
COMMAND, STEP = "the command", "the batch step"
SPANS = [(COMMAND, "a rank's first line"), (STEP, "all ranks run"), (STEP, "the end")]
# Of whoever runs this: settings, and of a job in which this may run.
NOT_OURS = ("DRUMLINE_", "SLURM_", "SBATCH_", "SRUN_", "PYTHON", "AZUREML_", "MASTER_", "RANK", "WORLD_SIZE")


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The variables of everything that is started; nothing of the cluster is left afterwards. Raises SystemExit."""
    script = [sys.executable, str(ROOT / "scripts" / "slurm-cluster")]
    try:
        made = subprocess.run(
            [*script, "up", "--dir", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if made.returncode:
            sys.exit(f"no cluster: {made.stderr.strip()}")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
        yield {
            **kept,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}",
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
    finally:
        subprocess.run([*script, "down", "--dir", str(folder)], check=False)


class Bench:
    """All measurements of one run, on one cluster."""

    def __init__(self, scratch: Path, variables: dict[str, str]) -> None:
        self._scratch = scratch
        self._variables = variables
        self._trials = 0

    def _folder(self, case: Case, contender: Contender) -> Path:
        folder = self._scratch / f"trial-{self._trials}"
        self._trials += 1
        folder.mkdir()
        contender.prepare(case, folder)
        return folder

    def sample(self, case: Case, contender: Contender) -> dict[str, Any]:
        """SPANS in seconds; steps from the start of the command that submits. Raises RuntimeError."""
        folder = self._folder(case, contender)
        # At any moment of the scheduler's rounds, which go by the second.
        time.sleep(random.random())
        began = time.time()
        contender.submit(folder, 0, self._variables)
        submitted = time.time()
        times = self._wait_for(contender, folder, [0])[0]
        self._wait_until_idle()
        shutil.rmtree(folder)
        if len(times.ranks) != case.nodes * case.procs:
            raise RuntimeError(f"{contender.name}, {case.key}: {len(times.ranks)} ranks ran")
        spans_s = [min(times.ranks) - began, max(times.ranks) - times.began, times.end - times.began]
        steps = {"submitted": submitted, STEP: times.began, **times.steps}
        return {
            "spans_s": spans_s,
            "steps_s": {name: moment - began for name, moment in steps.items()},
        }

    def sample_many(self, contender: Contender, count: int) -> dict[str, Any]:
        """Seconds until the last of so many jobs is submitted, and has ended. Raises RuntimeError for one lost."""
        folder = self._folder(MANY, contender)
        began = time.time()
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(lambda number: contender.submit(folder, number, self._variables), range(count)))
        submitted = time.time()
        times = self._wait_for(contender, folder, range(count))
        self._wait_until_idle()
        shutil.rmtree(folder)
        ranks = [one for job in times for one in job.ranks]
        return {
            "completed": len(ranks),
            "submitted": submitted - began,
            "ended": max(job.end for job in times) - began,
        }

    def _wait_for(self, contender: Contender, folder: Path, numbers: Sequence[int]) -> list[Times]:
        deadline = time.monotonic() + JOB_END_S + len(numbers)
        found: dict[int, Times] = {}
        while True:
            for number in numbers:
                if number not in found and (times := contender.times(folder, number)):
                    found[number] = times
            if len(found) == len(numbers):
                return [found[number] for number in numbers]
            if time.monotonic() > deadline:
                raise RuntimeError(f"{contender.name}: {len(numbers) - len(found)} jobs have not ended")
            time.sleep(0.1 + len(numbers) / 100)

    def _wait_until_idle(self) -> None:
        """The next one is to find all nodes free."""
        while subprocess.run(
            ["squeue", "--noheader"], env=self._variables, capture_output=True, check=True
        ).stdout.strip():
            time.sleep(0.1)


def ratio_row(case: str, since: str, until: str, plain: Sequence[float], ours: Sequence[float]) -> str:
    """Of pairs that ran one after the other."""
    ratios = [our / its for our, its in zip(ours, plain, strict=True)]
    cells = [
        case,
        since,
        until,
        *(spread(values, "s") for values in (plain, ours)),
        spread(ratios, "x"),
        str(len(ratios)),
    ]
    return "| " + " | ".join(cells) + " |"


def spread(values: Sequence[float], unit: str) -> str:
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f}-{max(values):.2f})"


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [
        f"- load average after each round: {min(results['loads']):.2f} to {max(results['loads']):.2f}",
        "- versions: " + ", ".join(f"{name} {version}" for name, version in results["versions"].items()),
        "",
        f"| what | from | to | {PLAIN.name} | {DRUMLINE.name} | ratio | pairs |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for title, samples in results["samples"].items():
        for index, (since, until) in enumerate(SPANS):
            plain, ours = ([one["spans_s"][index] for one in samples[name]] for name in NAMES)
            lines.append(ratio_row(title, since, until, plain, ours))
    many = results["many"]
    if many[PLAIN.name]:
        title = f"{results['jobs']} jobs at once, {MANY.title}"
        for key, until in (("submitted", "all are submitted"), ("ended", "all have ended")):
            plain, ours = ([one[key] for one in many[name]] for name in NAMES)
            lines.append(ratio_row(title, "the first command", until, plain, ours))
        lines.append("")
        lines += [
            f"- {name}: of {results['jobs'] * len(many[name])} such jobs, "
            f"{sum(one['completed'] for one in many[name])} completed"
            for name in many
        ]
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    keys = [case.key for case in [*CASES, MANY]]
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="pairs of each case (7)")
    parser.add_argument("--jobs", type=int, default=200, help="how many at once (200)")
    parser.add_argument("--many-rounds", type=int, default=2, help="pairs of that (2)")
    parser.add_argument("--cases", nargs="*", default=keys, choices=keys)
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def measure(bench: Bench, arguments: argparse.Namespace, results: dict[str, Any]) -> None:
    cases = [case for case in CASES if case.key in arguments.cases]
    say("warming up: one unmeasured job each")
    for contender in CONTENDERS:
        bench.sample(CASES[0], contender)
    results["samples"] = {case.title: {each.name: [] for each in CONTENDERS} for case in cases}
    for index in range(arguments.rounds):
        for case in cases:
            # Another one begins each time.
            for contender in CONTENDERS if index % 2 else CONTENDERS[::-1]:
                results["samples"][case.title][contender.name].append(bench.sample(case, contender))
        results["loads"].append(os.getloadavg()[0])
        say(f"round {index + 1} of {arguments.rounds} done, load {os.getloadavg()[0]:.2f}")
    for index in range(arguments.many_rounds if MANY.key in arguments.cases else 0):
        for contender in CONTENDERS if index % 2 else CONTENDERS[::-1]:
            results["many"][contender.name].append(bench.sample_many(contender, arguments.jobs))
        say(f"{arguments.jobs} jobs at once: pair {index + 1} of {arguments.many_rounds} done")


def main() -> int:
    arguments = parse_arguments()
    results: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": {name: importlib.metadata.version(name) for name in ("drumline", "torch")},
        "jobs": arguments.jobs,
        "loads": [],
        "samples": {},
        "many": {each.name: [] for each in CONTENDERS},
    }
    # Not below a long path: that of a socket has 108 bytes.
    with tempfile.TemporaryDirectory(prefix="dls-", dir="/tmp") as scratch:
        folder = Path(scratch)
        with cluster(folder / "slurm") as variables:
            said = subprocess.run(
                ["sinfo", "--version"], capture_output=True, text=True, env=variables, check=True
            )
            results["versions"]["Slurm"] = said.stdout.split()[-1]
            try:
                measure(Bench(folder, variables), arguments, results)
            except RuntimeError as error:
                sys.exit(str(error))
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
