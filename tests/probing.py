"""A job run in two ways: what its ranks saw of themselves, compared item by item, but for what may differ."""

from __future__ import annotations

import fnmatch
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SEEN = "seen: "
PORTS = ("MASTER_PORT", "JAX_COORDINATOR_ADDRESS")
Seen = dict[str, Any]


class Rank(NamedTuple):
    """Numbers and names that each run has of its own are words in capitals. ``log``: but for the line with ``seen``."""

    seen: Seen
    log: str
    ended: Seen


class Run(NamedTuple):
    ranks: list[Rank]
    warm: list[dict[str, Any]]
    """The events that say how ranks were started."""
    reason: str


def read(folder: Path) -> Run:
    """A job that has ended."""
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    plan = json.loads((folder / "plan.json").read_text())
    ended = {event["rank"]: event for event in events if event["type"] == "RankExited"}
    ranks = []
    for rank in sorted(
        (rank for node in plan["nodes"] for rank in node["ranks"]), key=lambda rank: rank["rank"]
    ):
        path = folder / rank["log"]
        text = path.read_bytes().decode(errors="backslashreplace") if path.exists() else ""
        ranks.append(_rank(text, folder.name, _end(ended.get(rank["rank"], {}))))
    warm = [event for event in events if event["type"] in ("WarmStart", "WarmDeclined")]
    return Run(ranks, warm, str(events[-1].get("reason", "")))


def _end(event: dict[str, Any]) -> Seen:
    evidence = event.get("evidence") or {}
    found = {key: evidence[key] for key in ("failure", "crash", "said") if evidence.get(key)}
    found = {key: _but(value, "time", "at", "pid") for key, value in found.items()}
    return {**{key: event.get(key) for key in ("code", "signal", "error")}, **found}


def _but(value: Any, *names: str) -> Any:
    return (
        {key: each for key, each in value.items() if key not in names} if isinstance(value, dict) else value
    )


def _rank(text: str, job: str, ended: Seen) -> Rank:
    log, seen = text, {}
    if SEEN in text:
        before, _, rest = text.partition(SEEN)
        line, _, after = rest.partition("\n")
        log, seen = before + after, json.loads(line)
    environment = seen.get("process.environment.os", {})
    ports = {name: environment[name].rpartition(":")[2] for name in PORTS if name in environment}
    own = [(re.escape(job), "JOB"), *((rf"(?<!\d){port}(?!\d)", name) for name, port in ports.items())]
    return Rank(_without(seen, own), _without(log, own), _without(ended, own))


_OWN = [
    (r"drumline-[0-9a-f]{8}-n", "SCRATCH"),
    (r"(pipe|socket):\[\d+\]", r"\1"),
    (r"0x[0-9a-f]{6,}", "ADDRESS"),
]


def _without(value: Any, own: list[tuple[str, str]]) -> Any:
    if isinstance(value, str):
        for pattern, word in own + _OWN:
            value = re.sub(pattern, word, value)
        return value
    if isinstance(value, list):
        return [_without(each, own) for each in value]
    if isinstance(value, dict):
        return {key: _without(each, own) for key, each in value.items()}
    return value


class May(NamedTuple):
    """Differ, in that ``as_if`` makes both the same, and why nobody is harmed by it."""

    as_if: Callable[[Any], Any]
    why: str


def any_value(value: object) -> None:
    return None


MORE = "more"
"""What a warm start may have besides."""


def differences(cold: Run, warm: Run, may: dict[str, May | str]) -> Iterator[str]:
    for number, (ours, theirs) in enumerate(zip(cold.ranks, warm.ranks, strict=True)):
        for name in sorted(ours.seen.keys() | theirs.seen.keys()):
            first, second = ours.seen.get(name, "nothing"), theirs.seen.get(name, "nothing")
            for pattern, rule in may.items():
                if fnmatch.fnmatchcase(name, pattern):
                    first, second = _allowed(rule, first, second)
            if first != second:
                yield f"rank {number}, {name}: " + _apart(first, second)
        if ours.log != theirs.log:
            yield f"rank {number}, its log: " + _apart(ours.log.splitlines(), theirs.log.splitlines())
        if ours.ended != theirs.ended:
            yield f"rank {number}, its end: " + _apart(ours.ended, theirs.ended)


def _allowed(rule: May | str, first: Any, second: Any) -> tuple[Any, Any]:
    if isinstance(rule, May):
        return rule.as_if(first), rule.as_if(second)
    return first, [each for each in second if each in set(first)]


def _apart(first: Any, second: Any) -> str:
    """Of long lists what is in one alone."""
    if isinstance(first, dict) and isinstance(second, dict):
        first, second = (
            [f"{key}: {each!r}" for key, each in sorted(found.items())] for found in (first, second)
        )
    if isinstance(first, list) and isinstance(second, list) and (len(first) > 3 or len(second) > 3):
        only = [each for each in first if each not in second], [each for each in second if each not in first]
        if not any(only):
            return f"the same in another order: cold {first!r:.100}, warm {second!r:.100}"
        first, second = only
    return f"cold {first!r:.400}, warm {second!r:.400}"
