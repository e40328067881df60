"""
What a machine can do to a job, and what must come of it. Each fault is a function of a folder that raises when that
does not hold, or ``CannotTryError`` where it needs something that this machine has not.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chaos import FINAL
from waiting import wait_until

from drumline import command
from drumline.cli.jobs.standby import Standby
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import home
from drumline.control.facts import description
from drumline.control.jobs import job_folders
from drumline.control.jobs.ending import cancel
from drumline.control.submission.submit import submit

CORES = len(os.sched_getaffinity(0))
_SMALL_MB = 3
_LINES = 1_000_000
_CLOCK = Path(__file__).parent / "jobs" / "clock_jumps.py"


class CannotTryError(Exception):
    """Says what is missing."""


def run(
    *words: str | Path, program: tuple[str, ...] = ("-m", "drumline")
) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, *program, "run", *map(str, words)]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=200)


def ended(name: str) -> dict[str, Any]:
    """What is shown of a job, once it has ended."""
    wait_until(lambda: description.show_job(name)["status"] in FINAL, 60, f"the end of {name}")
    return description.show_job(name)


@contextlib.contextmanager
def small_disk(folder: Path, option: str = f"size={_SMALL_MB}m") -> Iterator[Path]:
    """Of 3 MB, and the home of all jobs meanwhile."""
    place = folder / "small"
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise CannotTryError("mounting a small disk needs root")
    before = os.environ["DRUMLINE_HOME"]
    os.environ["DRUMLINE_HOME"] = str(place)
    # `drumline run` stores the folder where it is called, when there is time: a checkout would fill the disk.
    code = folder / "code"
    code.mkdir(exist_ok=True)
    try:
        with contextlib.chdir(code):
            yield place
    finally:
        os.environ["DRUMLINE_HOME"] = before
        subprocess.run(["umount", "-l", str(place)], check=True)


def outputs_fill_the_disk(folder: Path) -> None:
    """The job ends as its ranks do; that finds room."""
    with small_disk(folder):
        fill = 'head -c 9M /dev/zero > "$DRUMLINE_RUN_FOLDER/outputs/big"; exit 3'
        assert run("--name", "filler", "--", "bash", "-c", fill).returncode == 3
        assert description.show_job("filler")["exit_code"] == 3


def a_full_disk_ends_no_healthy_job(folder: Path) -> None:
    """Agents can write no samples, and the supervisor no events, while the disk is full, and go on."""
    with small_disk(folder) as place:
        # Before the first sample, and longer than that is away.
        fill = f"head -c 9M /dev/zero > {place}/big; sleep 3; rm -f {place}/big"
        done = run("--name", "healthy", "--nodes", "2", "--", "bash", "-c", fill)
        shown = description.show_job("healthy")
        assert (done.returncode, shown["status"], shown["reason"]) == (
            0,
            "Completed",
            "all 2 ranks ended with exit code 0",
        )


def logs_fill_the_disk(folder: Path) -> None:
    """A rank that cannot print fails by that, and says so; a job after it runs when there is room again."""
    with small_disk(folder) as place:
        talk = "while True: print('x' * 1000, flush=True)"
        done = run("--name", "talker", "--", sys.executable, "-c", talk)
        shown = description.show_job("talker")
        assert (done.returncode, shown["status"]) == (1, "Failed")
        assert "OSError: [Errno 28] No space left on device" in shown["reason"]
        (place / "jobs" / "talker" / "user_logs" / "std_log.txt").unlink()
        assert run("--", "true").returncode == 0


def no_room_for_a_job(folder: Path) -> None:
    """It is refused with a sentence, and nothing of it stays; when there is room again it runs."""
    with small_disk(folder) as place:
        (place / "jobs").mkdir()
        with contextlib.suppress(OSError), (place / "big").open("wb") as big:
            while True:
                big.write(bytes(4096))
        done = run("--name", "late", "--", "true")
        assert done.returncode == 1
        assert done.stderr.startswith(b"error: "), done.stderr
        assert b"No space left on device" in done.stderr
        assert b"Traceback" not in done.stderr
        (place / "big").unlink()
        assert run("--name", "late", "--", "true").returncode == 0


def what_makes_room_needs_none(folder: Path) -> None:
    """Lists, ``archive``, ``delete`` and ``prune`` work on a disk without room, for content or for files."""
    for fill, option in ((_fill_blocks, "size=3m"), (_fill_files, "nr_inodes=300")):
        with small_disk(folder, option) as place:
            for name in ("kept", "hidden", "deleted", "pruned"):
                assert run("--name", name, "--", "true").returncode == 0
            # The list of one job begins the index; without it and with it lists find no room for another page.
            for name in ("kept", "deleted"):
                fill(place)
                assert set(_list_jobs()) >= {"kept", "pruned"}
                drumline("ps")
                drumline("job", "archive", "-n", "hidden")
                assert "hidden" not in _list_jobs()
                if name == "deleted":
                    fill(place)
                    drumline("job", "delete", "-n", "deleted", "-y")
                    fill(place)
                    drumline("prune", "--older-than", "0s", "--keep-outputs", "-y")
                    fill(place)
                    drumline("prune", "--older-than", "0s", "-y")
                shutil.rmtree(place / "filling")
                drumline("job", "restore", "-n", "hidden")
            assert _list_jobs() == ["hidden"]
            assert os.listdir(place / ".removed") == []


def _fill_blocks(place: Path) -> None:
    (place / "filling").mkdir(exist_ok=True)
    for size in (4096, 1):
        with contextlib.suppress(OSError), (place / "filling" / os.urandom(4).hex()).open("wb", 0) as file:
            while True:
                file.write(bytes(size))


def _fill_files(place: Path) -> None:
    (place / "filling").mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        while True:
            (place / "filling" / os.urandom(8).hex()).touch()


def _list_jobs() -> list[str]:
    return sorted(job["name"] for job in json.loads(drumline("job", "list", "-o", "json")))


def drumline(*words: str) -> bytes:
    argv = [sys.executable, "-m", "drumline", *words]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=200)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def logs_cannot_be_written(folder: Path) -> None:
    """Their folder is gone when the ranks start: the job fails and names it."""
    holder = start("holder", "sleep 1000", CORES)
    wait_until(lambda: description.show_job("holder")["status"] == "Running", 30)
    submitted = start("waits", "true")
    wait_until(lambda: description.show_job("waits")["status"] == "Queued", 20)
    logs = Path(submitted.path, "user_logs")
    logs.rmdir()
    logs.touch()
    cancel(holder.name, at_once=True)
    shown = ended("waits")
    assert shown["status"] == "Failed"
    assert re.search(r"Not a directory: .*std_log", shown["reason"]), shown["reason"]


def a_line_of_10_mb(folder: Path) -> None:
    """It is whole in the log, and on a pipe."""
    done = run("--name", "long", "--", sys.executable, "-c", "print('x' * 10_000_000)")
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(b"x" * 10_000_000 + b"\n").digest()


def any_bytes(folder: Path) -> None:
    """NUL, what is no UTF-8, progress bars, no last line's end: in the log and on a pipe as they were written."""
    data = bytes(range(256)) * 40 + b"\r1%\r2%\r\n\n" + b"\xff\xfe\x00" * 100
    file = folder / "bytes"
    file.write_bytes(data)
    done = run("--name", "bytes", "--", "cat", file)
    assert done.stdout == data + b"\n", "the end of the last line is all that is added"
    assert Path(home(), "jobs", "bytes", "user_logs", "std_log.txt").read_bytes() == data


