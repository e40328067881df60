"""Control groups of a node: real ones, where this machine lets us have them."""

import os
import subprocess
import sys
import uuid

import pytest
from waiting import wait_until

from drumline.node import cgroups


@pytest.fixture
def place():
    """Where a group can be, which is removed afterwards."""
    path = cgroups.place_for(f"drumline-{uuid.uuid4().hex[:8]}-n0")
    if not path:
        pytest.skip("no control group can be made here: that needs root, or a group that is this user's")
    yield path
    cgroups.end(path)


def in_group(path, program):
    """A Python that is in the group and has said so."""
    text = f"from drumline.node import cgroups\nassert cgroups.join({path!r})\nprint('in', flush=True)\n{program}"
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    return process


def test_all_that_was_started_in_it_ends_whatever_became_of_it(place):
    detach = (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0: os.execve('/bin/sleep', ['sleep', '600'], {})\n"
        "    os._exit(0)"
    )
    process = in_group(
        place, f"import os, time\n{detach}\nos.wait()\nprint('there', flush=True)\ntime.sleep(600)"
    )
    assert process.stdout.readline() == "there\n"
    wait_until(lambda: len(cgroups._processes(place)) == 2)
    assert cgroups.end(place) == 2
    assert (process.wait(), os.path.exists(place)) == (-9, False)
    process.stdout.close()


def test_groups_that_a_rank_made_in_it_go_too(place):
    with in_group(
        place, f"import os, time\nos.makedirs({place!r} + '/a/b')\nprint('made', flush=True)\ntime.sleep(600)"
    ) as process:
        assert process.stdout.readline() == "made\n"
        assert cgroups.end(place) == 1
    assert not os.path.exists(place)


def test_what_is_no_group_of_ours_is_left_alone(tmp_path):
    (tmp_path / "cgroup.kill").touch()
    assert cgroups.end(str(tmp_path)) == 0
    assert cgroups.end(os.path.dirname(cgroups.place_for("x")) or "/") == 0
    assert (tmp_path / "cgroup.kill").read_text() == ""


def test_there_is_none_where_it_is_switched_off_or_cannot_be_made(monkeypatch, place):
    assert not cgroups.join("")
    assert not cgroups.join("/proc/drumline-00000000-n0")
    monkeypatch.setenv("DRUMLINE_CGROUP", "0")
    assert cgroups.place_for("drumline-00000000-n0") == ""


def test_who_leaves_as_the_last_removes_it(place):
    with in_group(place, f"cgroups.leave({place!r})\nprint('left', flush=True)\ninput()") as process:
        assert process.stdout.readline() == "left\n"
        assert not os.path.exists(place)
        process.kill()


def test_who_is_not_the_last_leaves_it_to_others(place):
    start = "import subprocess\nsubprocess.Popen(['sleep', '600'])"
    program = f"{start}\ncgroups.leave({place!r})\nprint('left', flush=True)"
    with in_group(place, program) as process:
        assert process.stdout.readline() == "left\n"
    assert cgroups.end(place) == 1
