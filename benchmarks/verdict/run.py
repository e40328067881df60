"""
Who is said to have begun, when a job fails in a cascade: Drumline and torchrun on the same seeded cases.

    python benchmarks/verdict/run.py [--cases 200] [--peers 200] [--seed 1] [--write]

The interpreter that runs it needs torch and Drumline. ``--write`` puts the table into docs/howto/reliability.md.
"""

import argparse
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRIPT = str(HERE / "cascade.py")
TIMEOUT_S = 120.0

EXCEPTIONS = {
    "value": "ValueError",
    "key": "KeyError",
    "own": "TroubleError",
    "assert": "AssertionError",
    "import": "ModuleNotFoundError",
    "file": "FileNotFoundError",
    "memory": "MemoryError",
}
CODES = {"exit": 7, "exit at once": 9, "kill": -9, "abort": -6, "segfault": -11}
FOLLOWS = ("reset", "pipe", "closed", "exit", "abort")


class Case(NamedTuple):
    number: int
    work: str
    nodes: int
    procs: int
    culprit: int
    cause: str
    follow: list[tuple[str, int]]
    hook: bool

    @property
    def kind(self) -> str:
        return self.work if self.hook else "bare, no hook"


def case_of(number: int, seed: int) -> Case:
    """Every fourth is a gloo job; of the bare ones every fifth goes without Drumline's hook."""
    dice = random.Random(f"{seed}/{number}")
    work = "gloo" if number % 4 == 3 else "bare"
    nodes = dice.randint(1, 3)
    most = 6 if work == "gloo" else 16
    procs = dice.randint(2 if nodes == 1 else 1, max(most // nodes, 2))
    count = nodes * procs
    hook = work == "gloo" or dice.random() < 0.8
    # Without the hook nothing is known but when a process ended, and of an exception that is milliseconds later.
    cause = dice.choice([*EXCEPTIONS, *CODES] if hook else ["exit at once", "kill", "abort", "segfault"])
    follow = [(dice.choice(FOLLOWS), dice.randint(5, 50)) for _ in range(count)]
    return Case(number, work, nodes, procs, dice.randrange(count), cause, follow, hook)


def environment(case: Case, folder: Path) -> dict[str, str]:
    content = {"folder": str(folder), "culprit": case.culprit, "cause": case.cause, "work": case.work}
    content["dies"] = case.cause in CODES
    names = {
        name: value for name, value in os.environ.items() if not name.startswith(("DRUMLINE_", "PYTHON"))
    }
    return {
        **names,
        "CASCADE": json.dumps({**content, "follow": case.follow}),
        "OMP_NUM_THREADS": "1",
        "DRUMLINE_HOME": str(folder / "home"),
        "DRUMLINE_HOOK": "1" if case.hook else "0",
    }


class Answer(NamedTuple):
    rank: bool
    """The rank that began is named, where it is."""

    cause: bool
    alone: bool
    """No other rank is named as the one that began."""

    said: str


def ask_drumline(case: Case, folder: Path) -> Answer:
    run = [sys.executable, "-m", "drumline", "run", "--nodes", str(case.nodes), "--procs", str(case.procs)]
    variables = environment(case, folder)
    with open(folder / "out", "wb") as out:
        subprocess.run(
            [*run, "--", sys.executable, SCRIPT],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    (name,) = os.listdir(folder / "home" / "jobs")
    show = [sys.executable, "-m", "drumline", "job", "show", "-n", name, "-o", "json"]
    shown = json.loads(subprocess.run(show, env=variables, capture_output=True, check=True).stdout)
    verdict = shown["verdict"] or {}
    right = verdict.get("rank") == case.culprit
    return Answer(right, right and _is_cause(case, verdict), right, shown["reason"])


def _is_cause(case: Case, verdict: dict[str, Any]) -> bool:
    if case.cause in CODES:
        signal = verdict["signal"]
        return (-signal if signal else verdict["exit_code"]) == CODES[case.cause]
    if not case.hook:
        return bool(verdict["exit_code"] == 1)
    return str(verdict["error_type"]).rpartition(".")[2] == EXCEPTIONS[case.cause]


ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.*?rank\s*: (\d+) .*?exitcode\s*: (-?\d+)", re.DOTALL
)


def ask_torchrun(case: Case, folder: Path) -> Answer:
    """One launcher a node, as its manual has it; each reports for its own node."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    launchers = []
    for node in range(case.nodes):
        words = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nnodes",
            str(case.nodes),
            "--node-rank",
            str(node),
        ]
        words += [
            "--nproc-per-node",
            str(case.procs),
            "--master-addr",
            "127.0.0.1",
            "--master-port",
            str(port),
        ]
        with open(folder / f"out-{node}", "wb") as out:
            launchers.append(
                subprocess.Popen(
                    [*words, SCRIPT],
                    env=environment(case, folder),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
    deadline = time.monotonic() + TIMEOUT_S
    for launcher in launchers:
        try:
            launcher.wait(max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            launcher.terminate()
            launcher.wait(60)
    named = []
    for node in range(case.nodes):
        found = ROOT_CAUSE.search((folder / f"out-{node}").read_text(errors="replace"))
        named.append((int(found[1]), int(found[2])) if found else None)
    at_home = named[case.culprit // case.procs]
    right = at_home is not None and at_home[0] == case.culprit
    code = CODES.get(case.cause, 1)
    others = [one for one in named if one is not None and one[0] != case.culprit]
    cause = right and at_home is not None and at_home[1] == code
    return Answer(right, cause, right and not others, f"per node: {named}")


CONTENDERS = {"Drumline": ask_drumline, "torchrun": ask_torchrun}


def measure(cases: list[Case], contenders: dict[str, int]) -> dict[str, list[Answer]]:
    """``contenders``: how many of the cases each is given."""
    answers: dict[str, list[Answer]] = {name: [] for name in contenders}
    for index, case in enumerate(cases):
        for name in (name for name, most in contenders.items() if index < most):
            folder = Path(tempfile.mkdtemp(prefix="cascade-"))
            try:
                answer = CONTENDERS[name](case, folder)
            except (subprocess.SubprocessError, OSError, ValueError) as error:
                answer = Answer(False, False, False, f"{type(error).__name__}: {error}")
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            answers[name].append(answer)
            if not answer.cause or not answer.alone:
                where = f"{case.nodes} x {case.procs}, {case.kind}"
                print(
                    f"{case.number}: {name}: rank {case.culprit} {case.cause} ({where}): {answer.said}",
                    flush=True,
                )
    return answers


def table(cases: list[Case], answers: dict[str, list[Answer]]) -> str:
    kinds = ["gloo", "bare", "bare, no hook"]
    lines = [
        "| who | cases | tried | the true rank, where it ran | and its true cause | and no other rank blamed |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, given in answers.items():
        for kind in kinds:
            of_kind = [answer for case, answer in zip(cases, given, strict=False) if case.kind == kind]
            if of_kind:
                right = [sum(answer[field] for answer in of_kind) for field in (0, 1)]
                alone = sum(answer.cause and answer.alone for answer in of_kind)
                lines.append(f"| {name} | {kind} | {len(of_kind)} | {right[0]} | {right[1]} | {alone} |")
    return "\n".join(lines) + "\n"


def write_table(name: str, text: str) -> None:
    page = ROOT / "docs" / "howto" / "reliability.md"
    before, _, rest = page.read_text().partition(f"<!-- begin: {name} -->\n")
    after = rest.partition(f"<!-- end: {name} -->")[2]
    page.write_text(f"{before}<!-- begin: {name} -->\n{text}<!-- end: {name} -->{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--peers", type=int, default=200, help="how many of them torchrun is given too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cases")
    parser.add_argument("--contenders", nargs="*", default=list(CONTENDERS), choices=CONTENDERS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/howto/reliability.md")
    arguments = parser.parse_args()
    cases = [case_of(number, arguments.seed) for number in arguments.only or range(arguments.cases)]
    most = {"Drumline": len(cases), "torchrun": arguments.peers}
    answers = measure(cases, {name: most[name] for name in arguments.contenders})
    text = table(cases, answers)
    print(text)
    if arguments.write:
        write_table("cascades", text)
    ours = answers.get("Drumline", [])
    return 0 if all(answer.cause for answer in ours) else 1


if __name__ == "__main__":
    sys.exit(main())
