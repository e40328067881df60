"""Waiting for the end of more jobs than there are descriptors."""

import json
import os
import subprocess
import sys
import time

from waiting import wait_until

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.folder import RunFolder

LIMIT = 96
JOBS = 150


def test_more_jobs_than_descriptors_are_waited_for(drumline_home):
    """The supervisor of these is this process."""
    folders = [RunFolder.for_job(f"job{number:03}") for number in range(JOBS)]
    for folder in folders:
        folder.create()
        folder.write(folder.job, "command: 'true'\n")
        folder.begin(e.JobSubmitted(time.time(), "me", "local"))
        folder.write(folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
    wait = [sys.executable, "-m", "drumline", "job", "wait", *(folder.name for folder in folders)]
    limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *wait]
    with subprocess.Popen(limited, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(
                lambda: process.poll() is not None or _count_held(process.pid) > 20, 60.0, "it to wait"
            )
            for folder in folders:
                folder.append(e.JobEnded(time.time(), "Completed", 0, ""))
            said = process.communicate(timeout=200)[1]
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert sorted(said.splitlines()) == [f"job {folder.name} completed" for folder in folders]


def _count_held(pid):
    """How many events of jobs it holds open."""
    held = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            held += os.readlink(f"/proc/{pid}/fd/{name}").endswith("events.jsonl")
        except OSError:
            continue
    return held
