"""
One sentence for a job that failed: which rank began, when, how, and what became of the others.

The first failure is the earliest by the nodes' clocks, measured against each other: of an exception the time when it
was raised, of anything else the time when the process ended. Whoever failed because a peer was gone did not begin.
"""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple, compile_late
from drumline.contract.words import format_seconds, name_several
from drumline.supervisor.explaining import exit_messages, missing_rank
from drumline.supervisor.explaining.missing_rank import find_failure_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.events import RankExited
    from drumline.contract.evidence import RecordedFailure


_MOST_PLACES = 3


class Verdict(NamedTuple):
    """
    The verdict on a failure. ``rank``: the one that began. ``fields``: the same for programs, as in ``drumline job show
    -o json``.
    """

    reason: str
    exit_code: int
    rank: int
    node: int
    fields: dict[str, Any]


def judge(
    labels: Mapping[int, str],
    exits: Mapping[int, RankExited],
    stopped_after: float | None,
    started: float | None,
    where: Mapping[int, missing_rank.RunningRank] | None = None,
) -> Verdict:
    """
    Find the rank that failed first. ``labels``: of all ranks. ``exits``: of all ranks that have ended.

    ``stopped_after``: when the first failure was reported, and the others were told to end; None: they were not.
    ``started``: when the first rank was. All are seconds since 1970. ``where``: where the running ranks were before
    they were told to end.
    """
    own = _own_failures(exits, stopped_after)
    if where and all(missing_rank.find_lost_peer(one) for one in own):
        failing = missing_rank.find_failing_rank(exits, where, min(own, key=find_failure_time))
        exits = {**exits, failing.rank: failing} if failing else exits
        own = _own_failures(exits, stopped_after)
    failed = [one for one in exits.values() if one.code != 0]
    began = [one for one in own if not missing_rank.find_lost_peer(one)]
    first = min(began or own, key=find_failure_time)
    early = None if began else missing_rank.find_early_end(exits, first)
    late = None if began or early else missing_rank.find_late_ranks(exits, where or {}, own)
    first = late.gave_up if late else first
    who = early or first
    apart = {who.rank, first.rank, *(late.places if late else ())}
    groups = _group_others(who, [one for one in failed if one.rank not in apart], stopped_after)
    # A program that handles SIGTERM may end well.
    told = [one.rank for one in exits.values() if one.code == 0 and missing_rank.was_told(one)]
    groups = groups._replace(stopped=sorted({*groups.stopped, *told} - apart))
    after_s = None if started is None else max(0.0, find_failure_time(who) - started)
    left = _find_code(first)
    code = left if left is not None else 128 + (first.signal or 0)
    reason = _compose_reason(labels, who, first if early else None, late, after_s, groups)
    if early or late:
        groups.cut_off.append(first.rank)
    fields = _make_fields(labels, who, after_s, groups)
    if late:
        rank = next(iter(late.places))
        fields.update(rank=rank, label=labels[rank], node=late.node, late=sorted(late.places))
    return Verdict(reason, code, fields["rank"], fields["node"], fields)


_IMPROPER = compile_late(r" process rank (\d+) .*exiting\s+improperly")
"""Source: Open MPI's help-prrun.txt and orterun.c: what it says of a process that did not call MPI_Finalize."""


def judge_unfinished(
    labels: Mapping[int, str], exits: Mapping[int, RankExited], started: float | None, said: str
) -> Verdict | None:
    """
    Find the rank that ended with 0 and without MPI_Finalize, after which its launcher ended all. ``said``: the
    launcher's words, which name it.
    """
    found = _IMPROPER.search(said)
    who = exits.get(int(found[1])) if found else None
    if who is None or who.code != 0:
        return None
    after_s = None if started is None else max(0.0, find_failure_time(who) - started)
    taken = "" if after_s is None else f", {format_seconds(after_s)} in"
    name = exit_messages.name_rank(labels[who.rank], who.node)
    reason = f"{name} ended early{taken}, with exit code 0 and without MPI_Finalize"
    fields = _make_fields(labels, who, after_s, _Groups([], [], [], "", []))
    return Verdict(reason, 1, who.rank, who.node, {**fields, "cause": "it ended without MPI_Finalize"})


def _own_failures(exits: Mapping[int, RankExited], stopped_after: float | None) -> list[RankExited]:
    """Return the failures from before the ranks were told to end, or all where there are none."""
    failed = [one for one in exits.values() if one.code != 0]
    return [one for one in failed if _is_own(one, stopped_after)] or failed


def _get_failure(exit_: RankExited) -> RecordedFailure | None:
    return (exit_.evidence or {}).get("failure")


def _find_code(exit_: RankExited) -> int | None:
    """
    Return the exit code; 1 of a process that raised, even if a signal of a library's cleanup, or ours, ended it.

    Python itself ends by SIGINT after a KeyboardInterrupt.
    """
    raised = exit_.code is None and exit_.signal != signal.SIGINT and _get_failure(exit_)
    return 1 if raised else exit_.code


def _is_own(exit_: RankExited, stopped_after: float | None) -> bool:
    """Return whether it failed before it was told to end; a process may take its time between exception and end."""
    failure = _get_failure(exit_)
    if failure and failure.get("after"):
        return True  # It had failed before it was cut off, and that took until now.
    told = (exit_.evidence or {}).get("told", stopped_after)
    return told is None or find_failure_time(exit_) <= told


