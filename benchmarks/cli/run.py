"""
CPU seconds of the commands that a person types: `drumline --help` and `drumline job create`,
beside bare Python.

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
from typing import Any

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
FLOOR = "python -c pass"
JOB_END_S = 60.0


def cpu_s(argv: list[str], folder: Path, variables: dict[str, str]) -> tuple[float, float]:
    """
    CPU and wall seconds of one process and of the children it waited for. Raises RuntimeError if
    it fails.

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
    return usage.ru_utime + usage.ru_stime, wall_s


def wait_for_jobs(mark: str) -> None:
    """
    Wait until no process of a submitted job is left, so that it does not disturb the next sample.
    """
    deadline = time.monotonic() + JOB_END_S
    while marked_pids(mark):
        if time.monotonic() >= deadline:
            raise RuntimeError(f"a job is not over after {JOB_END_S:g} s")
        time.sleep(0.01)


def measure(commands: dict[str, list[str]], rounds: int) -> dict[str, list[dict[str, float]]]:
    """Samples of each command, one of each in every round, after one round that does not count."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        folder = Path(scratch).resolve()
        (folder / "job.yml").write_text(JOB)
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("DRUMLINE_", "PYTHON"))
        }
        variables["DRUMLINE_HOME"] = str(folder / "home")
        try:
            for round_index in range(rounds + 1):
                for name, argv in commands.items():
                    cpu, wall = cpu_s(argv, folder, variables)
                    wait_for_jobs(str(folder))
                    if round_index:
                        samples[name].append({"cpu_s": cpu, "wall_s": wall})
        finally:
            kill_marked(str(folder))
    return samples


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [
        "",
        "| command | CPU ms, median | min | x floor | wall ms, median | samples |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    floor_s = statistics.median(sample["cpu_s"] for sample in results["samples"][FLOOR])
    for name, samples in results["samples"].items():
        cpu = [sample["cpu_s"] for sample in samples]
        wall_s = statistics.median(sample["wall_s"] for sample in samples)
        median_s = statistics.median(cpu)
        cells = (
            f"{median_s * 1e3:.1f}",
            f"{min(cpu) * 1e3:.1f}",
            f"{median_s / floor_s:.1f}",
            f"{wall_s * 1e3:.1f}",
        )
        lines.append(f"| `{name}` | {' | '.join(cells)} | {len(samples)} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="samples of each command (15)")
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
        commands["drumline --help"] = [drumline, "--help"]
        commands["drumline job create -f job.yml"] = [drumline, "job", "create", "-f", "job.yml"]
    try:
        samples = measure(commands, arguments.rounds)
    except RuntimeError as error:
        sys.exit(str(error))
    results = {"machine": describe_machine(), "rounds": arguments.rounds, "samples": samples}
    text = render(results)
    publish(text, results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
