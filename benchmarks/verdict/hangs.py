"""
Which silent jobs are ended for a hang: jobs that work, of which none may be, and jobs that hang, of which all must be.

    python benchmarks/verdict/hangs.py [--only NAME ...] [--at-once 3] [--action end|report] [--write]

The interpreter that runs it needs torch and Drumline, and mpi4py with an mpirun for MPI's cases. ``--write`` puts the
table into docs/howto/reliability.md.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import hanging
import working

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HANG_AFTER_S = 8
SECONDS = 22.0
"""For which jobs that work do so: more than two and a half silences."""

TIMEOUT_S = 150.0


class Answer(NamedTuple):
    right: bool
    reported: bool
    """As a hang, whether or not the job was ended."""

    ended: bool
    """For a hang."""

    said: str


def cases() -> dict[str, str]:
    """By name, the script."""
    has_mpi = importlib.util.find_spec("mpi4py") is not None and shutil.which("mpirun") is not None
    found = {}
    for script, module in (("working.py", working), ("hanging.py", hanging)):
        names = [name for name in module.CASES if has_mpi or name not in module.MPI_CASES]
        found.update({f"{script[:-3]}/{name}": script for name in names})
    return found


def ask(case: str, script: str, action: str) -> Answer:
    folder = Path(tempfile.mkdtemp(prefix="hangs-"))
    try:
        return _ask(case.partition("/")[2], script, action, folder)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        return Answer(False, False, False, f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ask(name: str, script: str, action: str, folder: Path) -> Answer:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DRUMLINE_", "PYTHON"))}
    variables = {
        **kept,
        "DRUMLINE_HOME": str(folder / "home"),
        "OMP_NUM_THREADS": "1",
        "SECONDS": str(SECONDS),
        "TMPDIR": str(folder),
    }
    drumline = [sys.executable, "-m", "drumline"]
    options = ["--hang-after", str(HANG_AFTER_S), "--hang-action", action, "--grace", "1", "--timeout", "100"]
    mpi = ["--distribution", "mpi"] if name.startswith("mpi_") else []
    command = [
        *drumline,
        "run",
        "--procs",
        "2",
        *options,
        *mpi,
        "--",
        sys.executable,
        str(HERE / script),
        name,
    ]
    with open(folder / "out", "wb") as out:
        subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=TIMEOUT_S,
            check=False,
        )
    (job,) = os.listdir(folder / "home" / "jobs")
    show = [*drumline, "job", "show", "-n", job, "-o", "json"]
    shown = json.loads(subprocess.run(show, env=variables, capture_output=True, check=True).stdout)
    out_text = (folder / "out").read_text(errors="replace")
    reported = re.search(rf"job {job} hangs: .*", out_text)
    said = str(shown["reason"])
    # A rank that outlives its exception is lost, and named as the cause.
    ended = said.startswith("it hung: ") or (script == "hanging.py" and " failed first, " in said)
    if script == "working.py":
        right = shown["status"] == "Completed" and not (reported and name in working.COUNTED)
        return Answer(right, bool(reported), ended, reported[0] if reported else said)
    text = said if ended else reported[0] if reported else said
    hung = ended or (action == "report" and reported is not None)
    return Answer(hung and _is_named(name, text), ended or reported is not None, ended, text)


def _is_named(name: str, said: str) -> bool:
    named = hanging.NAMED.get(name, r"rank 1 is (in|asleep) .*(hanging\.py)")
    return re.search(named, said) is not None


def table(answers: dict[str, Answer]) -> str:
    good = [answer for case, answer in answers.items() if case.startswith("working/")]
    bad = [answer for case, answer in answers.items() if case.startswith("hanging/")]
    lines = [
        "| silent jobs | tried | reported as a hang | ended for it | right |",
        "| --- | --- | --- | --- | --- |",
    ]
    for what, of_kind in (("that work", good), ("that hang", bad)):
        reported, ended = sum(one.reported for one in of_kind), sum(one.ended for one in of_kind)
        right = sum(one.right for one in of_kind)
        lines.append(f"| {what} | {len(of_kind)} | {reported} | {ended} | {right} |")
    return "\n".join(lines) + "\n"


def write(text: str) -> None:
    page = ROOT / "docs" / "howto" / "reliability.md"
    before, _, rest = page.read_text().partition("<!-- begin: hangs -->\n")
    after = rest.partition("<!-- end: hangs -->")[2]
    page.write_text(f"{before}<!-- begin: hangs -->\n{text}<!-- end: hangs -->{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], help="names, or parts of them")
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--action", default="end", choices=["end", "report"])
    parser.add_argument("--write", action="store_true", help="put the table into docs/howto/reliability.md")
    arguments = parser.parse_args()
    chosen: dict[str, Any] = {
        case: script
        for case, script in cases().items()
        if not arguments.only or any(part in case for part in arguments.only)
    }
    answers: dict[str, Answer] = {}
    with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
        began = time.monotonic()
        asked = {pool.submit(ask, case, script, arguments.action): case for case, script in chosen.items()}
        for future in concurrent.futures.as_completed(asked):
            case, answer = asked[future], future.result()
            answers[case] = answer
            mark = "ok   " if answer.right else "WRONG"
            note = " (reported)" if answer.reported and case.startswith("working/") else ""
            print(f"{mark} {time.monotonic() - began:5.0f} s {case}{note}: {answer.said}", flush=True)
    text = table(answers)
    print(text)
    if arguments.write:
        write(text)
    return 0 if all(answer.right for answer in answers.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
