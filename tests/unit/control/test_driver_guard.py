"""The process that keeps a driver running: what a driver that fails becomes."""

import errno
import subprocess
import sys

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold

_GUARD = """
import errno, os, sys
from drumline.contract.folder import RunFolder
from drumline.control.driver import process

path, count, number = sys.argv[1], sys.argv[2], int(sys.argv[3])

def drive(folder, *, follows):
    with open(count, "a") as file:
        file.write("x")
    if os.stat(count).st_size < 10:
        raise OSError(number, os.strerror(number), folder.events)
    process._end(folder, "Completed", 0, "done")
    return 0

process._drive = drive
process._RESTART_PAUSE_S = 0.001
folder = RunFolder(path)
sys.exit(process.guard(folder, process.take_lock(folder)))
"""


def guard(folder, tmp_path, number):
    """Run a guard whose driver fails nine times with that error; return how the job ended, and the number of tries."""
    folder.create()
    folder.begin(e.JobSubmitted(1.0, "ann", "local", "pipeline"))
    count = tmp_path / "count"
    words = [sys.executable, "-c", _GUARD, folder.path, str(count), str(number)]
    subprocess.run(words, check=False, timeout=60, stdin=subprocess.DEVNULL)
    return fold(folder.read_events()), count.stat().st_size


def test_a_driver_that_finds_no_room_is_started_until_there_is(tmp_path):
    for number in (errno.ENOSPC, errno.EDQUOT):
        place = tmp_path / str(number)
        place.mkdir()
        outcome, tries = guard(RunFolder(str(place / "p")), place, number)
        assert (outcome.status, outcome.reason, tries) == ("Completed", "done", 10)


def test_a_driver_that_fails_of_something_else_is_given_up(tmp_path):
    outcome, tries = guard(RunFolder(str(tmp_path / "p")), tmp_path, errno.EPERM)
    assert (outcome.status, tries) == ("Failed", 6)
    assert "its driver failed 6 times in a row" in outcome.reason
