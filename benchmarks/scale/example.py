"""
The report of ``drumline scale`` in the README of examples/digits-ddp.

It needs PyTorch, the right to make namespaces, and a machine with nothing else to do.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machine import cpu_model
from marked import replaced
from processes import kill_marked, marked_pids

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits-ddp"
NAME = "digits"
CREATE = ("compute", "create", "-f", "lab.yml", "-o", "none")
SCALE = ("scale", "-f", "job.yml", "--nodes", "1,2", "--procs", "1", "--to", "8")


def run_drumline(*words: str) -> str:
    """What it prints. Raises RuntimeError if it could not do it; figures that are not trusted are no error."""
    command = [sys.executable, "-m", "drumline", *words]
    done = subprocess.run(command, cwd=EXAMPLE, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(f"drumline {words[0]} ended with {done.returncode}")
    return done.stdout


def measure(folder: Path) -> str:
    """The text of the report."""
    run_drumline(*CREATE)
    return run_drumline(*SCALE, "--set", "compute=azureml:slow", "--folder", str(folder), "-o", "table")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into the example")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="drumline-bench-") as scratch:
        folder = Path(scratch).resolve()
        os.environ["DRUMLINE_HOME"] = str(folder / "home")
        try:
            told = measure(folder)
        except RuntimeError as error:
            sys.exit(str(error))
        finally:
            kill_marked(str(folder))
            assert not marked_pids(str(folder))
        print(told)
        if arguments.write:
            text = f"On {len(os.sched_getaffinity(0))} cores ({cpu_model()}):\n\n```text\n{told.strip()}\n```"
            page = EXAMPLE / "README.md"
            page.write_text(replaced(page.read_text(), NAME, text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
