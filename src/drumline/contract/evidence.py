"""
Evidence of a rank's end: as its agent finds it (``ExitEvidence``), and as ``events.jsonl`` has it.

The classes for dictionaries describe JSON. They exist for type checkers alone, and cost a launch nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypedDict

    class CodePlace(TypedDict):
        """A line of a program."""

        file: str
        line: int
        function: str

    class _Raised(CodePlace):
        type: str
        message: str

    class RaisedException(_Raised, total=False):
        """An exception, and where it was raised."""

        python: str
        """The interpreter that has found no such module."""

    class _Noted(RaisedException):
        at: float
        """Monotonic seconds of the rank's machine."""

        pid: int

    class NotedException(_Noted, total=False):
        """An exception that ended a process of a rank."""

        chain: Sequence[RaisedException]
        """The exceptions that it came of, the latest first."""

        saved_to: str
        """The file that was being written."""

        handled: bool
        """It did not end the program, which had handled it and ended with a code of its choice."""

        circumstances: Sequence[str]
        """Clauses on the limit that the process had met, and on variables of the rank that it had changed."""

    class ReportedProcess(TypedDict):
        """The end of a process that a launcher inside a rank lists. One of ``code`` and ``signal`` is set."""

        rank: int
        pid: int
        code: Optional[int]
        signal: Optional[int]

    class RecordedFailure(RaisedException, total=False):
        """The exception that tells most of a rank's failure."""

        time: float
        """Seconds since 1970."""

        because: str
        """The words that say that a peer was gone, of the exception that this one came of."""

        after: str
        """The same words, of an exception that came later."""

        inner: ReportedProcess
        """The process of a launcher inside the rank that ended without an exception."""

        handled: bool
        circumstances: Sequence[str]
        """These as of ``NotedException``."""

        inner_rank: int
        """The number that a launcher inside the rank gave to the process that failed."""

    class FailureFacts(TypedDict, total=False):
        """More that the agent knows of a rank that failed."""

        said: str
        """The line of the log's end that says most."""

        gave_up: str
        """What the program's language or a library of it reported of the end, in words that are known."""

        crash: CodePlace
        """Where it crashed or gave up."""

        peak_bytes: int
        memory_ran_out: bool
        shared_memory: str
        """The state of ``/dev/shm``, where a failure may come of that."""

        port_holder: str
        """Which process has the port that the rank could not have."""

        full_disk: str
        warm_process: int
        """The warm interpreter that had forked the rank, where both were killed together."""

        sent_by: str
        """Which Python of the node's ranks has sent the signal that ended the rank."""

    class RecordedEvidence(FailureFacts, total=False):
        """The ``evidence`` of the event ``RankExited``, each only when it is known. Times are seconds since 1970."""

        left: float
        """When the program ended in order."""

        collectives: int
        """Of all ranks of its default group, that the program had entered when it ended in order."""

        world: int
        """How many ranks that group had; 0: it has entered none."""

        terminated: float
        """When SIGTERM came to the program of a rank that ended with 0, though nobody had told it to end."""

        told: Optional[float]
        """When the rank was told to end; None of one that failed before."""

        failure: RecordedFailure
        lost_peer: str
        """What the exit code says of a peer, where an MPI's launcher started the rank."""


class ExitEvidence(NamedTuple):
    """Evidence that an agent has of the end of a rank. Times are monotonic seconds of its machine."""

    failure: Optional[NotedException] = None
    """The uncaught exception that explains the end."""

    inner: Sequence[NotedException] = ()
    """Those of processes that the rank started, where they explain its own."""

    launcher: Optional[NotedException] = None
    """The rank's own exception, where ``inner`` explains it."""

    reported: Sequence[ReportedProcess] = ()
    """The failures that a launcher inside the rank lists, that which it saw first in front."""

    left_at: Optional[float] = None
    """When the program ended in order."""

    collectives: Optional[int] = None
    """Of all ranks of its default group, that the program had entered then; ``world``: how many these are."""

    world: int = 0

    terminated_at: Optional[float] = None
    """When SIGTERM came to the rank's first process, of one that ended with 0 and did not send it itself."""

    told_at: Optional[float] = None
    """When the ranks of the node were told to end."""

    facts: Optional[FailureFacts] = None
    """Of a rank that failed, as its event has them."""
