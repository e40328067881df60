"""
A rank that says when it began, and when it fails: rank 1 does so once. Seconds since 1970, on the clock of all nodes.
"""

import os
import time
from pathlib import Path

print(f"began {time.time()}", flush=True)
# A pod has a /tmp of its own, which both attempts see.
mark = Path("/tmp", f"bench-{os.environ['LOCAL_RANK']}")
if mark.exists():
    os._exit(0)
mark.touch()
if os.environ["RANK"] == "1":
    # All of this attempt are to have begun.
    time.sleep(1)
    print(f"failed {time.time()}", flush=True)
    os._exit(1)
time.sleep(60)