class _Groups(NamedTuple):
    """The other ranks that failed, by what became of them."""

    alike: list[int]
    """Failed by themselves, and said the same as the first."""

    apart: list[int]
    """Failed by themselves, otherwise."""

    cut_off: list[int]
    how: str
    """What most of those that were cut off said."""

    stopped: list[int]


def _group_others(who: RankExited, others: Sequence[RankExited], stopped_after: float | None) -> _Groups:
    groups = _Groups([], [], [], "", [])
    said, first_end = [], _describe_end(who)
    for one in sorted(others, key=lambda other: other.rank):
        gone = missing_rank.find_lost_peer(one)
        if gone:
            groups.cut_off.append(one.rank)
            said.append(gone)
        elif not _is_own(one, stopped_after):
            groups.stopped.append(one.rank)
        elif _describe_end(one) == first_end:
            groups.alike.append(one.rank)
        else:
            groups.apart.append(one.rank)
    return groups._replace(how=Counter(said).most_common(1)[0][0] if said else "")


_OWN_DETAIL = compile_late(r"0x[0-9a-f]+|\d+")
"""Ranks that fail alike differ in their numbers, ports, processes, addresses and bytes."""


def _describe_end(exit_: RankExited) -> tuple[str, int | None, int | None]:
    """Describe an end so that those of ranks that failed alike are equal: apart from numbers, but for their codes."""
    return _OWN_DETAIL.sub("0", exit_messages.describe_cause(exit_)), exit_.code, exit_.signal


def _compose_reason(
    labels: Mapping[int, str],
    who: RankExited,
    missed_by: RankExited | None,
    late: missing_rank.LateRanks | None,
    after_s: float | None,
    groups: _Groups,
) -> str:
    """Compose the sentence about the failure. ``missed_by``: the first to fail because ``who`` had ended."""
    label = labels[who.rank]
    first = " first" if len(labels) > 1 else ""
    taken = f"{format_seconds(after_s)} in" if after_s is not None else ""
    if late:
        said = _describe_late(labels, late, taken)
    elif who.error:
        said = f"{exit_messages.name_rank(label, who.node)} did not start: {who.error}"
    elif missed_by:
        later_s = find_failure_time(missed_by) - find_failure_time(who)
        then = f"failed {format_seconds(later_s)} later" if later_s > 0 else "was cut off by that"
        said = (
            f"{exit_messages.name_rank(label, who.node)} ended early, {taken or 'and well'}, with exit code 0"
            f"{exit_messages.describe_termination(who)}; "
            f"rank {labels[missed_by.rank]} still waited for it, and {then}: {exit_messages.describe_cause(missed_by)}"
        )
    else:
        when = f", {taken}" if taken and first else f" {taken}" if taken else ""
        said = f"{exit_messages.name_rank(label, who.node)} failed{first}{when}: {exit_messages.describe_cause(who)}"
    for ranks, verb in (
        (groups.alike, "failed the same way"),
        (groups.apart, "failed too"),
        (groups.cut_off, f"{{}} then cut off ({groups.how})"),
        (groups.stopped, "{} then stopped"),
    ):
        if ranks:
            was = "was" if len(ranks) == 1 else "were"
            said += f"; {name_several('rank', [labels[rank] for rank in ranks])} {verb.format(was)}"
    return said


def _describe_late(labels: Mapping[int, str], late: missing_rank.LateRanks, taken: str) -> str:
    """Describe late ranks: ``rank 3 on node 1 kept the others waiting: it was in load_batch (data.py:31) when ...``."""
    ranks = list(late.places)
    late_labels = [labels[rank] for rank in ranks]
    is_one = len(ranks) == 1
    who = exit_messages.name_rank(late_labels[0], late.node) if is_one else name_several("rank", late_labels)
    by_place: dict[str, list[str]] = {}
    for rank, place in late.places.items():
        if place:
            by_place.setdefault(place, []).append(labels[rank])
    if is_one:
        doing = [f"it {place}" for place in by_place]
    else:
        doing = [
            f"{name_several('rank', at)} {place.replace('was ', 'were ', 1) if len(at) > 1 else place}"
            for place, at in by_place.items()
        ]
    when = f"{' and '.join(doing[:_MOST_PLACES])} when " if doing else ""
    gave_up = f"rank {labels[late.gave_up.rank]} gave up{', ' + taken if taken else ''}"
    return f"{who} kept the others waiting: {when}{gave_up}: {exit_messages.describe_cause(late.gave_up)}"


def _make_fields(
    labels: Mapping[int, str], who: RankExited, after_s: float | None, groups: _Groups
) -> dict[str, Any]:
    failure: Mapping[str, Any] = _get_failure(who) or {}
    crash: Mapping[str, Any] = (who.evidence or {}).get("crash") or {}
    return {
        "rank": who.rank,
        "label": labels[who.rank],
        "node": who.node,
        "after_s": None if after_s is None else round(after_s, 3),
        "exit_code": _find_code(who),
        "signal": who.signal,
        "cause": exit_messages.describe_cause(who),
        "error_type": failure.get("type"),
        "error_message": failure.get("message"),
        "file": failure.get("file") or crash.get("file"),
        "line": failure.get("line") or crash.get("line"),
        "function": failure.get("function") or crash.get("function"),
        "failed_too": sorted(groups.alike + groups.apart),
        "cut_off": sorted(groups.cut_off),
        "stopped": groups.stopped,
        "late": [],
    }
