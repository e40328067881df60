"""
What a job of many nodes costs its supervisor, from the first hello of an agent to the verdict, and those who follow the
logs of all ranks. See README.md beside it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish

SUPERVISE = str(Path(__file__).with_name("supervise.py"))
FOLLOW = str(Path(__file__).with_name("follow.py"))
SIZES = "1,10,100,1000,4000"
CASES = ("well", "cascade", "lost", "silent", "follow")
LIMIT_S = 600
COLUMNS = (
    ("launch_s", "all told to start, s", "well"),
    ("launch_cpu_s", "CPU s of that", "well"),
    ("cpu_s", "CPU s in all", "well"),
    ("cpu_s", "CPU s with a cascade", "cascade"),
    ("verdict_s", "verdict after the last exit, s", "cascade"),
    ("lost_s", "a lost agent, s", "lost"),
    ("late_s", "a silent one, s after its time", "silent"),
    ("peak_mb", "memory, MB", "cascade"),
    ("sent_mb", "sent, MB", "well"),
    ("follow_cpu_s", "CPU s to follow all logs", "follow"),
)


def measure(nodes: int, procs: int, case: str, processes: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, SUPERVISE, str(nodes), str(procs), case, str(processes), folder]
        if case == "follow":
            words = [sys.executable, FOLLOW, str(nodes), str(procs), folder]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=True)
    return dict(json.loads(done.stdout))


def format_table(results: dict[str, list[dict[str, Any]]], sizes: list[int], procs: int) -> str:
    text = "| nodes | ranks | " + " | ".join(title for _, title, _ in COLUMNS) + " |\n"
    text += "| ---: | ---: |" + " ---: |" * len(COLUMNS) + "\n"
    for nodes in sizes:
        cells = []
        for field, _, case in COLUMNS:
            values = [one[field] for one in results.get(f"{nodes} {case}", ()) if one[field] is not None]
            cells.append(f"{statistics.median(values):.3g}" if values else "-")
        text += f"| {nodes:,} | {nodes * procs:,} | " + " | ".join(cells) + " |\n"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=SIZES, help=f"comma list of numbers of nodes ({SIZES})")
    parser.add_argument("--procs", type=int, default=8, help="ranks on each node (8)")
    parser.add_argument("--processes", type=int, default=2, help="processes that play the agents (2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sizes = [int(one) for one in given.sizes.split(",")]
    machine = describe_machine()
    results: dict[str, list[dict[str, Any]]] = {}
    for number in range(given.rounds):
        for nodes in sizes:
            for case in CASES:
                if nodes == 1 and case in ("lost", "silent"):
                    continue
                found = measure(nodes, given.procs, case, given.processes)
                results.setdefault(f"{nodes} {case}", []).append(found)
                print(f"round {number}: {nodes} {case}: {found}", file=sys.stderr, flush=True)
    facts = {**machine, "rounds": given.rounds, "processes that play agents": given.processes}
    text = "".join(f"- {name}: {value}\n" for name, value in facts.items())
    text += "\n" + format_table(results, sizes, given.procs)
    publish(text, {"machine": facts, "results": results}, given)


if __name__ == "__main__":
    main()
