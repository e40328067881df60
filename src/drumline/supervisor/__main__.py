"""``python -m drumline.supervisor RUN_FOLDER``: goes to the background at once and supervises that job."""

from __future__ import annotations

import os
import sys

from drumline.supervisor.main import supervise


def main() -> int:
    if os.fork():
        return 0
    os._exit(supervise(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
