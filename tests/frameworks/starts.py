"""How the ranks of a job were started, as its events have it: forked from a warm interpreter, or each afresh."""

import os
from pathlib import Path

from frameworks.table import Example

from drumline.contract import events
from drumline.node.warm.imports import LEFT_OUT


def mode_of(example: Example) -> str:
    """What DRUMLINE_WARM is to be."""
    return os.environ.get("TEST_WARM") or ("on" if example.is_warm else "off")


def check(example: Example, mode: str, run_folder: Path) -> None:
    """The ranks of each node were started as that mode says."""
    found = _events(run_folder)
    warm = [one for one in found if isinstance(one, events.WarmStart)]
    declined = [one for one in found if isinstance(one, events.WarmDeclined)]
    joined = {one.node for one in found if isinstance(one, events.AgentJoined)}
    told = {one.node for one in warm} | {one.node for one in declined}
    if mode == "off":
        assert told == set()
        return
    for one in warm:
        assert set(example.ahead) <= set(one.modules)
        assert not LEFT_OUT & set(one.modules)
    if example.ahead:
        assert declined == []
        assert told == joined
    elif mode == "on":
        assert told  # Those of a launcher may be one node's alone.


def _events(run_folder: Path) -> list[events.Event | None]:
    return [events.from_line(line) for line in (run_folder / "events.jsonl").read_bytes().splitlines()]
