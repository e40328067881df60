"""
Who is said to have begun, where the end of a job hides that: seeded jobs of gloo on two nodes of two ranks and one of
four, cold and warm.

    python benchmarks/verdict/run_endings.py [--rounds 1] [--seed 1] [--only TEXT ...] [--write]

The interpreter that runs it needs torch and Drumline. ``--write`` puts the table into docs/howto/reliability.md.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from run import TIMEOUT_S, write_table

SCRIPT = str(Path(__file__).resolve().parent / "endings.py")
LAYOUTS = ((2, 2), (1, 4))
MODES = {"cold": "off", "warm": "on"}

EARLY = r"ended early, [\d.]+ s in, with exit code 0; rank \d still waited for it"
BAD_BATCH = r"failed first, [\d.]+ s in: ValueError: bad batch \(.*endings\.py:\d+, in bad_batch\)"
FIRST = r"failed first, [\d.]+ s in: {}"
LATE = r"kept the others waiting: it {} \(.*endings\.py:\d+.*\) when rank \d gave up"
IN_LOAD_BATCH = LATE.format("was in load_batch")

KINDS = {
    "ends with 0": {
        "returns": EARLY,
        "sys.exit(0)": EARLY,
        "os._exit(0)": EARLY,
        "destroys its group, returns": EARLY,
        "destroys its group, returns 1 s later": EARLY,
        "destroys its group, os._exit(0)": EARLY,
    },
    "cleans up": {
        "finally": BAD_BATCH,
        "slow finally, 0.3 s": BAD_BATCH,
        "slow finally, 3 s": BAD_BATCH,
        "slow finally, busy": BAD_BATCH,
        "slow finally, sys.exit(3)": r"failed first, [\d.]+ s in: exit code 3",
        "slow except": BAD_BATCH,
        "slow context manager": BAD_BATCH,
        "slow atexit": BAD_BATCH,
    },
    "is late": {
        "late in load_batch": IN_LOAD_BATCH,
        "late in native code": LATE.format("was in count_words"),
        "late for a barrier": IN_LOAD_BATCH,
        "late for objects": IN_LOAD_BATCH,
        "late for a monitored barrier": IN_LOAD_BATCH,
        "late for the start": IN_LOAD_BATCH,
        "late in another collective": LATE.format("waited(?: in recv)?"),
    },
    "another exception follows": {
        "chained: finally: barrier": BAD_BATCH,
        "chained: except: barrier, raise": BAD_BATCH,
        "raise ... from": r"failed first, [\d.]+ s in: RuntimeError: training failed",
        "a loader's worker is killed": r"failed first, .*RuntimeError: DataLoader worker \(pid \d+\) is killed",
    },
    "native code": {"SIGABRT": r"failed first, [\d.]+ s in: killed by signal 6 \(SIGABRT.*, in work\)"},
    "its own words": {
        "a group of exceptions": FIRST.format(
            r"ExceptionGroup: epoch 3: ValueError: shard 7 is empty; OSError: shard 9 \(.*, in bad_group\)"
        ),
        "BaseException": FIRST.format(r"Stop: the watchdog says stop \(.*, in stop\)"),
        "KeyboardInterrupt": FIRST.format(r"KeyboardInterrupt: enough \(.*, in interrupt\)"),
        "handles it, sys.exit(1)": FIRST.format(
            r"exit code 1, after ValueError: bad batch \(.*, in bad_batch\)"
        ),
        "sys.exit with lines": FIRST.format(r"exit code 1: no learning rate: lr optimizer\.lr \("),
        "its own faulthandler": FIRST.format(
            r"exit code 1: its own faulthandler gave up after 0\.5 s \(.*, in load_batch\)"
        ),
        "no descriptor is left": FIRST.format(
            r"OSError: .*, in open_too_many\); its limit of open files \(100\) was reached"
        ),
        "a loader's worker raises": FIRST.format(r"ValueError: bad image 0 \(.*, in __getitem__\)"),
        "a panic of Go": FIRST.format(
            r"exit code 2: panic: runtime error: index out of range \[6\] with length 3"
        ),
        "an exception of Java": FIRST.format(
            r"exit code 1: java\.lang\.IllegalStateException: table 'users' is not there"
        ),
    },
    "torchrun inside": {
        "torchrun: BaseException": r"Stop: the watchdog says stop .*in rank {culprit} of its launcher",
        "torchrun: ValueError": r"ValueError: bad batch .*in rank {culprit} of its launcher",
        "torchrun: SIGKILL": r"rank {culprit} of its launcher.*SIGKILL",
    },
}
"""By group, and then by kind of ``endings.py``: what the sentence has to say of the rank that began."""


class Case(NamedTuple):
    group: str
    kind: str
    nodes: int
    procs: int
    culprit: int
    mode: str

    @property
    def has_launcher(self) -> bool:
        return self.group == "torchrun inside"

    @property
    def rank(self) -> int:
        """Of the job, that began: with a launcher there is one a node."""
        return self.culprit // self.procs if self.has_launcher else self.culprit


def cases_of(seed: int, rounds: int, only: list[str]) -> list[Case]:
    dice = random.Random(seed)
    return [
        Case(group, kind, nodes, procs, dice.randrange(nodes * procs), mode)
        for mode in MODES
        for _ in range(rounds)
        for nodes, procs in LAYOUTS
        for group, kinds in KINDS.items()
        for kind in kinds
        if not only or any(text in f"{mode}: {nodes}x{procs}: {group}: {kind}" for text in only)
    ]


def command_of(case: Case) -> list[str]:
    program = [SCRIPT, case.kind, str(case.culprit)]
    run = [sys.executable, "-m", "drumline", "run", "--warm", MODES[case.mode], "--nodes", str(case.nodes)]
    if not case.has_launcher:
        return [*run, "--procs", str(case.procs), "--", sys.executable, *program]
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(case.nodes)]
    words += ["--nproc-per-node", str(case.procs), "--node-rank", "$NODE_RANK"]
    words += ["--master-addr", "$MASTER_ADDR", "--master-port", "$MASTER_PORT"]
    quoted = " ".join([*words, f"'{SCRIPT}'", f"'{case.kind}'", str(case.culprit)])
    return [*run, "--", "bash", "-c", quoted]


def ask(case: Case, home: str) -> tuple[bool, str]:
    """Whether the sentence names the rank that began, and of what; and the sentence."""
    names = {name: value for name, value in os.environ.items() if not name.startswith("DRUMLINE_")}
    variables = {**names, "OMP_NUM_THREADS": "1", "DRUMLINE_HOME": home}
    before = set(_jobs(home))
    subprocess.run(
        command_of(case),
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=False,
    )
    (name,) = set(_jobs(home)) - before
    show = [sys.executable, "-m", "drumline", "job", "show", "-n", name, "-o", "json"]
    shown: dict[str, Any] = json.loads(
        subprocess.run(show, env=variables, capture_output=True, check=True).stdout
    )
    said = str(shown["reason"])
    expected = KINDS[case.group][case.kind].replace("{culprit}", str(case.culprit))
    right = (shown["verdict"] or {}).get("rank") == case.rank and re.search(expected, said) is not None
    return right, said


def _jobs(home: str) -> list[str]:
    folder = os.path.join(home, "jobs")
    return os.listdir(folder) if os.path.isdir(folder) else []


def measure(cases: list[Case]) -> list[bool]:
    answers = []
    # One home, so that the warm ones find what earlier ones have left.
    home = tempfile.mkdtemp(prefix="endings-")
    try:
        for case in cases:
            try:
                right, said = ask(case, home)
            except (subprocess.SubprocessError, OSError, ValueError) as error:
                right, said = False, f"{type(error).__name__}: {error}"
            answers.append(right)
            if not right:
                where = f"{case.nodes} x {case.procs}, {case.mode}"
                print(f"rank {case.culprit}, {case.kind} ({where}): {said}", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return answers


def table(cases: list[Case], answers: list[bool]) -> str:
    lines = [
        "| the rank that began | kinds | cold | right | warm | right |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    counts: dict[str, list[int]] = {}
    for case, right in zip(cases, answers, strict=True):
        for group in (case.group, "all"):
            count = counts.setdefault(group, [0, 0, 0, 0])
            column = 0 if case.mode == "cold" else 2
            count[column] += 1
            count[column + 1] += right
    for group in [*KINDS, "all"]:
        if group in counts:
            kinds = KINDS.get(group) or [kind for one in KINDS.values() for kind in one]
            lines.append(f"| {group} | {len(kinds)} | " + " | ".join(map(str, counts[group])) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", nargs="*", default=[], help="part of 'warm: 2x2: is late: late in load_batch'"
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/howto/reliability.md")
    arguments = parser.parse_args()
    cases = cases_of(arguments.seed, arguments.rounds, arguments.only)
    answers = measure(cases)
    text = table(cases, answers)
    print(text)
    if arguments.write:
        write_table("endings", text)
    return 0 if all(answers) else 1


if __name__ == "__main__":
    sys.exit(main())
