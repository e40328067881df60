"""
One slow rank or node of four, drawn by a seed: does ``drumline scale`` name it, and what is slow of it?

See README.md beside it. It needs PyTorch, and the right to make namespaces.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish
from processes import kill_marked, marked_pids

from drumline.cli.main import main as drumline
from drumline.contract.errors import DrumlineError
from drumline.control.measure import scale_report as reports
from drumline.control.measure import scale_run
from drumline.control.measure.scale_values import list_sentences
from drumline.engines.local.isolation.inside import find_program
from drumline.engines.local.isolation.isolation_settings import address_of
from drumline.spec.load import load_job

if TYPE_CHECKING:
    from drumline.control.measure.refusals import Emulation

HERE = Path(__file__).resolve().parent
NODES = 4
RATE = 200_000_000
"""Bits a second of every line but a slow one."""

NOBODY = "nobody"
KINDS = ("compute", "link", "input", NOBODY)
RIGHT, WRONG, BUSY = "right", "wrong", "busy"
LIMITS = ("so they are the limit", "the limit and not the link")
"""How reports end that are not trusted because of the machine."""

TC = """#!/bin/sh
# In the place of tc: one node's line gets another rate, as if its cable were bad from the beginning.
{{ read -r node address rate < "{slow}"; }} 2> /dev/null || exec {tc} "$@"
lines=$(cat)
case "$lines" in
*"dev eth0 "*)
    case "$({ip} -4 -o addr show dev eth0)" in
    *" $address/"*) lines=$(printf '%s\\n' "$lines" | sed "s/rate [0-9]*bit/rate ${{rate}}bit/") ;;
    esac ;;
*) lines=$(printf '%s\\n' "$lines" | sed "/dev port$node /s/rate [0-9]*bit/rate ${{rate}}bit/") ;;
esac
printf '%s\\n' "$lines" | {tc} "$@"
"""


class Case(NamedTuple):
    """``slow``: the rank, which is the node too. ``by``: times as long it computes, ms of input, or a share of rate."""

    kind: str
    seed: int
    slow: int | None
    by: float
    training: dict[str, Any]


def draw_case(kind: str, seed: int) -> Case:
    """Draw who is slow, by how much, always more than a report needs to name it, and what all ranks do."""
    draw = random.Random(f"{kind} {seed}")
    slow = None if kind == NOBODY else draw.randrange(NODES)
    compute_s = [draw.uniform(0.02, 0.035)] * NODES
    input_s = [draw.uniform(0.0, 0.006)] * NODES
    by = 0.0
    if slow is not None and kind == "compute":
        by = draw.uniform(1.3, 2.2)
        compute_s[slow] *= by
    elif slow is not None and kind == "input":
        by = draw.uniform(10, 40)
        input_s[slow] += by / 1e3
    elif slow is not None and kind == "link":
        by = draw.uniform(0.15, 0.4)
    training = {
        "seed": seed,
        "varies": draw.uniform(0.0, 0.04),
        "compute_s": compute_s,
        "input_s": input_s,
        "width": draw.choice((128, 160, 192)),
        "bucket_mb": draw.choice((0.1, 1)),
    }
    return Case(kind, seed, slow, by, training)


class Lab:
    """Jobs on four isolated nodes. Raises EngineError, RuntimeError where there can be none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._slow = folder / "slow"
        ip, tc = find_program("ip"), find_program("tc")
        (folder / "bin").mkdir()
        script = folder / "bin" / "tc"
        script.write_text(TC.format(slow=self._slow, ip=ip, tc=tc))
        script.chmod(0o755)
        os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        compute = {"name": "lab", "type": "local", "nodes": NODES, "isolation": "namespace"}
        (folder / "lab.yml").write_text(json.dumps({**compute, "link": {"rate": f"{RATE}bit"}}))
        if drumline(["compute", "create", "-f", str(folder / "lab.yml"), "-o", "none"]):
            raise RuntimeError("no compute of isolated nodes")
        self._emulation: Emulation | None = None

    def run(self, case: Case, steps: int) -> dict[str, Any]:
        """Run the job of a case, and judge its report."""
        self._slow.unlink(missing_ok=True)
        job = self._make_job(case)
        request = scale_run.ScaleRequest((NODES,), None, steps)
        plans = scale_run.plan_sizes(job, request)
        self._emulation = self._emulation or scale_run.find_emulation(job, plans, lambda _: None)
        if case.kind == "link":
            node = case.slow or 0
            self._slow.write_text(f"{node} {address_of(node)} {round(RATE * case.by)}\n")
        began = time.monotonic()
        runs = list(scale_run.run_sizes(job, request, plans, lambda _: None))
        made = reports.build_report("", runs, to=NODES, emulation=self._emulation)
        (row,) = made.measured
        if row.refused:
            # What the machine carries may have been measured in a bad moment.
            self._emulation = None
        return {
            "kind": case.kind,
            "seed": case.seed,
            "slow": case.slow,
            "by": case.by,
            "answer": judge(case, made),
            "named": [{"kind": one.kind, "node": one.node, "rank": one.rank} for one in row.stragglers],
            "late_s": [one.late_s for one in row.stragglers],
            "step_s": row.facts and row.facts.step_s,
            "refused": row.refused,
            "links": [one._asdict() for one in row.run.pairs],
            "busy": row.run.cpu_share,
            "seconds": time.monotonic() - began,
            "said": list_sentences(made),
        }

    def _make_job(self, case: Case) -> Any:
        path = self._folder / "job.yml"
        job = {
            "command": "python train.py",
            "code": str(HERE),
            "compute": "azureml:lab",
            "environment_variables": {"CASE": json.dumps(case.training), "OMP_NUM_THREADS": "1"},
            "distribution": {"type": "pytorch", "process_count_per_instance": 1},
        }
        path.write_text(json.dumps(job))
        return load_job(str(path))


