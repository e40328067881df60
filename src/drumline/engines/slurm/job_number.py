"""The job of Slurm's that a run folder is of."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from typing import TYPE_CHECKING

from drumline.contract.folder import home, write_once

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.engines.slurm.client import InQueue

_WRITTEN_S = 5.0
"""For whoever was first to write down the number, where the file comes before its content."""

_CLAIM_POLL_S = 0.02
_ANSWER_S = 1.0


def claim(folder: RunFolder, number: str) -> None:
    """
    Write down which job of Slurm's this run folder is of; exactly one can. Raises FileExistsError when it is another's.
    """
    try:
        # Whoever submits and the job itself may come here at once.
        write_once(folder.engine, json.dumps({"slurm_job_id": number}))
    except FileExistsError:
        deadline = time.monotonic() + _WRITTEN_S
        while not (known := number_of(folder)) and time.monotonic() < deadline:
            os.listdir(folder.path)  # A network file system then shows what others have just made.
            time.sleep(_CLAIM_POLL_S)
        if known != number:
            raise


def is_of(job: InQueue, folder: RunFolder) -> bool:
    """Return whether a job in the queue is of that run folder, which may have been named to Slurm by a link to it."""
    if os.path.basename(job.folder) != folder.name:
        return False
    return job.folder == folder.path or os.path.realpath(job.folder) == os.path.realpath(folder.path)


def may_be_of(work_dir: str, folder: RunFolder) -> bool:
    """Return whether a job may be of that run folder, by what scontrol says of its folder, which ends at a blank."""
    paths = (folder.path, os.path.join(home(), "jobs", folder.name))
    return not work_dir or any(path == work_dir or path.startswith(f"{work_dir} ") for path in paths)


def number_of(folder: RunFolder) -> str:
    """Return the number of a run folder's job; empty while it is not known."""
    known = folder.read_json(folder.engine) or {}
    number = str(known.get("slurm_job_id", ""))
    return number if number.isdecimal() else ""


def is_answering(folder: RunFolder) -> bool:
    """Return whether the job's supervisor listens, wherever it is."""
    known = folder.read_json(folder.agents) or {}
    for address in known.get("addresses", ()):
        with contextlib.suppress(OSError, ValueError, TypeError):
            socket.create_connection((address, int(known["port"])), _ANSWER_S).close()
            return True
    return False
