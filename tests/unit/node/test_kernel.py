"""What the kernel does for a process, seen from inside it."""

import os
import socket
import subprocess
import sys


def test_a_host_name_of_its_own_is_nobody_elses():
    """As root, or in a user namespace in which the user is itself; where neither is allowed nothing changes."""
    program = (
        "import os, socket\n"
        "from drumline.node import kernel\n"
        "taken = kernel.take_host_name('node-7')\n"
        "print(taken, socket.gethostname(), os.getuid())\n"
    )
    before = socket.gethostname()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    taken, name, user = done.stdout.split()
    assert name == ("node-7" if taken == "True" else before)
    assert int(user) == os.getuid()
    assert socket.gethostname() == before
