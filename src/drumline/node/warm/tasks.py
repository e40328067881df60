"""A rank that is to be started, and one that was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Task(NamedTuple):
    """A rank to be started. ``argv``, ``env`` and ``cwd`` as it would be without a warm interpreter."""

    rank: int
    argv: Sequence[str]
    env: dict[str, str]
    cwd: str
    log: str
    cores: Sequence[int]
    secrets: Sequence[str] = ()
    """Names of variables that no warm interpreter may have."""


class StartedRank(NamedTuple):
    rank: int
    pid: int
    error: str
    """Why it could not be started; empty when it was."""

    cold: str
    """Why it was started as if there was no warm interpreter; empty when it was not."""

    before: float = 0.0
    """When that began, in monotonic seconds."""
