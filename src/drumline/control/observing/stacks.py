"""The stacks of the ranks of a running job, asked of its supervisor."""

from __future__ import annotations

import os
import time
from typing import Any

from drumline.contract.errors import NodeError, UsageError
from drumline.contract.words import name_several
from drumline.control.jobs import lookup
from drumline.control.jobs.cancel import wake
from drumline.control.jobs.recovery import recover
from drumline.control.terminal import clean

_ANSWER_S = 15.0
_ANSWER_POLL_S = 0.02


def ask_stacks(name: str) -> dict[str, Any]:
    """
    Return ``reason``, one sentence, and ``ranks``: for each rank its processes with their frames, innermost first.

    Blocks until all nodes have answered. Raises NotFoundError, UsageError for a job that does not run, NodeError when
    its supervisor does not answer.
    """
    folder = lookup.folder_of(name)
    outcome = recover(folder)
    if outcome.kind != "command":
        raise UsageError(
            f"job {name} is a {outcome.kind}: it has jobs, and those have ranks",
            f"drumline job show -n {name}",
        )
    if outcome.is_final or outcome.started is None:
        raise UsageError(f"job {name} is {outcome.status}: it has no ranks that run")
    number = os.urandom(8).hex()
    asked = time.time()
    folder.write(folder.stacks_request, number)
    wake(folder)
    deadline = time.monotonic() + _ANSWER_S
    while time.monotonic() < deadline:
        answer = folder.read_json(folder.stacks)
        # Of several who ask at once one is heard, and answered for all.
        if answer is not None and (answer.get("id") == number or answer.get("began", 0.0) >= asked):
            return answer
        if recover(folder).is_final:
            raise UsageError(f"job {name} has ended meanwhile")
        time.sleep(_ANSWER_POLL_S)
    raise NodeError(f"the supervisor of job {name} did not answer", f"see {folder.system_logs}")


def format_stacks(answer: dict[str, Any]) -> str:
    """Format the sentence, then each stack once below its ranks, the innermost frame first."""
    groups: dict[str, list[str]] = {}
    for rank, processes in answer["ranks"].items():
        groups.setdefault("\n".join(map(_frames, processes)), []).append(rank)
    text = clean(answer["reason"]) + "\n"
    for stack, ranks in sorted(groups.items(), key=lambda group: -len(group[1])):
        text += f"\n{name_several('rank', ranks)}\n{stack}"
    return text


def _frames(process: dict[str, Any]) -> str:
    lines = [f"  {function} ({file}:{line})" for file, line, function in process["frames"]]
    if not lines:
        where = f" in {process['waits_in']}" if process["waits_in"] not in ("", "0") else ""
        lines = [f"  {process['name']}, state {process['state']}{where}"]
    return "".join(clean(line) + "\n" for line in lines)
