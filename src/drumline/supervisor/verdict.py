"""
One sentence for a job that failed: which rank began, when, how, and what became of the others.

The first failure is the earliest by the nodes' clocks, measured against each other: of an exception the time when it
was raised, of anything else the time when the process ended. Whoever failed because a peer was gone did not begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple
from drumline.supervisor import cause, cut_off, words
from drumline.supervisor.cause import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.events import RankExited
    from drumline.supervisor.policy import Member


_MOST_PLACES = 3


class Verdict(NamedTuple):
    """``rank``: the one that began. ``fields``: the same for programs, as in ``drumline job show -o json``."""

    reason: str
    exit_code: int
    rank: int
    node: int
    fields: dict[str, Any]


def judge(
    members: Mapping[int, Member],
    exits: Mapping[int, RankExited],
    stopped_after: float | None,
    started: float | None,
    where: Mapping[int, cause.Where] | None = None,
) -> Verdict:
    """
    ``exits``: of all ranks that have ended. ``stopped_after``: when the first failure was heard of, and the others
    were told to end; None: they were not. ``started``: when the first rank was. All are seconds since 1970.
    ``where``: what was found of the ranks that were left before they were told to end.
    """
    own = _own_failures(exits, stopped_after)
    if where and all(cut_off.by(one) for one in own):
        failing = cause.failing(exits, where, min(own, key=time_of))
        exits = {**exits, failing.rank: failing} if failing else exits
        own = _own_failures(exits, stopped_after)
    failed = [one for one in exits.values() if one.code != 0]
    began = [one for one in own if not cut_off.by(one)]
    first = min(began or own, key=time_of)
    early = None if began else cause.ended_early(exits, first)
    late = None if began or early else cause.late(exits, where or {}, own)
    first = late.gave_up if late else first
    who = early or first
    apart = {who.rank, first.rank, *(late.places if late else ())}
    groups = _groups(who, [one for one in failed if one.rank not in apart], stopped_after)
    after_s = None if started is None else max(0.0, time_of(who) - started)
    left = _code(first)
    code = left if left is not None else 128 + (first.signal or 0)
    reason = _sentence(members, who, first if early else None, late, after_s, groups)
    if early or late:
        groups.cut_off.append(first.rank)
    fields = _fields(members, who, after_s, groups)
    if late:
        rank = next(iter(late.places))
        fields.update(rank=rank, label=members[rank].label, node=members[rank].node, late=sorted(late.places))
    return Verdict(reason, code, fields["rank"], fields["node"], fields)


def _own_failures(exits: Mapping[int, RankExited], stopped_after: float | None) -> list[RankExited]:
    """Those before they were told to end, where there are any."""
    failed = [one for one in exits.values() if one.code != 0]
    return [one for one in failed if _is_own(one, stopped_after)] or failed


def _failure(exit_: RankExited) -> dict[str, Any] | None:
    failure: dict[str, Any] | None = (exit_.evidence or {}).get("failure")
    return failure


def _code(exit_: RankExited) -> int | None:
    """Of a process that raised, 1, even if a signal ended it on its way out: from a library's cleanup, or ours."""
    return 1 if exit_.code is None and _failure(exit_) else exit_.code


def _is_own(exit_: RankExited, stopped_after: float | None) -> bool:
    """Whether it failed before it was told to end; a process may take its time between exception and end."""
    if (_failure(exit_) or {}).get("after"):
        return True  # It had failed before it was cut off, and that took until now.
    told = (exit_.evidence or {}).get("told", stopped_after)
    return told is None or time_of(exit_) <= told


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


def _groups(who: RankExited, others: Sequence[RankExited], stopped_after: float | None) -> _Groups:
    groups = _Groups([], [], [], "", [])
    said = []
    for one in sorted(others, key=lambda other: other.rank):
        gone = cut_off.by(one)
        if gone:
            groups.cut_off.append(one.rank)
            said.append(gone)
        elif not _is_own(one, stopped_after):
            groups.stopped.append(one.rank)
        elif words.cause(one) == words.cause(who):
            groups.alike.append(one.rank)
        else:
            groups.apart.append(one.rank)
    return groups._replace(how=max(said, key=said.count) if said else "")


def _sentence(
    members: Mapping[int, Member],
    who: RankExited,
    missed_by: RankExited | None,
    late: cause.Late | None,
    after_s: float | None,
    groups: _Groups,
) -> str:
    """``missed_by``: the first to fail because ``who`` had ended."""
    label = members[who.rank].label
    first = " first" if len(members) > 1 else ""
    taken = f"{after_s:.2f} s in" if after_s is not None else ""
    if late:
        said = _said_of_late(members, late, taken)
    elif who.error:
        said = f"{words.place(label, who.node)} did not start: {who.error}"
    elif missed_by:
        later_s = time_of(missed_by) - time_of(who)
        then = f"failed {later_s:.2f} s later" if later_s > 0 else "was cut off by that"
        said = (
            f"{words.place(label, who.node)} ended early, {taken or 'and well'}, with exit code 0; "
            f"rank {members[missed_by.rank].label} still waited for it, and {then}: {words.cause(missed_by)}"
        )
    else:
        when = f", {taken}" if taken and first else f" {taken}" if taken else ""
        said = f"{words.place(label, who.node)} failed{first}{when}: {words.cause(who)}"
    for ranks, verb in (
        (groups.alike, "failed the same way"),
        (groups.apart, "failed too"),
        (groups.cut_off, f"{{}} then cut off ({groups.how})"),
        (groups.stopped, "{} then stopped"),
    ):
        if ranks:
            was = "was" if len(ranks) == 1 else "were"
            said += f"; {words.ranks([members[rank].label for rank in ranks])} {verb.format(was)}"
    return said


def _said_of_late(members: Mapping[int, Member], late: cause.Late, taken: str) -> str:
    """``rank 3 on node 1 kept the others waiting: it was in load_batch (data.py:31) when rank 0 gave up, ...``."""
    ranks = list(late.places)
    labels = [members[rank].label for rank in ranks]
    who = words.place(labels[0], members[ranks[0]].node) if len(ranks) == 1 else words.ranks(labels)
    by_place: dict[str, list[str]] = {}
    for rank, place in late.places.items():
        if place:
            by_place.setdefault(place, []).append(members[rank].label)
    if len(ranks) == 1:
        doing = [f"it {place}" for place in by_place]
    else:
        doing = [
            f"{words.ranks(at)} {place.replace('was ', 'were ', 1) if len(at) > 1 else place}"
            for place, at in by_place.items()
        ]
    when = f"{' and '.join(doing[:_MOST_PLACES])} when " if doing else ""
    gave_up = f"rank {members[late.gave_up.rank].label} gave up{', ' + taken if taken else ''}"
    return f"{who} kept the others waiting: {when}{gave_up}: {words.cause(late.gave_up)}"


def _fields(
    members: Mapping[int, Member], who: RankExited, after_s: float | None, groups: _Groups
) -> dict[str, Any]:
    failure = _failure(who) or {}
    crash = (who.evidence or {}).get("crash") or {}
    return {
        "rank": who.rank,
        "label": members[who.rank].label,
        "node": who.node,
        "after_s": None if after_s is None else round(after_s, 3),
        "exit_code": _code(who),
        "signal": who.signal,
        "cause": words.cause(who),
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
