"""What ranks use: real processes, in trees that a test makes."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from waiting import wait_until

from drumline.contract.samples import NO_RANK
from drumline.linux import descendants, process_usage
from drumline.node.metrics import sampling

STAT = "1234 ({}) S 1 1234 77 0 -1 4194560 9 0 0 0 150 50 30 20 20 0 3 0 4711 9000000 500 184467 1 1 0 0 0"
MEGABYTE = 1 << 20


@pytest.mark.parametrize("name", ["python", "a b", "a) R (b", ") S 1 1 1", "", "\n", "((("])
def test_a_name_can_be_anything(name):
    stat = process_usage.parse_stat(STAT.format(name).encode())
    assert stat == ("S", 1, 77, 200, 50, 3, 4711)


@pytest.mark.parametrize("text", [b"", b"1234", b"1234 (a) S", b"1234 (a) S x y z " + b"q " * 30])
def test_what_is_cut_short_is_nothing(text):
    assert process_usage.parse_stat(text) is None


def test_a_process_that_is_gone_or_hidden_counts_for_nothing():
    done = subprocess.Popen(["true"])
    done.wait()
    used = (
        process_usage.read_stat(done.pid),
        process_usage.read_memory(done.pid),
        process_usage.read_io(done.pid),
    )
    assert used == (None, (0, 0), None)


@contextlib.contextmanager
def python(text):
    """A Python that runs that, until it is told to end by the end of its input."""
    program = f"import os, sys, subprocess, time\n{text}\nprint('ready', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        yield child
        child.stdin.close()


def look(watch, ranks):
    watch.begin(ranks)
    for _ in watch.look():
        pass
    return {use.rank: use for use in watch.ranks({})}


def test_once_all_ranks_have_ended_no_process_is_read(monkeypatch):
    read = []
    # Process 1 gets all that lose their parent; others may have a helper of multiprocessing.
    children = []
    monkeypatch.setattr(descendants, "has_children", lambda: bool(children))
    monkeypatch.setattr(process_usage, "read_stat", read.append)
    watch = sampling.RankUsage()
    with subprocess.Popen(["true"]) as done:
        pass
    look(watch, {done.pid: 0})
    assert read, "it has not been heard of that it ended"
    read.clear()
    watch.note_end(done.pid, 0.5, 0)
    assert look(watch, {done.pid: 0})[0].cpu_s == 0.5
    assert read == []
    with python("") as child:
        children.append(child)
        look(watch, {done.pid: 0})
        assert read, "it may have left that child"


def test_a_strange_name_in_real():
    with python("open('/proc/self/comm', 'w').write('a) R (b c')") as child:
        stat = process_usage.read_stat(child.pid)
        assert (stat.state in "RS", stat.parent) == (True, os.getpid())


def test_memory_processes_and_io_of_a_tree():
    text = (
        "held = bytearray(os.urandom(1) * (60 << 20))\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; x = bytearray(b\"x\" * (50 << 20)); "
        "print(1, flush=True); sys.stdin.read()'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "open('/dev/null', 'wb', buffering=0).write(bytes(3 << 20))"
    )
    watch = sampling.RankUsage()
    with python(text) as one, python("") as other:
        uses = look(watch, {one.pid: 0, other.pid: 1})
        assert (uses[0].processes, uses[1].processes) == (2, 1)
        assert 110 * MEGABYTE < uses[0].memory < 170 * MEGABYTE
        assert 2 * MEGABYTE < uses[1].memory < 40 * MEGABYTE
        if uses[0].io is not None:
            assert uses[0].io[1] >= 3 * MEGABYTE > uses[1].io[1]
        assert uses[0].threads >= 2
        assert NO_RANK not in uses or uses[NO_RANK].pid not in (one.pid, other.pid)


def test_time_of_children_that_were_waited_for_counts_once():
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    text = (
        f"child = subprocess.Popen([sys.executable, '-c', {burn!r}])\n"
        "print('began', flush=True)\n"
        "sys.stdin.readline()\n"
        "child.wait()"
    )
    program = f"import sys, subprocess\n{text}\nprint('ready', flush=True)\nsys.stdin.read()"
    watch = sampling.RankUsage()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as rank:
        assert rank.stdout.readline() == b"began\n"
        wait_until(lambda: look(watch, {rank.pid: 0})[0].cpu_s >= 0.2)
        rank.stdin.write(b"\n")
        rank.stdin.flush()
        assert rank.stdout.readline() == b"ready\n"
        used = look(watch, {rank.pid: 0})[0]
        assert used.processes == 1
        # The kernel counts in ticks of 10 ms, user and system time apart.
        assert 0.38 <= used.cpu_s < 0.7
        assert look(watch, {rank.pid: 0})[0].cpu_s == pytest.approx(used.cpu_s, abs=0.05)
        rank.stdin.close()


def test_what_the_kernel_says_at_the_end_is_taken_where_it_is_more():
    watch = sampling.RankUsage()
    watch.begin({4711: 3})
    watch.note_end(4711, 1.5, 77)
    watch.note_end(4712, 9.0, 99)
    (use,) = watch.ranks({})
    assert (use.rank, use.cpu_s, use.peak, use.memory, use.has_ended) == (3, 1.5, 77, 0, True)


ORPHANS = """
import json, os, subprocess, sys, time
from drumline.linux import kernel
from drumline.node.metrics import sampling

kernel.adopt_orphans()

def detached(variables, own_session):
    '''A process that has lost its parent, below a rank.'''
    reader, writer = os.pipe()
    rank = os.fork()
    if rank == 0:
        os.setsid()
        if os.fork() == 0:
            if own_session:
                os.setsid()
            if os.fork() == 0:
                # Seen before that, it would have the variables of this process.
                os.set_inheritable(writer, True)
                os.execve("/bin/sh", ["sh", "-c", f"echo x >&{writer}; exec sleep 600"], variables)
            os._exit(0)
        os.wait()
        time.sleep(600)
    os.read(reader, 1)
    return rank

ranks = {detached({}, False): 0, detached({"DRUMLINE_FAILURES": "/x/failures-1.jsonl"}, True): 1}
detached({}, True)
watch = sampling.RankUsage()
deadline = time.monotonic() + 20
counts = {}
while counts != {"-1": 2, "0": 2, "1": 2} and time.monotonic() < deadline:
    watch.begin(ranks)
    for _ in watch.look():
        pass
    counts = {str(use.rank): use.processes for use in watch.ranks({})}
print(json.dumps(counts))
subprocess.run(["true"])
from drumline.linux import descendants
descendants.end_descendants(0.0)
"""


def test_whose_a_process_is_that_has_lost_its_parent():
    done = subprocess.run([sys.executable, "-c", ORPHANS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"-1": 2, "0": 2, "1": 2}
