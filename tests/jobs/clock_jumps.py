"""A drumline command whose clock jumps by argv[1] days as soon as all ranks run; the rest is the command."""

import sys
import time

from drumline.cli.main import main
from drumline.contract.folder import RunFolder

days = float(sys.argv[1])
real = time.time
append = RunFolder.append


def append_and_jump(self, event):
    append(self, event)
    if type(event).__name__ == "JobRunning":
        time.time = lambda: real() + days * 86400


RunFolder.append = append_and_jump
sys.exit(main(sys.argv[2:]))
