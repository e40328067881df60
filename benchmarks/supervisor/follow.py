"""
Follow the logs of all ranks of a job that has ended, as ``job stream`` and ``job logs`` do, and print the time as JSON.

    python follow.py NODES PROCS FOLDER
"""

import json
import os
import sys
import time

from supervise import make_plan

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.control.logs.follow import Follower

LINES = b"".join(b"step %d loss 0.25\n" % step for step in range(10))


def main() -> None:
    nodes, procs = int(sys.argv[1]), int(sys.argv[2])
    folder = RunFolder(os.path.join(sys.argv[3], "job"))
    folder.create()
    plan = make_plan(nodes, procs, folder)
    folder.begin(e.JobSubmitted(1000.0, "ann", "local"))
    folder.append(e.JobEnded(1001.0, "Completed", 0, "all ranks completed"))
    for task in plan.ranks:
        with open(os.path.join(folder.path, task.log), "wb") as file:
            file.write(LINES)
    # As of a job that ended a while ago: for two seconds after a folder has changed it is read again and again.
    os.utime(folder.user_logs, (1001.0, 1001.0))
    began, cpu_s = time.monotonic(), time.process_time()
    blocks = Follower(folder, plan).blocks()
    shown = sum(len(block.lines) for block in blocks if block is not None)
    if shown != nodes * procs * len(LINES):
        sys.exit(f"only {shown} bytes were read")
    told = {
        "nodes": nodes,
        "follow_s": time.monotonic() - began,
        "follow_cpu_s": time.process_time() - cpu_s,
        "shown_bytes": shown,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
