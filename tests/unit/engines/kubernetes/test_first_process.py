"""The first process of a pod: no signal is lost before it can hear one."""

import subprocess
import sys

from drumline.engines.kubernetes import bundle

BEGINS = """
import os, signal, sys
assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, []), "the boot has not held it back"
os.kill(os.getpid(), signal.SIGTERM)
from drumline.contract.folder import RunFolder
from drumline.engines.kubernetes.pod.first_process import FirstProcess
first = FirstProcess(RunFolder(sys.argv[1]))
first.fork(lambda: int(signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])))
while (code := first.look()) is None:
    pass
print(first.terminated, code)
"""


def test_a_signal_that_comes_while_the_pod_starts_is_heard(tmp_path):
    """The kernel drops it otherwise: a first process has no default for signals."""
    holds_back = bundle.boot("/").split("filtered", 1)[0]
    words = [sys.executable, "-c", holds_back + BEGINS, str(tmp_path / "job")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    # The child begins with the signal let through, and gets it.
    assert done.stdout.split() in (["True", "0"], ["True", "-15"]), done.stderr
