"""What the kernel does for a process, seen from inside it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_host_name_of_its_own_is_nobody_elses():
    """As root, or in a user namespace in which the user is itself; where neither is allowed nothing changes."""
    program = (
        "import os, socket\n"
        "from drumline.linux import kernel\n"
        "taken = kernel.take_host_name('node-7')\n"
        "print(taken, socket.gethostname(), os.getuid())\n"
    )
    before = socket.gethostname()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    taken, name, user = done.stdout.split()
    assert name == ("node-7" if taken == "True" else before)
    assert int(user) == os.getuid()
    assert socket.gethostname() == before


def test_a_signal_is_told_with_its_sender():
    program = (
        "import os, select, signal\n"
        "from drumline.linux import kernel\n"
        "ready = kernel.open_signal_descriptor(signal.SIGTERM)\n"
        "print('ready', flush=True)\n"
        "select.select([ready], [], [])\n"
        "print(kernel.read_signal_sender(ready))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        name = Path("/proc/self/comm").read_text().strip()
        assert process.stdout.readline() == f" from process {os.getpid()} ({name})\n"
    assert process.returncode == 0


GARBAGE = """
import gc, os, select
from drumline.linux import kernel

class Holder:
    pass

gc.disable()
holder = Holder()
holder.itself, holder.poller = holder, select.epoll()
number = holder.poller.fileno()
del holder
kernel.close_inherited_descriptors()
while os.open(os.devnull, os.O_RDONLY) != number:
    pass
gc.collect()
os.fstat(number)
"""


def test_garbage_of_the_parent_closes_no_descriptor_of_its_fork():
    done = subprocess.run([sys.executable, "-c", GARBAGE], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("log", ["/dev/full", "/nowhere/of/all/log"])
def test_output_that_finds_no_room_ends_no_process(log):
    program = (
        "import sys, traceback\n"
        "from drumline.linux import kernel\n"
        f"kernel.append_output({log!r})\n"
        "for stream in (sys.stdout, sys.stderr):\n"
        "    print('x' * 100_000, file=stream, flush=True)\n"
        "    print('line', file=stream)\n"
        "try:\n"
        "    1 / 0\n"
        "except ZeroDivisionError:\n"
        "    traceback.print_exc()\n"
        "sys.exit(5)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 5


def test_output_that_nobody_reads_ends_no_process():
    program = (
        "import sys\n"
        "from drumline.linux import kernel\n"
        "kernel.lose_output_without_room()\n"
        "sys.stdin.read()\n"
        "print('said', file=sys.stderr)\n"
        "print('said')\n"
        "sys.exit(5)\n"
    )
    argv, pipe = [sys.executable, "-c", program], subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        process.stderr.close()
        process.stdin.close()
        assert process.wait() == 5


def test_output_is_whole_and_in_order(tmp_path):
    program = (
        "import sys\n"
        "from drumline.linux import kernel\n"
        f"kernel.append_output({str(tmp_path / 'log')!r})\n"
        "print('first \\u00e9 \\udc80')\n"
        "print('second' * 10_000, file=sys.stderr)\n"
        "sys.stdout.write('without an end')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (tmp_path / "log").read_text() == "first \u00e9 \\udc80\n" + "second" * 10_000 + "\nwithout an end"
