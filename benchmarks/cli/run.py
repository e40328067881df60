"""
CPU and wall seconds of the commands that a person types, beside bare Python: `drumline --help`, `job create`, `plan` of
a job of 10,000 ranks and `job list` in a home with 10,000 jobs.

Only the command's own process counts, not the job that it submits. See README.md beside it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import environment
from machine import describe_machine, publish
from processes import kill_marked, marked_pids

JOB = """\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
type: command
command: "true"
compute: azureml:local
"""
WIDE_JOB = (
    JOB
    + """\
resources: {instance_count: 1250}
distribution: {type: pytorch, process_count_per_instance: 8}
"""
)
JOBS = 10_000
HOMES = Path(__file__).resolve().parents[1] / "studio"
MAKE_HOME = "import sys, homes; homes.make_many(int(sys.argv[1]))"
FLOOR, HELP, CREATE = "python -c pass", "drumline --help", "drumline job create -f job.yml"
PLAN, LIST = "drumline plan -f wide.yml -o json", "drumline job list"
AIMS = {HELP: "4 x floor", CREATE: "10 x floor", PLAN: "1,000 ms", LIST: "200 ms"}
JOB_END_S = 60.0


class Sample(NamedTuple):
    cpu_s: float
    wall_s: float
    output_bytes: int
    """That it has printed."""


def run_once(argv: list[str], folder: Path, variables: dict[str, str]) -> Sample:
    """
    What one process took, with the children it waited for. Raises RuntimeError if it fails.

    A supervisor or a job that it leaves behind is no such child, and so is not counted.
    """
    with (folder / "output").open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        last = environment.last_line((folder / "output").read_text(errors="replace"))
        raise RuntimeError(f"{' '.join(argv)}: exit code {process.returncode}: {last}")
    return Sample(usage.ru_utime + usage.ru_stime, wall_s, (folder / "output").stat().st_size)


def make_home(python: str, count: int, variables: dict[str, str]) -> None:
    """Make a home with so many jobs, without running any."""
    argv = [python, "-c", MAKE_HOME, str(count)]
    subprocess.run(argv, cwd=HOMES, env=variables, stdin=subprocess.DEVNULL, check=True)


def wait_for_jobs(mark: str) -> None:
    """
    Wait until no process of a submitted job is left, so that it does not disturb the next sample.
    """
    deadline = time.monotonic() + JOB_END_S
    while marked_pids(mark):
        if time.monotonic() >= deadline:
            raise RuntimeError(f"a job is not over after {JOB_END_S:g} s")
        time.sleep(0.01)


def measure(python: str, commands: dict[str, list[str]], rounds: int, jobs: int) -> dict[str, list[Sample]]:
    """
    Samples of each command, one of each in every round, after one round that does not count.

    ``jobs``: in the home of ``LIST``, which has one for itself, so that the others are measured in a small one.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        folder = Path(scratch).resolve()
        (folder / "job.yml").write_text(JOB)
        (folder / "wide.yml").write_text(WIDE_JOB)
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("DRUMLINE_", "PYTHON"))
        }
        homes = {name: {**variables, "DRUMLINE_HOME": str(folder / "home")} for name in commands}
        try:
            if LIST in commands:
                homes[LIST]["DRUMLINE_HOME"] = str(folder / "many")
                make_home(python, jobs, homes[LIST])
            for round_index in range(rounds + 1):
                for name, argv in commands.items():
                    sample = run_once(argv, folder, homes[name])
                    wait_for_jobs(str(folder))
                    if round_index:
                        samples[name].append(sample)
        finally:
            kill_marked(str(folder))
    return samples


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [
        "",
        "| command | CPU ms, median | min | x floor | wall ms, median | aim | samples |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    floor_s = statistics.median(sample.cpu_s for sample in results["samples"][FLOOR])
    for name, samples in results["samples"].items():
        cpu = [sample.cpu_s for sample in samples]
        wall_s = statistics.median(sample.wall_s for sample in samples)
        median_s = statistics.median(cpu)
        cells = (
            f"{median_s * 1e3:.1f}",
            f"{min(cpu) * 1e3:.1f}",
            f"{median_s / floor_s:.1f}",
            f"{wall_s * 1e3:.1f}",
            AIMS.get(name, "-"),
        )
        lines.append(f"| `{name}` | {' | '.join(cells)} | {len(samples)} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="samples of each command (15)")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"in the home of job list ({JOBS:,})")
    parser.add_argument("--venv", type=Path, default=environment.DEFAULT_VENV, help="made if it is not there")
    parser.add_argument("--no-install", action="store_true", help="take the environment as it is")
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    arguments = parser.parse_args()
    arguments.venv = arguments.venv.absolute()
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not arguments.no_install and (problems := environment.prepare(arguments.venv, [])):
        sys.exit("not installed: " + "; ".join(problems))
    python = str(arguments.venv / "bin" / "python")
    commands = {FLOOR: [python, "-c", "pass"]}
    if environment.installed_version(arguments.venv, "drumline") is None:
        environment.say("skipped: drumline is not installed")
    else:
        drumline = str(arguments.venv / "bin" / "drumline")
        for name in AIMS:
            commands[name] = [drumline, *name.split()[1:]]
    try:
        machine = describe_machine()
        samples = measure(python, commands, arguments.rounds, arguments.jobs)
    except RuntimeError as error:
        sys.exit(str(error))
    if PLAN in samples:
        machine["jobs in the list"] = f"{arguments.jobs:,}"
        machine["plan of 10,000 ranks"] = f"{samples[PLAN][0].output_bytes / 1e6:.1f} MB"
    results: dict[str, Any] = {"machine": machine, "rounds": arguments.rounds, "samples": samples}
    text = render(results)
    results["samples"] = {name: [sample._asdict() for sample in found] for name, found in samples.items()}
    publish(text, results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