def a_million_lines(folder: Path) -> None:
    """Of each of two ranks, as fast as they come: every one is in the logs and on a pipe."""
    program = f"[print(n) for n in range({_LINES})]"
    out = folder / "out"
    words = ("run", "--name", "fast", "--procs", "2", "--no-prefix", "--", sys.executable, "-c", program)
    with out.open("wb") as file:
        subprocess.run([sys.executable, "-m", "drumline", *words], stdout=file, check=True, timeout=200)
    expected = hashlib.sha256(b"".join(b"%d\n" % number for number in range(_LINES))).digest()
    for rank in range(2):
        log = Path(home(), "jobs", "fast", "user_logs", f"std_log_process_{rank:02d}.txt")
        assert hashlib.sha256(log.read_bytes()).digest() == expected
    with out.open("rb") as file:
        assert sum(1 for _ in file) == 2 * _LINES


def start(name: str, words: str, procs: int = 1) -> Any:
    """Submit and do not wait; its run folder."""
    job = command(command=words, name=name)
    if procs > 1:
        job.distribution = {"type": "pytorch", "process_count_per_instance": procs}
    return submit(job, start=Standby()).folder


def at_once(count: int, step: Callable[[int], None]) -> list[int]:
    """The exit codes of so many processes that do that at the same time: 0, or 1 for a DrumlineError."""
    reader, writer = os.pipe()
    pids = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            code = 2
            try:
                os.close(writer)
                os.read(reader, 1)  # They all begin when it is closed.
                step(number)
                code = 0
            except DrumlineError:
                code = 1
            except Exception:  # noqa: BLE001 - whatever it is, the output of the test has it
                traceback.print_exc()
            finally:
                os._exit(code)
        pids.append(pid)
    os.close(reader)
    os.close(writer)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def a_hundred_submits_at_once(folder: Path) -> None:
    """Each is there once, and completes."""
    assert at_once(100, lambda number: start(f"many{number}", "true") and None) == [0] * 100
    for number in range(100):
        assert ended(f"many{number}")["status"] == "Completed"
    assert len([name for name in job_folders.names() if name.startswith("many")]) == 100


