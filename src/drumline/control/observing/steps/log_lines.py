"""Lines of a log that say how many steps of a training are done."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

_MAY_TELL = re.compile(rb"step|iter|epoch|\d/\d", re.IGNORECASE)
_KERAS_EPOCH = re.compile(r"Epoch (\d{1,9})/(\d{1,9})")
_KERAS_STEP = re.compile(r"\s*(\d{1,12})/(\d{1,12}) (?=[━=\[]|- \d|\d+s )")
_STEP = re.compile(
    r"(?<![\w.%/-])(?:global[ _-]?step|train(?:ing)?[ _-]step|step|iteration|iter)"
    r"(?>\s*)(?:[:=#](?>\s*))?(?:\[(?>\s*))?(\d{1,12})(?:(?>\s*)(?:/|of)(?>\s*)(\d{1,12}))?(?!\w|[.,]\d)",
    re.IGNORECASE,
)
"""Blanks are passed over once: a line of a job that has a thousand of them must not cost seconds."""

_OTHER_STEP = re.compile(
    r"\b(?:eval\w*|valid\w*|val|test\w*|predict\w*|infer\w*|sampl\w*|warm-?up|max\w*|total|per|every|last|next|first|"
    r"from|at|after|resum\w*|sav\w*|checkpoint\w*)\b",
    re.IGNORECASE,
)
"""A word before "step" that says that another thing is counted, or that this step is not the newest."""

_EPOCH = re.compile(r"\bepochs?\b", re.IGNORECASE)
_LONGEST_LINE = 2000


class StepMark(NamedTuple):
    """``done`` steps at that ``place`` of a log. ``total``: of the whole training; None: not known."""

    place: int
    done: int
    total: int | None


def find_marks(lines: Iterable[tuple[int, bytes]]) -> list[StepMark]:
    """
    Return what lines say, each given with its place; nothing where it is not certain that it is steps of the whole
    training: where the numbers fall, or where a log also has epochs, of which each may begin anew.

    >>> find_marks([(15, b"step 10/200"), (30, b"step 20/200")])[-1]
    StepMark(place=30, done=20, total=200)
    >>> find_marks([(10, b"epoch 2"), (22, b"step 20/200")])
    []
    """
    reader = _LineReader()
    for place, line in lines:
        if _MAY_TELL.search(line):
            reader.read(place, clean(line[:_LONGEST_LINE].decode("utf-8", "replace")).strip())
    return reader.choose()


class _LineReader:
    def __init__(self) -> None:
        self._keras: list[StepMark] = []
        self._plain: list[StepMark] = []
        self._epoch: tuple[int, int] | None = None
        self._batches = 0
        self._has_epochs = False

    def read(self, place: int, text: str) -> None:
        epoch = _KERAS_EPOCH.fullmatch(text)
        if epoch:
            self._epoch = (int(epoch[1]), int(epoch[2]))
        elif self._epoch and (bar := _KERAS_STEP.match(text)):
            self._read_keras(place, self._epoch, int(bar[1]), int(bar[2]))
        elif _EPOCH.search(text):
            self._has_epochs = True
        else:
            self._read_plain(place, text)

    def _read_keras(self, place: int, epoch: tuple[int, int], made: int, batches: int) -> None:
        # Later bars with another end are of an evaluation.
        self._batches = self._batches or batches
        if batches == self._batches and made <= batches and epoch[0] <= epoch[1]:
            self._keras.append(StepMark(place, (epoch[0] - 1) * batches + made, epoch[1] * batches))

    def _read_plain(self, place: int, text: str) -> None:
        step = _STEP.search(text)
        if step and not _OTHER_STEP.search(text[: step.start()]):
            total = int(step[2]) if step[2] else None
            if total is None or 0 < total >= int(step[1]):
                self._plain.append(StepMark(place, int(step[1]), total))

    def choose(self) -> list[StepMark]:
        """Return the marks that count; none where they contradict each other."""
        if self._epoch:
            return self._keras if _is_rising(self._keras) else []
        marks = [mark for mark in self._plain if mark.total] or self._plain
        is_enough = bool(marks) and (marks[-1].total is not None or marks[-1].done > marks[0].done)
        is_one = len({mark.total for mark in marks}) == 1
        return marks if is_enough and is_one and not self._has_epochs and _is_rising(marks) else []


def _is_rising(marks: list[StepMark]) -> bool:
    return all(one.done <= after.done for one, after in itertools.pairwise(marks))
