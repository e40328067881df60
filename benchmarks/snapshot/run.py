"""
What taking a snapshot of a code folder costs, beside `cp -r`, `rsync --link-dest` and `git add`:
the first time, again, and after one file has changed. See README.md beside it.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import describe_machine, publish

TAKE = "import sys; from drumline.staging.snapshot.take import take_snapshot; take_snapshot(*sys.argv[1:3])"
FLOOR = "cp -r"
STEPS = ("first", "again, nothing changed", "again, one file changed")
SETTLED_S = 2.5
FILES_A_FOLDER = 50

Commands = Callable[[Path, Path, int], list[list[str]]]
"""Of the code, a folder of the contender's own, and which step it is: what is to be run, in order."""


class Contender(NamedTuple):
    name: str
    commands: Commands


def drumline(python: str) -> Commands:
    return lambda code, kept, step: [[python, "-c", TAKE, str(code), str(kept)]]


def cp(code: Path, kept: Path, step: int) -> list[list[str]]:
    return [["cp", "-r", str(code), str(kept / str(step))]]


def rsync(code: Path, kept: Path, step: int) -> list[list[str]]:
    """What has not changed since the step before is a hard link to that one's."""
    before = [f"--link-dest={kept / str(step - 1)}"] if step else []
    return [["rsync", "-a", *before, f"{code}/", f"{kept / str(step)}/"]]


def git(code: Path, kept: Path, step: int) -> list[list[str]]:
    """Its objects are compressed; there is no folder to look into afterwards."""
    command = ["git", f"--git-dir={kept / 'git'}", f"--work-tree={code}"]
    start = [] if step else [["git", "init", "-q", "--bare", str(kept / "git")]]
    return [*start, [*command, "add", "-A", "."], [*command, "write-tree"]]


def contenders(python: str) -> list[Contender]:
    found = [Contender(FLOOR, cp), Contender("Drumline", drumline(python))]
    found += [Contender("rsync -a --link-dest", rsync)] if shutil.which("rsync") else []
    found += [Contender("git add, write-tree", git)] if shutil.which("git") else []
    return found


def make_code(folder: Path, count: int) -> None:
    """Files of 0 to 9 KB, 50 a folder."""
    for number in range(count):
        parent = folder / f"d{number // FILES_A_FOLDER // 20}" / f"e{number // FILES_A_FOLDER % 20}"
        if number % FILES_A_FOLDER == 0:
            parent.mkdir(parents=True)
        (parent / f"{number}.py").write_text(f"# line of {number}\n" * (number % 500))


def run_timed(commands: list[list[str]], folder: Path) -> dict[str, float]:
    """Wall and CPU seconds of all of them together. Raises RuntimeError if one fails."""
    os.sync()
    cpu_s = 0.0
    began = time.perf_counter()
    for argv in commands:
        with (folder / "output").open("wb") as output:
            process = subprocess.Popen(argv, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{argv[0]}: {(folder / 'output').read_text(errors='replace')}")
        cpu_s += usage.ru_utime + usage.ru_stime
    return {"wall_s": time.perf_counter() - began, "cpu_s": cpu_s}


def measure_round(folder: Path, code: Path, chosen: list[Contender]) -> dict[str, list[dict[str, float]]]:
    """A sample of each step of each contender, taking turns within a step."""
    samples: dict[str, list[dict[str, float]]] = {contender.name: [] for contender in chosen}
    kept = {contender.name: folder / str(index) for index, contender in enumerate(chosen)}
    for path in kept.values():
        path.mkdir(parents=True)
    for step in range(len(STEPS)):
        if step == len(STEPS) - 1:
            with (code / "d0" / "e0" / "1.py").open("a") as file:
                file.write("# changed\n")
        time.sleep(SETTLED_S)
        for contender in chosen:
            commands = contender.commands(code, kept[contender.name], step)
            samples[contender.name].append(run_timed(commands, folder))
    return samples


def measure(counts: list[int], rounds: int, chosen: list[Contender]) -> dict[str, Any]:
    """Samples by number of files, step and contender; nothing is removed before the end, which would slow others."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        for count in counts:
            code = Path(scratch) / f"code-{count}"
            make_code(code, count)
            by_step: dict[str, dict[str, list[dict[str, float]]]] = {
                step: {contender.name: [] for contender in chosen} for step in STEPS
            }
            for index in range(rounds):
                turn = index % len(chosen)
                order = chosen[turn:] + chosen[:turn]
                samples = measure_round(Path(scratch) / f"{count}-{index}", code, order)
                for name, taken in samples.items():
                    for step, sample in zip(STEPS, taken, strict=True):
                        by_step[step][name].append(sample)
            results[str(count)] = by_step
    return results


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [
        "",
        f"| files | what | contender | wall s, median | min | max | CPU s, median | x `{FLOOR}`, wall | samples |",
        "| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for count, by_step in results["samples"].items():
        for step, by_name in by_step.items():
            floors = [sample["wall_s"] for sample in by_name[FLOOR]]
            for name, samples in by_name.items():
                walls = [sample["wall_s"] for sample in samples]
                ratio = statistics.median(wall / floor for wall, floor in zip(walls, floors, strict=True))
                cells = (
                    *(f"{value:.3f}" for value in (statistics.median(walls), min(walls), max(walls))),
                    f"{statistics.median(sample['cpu_s'] for sample in samples):.3f}",
                    f"{ratio:.2f}",
                    str(len(samples)),
                )
                lines.append(f"| {int(count):,} | {step} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="samples of each (5)")
    parser.add_argument("--files", type=int, nargs="+", default=[2000, 20_000], help="files of the code")
    parser.add_argument(
        "--python", default=sys.executable, help="an interpreter that has drumline; default: this one"
    )
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    machine = describe_machine()
    try:
        samples = measure(arguments.files, arguments.rounds, contenders(arguments.python))
    except RuntimeError as error:
        sys.exit(str(error))
    results = {"machine": machine, "rounds": arguments.rounds, "samples": samples}
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
