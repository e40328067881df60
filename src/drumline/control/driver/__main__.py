"""``python -m drumline.control.driver RUN_FOLDER``: goes to the background at once and drives that job."""

from __future__ import annotations

import os
import sys

from drumline.control.driver.process import guard


def main() -> int:
    if os.fork():
        return 0
    os._exit(guard(sys.argv[1]))


if __name__ == "__main__":
    sys.exit(main())