def a_hundred_submits_of_one_name(folder: Path) -> None:
    """One is taken, the others are refused, and it runs once."""
    count = folder / "count"
    codes = at_once(100, lambda _: start("same", f"echo once >> '{count}'") and None)
    assert sorted(codes) == [0] + [1] * 99
    shown = ended("same")
    assert shown["status"] == "Completed", shown["reason"]
    assert count.read_text() == "once\n", count.read_text()


def in_line(many: int) -> None:
    """So many wait while one runs: they are listed, one of them can be canceled, and all come to their end."""
    holder = start("holder", "sleep 1000", CORES)
    wait_until(lambda: description.show_job("holder")["status"] == "Running", 30)
    for first in range(0, many, 20):
        count = min(20, many - first)
        codes = at_once(count, lambda number, first=first: start(f"w{first + number}", "true") and None)
        assert codes == [0] * count
    assert len(job_folders.names()) == many + 1
    wait_until(lambda: description.show_job("w1")["status"] == "Queued", 30)
    cancel("w1")
    assert ended("w1")["status"] == "Canceled"
    cancel(holder.name, at_once=True)
    for number in range(many):
        if number != 1:
            wait_until(
                lambda number=number: description.show_job(f"w{number}")["status"] == "Completed",
                200,
            )


def a_hundred_in_line(folder: Path) -> None:
    """They are listed, one of them can be canceled, and all come to their end."""
    in_line(100)


def a_thousand_in_line(folder: Path) -> None:
    """They are listed, one of them can be canceled, and all come to their end."""
    in_line(1000)


def the_index_is_locked(folder: Path, seconds: float = 3.0) -> None:
    """By another program: jobs run meanwhile, and a list comes when it is free again."""
    assert run("--", "true").returncode == 0
    assert len(job_folders.names()) == 1
    database = sqlite3.connect(Path(home(), "index.sqlite"), isolation_level=None, check_same_thread=False)
    database.execute("BEGIN EXCLUSIVE")
    begin = time.monotonic()
    release = threading.Timer(seconds, lambda: database.execute("ROLLBACK"))
    release.start()
    try:
        assert run("--", "true").returncode == 0
        assert len(job_folders.names()) == 2
        assert time.monotonic() - begin >= seconds
    finally:
        release.join()
        database.close()


def the_index_is_locked_for_30_s(folder: Path) -> None:
    """By another program: jobs run meanwhile, and a list comes when it is free again."""
    the_index_is_locked(folder, 28.0)


def the_clock_jumps(folder: Path) -> None:
    """By two days, forwards and back, while ranks run: no limit strikes, and no time of the job is before another."""
    for days in (2, -2):
        name = f"jumps{days:+d}".replace("+", "p").replace("-", "m")
        program = (str(_CLOCK), str(days))
        words = ("--name", name, "--timeout", "100", "--", "sleep", "0.2")
        done = run(*words, program=program)
        assert done.returncode == 0, done.stderr
        shown = description.show_job(name)
        assert shown["status"] == "Completed"
        assert shown["started_at"] <= shown["ranks"][0]["ended_at"] <= shown["ended_at"]
        took = re.search(rb"completed after ([\d.]+) s", done.stderr)
        assert took, done.stderr
        assert float(took[1]) < 60


FAULTS: list[Callable[[Path], None]] = [
    outputs_fill_the_disk,
    a_full_disk_ends_no_healthy_job,
    logs_fill_the_disk,
    no_room_for_a_job,
    what_makes_room_needs_none,
    logs_cannot_be_written,
    a_line_of_10_mb,
    any_bytes,
    a_million_lines,
    a_hundred_submits_at_once,
    a_hundred_submits_of_one_name,
    a_hundred_in_line,
    the_index_is_locked,
    the_clock_jumps,
]
LONG_FAULTS: list[Callable[[Path], None]] = [a_thousand_in_line, the_index_is_locked_for_30_s]
"""In scripts/chaos alone."""
