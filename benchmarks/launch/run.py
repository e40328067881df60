"""
What a launcher adds to the processes that it starts, and how fast it ends them: Drumline and its
peers.

Run it with any Python 3.11 or newer; it makes an environment of its own. See README.md beside it.
"""

import argparse
import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import contenders
import environment
import tables
from cases import CASES, Case
from contenders import Contender, Trial
from environment import say
from joining import Joined, measure_join, measure_restart
from machine import describe_machine, publish
from measure import MeasurementError, Start, Stop, Subject, measure_start, measure_stop
from processes import become_subreaper

HERE = Path(__file__).resolve().parent
PACKAGES = [["torch==2.13.0"], ["accelerate"], ["torchx"]]  # torch first: it is to be this one
FAILURES_BEFORE_DROPPED = 2  # in a row, in one case
# Variables of a launcher around us, which the contenders would take for their own.
LAUNCHER_PREFIXES = (
    *("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "OMPI_", "PMI", "SLURM_"),
    *("AZUREML_", "TORCHELASTIC_", "DRUMLINE_", "ACCELERATE_", "PYTHON"),
)


class Bench:
    """
    All measurements of one run, in a temporary folder that also stands in for home and the like.
    """

    def __init__(self, arguments: argparse.Namespace, scratch: Path) -> None:
        self._arguments = arguments
        self._scratch = scratch
        self._variables = child_variables(arguments.venv, scratch)
        self._trial_count = 0
        self._failure_counts: dict[tuple[str, str], int] = {}
        self.failures: list[str] = []

    def sample(self, case: Case, contender: Contender) -> dict[str, Any] | None:
        """One measurement, or None for one that failed or whose contender has been dropped."""
        if self._failure_counts.get((case.key, contender.name), 0) >= FAILURES_BEFORE_DROPPED:
            return None
        folder = self._scratch / f"trial-{self._trial_count}-of"
        self._trial_count += 1
        folder.mkdir()
        trial = Trial(
            self._arguments.venv,
            HERE / case.script,
            folder / "ranks",
            case.node_count,
            case.proc_count,
        )
        try:
            result = self._measure(case, contender, trial)
        except (MeasurementError, OSError) as error:
            self._note_failure(case, contender, str(error))
            return None
        finally:
            for used in (folder, trial.own_home):
                shutil.rmtree(used, ignore_errors=True)
        self._failure_counts[case.key, contender.name] = 0
        return dataclasses.asdict(result)

    def _measure(self, case: Case, contender: Contender, trial: Trial) -> Start | Stop | Joined:
        subject = Subject(
            contender.commands(trial),
            trial.argument.parent,
            self._variables,
            trial.rank_count,
            contender.before(trial),
            contender.closing(trial) if contender.closing else None,
        )
        if case.kind == "stop":
            return measure_stop(subject, self._arguments.stop_timeout)
        if case.kind == "join":
            return measure_join(subject, self._arguments.torch_timeout)
        if case.kind == "restart":
            return measure_restart(subject, self._arguments.torch_timeout)
        return measure_start(subject, self._arguments.timeout)

    def _note_failure(self, case: Case, contender: Contender, message: str) -> None:
        key = (case.key, contender.name)
        self._failure_counts[key] = self._failure_counts.get(key, 0) + 1
        dropped = self._failure_counts[key] >= FAILURES_BEFORE_DROPPED
        failure = f"{contender.name}, {case.key}: {message}" + (" (dropped)" if dropped else "")
        self.failures.append(failure)
        say(f"failed: {failure}")


def child_variables(venv: Path, scratch: Path) -> dict[str, str]:
    """The environment of every contender: nobody's settings, one thread for each rank, loopback."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHER_PREFIXES)}
    for name in ("home", "tmp"):
        (scratch / name).mkdir()
    return {
        **kept,
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(scratch / "home"),
        "HF_HOME": str(scratch / "home" / "huggingface"),
        "TMPDIR": str(scratch / "tmp"),
        "DRUMLINE_HOME": str(scratch / "drumline"),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def rotated(items: Sequence[Contender], by: int) -> list[Contender]:
    """The same contenders from another one on, so that none always follows the same neighbour."""
    by %= max(len(items), 1)
    return [*items[by:], *items[:by]]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender in each case (5)")
    parser.add_argument("--venv", type=Path, default=environment.DEFAULT_VENV, help="made if it is not there")
    parser.add_argument("--no-install", action="store_true", help="take the environment as it is")
    parser.add_argument("--cases", help="comma list of " + " ".join(case.key for case in CASES))
    parser.add_argument(
        "--contenders",
        help="comma list of beginnings of names, such as drum,mpirun; the floor is always in",
    )
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for one start (60)")
    parser.add_argument(
        "--torch-timeout", type=float, default=180.0, help="seconds for one start or restart with torch (180)"
    )
    parser.add_argument("--stop-timeout", type=float, default=30.0, help="seconds for one stop (30)")
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--markdown", type=Path, help="write the tables here, beside standard output")
    arguments = parser.parse_args()
    arguments.venv = arguments.venv.absolute()
    known = [case.key for case in CASES]
    arguments.cases = arguments.cases.split(",") if arguments.cases else known
    if unknown := set(arguments.cases) - set(known):
        parser.error(f"--cases: {sorted(unknown)} not in {known}")
    if arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    return arguments


def chosen(contenders_: Sequence[Contender], names: str | None) -> list[Contender]:
    if not names:
        return list(contenders_)
    prefixes = tuple(name.strip().lower() for name in names.split(","))
    return [
        each for each in contenders_ if each is contenders.FLOOR or each.name.lower().startswith(prefixes)
    ]


def install(arguments: argparse.Namespace) -> dict[str, str]:
    """Install what can be; return what cannot, with the reason."""
    problems = environment.prepare(arguments.venv, PACKAGES)
    problems.append(environment.install_debian_package("openmpi-bin", "mpirun"))
    absent = {}
    for problem in filter(None, problems):
        say(f"not installed: {problem}")
        name, _, reason = problem.partition(": ")
        absent[name] = reason
    return absent


def split_by_presence(
    candidates: Sequence[Contender], venv: Path, versions: dict[str, str], absent: dict[str, str]
) -> list[Contender]:
    """
    The contenders that are here; their versions and the names of the others go into the
    dictionaries.
    """
    present = []
    for contender in candidates:
        version = contender.version(venv)
        if version is not None:
            versions[contender.product] = version
            present.append(contender)
        elif contender.name not in absent:
            say(f"skipped: {contender.name} is not installed")
            absent[contender.name] = "not installed"
    return present


def run_rounds(
    bench: Bench, plan: Sequence[tuple[Case, Sequence[Contender]]], results: dict[str, Any]
) -> None:
    """
    Every contender once in every case, over and over, so that a change of the machine hits all
    alike.
    """
    for round_index in range(results["rounds"]):
        for case, present in plan:
            series = results[case.kind][case.title]
            for contender in rotated(present, round_index):
                sample = bench.sample(case, contender)
                if sample is not None:
                    series[contender.name].append(sample)
        results["load_averages"].append(os.getloadavg()[0])
        say(f"round {round_index + 1} of {results['rounds']} done, load {os.getloadavg()[0]:.2f}")


def main() -> int:
    arguments = parse_arguments()
    absent = {} if arguments.no_install else install(arguments)
    versions: dict[str, str] = {}
    plan = [
        (
            case,
            split_by_presence(
                chosen(case.contenders, arguments.contenders), arguments.venv, versions, absent
            ),
        )
        for case in CASES
        if case.key in arguments.cases
    ]
    results: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": versions,
        "rounds": arguments.rounds,
        "stop_timeout_s": arguments.stop_timeout,
        "absent": absent,
        "keepers": sorted({each.name for _, present in plan for each in present if each.keeps}),
        "start": {},
        "stop": {},
        "join": {},
        "restart": {},
        "load_averages": [],
    }
    for case, present in plan:
        results[case.kind][case.title] = {each.name: [] for each in present}

    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        bench = Bench(arguments, Path(scratch).resolve())
        say("warming up: one unmeasured start each")
        for contender in {each.product: each for _, present in plan for each in present}.values():
            bench.sample(CASES[0], contender)
        run_rounds(bench, plan, results)
        results["failures"] = bench.failures

    text = tables.render(results, contenders.FLOOR.name)
    publish(text, results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
