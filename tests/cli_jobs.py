"""Job files, background commands and short questions to a job, for the acceptance tests of the command line."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from waiting import wait_until

from drumline.contract.errors import NotFoundError
from drumline.control.facts import description

CORES = len(os.sched_getaffinity(0))
LOG = """
import os, sys
from urllib.parse import unquote
root = unquote(os.environ["MLFLOW_TRACKING_URI"].removeprefix("file://"))
run = next(f"{root}/{one}/{os.environ['MLFLOW_RUN_ID']}" for one in os.listdir(root)
           if os.path.isdir(f"{root}/{one}/{os.environ['MLFLOW_RUN_ID']}"))

def log(name, *values):
    '''As MLflow's file store has it.'''
    os.makedirs(os.path.dirname(f"{run}/metrics/{name}"), exist_ok=True)
    with open(f"{run}/metrics/{name}", "a") as file:
        for step, value in enumerate(values):
            file.write(f"17 {value} {step}\\n")
"""
"""The beginning of a script that logs metrics with ``log(name, *values)``, without MLflow's package."""
WAIT_FOR_SIGNAL = "import signal; print('ready', flush=True); signal.pause()"
IGNORE_TERM = (
    "import signal\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', flush=True)\n"
    "while True: signal.pause()"
)


def write_job(folder: Path, command: str, **fields: Any) -> Path:
    """A job file; JSON is YAML."""
    path = folder / "job.yml"
    path.write_text(json.dumps({"command": command, **fields}, ensure_ascii=False))
    return path


def write_script(folder: Path, text: str, command: str = "python train.py", **fields: Any) -> Path:
    """The file of a job "job", on two nodes of two unless told otherwise, whose code is train.py with that text."""
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(textwrap.dedent(text))
    return write_job(folder, command, name="job", code="src", **{**two_by_two(), **fields})


def two_by_two(**fields: Any) -> dict[str, Any]:
    distribution = {"type": "pytorch", "process_count_per_instance": 2}
    return {"distribution": distribution, "resources": {"instance_count": 2}, **fields}


def one_rank(**fields: Any) -> dict[str, Any]:
    return {"distribution": {"type": "pytorch", "process_count_per_instance": 1}, **fields}


def logs_of(run_folder: Path) -> list[str]:
    """By rank, of its latest attempt; empty for one that has none yet."""
    plan = json.loads((run_folder / "plan.json").read_text())
    ranks = [rank for node in plan["nodes"] for rank in node["ranks"]]
    paths = [run_folder / rank["log"] for rank in sorted(ranks, key=lambda rank: rank["rank"])]
    return [path.read_text() if path.exists() else "" for path in paths]


def job_names(home: Path) -> list[str]:
    return sorted(os.listdir(home / "jobs")) if (home / "jobs").exists() else []


def status_of(name: str) -> str:
    """Empty when there is no such job."""
    try:
        return str(description.show_job(name)["status"])
    except NotFoundError:
        return ""


def wait_for_status(name: str, *wanted: str) -> dict[str, Any]:
    wait_until(lambda: status_of(name) in wanted, 20.0, f"job {name} to be {' or '.join(wanted)}")
    return description.show_job(name)


class Background:
    """A drumline command that runs while the test goes on."""

    def __init__(self, process: subprocess.Popen[bytes], out: IO[bytes], err: IO[bytes]) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def out(self) -> str:
        return self._read(self._out)

    @property
    def err(self) -> str:
        return self._read(self._err)

    def _read(self, file: IO[bytes]) -> str:
        return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_for_output(self, text: str, count: int = 1) -> None:
        wait_until(lambda: self.out.count(text) >= count, 20.0, f"{text!r} in the output")

    def wait_for_error(self, text: str) -> None:
        wait_until(lambda: text in self.err, 20.0, f"{text!r} on standard error")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        return self.process.wait(timeout=40.0)


@contextlib.contextmanager
def background(*arguments: str | Path, cwd: Path, new_session: bool = False) -> Iterator[Background]:
    """``drumline`` with those arguments; ended at the end of the block when it has not ended by itself."""
    argv = [sys.executable, "-m", "drumline", *map(str, arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        # A shell that starts the tests with "&" has SIGINT ignored, by them and by all below.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=new_session
        )
        signal.signal(signal.SIGINT, before)
        try:
            yield Background(process, out, err)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def python(*lines: str) -> Sequence[str]:
    """The words of a Python program."""
    return ("python", "-c", "\n".join(lines))


def on_terminal(*arguments: str, cwd: Path, columns: int = 80, **env: str) -> tuple[int, str]:
    """The exit code of ``drumline`` on a terminal of that width, and what it wrote there, colours included."""
    controller, terminal = pty.openpty()
    with os.fdopen(controller, "rb") as said:
        size = {"COLUMNS": str(columns), "LINES": "30"}
        process = subprocess.Popen(
            [sys.executable, "-m", "drumline", *arguments],
            cwd=cwd,
            env={**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8", **size, **env},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
        )
        os.close(terminal)
        text = b""
        with contextlib.suppress(OSError):  # a terminal that nobody has open any more
            while part := said.read1(65536):
                text += part
    return process.wait(), text.decode().replace("\r\n", "\n")
