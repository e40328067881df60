"""The filters of a list of jobs, by the facts of each."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.control.observing.overview import JobOverview

_STATUSES = (
    *(status.NOT_STARTED, status.QUEUED, status.PREPARING, status.PROVISIONING, status.STARTING),
    *(status.RUNNING, status.FINALIZING, status.CANCEL_REQUESTED, status.NOT_RESPONDING),
    *(status.COMPLETED, status.FAILED, status.CANCELED),
)


class JobFilters(NamedTuple):
    """
    Empty: all jobs. ``since``: seconds since 1970. ``text``: in lower case, in its name, display name, experiment,
    reason or tags. ``archived`` and ``parent`` None: whatever they are.
    """

    statuses: frozenset[str] = frozenset()
    experiment: str = ""
    compute: str = ""
    since: float | None = None
    tags: tuple[tuple[str, str | None], ...] = ()
    text: str = ""
    kinds: frozenset[str] = frozenset()
    archived: bool | None = None
    parent: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == JobFilters()

    def match(self, job: JobOverview) -> bool:
        return (
            (self.parent is None or job.parent == self.parent)
            and (self.archived is None or job.archived == self.archived)
            and (not self.statuses or job.status in self.statuses)
            and (not self.kinds or job.kind in self.kinds)
            and (not self.experiment or fnmatchcase(job.experiment, self.experiment))
            and (not self.compute or fnmatchcase(job.compute, self.compute))
            and (self.since is None or (job.created or 0.0) >= self.since)
            and all(key in job.tags and (value is None or job.tags[key] == value) for key, value in self.tags)
            and (not self.text or _has_text(job, self.text))
        )


def _has_text(job: JobOverview, text: str) -> bool:
    tags = (f"{key}={value}" for key, value in job.tags.items())
    return text in "\n".join((job.name, job.display_name, job.experiment, job.reason, *tags)).lower()


def parse_statuses(given: Iterable[str], where: str) -> frozenset[str]:
    """Return the statuses of ``Failed,running``. Raises UsageError, with ``where``, for one that there is not."""
    words = [word.strip() for text in given for word in text.split(",") if word.strip()]
    return frozenset(_parse_status(word, where) for word in words)


def _parse_status(word: str, where: str) -> str:
    known = {one.lower(): one for one in _STATUSES}
    if word.lower() not in known:
        import difflib

        close = difflib.get_close_matches(word.lower(), known, n=1)
        hint = f"did you mean {known[close[0]]!r}?" if close else f"one of {', '.join(_STATUSES)}"
        raise UsageError(f"{where}: no job can be {word!r}", hint)
    return known[word.lower()]


def parse_tags(given: Iterable[str]) -> tuple[tuple[str, str | None], ...]:
    """Return the tags of ``KEY`` and ``KEY=VALUE``."""
    tags = [text.partition("=") for text in given]
    return tuple((key, value if equals else None) for key, equals, value in tags)
