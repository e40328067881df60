"""
What isolated nodes cost, beside nodes that share this machine: until they are there, and until nothing of them is left.
See README.md beside it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish

from drumline.control.machine import computes
from drumline.control.submission.run_folder import ISOLATION

CASES = {"shared": [], "isolated": ["--isolate"], "isolated, 1 Gbit/s": ["--isolate", "--link", "1gbit"]}
PARTS = {
    "up": "from the job's start to the last agent that joined",
    "ranks": "from there until all ranks run",
    "down": "from the end of the last rank to that of the job",
    "whole": "the command",
}

CHECKED = (4, 1)
"""Of how many nodes the cost of the check before the ranks is measured."""


def run_job(home: Path, words: list[str]) -> dict[str, float]:
    """Seconds of each part of one job whose ranks do nothing. Raises RuntimeError if it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "drumline", *words],
        cwd=home,
        env={**os.environ, "DRUMLINE_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    whole_s = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    lines = (home / "jobs" / "bench" / "events.jsonl").read_text().splitlines()
    # The last of each type.
    times = {event["type"]: event["time"] for event in map(json.loads, lines)}
    return {
        "up": times["AgentJoined"] - times["JobStarting"],
        "ranks": times["JobRunning"] - times["AgentJoined"],
        "down": times["JobEnded"] - times["RankExited"],
        "whole": whole_s,
    }


def make_words(count: int, options: Sequence[str]) -> list[str]:
    return ["run", "--name", "bench", "--nodes", str(count), *options, "--", "true"]


def write_job(home: Path, count: int, *, is_checked: bool) -> list[str]:
    """A job for isolated nodes with or without their check, and the words that run it."""
    job = {
        "name": "bench",
        "command": "true",
        "resources": {"instance_count": count},
        "distribution": {"type": "pytorch"},
        "properties": {ISOLATION: computes.describe_nodes()},
        "drumline": {"preflight": "auto" if is_checked else "off"},
    }
    (home / "job.yml").write_text(json.dumps(job))
    return ["job", "create", "--file", "job.yml", "--stream"]


def measure(rounds: int, count: int) -> dict[str, list[dict[str, float]]]:
    """A job of each case in each round, in another order every time."""
    samples: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    cases = list(CASES)
    for index in range(-1, rounds):
        turn = index % len(cases)
        for case in cases[turn:] + cases[:turn]:
            with tempfile.TemporaryDirectory(prefix="drumline-bench-") as folder:
                sample = run_job(Path(folder), make_words(count, CASES[case]))
            # The first round reads what is not in memory yet.
            if index >= 0:
                samples[case].append(sample)
    return samples


def measure_checks(rounds: int) -> dict[int, list[dict[str, float]]]:
    """In each round a job with the check and one without, by the number of nodes: from their agents to their ranks."""
    samples: dict[int, list[dict[str, float]]] = {count: [] for count in CHECKED}
    for index in range(-1, rounds):
        for count in CHECKED:
            sample = {}
            for case in ("with", "without") if index % 2 else ("without", "with"):
                with tempfile.TemporaryDirectory(prefix="drumline-bench-") as folder:
                    words = write_job(Path(folder), count, is_checked=case == "with")
                    sample[case] = run_job(Path(folder), words)["ranks"]
            if index >= 0:
                samples[count].append(sample)
    return samples


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [f"- rounds: {results['rounds']}", f"- nodes: {results['nodes']}", ""]
    lines += [
        "| part | nodes | median s | min | max | x shared |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for part, text in PARTS.items():
        floors = [sample[part] for sample in results["samples"]["shared"]]
        for case, samples in results["samples"].items():
            taken = [sample[part] for sample in samples]
            ratio = statistics.median(one / floor for one, floor in zip(taken, floors, strict=True))
            cells = [f"{one:.3f}" for one in (statistics.median(taken), min(taken), max(taken))]
            lines.append(f"| {part}: {text} | {case} | {' | '.join(cells)} | {ratio:.2f} |")
    lines += [
        "",
        "| isolated nodes | without the check s | with it | it adds (median of pairs) | min | max |",
    ]
    lines.append("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for count, pairs in results["checks"].items():
        medians = [statistics.median(pair[case] for pair in pairs) for case in ("without", "with")]
        added = [pair["with"] - pair["without"] for pair in pairs]
        cells = [f"{one:.3f}" for one in (*medians, statistics.median(added), min(added), max(added))]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--nodes", type=int, default=4, help="of each job (4)")
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    machine = describe_machine()
    try:
        samples = measure(arguments.rounds, arguments.nodes)
        checks = measure_checks(arguments.rounds)
    except RuntimeError as error:
        sys.exit(str(error))
    results = {
        "machine": machine,
        "rounds": arguments.rounds,
        "nodes": arguments.nodes,
        "samples": samples,
        "checks": checks,
    }
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
