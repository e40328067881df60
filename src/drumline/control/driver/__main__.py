"""``python -m drumline.control.driver RUN_FOLDER``: goes to the background at once and drives that job."""

from __future__ import annotations

import contextlib
import os
import signal
import sys

from drumline.contract.errors import DrumlineError, describe_os_error
from drumline.contract.folder import RunFolder
from drumline.control.driver.process import guard, take_lock


def main() -> int:
    folder = RunFolder(sys.argv[1])
    try:
        lock = take_lock(folder)
    except DrumlineError as error:
        print(error.message, file=sys.stderr)
        return 1
    except OSError as error:
        print(describe_os_error(error), file=sys.stderr)
        return 1
    if lock is None:
        return 0
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    child = os.fork()
    if child:
        with contextlib.suppress(OSError):  # The driver says so.
            folder.hand_over(child)
        return 0
    os._exit(guard(folder, lock))


if __name__ == "__main__":
    sys.exit(main())