def judge(case: Case, made: reports.ScaleReport) -> str:
    """Whether the one that is slow is named as what it is, and no other; a report of a busy machine says nothing."""
    (row,) = made.measured
    if row.refused:
        return BUSY if any(one in row.refused for one in LIMITS) else WRONG
    found = [(one.kind, one.node) for one in row.stragglers]
    wanted = [] if case.slow is None else [(case.kind, case.slow)]
    return RIGHT if found == wanted else WRONG


def measure(lab: Lab, cases: list[Case], steps: int, tries: int) -> list[dict[str, Any]]:
    """A job whose report is not trusted, because the machine was busy, is repeated ``tries`` times in all."""
    found = []
    for case in cases:
        for attempt in range(1, tries + 1):
            result = {**lab.run(case, steps), "attempt": attempt}
            say(describe(result))
            if result["answer"] != BUSY:
                break
        found.append(result)
    return found


def describe(one: dict[str, Any]) -> str:
    named = ", ".join(f"{each['kind']} of node {each['node']}" for each in one["named"]) or NOBODY
    slow = NOBODY if one["slow"] is None else f"{one['kind']} of node {one['slow']} ({one['by']:.2f})"
    why = f": {one['refused']}" if one["refused"] else ""
    return f"seed {one['seed']}: {slow}: {one['answer']}, named: {named}, {one['seconds']:.1f} s{why}"


def say(text: str) -> None:
    print(f"stragglers: {text}", file=sys.stderr, flush=True)


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [
        "",
        "| slow is | jobs | named as that | wrong | not trusted | job, s | processors busy |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for kind in KINDS:
        mine = [one for one in results["cases"] if one["kind"] == kind]
        if mine:
            count = Counter(one["answer"] for one in mine)
            seconds = sum(one["seconds"] for one in mine) / len(mine)
            busy = sum(one["busy"] or 0.0 for one in mine) / len(mine)
            cells = [kind, len(mine), count[RIGHT], count[WRONG], count[BUSY]]
            lines.append(f"| {' | '.join(map(str, cells))} | {seconds:.1f} | {100 * busy:.0f} % |")
    missed = [one for one in results["cases"] if one["answer"] != RIGHT]
    if missed:
        lines += ["", *(f"- {describe(one)}" for one in missed)]
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", type=int, default=20, help="of each kind (20)")
    parser.add_argument("--first-seed", type=int, default=0, help="(0)")
    parser.add_argument("--steps", type=int, default=30, help="measured of each job (30)")
    parser.add_argument("--tries", type=int, default=3, help="of a job whose report is not trusted (3)")
    parser.add_argument("--json", type=Path, help="write every figure here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    machine = describe_machine()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    cases = [draw_case(kind, seed) for seed in seeds for kind in arguments.kinds]
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        folder = Path(scratch).resolve()
        os.environ["DRUMLINE_HOME"] = str(folder / "home")
        try:
            found = measure(Lab(folder), cases, arguments.steps, arguments.tries)
        except (RuntimeError, DrumlineError) as error:
            sys.exit(str(error))
        finally:
            kill_marked(str(folder))
            assert not marked_pids(str(folder))
    results = {"machine": machine, "cases": found}
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
