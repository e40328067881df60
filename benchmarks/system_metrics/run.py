"""
The CPU time that an agent spends on samples of its node and ranks, in percent of one core.

A job with samples and one without take turns. See README.md beside it.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish
from processes import enter_scratch, kill_marked

from drumline.node.metrics.sampling import Sampler

RANK = """\
import subprocess, sys, threading, time
for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
children = [subprocess.Popen(["sleep", "3600"]) for _ in range(int(sys.argv[2]))]
open(sys.argv[3], "a").write(".")
time.sleep(3600)
"""
SETTLE_S = 2.0
START_S = 120.0
LOOKS = 20


def wait_for_ranks(ready: Path, count: int) -> None:
    """Raises RuntimeError when they have not all come in time."""
    deadline = time.monotonic() + START_S
    while not ready.exists() or ready.stat().st_size < count:
        if time.monotonic() >= deadline:
            raise RuntimeError(f"not all of {count} ranks after {START_S:g} s")
        time.sleep(0.05)


def cpu_s_of(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


@contextlib.contextmanager
def job(
    folder: Path, name: str, ranks: int, arguments: argparse.Namespace, *, sampled: bool
) -> Iterator[int]:
    """The process id of its agent, as long as its ranks run."""
    ready = folder / f"{name}.ready"
    (folder / "rank.py").write_text(RANK)
    command = f"python {folder}/rank.py {arguments.threads} {arguments.workers} {ready}"
    fields = {
        "command": command,
        "distribution": {"type": "pytorch", "process_count_per_instance": ranks},
        "environment_variables": {} if sampled else {"DRUMLINE_SYSTEM_METRICS": "0"},
        "drumline": {"hang_after": 0, "grace": 1},
    }
    (folder / "job.yml").write_text(json.dumps(fields))
    drumline = [sys.executable, "-m", "drumline", "job"]
    subprocess.run([*drumline, "create", "-f", str(folder / "job.yml"), "-n", name, "-o", "none"], check=True)
    try:
        wait_for_ranks(ready, ranks)
        shown = subprocess.run([*drumline, "show", name, "-o", "json"], check=True, capture_output=True)
        yield json.loads(shown.stdout)["processes"]["agents"][0]
    finally:
        subprocess.run([*drumline, "cancel", name, "--at-once"], check=True, capture_output=True)


def measure(ranks: int, folder: Path, arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Percent of a core, by ``with`` and ``without``, a figure a round."""
    shares: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(arguments.rounds):
        for kind, found in shares.items():
            name = f"{kind}-{ranks}-{number}"
            with job(folder, name, ranks, arguments, sampled=kind == "with") as agent:
                time.sleep(SETTLE_S)
                before, began = cpu_s_of(agent), time.monotonic()
                time.sleep(arguments.seconds)
                found.append(100 * (cpu_s_of(agent) - before) / (time.monotonic() - began))
    return shares


def stretches_s(ranks: int, folder: Path, arguments: argparse.Namespace) -> list[float]:
    """CPU seconds of each call of ``work``, for some samples of as many processes."""
    ready = folder / f"stretches-{ranks}"
    argv = [
        sys.executable,
        str(folder / "rank.py"),
        str(arguments.threads),
        str(arguments.workers),
        str(ready),
    ]
    children = [subprocess.Popen(argv) for _ in range(ranks)]
    taken = []
    try:
        wait_for_ranks(ready, ranks)
        pids = {child.pid: rank for rank, child in enumerate(children)}
        now = 0.0
        sampler = Sampler(str(folder / f"samples-{ranks}.jsonl"), 0, clock=lambda: now)
        sampler.work(pids)
        for _ in range(LOOKS):
            now += 6.0
            while sampler.due_in_s() == 0.0:
                began = time.thread_time()
                sampler.work(pids)
                taken.append(time.thread_time() - began)
    finally:
        for child in children:
            child.kill()
            child.wait()
        kill_marked(str(folder))
    return taken


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [
        "",
        "| ranks | processes | without, % of a core | with | samples cost | longest stretch, CPU ms | rounds |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for ranks, found in results["shares"].items():
        without, sampled = (statistics.median(found[kind]) for kind in ("without", "with"))
        spread = f"{min(found['with']):.3f}-{max(found['with']):.3f}"
        cells = (
            str(int(ranks) * (1 + results["workers"])),
            f"{without:.3f}",
            f"{sampled:.3f} ({spread})",
            f"{sampled - without:.3f}",
            f"{1e3 * max(results['stretches_s'][ranks]):.1f}",
        )
        lines.append(f"| {ranks} | {' | '.join(cells)} | {len(found['with'])} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64], help="of the node (8 64)")
    parser.add_argument("--workers", type=int, default=20, help="processes below each rank (20)")
    parser.add_argument("--threads", type=int, default=16, help="of each rank (16)")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each kind (3)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each job (30)")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    results: dict[str, Any] = {
        "machine": describe_machine(),
        "workers": arguments.workers,
        "shares": {},
        "stretches_s": {},
    }
    with enter_scratch() as folder:
        for ranks in map(str, arguments.ranks):
            results["shares"][ranks] = measure(int(ranks), folder, arguments)
            results["stretches_s"][ranks] = stretches_s(int(ranks), folder, arguments)
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
