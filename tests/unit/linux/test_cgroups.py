"""Control groups of a node: real ones, where this machine lets us have them."""

import os
import subprocess
import sys
import uuid

import pytest
from waiting import wait_until

from drumline.linux import cgroups


@pytest.fixture
def place():
    """Where a group can be, which is removed afterwards."""
    path = cgroups.choose_group_path(f"drumline-{uuid.uuid4().hex[:8]}-n0")
    if not path:
        pytest.skip("no control group can be made here: that needs root, or a group that is this user's")
    yield path
    cgroups.kill_group(path)


def in_group(path, program):
    """A Python that is in the group and has said so."""
    text = (
        f"from drumline.linux import cgroups\nassert cgroups.join_group({path!r})\n"
        f"print('in', flush=True)\n{program}"
    )
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    return process


@pytest.mark.root
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
    wait_until(lambda: len(cgroups._list_processes(place)) == 2)
    assert cgroups.kill_group(place) == 2
    assert (process.wait(), os.path.exists(place)) == (-9, False)
    process.stdout.close()


@pytest.mark.root
def test_groups_that_a_rank_made_in_it_go_too(place):
    with in_group(
        place, f"import os, time\nos.makedirs({place!r} + '/a/b')\nprint('made', flush=True)\ntime.sleep(600)"
    ) as process:
        assert process.stdout.readline() == "made\n"
        assert cgroups.kill_group(place) == 1
    assert not os.path.exists(place)


def test_what_is_no_group_of_ours_is_left_alone(tmp_path):
    (tmp_path / "cgroup.kill").touch()
    assert cgroups.kill_group(str(tmp_path)) == 0
    assert cgroups.kill_group(os.path.dirname(cgroups.choose_group_path("x")) or "/") == 0
    assert (tmp_path / "cgroup.kill").read_text() == ""


@pytest.mark.root
def test_there_is_none_where_it_is_switched_off_or_cannot_be_made(monkeypatch, place):
    assert not cgroups.join_group("")
    assert not cgroups.join_group("/proc/drumline-00000000-n0")
    monkeypatch.setenv("DRUMLINE_CGROUP", "0")
    assert cgroups.choose_group_path("drumline-00000000-n0") == ""


@pytest.mark.root
def test_who_leaves_as_the_last_removes_it(place):
    with in_group(place, f"cgroups.leave_group({place!r})\nprint('left', flush=True)\ninput()") as process:
        assert process.stdout.readline() == "left\n"
        assert not os.path.exists(place)
        process.kill()


@pytest.mark.root
def test_who_is_not_the_last_leaves_it_to_others(place):
    start = "import subprocess\nsubprocess.Popen(['sleep', '600'])"
    program = f"{start}\ncgroups.leave_group({place!r})\nprint('left', flush=True)"
    with in_group(place, program) as process:
        assert process.stdout.readline() == "left\n"
    assert cgroups.kill_group(place) == 1


FORKS = """
import os, sys, threading
from drumline.linux import cgroups
place = sys.argv[1]
asked = []
clone = cgroups.clone_into_group
cgroups.clone_into_group = lambda path: asked.append(clone(path)) or asked[-1]
pid = cgroups.fork_in_group(place)
if pid == 0:
    threading.Thread(target=print, args=("thread",), kwargs={"flush": True}).start()
    assert cgroups.join_group(place) and os.getpid() == threading.get_native_id() != os.getppid()
    child = os.fork()
    if child == 0:
        os.execv("/bin/cat", ["cat", "/proc/self/cgroup"])
    os.waitpid(child, 0)
    os._exit(7)
assert os.waitpid(pid, 0) == (pid, 7 << 8)
print("not forked" if asked == [None] else "forked")
"""


@pytest.mark.root
@pytest.mark.parametrize("other_thread", [False, True])
def test_a_fork_begins_in_its_group(place, other_thread):
    """There it can fork, start programs and threads as any other; beside other threads it is moved."""
    thread = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    program = thread + FORKS if other_thread else FORKS
    done = subprocess.run(
        [sys.executable, "-c", program, place], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"/{os.path.basename(place)}\n" in done.stdout
    assert "thread\n" in done.stdout
    assert done.stdout.endswith("not forked\n") == other_thread
    assert cgroups.kill_group(place) == 0
    assert not os.path.exists(place)


def test_a_fork_that_cannot_begin_in_a_group_is_one_all_the_same(tmp_path):
    program = (
        "import os; from drumline.linux import cgroups; "
        f"os.write(1, b'%r\\n' % (cgroups.fork_in_group({str(tmp_path / 'n0')!r}) == 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == ["False", "True"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("library", "known"),
    [("glibc 2.36", True), ("glibc 2.25", True), ("glibc 2.17", False), ("glibc 3.0", True), ("", False)],
)
def test_only_of_a_c_library_that_is_known_a_fork_is_made_without_it(library, known):
    assert cgroups._is_supported_libc(library) is known
