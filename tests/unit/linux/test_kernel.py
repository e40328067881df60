"""What the kernel does for a process, seen from inside it."""

import os
import socket
import subprocess
import sys
from pathlib import Path


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
