"""
Whether a job hangs, and what its ranks wait for.

A job hangs when for a set time no rank has printed, and each either used next to no CPU time or, where there are
several, spent it in one and the same place. One rank that goes on is enough for a job that does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from drumline.contract.record import NamedTuple
from drumline.node.failures import OF_LIBRARIES
from drumline.supervisor import words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

IDLE_SHARE = 0.02
"""Of a core; a process that waits wakes up now and then."""

IDLE_BYTES = 1 << 20
"""Read and written between two looks; to be looked at takes some too."""

SAMPLES_PER_PERIOD = 10

_COLLECTIVES = re.compile(
    r"^(all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|broadcast|barrier|reduce|scatter|gather|send|recv"
    r"|isend|irecv|monitored_barrier|synchronize)(_\w+)?$",
    re.IGNORECASE,
)
_DISTRIBUTED = re.compile(r"torch/distributed/|horovod/|mpi4py|tensorflow/python/distribute|jax/.*multihost")


class Seen(NamedTuple):
    """One look at a rank: how long its log is, the CPU time that it has used, and what it has read and written."""

    log_bytes: int
    cpu_s: float
    io_bytes: int = 0


_UNSEEN = Seen(0, 0.0)


class Watch:
    """
    ``hang_after_s``: 0 for never. Times are monotonic seconds.

    Each look is ``saw`` with all ranks that run; in the second half of the silence it wants their places too, which are
    whole stacks: who works moves somewhere in them.
    """

    def __init__(self, hang_after_s: float) -> None:
        self._hang_after_s = hang_after_s
        self._seen: dict[int, Seen] = {}
        self._places: dict[int, str] = {}
        self._moved: dict[int, float] = {}
        """When each rank did last do something, as far as is known."""

        self._printed: float | None = None
        """When the last rank printed, or went on otherwise."""

        self._last = 0.0
        self.is_hung = False

    @property
    def pause_s(self) -> float:
        """Between two looks."""
        return min(30.0, self._hang_after_s / SAMPLES_PER_PERIOD)

    def leave_out(self, passed_s: float) -> None:
        """Time in which nobody of the job could do anything."""
        self._last += passed_s
        if self._printed is not None:
            self._printed += passed_s
        self._moved = {rank: moved + passed_s for rank, moved in self._moved.items()}

    def wants_places(self, now: float) -> bool:
        return self._printed is not None and now - self._printed >= self._hang_after_s / 2

    def quiet_s(self, rank: int, now: float) -> float:
        """For how long a rank has done nothing."""
        return now - self._moved.get(rank, now)

    def saw(self, ranks: Mapping[int, Seen], places: Mapping[int, str], now: float) -> bool:
        """True when the job hangs, once for each time that it does."""
        went_on = self._printed is None or ranks.keys() != self._seen.keys()
        passed = max(now - self._last, 1e-3)
        for rank, seen in ranks.items():
            before = self._seen.get(rank, _UNSEEN)
            printed = seen.log_bytes != before.log_bytes or seen.io_bytes - before.io_bytes > IDLE_BYTES
            is_busy = (seen.cpu_s - before.cpu_s) / passed > IDLE_SHARE
            place = places.get(rank, "")
            # Alone it waits for nobody, and a place may be a long call of native code.
            is_elsewhere = is_busy and (
                not place or place != self._places.get(rank, place) or len(ranks) == 1
            )
            if printed or is_elsewhere or rank not in self._moved:
                self._moved[rank] = now
            # Before places are asked for, CPU time alone says nothing: who waits may spin.
            went_on = went_on or printed or (is_elsewhere and self.wants_places(self._last))
            if place:
                self._places[rank] = place
        self._last, self._seen = now, dict(ranks)
        if went_on or not ranks:
            self._printed, self.is_hung = now, False
            self._places.clear()
            return False
        assert self._printed is not None
        if self.is_hung or now - self._printed < self._hang_after_s:
            return False
        self.is_hung = True
        return True


def places_of(processes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where a rank is, by the Python frames of its processes; none where none are known."""
    places = (_with_collective(_place(process["frames"]), process.get("collective")) for process in processes)
    return list(dict.fromkeys(place for place in places if place))


def _with_collective(place: str, collective: Mapping[str, Any] | None) -> str:
    """With the number of the collective, where PyTorch's flight recorder knows it."""
    if not collective or not place:
        return place
    seq = f"seq {collective['seq']}" + (f" of {collective['group']}" if collective["group"] else "")
    if not collective["is_waiting"]:
        return f"{place}, its last collective was {collective['name']}, {seq}"
    if place.startswith("wait in "):
        what, _, where = place.partition(" (")
        return f"{what} ({seq}, {where}"
    return f"{place}, waiting in {collective['name']}, {seq}"


def _place(frames: list[list[Any]]) -> str:
    """``wait in all_reduce (train.py:210, in step)``, ``be in load_batch (data.py:31)``."""
    own = next((frame for frame in frames if not OF_LIBRARIES.search(frame[0])), None)
    if own is None:
        return f"be in {frames[0][2]} ({frames[0][0]}:{frames[0][1]})" if frames else ""
    inner = frames[: frames.index(own)]
    # From the program inwards: the first name that it called.
    for file, _, function in reversed(inner):
        if _DISTRIBUTED.search(file) and _COLLECTIVES.match(function):
            return f"wait in {function} ({own[0]}:{own[1]}, in {own[2]})"
    if inner:
        return f"be in {inner[-1][2]} ({own[0]}:{own[1]}, in {own[2]})"
    return f"be in {own[2]} ({own[0]}:{own[1]})"


def _doing(processes: list[Mapping[str, Any]], quiet_s: float) -> list[str]:
    """Its places and, where the kernel holds it, what for."""
    places = places_of(processes)
    process = processes[0] if processes else {}
    state = process.get("state")
    if state == "D":
        return [*places, f"waiting on the disk for {quiet_s:.0f} s"]
    if state in ("T", "t"):
        return [*places, "stopped by a signal"]
    if places:
        return places
    where = process.get("waits_in") or ""
    return [
        f"be asleep in the kernel ({where})" if where not in ("", "0") else "be at a place that is not known"
    ]


def explain(
    stacks: Mapping[int, list[Mapping[str, Any]]], labels: Mapping[int, str], watch: Watch, now: float
) -> str:
    """
    One sentence: ``ranks 0-2 wait in all_reduce (train.py:12, in step); rank 3 is in load_batch (data.py:31)``.

    Ranks at one place come together, the most first, so that the odd one is last.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for rank, processes in sorted(stacks.items()):
        groups.setdefault(tuple(_doing(list(processes), watch.quiet_s(rank, now))), []).append(rank)
    said = []
    for doing, ranks in sorted(groups.items(), key=lambda group: -len(group[1])):
        who = words.ranks([labels[rank] for rank in ranks])
        parts = [_conjugated(part, len(ranks)) for part in doing]
        said.append(
            f"{who} {parts[0]}"
            + "".join(f", {part.removeprefix('is ').removeprefix('are ')}" for part in parts[1:])
        )
    return "; ".join(said) or "no rank has answered"


def _conjugated(doing: str, count: int) -> str:
    verb, _, rest = doing.partition(" ")
    if verb == "be":
        return f"{'is' if count == 1 else 'are'} {rest}"
    if verb == "wait":
        return f"{'waits' if count == 1 else 'wait'} {rest}"
    return f"{'is' if count == 1 else 'are'} {doing}"


def silence(seconds: float) -> str:
    return f"no rank has printed anything or gone on for {seconds:g} s"
