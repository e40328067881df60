"""
What it takes to bring data to a job: by Drumline, for the first and for the second time, and by others.

    python benchmarks/data/run.py [--rounds 5] [--markdown data.md] [--json data.json]

See README.md beside it.
"""

import argparse
import contextlib
import filecmp
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import environment
from machine import describe_machine, publish

HERE = Path(__file__).resolve().parent
PACKAGES = [["obstore==0.12.*", "boto3", "s3fs"]]
FIRST, AGAIN = "Drumline, the first time", "Drumline, again"
NOT_OURS = ("AWS_", "DRUMLINE_", "PYTHON", "BOTO")


class Case(NamedTuple):
    key: str
    what: str
    files: int
    size: int
    """Of each file, in bytes."""

    service: str


CASES = [
    Case("small", "1,000 files of 10 kB from S3", 1000, 10_000, "s3"),
    Case("large", "4 files of 64 MB from S3", 4, 64 * 10**6, "s3"),
    Case("web", "one file of 256 MB from a web server", 1, 256 * 10**6, "http"),
]


def fill(root: Path, case: Case) -> None:
    """Of pieces that no two files have in the same order: random, and quick to make."""
    folder = root / case.key / "data"
    folder.mkdir(parents=True)
    source = random.Random(1)
    block = source.randbytes(min(case.size, 1 << 20))
    for number in range(case.files):
        with (folder / f"{number:05}").open("wb") as file:
            left = case.size
            while left:
                start = source.randrange(len(block))
                left -= file.write((block[start:] + block[:start])[:left])


@contextlib.contextmanager
def serving(python: str, root: Path) -> Iterator[int]:
    with subprocess.Popen(
        [python, str(HERE / "server.py"), str(root)], stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


class Bench:
    def __init__(self, python: str, scratch: Path, port: int) -> None:
        self._python = python
        self._scratch = scratch
        self._port = port
        self._trials = 0
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}
        self._variables = {
            **kept,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def round(self, case: Case, number: int) -> dict[str, dict[str, float]]:
        """Wall and CPU seconds of each contender; who goes first changes from round to round. Raises RuntimeError."""
        contenders = self._contenders(case)
        names = [name for name in contenders if name != AGAIN]
        names = names[number % len(names) :] + names[: number % len(names)]
        names.insert(names.index(FIRST) + 1, AGAIN)
        cache = self._scratch / "cache"
        samples = {}
        for name in names:
            target = self._scratch / f"trial-{self._trials}"
            self._trials += 1
            samples[name] = self._sample(contenders[name], target, cache)
            self._check(case, name, target)
            shutil.rmtree(target)
        subprocess.run(["chmod", "-R", "u+w", cache], check=True)
        shutil.rmtree(cache)
        return samples

    def _contenders(self, case: Case) -> dict[str, list[str]]:
        """Command lines; the target is the last argument of each."""
        url = f"http://127.0.0.1:{self._port}/{case.key}/data/00000"
        uri, kind = (url, "file") if case.service == "http" else (f"s3://{case.key}/data", "folder")
        ours = [self._python, str(HERE / "with_drumline.py"), uri, kind]
        found = {FIRST: ours, AGAIN: ours}
        if case.service == "http":
            return {"curl": ["curl", "-sSf", "--create-dirs", url, "-o"], **found}
        for name in ("boto3", "s3fs"):
            if environment.installed_version(Path(self._python).parents[1], name):
                found[name] = [self._python, str(HERE / f"with_{name}.py"), case.key, "data/"]
        return found

    def _sample(self, argv: list[str], target: Path, cache: Path) -> dict[str, float]:
        target.mkdir()
        last = target if argv[0] == self._python else target / "file"
        variables = {**self._variables, "DRUMLINE_CACHE": str(cache)}
        began = time.perf_counter()
        process = subprocess.Popen(
            [*argv, str(last)], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert process.stderr is not None
        said = process.stderr.read()
        process.stderr.close()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{argv}: exit code {process.returncode}: {environment.last_line(said)}")
        return {"wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime}

    def _check(self, case: Case, name: str, target: Path) -> None:
        """That all of it is there, and the last file as it was sent."""
        found = sorted(
            path
            for folder, _, names in os.walk(target, followlinks=True)
            for path in (os.path.join(folder, one) for one in names)
            if os.path.getsize(path) == case.size
        )
        sent = self._scratch / "served" / case.key / "data" / f"{case.files - 1:05}"
        if len(found) != case.files or not filecmp.cmp(found[-1], sent, shallow=False):
            raise RuntimeError(f"{name}, {case.key}: {len(found)} of {case.files} files, or another content")


def render(results: dict[str, Any]) -> str:
    lines = [f"- {name}: {value}" for name, value in results["machine"].items()]
    lines += [f"- versions: {results['versions']}", f"- rounds: {results['rounds']}", ""]
    lines += [
        "| what | by | median s | min | max | x Drumline's first | CPU s (median) | samples |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case in CASES:
        rounds = results["samples"].get(case.key, [])
        for name in sorted(rounds[0] if rounds else (), key=lambda name: not name.startswith("Drumline")):
            walls = [one[name]["wall_s"] for one in rounds]
            ratio = statistics.median(one[name]["wall_s"] / one[FIRST]["wall_s"] for one in rounds)
            cpu_s = statistics.median(one[name]["cpu_s"] for one in rounds)
            numbers = (statistics.median(walls), min(walls), max(walls), ratio, cpu_s)
            cells = " | ".join(f"{number:.2f}" for number in numbers)
            lines.append(f"| {case.what} | {name} | {cells} | {len(walls)} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender (5)")
    parser.add_argument("--cases", nargs="+", choices=[case.key for case in CASES], help="default: all")
    parser.add_argument("--venv", type=Path, default=environment.DEFAULT_VENV, help="made if it is not there")
    parser.add_argument("--no-install", action="store_true", help="take the environment as it is")
    parser.add_argument("--json", type=Path, help="write every sample here")
    parser.add_argument("--markdown", type=Path, help="write the table here, beside standard output")
    arguments = parser.parse_args()
    arguments.venv = arguments.venv.absolute()
    return arguments


def main() -> int:
    arguments = parse_arguments()
    if not arguments.no_install and (problems := environment.prepare(arguments.venv, PACKAGES)):
        sys.exit("not installed: " + "; ".join(problems))
    python = str(arguments.venv / "bin" / "python")
    cases = [case for case in CASES if not arguments.cases or case.key in arguments.cases]
    machine = describe_machine()
    samples: dict[str, list[Any]] = {case.key: [] for case in cases}
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        root = Path(scratch).resolve()
        for case in cases:
            fill(root / "served", case)
        with serving(python, root / "served") as port:
            bench = Bench(python, root, port)
            try:
                for number in range(arguments.rounds + 1):
                    for case in cases:
                        sample = bench.round(case, number)
                        # The first one only warms what the system keeps of files.
                        if number:
                            samples[case.key].append(sample)
            except RuntimeError as error:
                sys.exit(str(error))
    names = ("drumline", "obstore", "boto3", "s3fs")
    found = ((name, environment.installed_version(arguments.venv, name)) for name in names)
    versions = ", ".join(f"{name} {version}" for name, version in found if version)
    results = {"machine": machine, "versions": versions, "rounds": arguments.rounds, "samples": samples}
    publish(render(results), results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
