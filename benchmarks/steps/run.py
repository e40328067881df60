"""
What following the steps of a training costs its ranks: time and CPU time of a step, memory, and its agent's CPU time.

A job that is followed and one that is not take turns. See README.md beside it.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish
from processes import enter_scratch

TRAIN = Path(__file__).resolve().with_name("train.py")
DRUMLINE = [sys.executable, "-m", "drumline", "job"]
OFF, ON = "off", "on"
LEAST_ROUNDS = 5


def cpu_s_of(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def run_job(folder: Path, name: str, given: argparse.Namespace, *, followed: bool) -> dict[str, Any]:
    """What rank 0 measured, and the CPU seconds of its agent. Raises RuntimeError."""
    result = folder / f"{name}.json"
    words = f"--steps {given.steps} --batch-size {given.batch_size} --sleep-ms {given.sleep_ms:g}"
    fields = {
        "command": f"python {TRAIN} {words} --result {result}",
        "distribution": {"type": "pytorch", "process_count_per_instance": given.ranks},
        "environment_variables": {"DRUMLINE_SYSTEM_METRICS": "0"},
        "drumline": {"hang_after": 0, "grace": 1, "steps": followed, "warm": False},
    }
    job = folder / f"{name}.yml"
    job.write_text(json.dumps(fields))
    subprocess.run([*DRUMLINE, "create", "-f", str(job), "-n", name, "-o", "none"], check=True)
    agent_s = wait_for_end(name)
    if not result.exists():
        raise RuntimeError(f"job {name} has measured nothing: drumline job logs {name}")
    found: dict[str, Any] = json.loads(result.read_text())
    if found["is_followed"] != followed:
        raise RuntimeError(f"job {name} was {'not ' if followed else ''}followed")
    return {**found, "agent_s": agent_s}


def wait_for_end(name: str) -> float:
    """The CPU seconds of the job's agent when it was last seen; the job has ended."""
    seconds = 0.0
    agent = 0
    while True:
        if not agent:
            shown = show(name)
            agent = next(iter((shown.get("processes") or {}).get("agents") or ()), 0)
            if shown["status"] in ("Completed", "Failed", "Canceled"):
                return seconds
        with contextlib.suppress(OSError):
            seconds = cpu_s_of(agent)
        if agent and not Path(f"/proc/{agent}").exists():
            subprocess.run([*DRUMLINE, "wait", name, "-o", "none"], check=False, capture_output=True)
            return seconds
        time.sleep(0.2)


def show(name: str) -> dict[str, Any]:
    done = subprocess.run([*DRUMLINE, "show", name, "-o", "json"], check=True, capture_output=True)
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def measure(folder: Path, given: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """A result a round, of each kind. Which of the two is first changes from round to round."""
    results: dict[str, list[dict[str, Any]]] = {OFF: [], ON: []}
    for number in range(given.rounds):
        for kind in (OFF, ON) if number % 2 == 0 else (ON, OFF):
            results[kind].append(run_job(folder, f"{kind}-{number}", given, followed=kind == ON))
    return results


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    rounds = results["rounds"]
    lines += [
        f"- rounds: {len(rounds[ON])}, of {results['steps']} steps and {results['ranks']} ranks each",
        "",
        "| of a step | off | on | more | lowest to highest of the rounds |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    step_s = statistics.median(statistics.median(one["step_s"]) for one in rounds[OFF])
    rows = [
        (
            "time, ms",
            [1e3 * statistics.median(one["step_s"]) for one in rounds[OFF]],
            [1e3 * statistics.median(one["step_s"]) for one in rounds[ON]],
        ),
        (
            "CPU time, ms",
            [1e3 * statistics.mean(one["cpu_s"]) for one in rounds[OFF]],
            [1e3 * statistics.mean(one["cpu_s"]) for one in rounds[ON]],
        ),
    ]
    for name, off, on in rows:
        more = [after - before for before, after in zip(off, on, strict=True)]
        share = [100 * one / (1e3 * step_s) for one in more]
        lines.append(
            f"| {name} | {statistics.median(off):.3f} | {statistics.median(on):.3f} | "
            f"{statistics.median(more):+.3f} ({statistics.median(share):+.2f} % of the step's time) | "
            f"{min(share):+.2f} to {max(share):+.2f} % |"
        )
    memory = {kind: [one["memory_bytes"] / 1e6 for one in found] for kind, found in rounds.items()}
    agent = {kind: [one["agent_s"] for one in found] for kind, found in rounds.items()}
    lines += ["", "| of a job | off | on | more |", "| --- | ---: | ---: | ---: |"]
    for name, found in (("memory of a rank, MB", memory), ("CPU time of the agent, s", agent)):
        off_one, on_one = (statistics.median(found[kind]) for kind in (OFF, ON))
        lines.append(f"| {name} | {off_one:.2f} | {on_one:.2f} | {on_one - off_one:+.2f} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2, help="of the one node (2)")
    parser.add_argument("--steps", type=int, default=500, help="of each job, beside 30 to warm up (500)")
    parser.add_argument("--batch-size", type=int, default=64, help="images per rank and step (64)")
    parser.add_argument(
        "--sleep-ms", type=float, default=12.0, help="of each step, beside the computing (12)"
    )
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help="jobs of each kind (5)")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def main() -> int:
    given = parse_arguments()
    results: dict[str, Any] = {"machine": describe_machine(), "ranks": given.ranks, "steps": given.steps}
    with enter_scratch() as folder:
        results["rounds"] = measure(folder, given)
    publish(render(results), results, given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
