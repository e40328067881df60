"""
Slurm's commands, each with a time limit, and what they print as fields.

Text with separators of our own choice, never ``--json``: that has changed its shape three times between 22.05 and
25.05, is not built in everywhere, and ignores ``--job`` in 22.05. The letters of ``--format`` have not changed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError, NotSubmittedError
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_seconds
from drumline.linux import kernel
from drumline.linux.notebook_environment import restore_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMEOUT_S = 20.0
SUBMIT_TIMEOUT_S = 60.0

PATIENCE_S = 120.0
"""For a controller that is down while a job is submitted."""

_SILENCE = re.compile(
    r"unable to (contact|establish|resolve)|connection (refused|timed out|reset)|socket timed out|zero bytes were"
    r"|transport endpoint|backup controller|communication (connection|shutdown)|protocol authentication error"
    r"|temporarily una(ble|vailable)|munge|message (send|receive) failure",
    re.IGNORECASE,
)
"""What a command says when nobody has decided anything: no controller, no answer, no credential."""

_ABSENCE = "Could not establish a configuration source"
"""What a command says where there is neither slurm.conf nor a controller that would send one."""


class RefusedError(NotSubmittedError):
    """Slurm has understood and said no."""

    exit_code = 2


class AbsentError(RefusedError):
    """This machine has no Slurm: not its commands, or nothing that would tell them of a cluster."""


class SilentError(EngineError):
    """Slurm does not answer, or not in a way that can be read: what was asked for may have happened or not."""


class InQueue(NamedTuple):
    """A job as ``squeue`` has it. ``state`` in capitals, ``reason`` in Slurm's word, ``start`` empty where unknown."""

    id: str
    state: str
    reason: str
    start: str
    partition: str
    folder: str
    """Its working folder, which is the run folder: by that a job of ours is known when its number is not."""


class Slurm:
    """
    Slurm's commands on this machine. ``conf``: the path of slurm.conf; empty: where the commands look for it.

    ``in_job``: this process runs in a job of Slurm's, which may be ended while a command answers. Slurm sends SIGTERM
    to all that runs of it, so the commands do not take that signal, and this process takes it after their answer.
    """

    def __init__(self, conf: str = "", *, in_job: bool = False) -> None:
        self._untaken = (signal.SIGTERM,) if in_job else ()
        self._environment = restore_environment()
        if conf:
            self._environment["SLURM_CONF"] = conf
        # Times in one form, and nobody's own columns or choice of jobs.
        self._environment["SLURM_TIME_FORMAT"] = "standard"
        for name in os.environ:
            if name.startswith(("SQUEUE_", "SACCT_", "SCONTROL_")):
                del self._environment[name]
        self._until: float | None = None
        """In monotonic seconds."""

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Give the commands of this block so many seconds together; one for which nothing is left is not run."""
        self._until = time.monotonic() + seconds
        try:
            yield
        finally:
            self._until = None

    def sbatch(self, script: str, changes: Mapping[str, str | None]) -> str:
        """
        Submit a script and return the number of the new job. Raises EngineError.

        ``changes``: of its variables, by name; None: it has none of that name.
        """
        given = {**self._environment, **changes}
        environment = {
            name: value
            for name, value in given.items()
            if value is not None
            and (not name.startswith("SLURM_") or name in ("SLURM_CONF", "SLURM_CLUSTERS"))
        }
        said = self._run(
            "sbatch", "--parsable", text=script, timeout_s=SUBMIT_TIMEOUT_S, environment=environment
        )
        # NUMBER or NUMBER;CLUSTER, among lines that a site's plugin may print.
        numbers = re.findall(r"^[ \t]*([0-9]+)(?:;\S*)?[ \t\r]*$", said, re.MULTILINE)
        if not numbers:
            raise SilentError(f"sbatch answered {_short(said)!r}, which is no job's number")
        return str(numbers[-1])

    def mine(self) -> dict[str, InQueue]:
        """Return this user's jobs that wait or run, by number. Raises EngineError."""
        said = self._run(
            "squeue", "--noheader", "--all", f"--user={os.getuid()}", "--format=%i|%T|%r|%S|%P|%Z"
        )
        found = {}
        # Not splitlines: a folder's name may have any character.
        for line in filter(None, said.split("\n")):
            fields = line.split("|", 5)
            if len(fields) != 6 or not fields[1].isupper():
                raise SilentError(f"squeue answered {_short(line)!r}, which is no line of a queue")
            number, state, reason, start, partition, folder = fields
            start = "" if start in ("N/A", "Unknown", "(null)") else start
            found[number] = InQueue(number, state, reason, start, partition, folder)
        return found

    def position(self, number: str, partition: str) -> tuple[int, int] | None:
        """
        Return the job's place among those that wait in that partition, and their count; None when that cannot be seen.
        """
        said = self._run(
            "squeue", "--noheader", "--states=PENDING", f"--partition={partition}", "--format=%Q|%i"
        )
        order = sorted(
            (-int(priority), int(re.split(r"\D", job, maxsplit=1)[0] or 0), job)
            for priority, _, job in (line.strip().partition("|") for line in said.splitlines())
            if priority.isdecimal()
        )
        jobs = [job for _, _, job in order]
        return (jobs.index(number) + 1, len(jobs)) if number in jobs else None

    def job(self, number: str) -> dict[str, str] | None:
        """Return what the controller knows of a job, by its own names of fields; None: nothing. Raises EngineError."""
        try:
            said = self._run("scontrol", "--oneliner", "show", "job", number)
        except RefusedError as refused:
            if "Invalid job id" in refused.message:
                return None
            raise
        fields = fields_of(said)
        if "JobState" not in fields:
            raise SilentError(f"scontrol answered {_short(said)!r}, which is no job")
        return fields

    def nodes(self, names: str = "") -> list[dict[str, str]]:
        """List the nodes as ``scontrol show node`` has them; ``names`` in Slurm's form, empty: all."""
        said = self._run("scontrol", "--oneliner", "show", "node", *([names] if names else []))
        return [fields_of(line) for line in said.splitlines() if line.strip().startswith("NodeName=")]

    def partition(self, name: str) -> dict[str, str] | None:
        """Return a partition as ``scontrol`` shows it; None: there is no such partition."""
        try:
            return fields_of(self._run("scontrol", "--oneliner", "show", "partition", name))
        except RefusedError:
            return None

    def partitions(self) -> list[dict[str, str]]:
        said = self._run("scontrol", "--oneliner", "show", "partition")
        return [fields_of(line) for line in said.splitlines() if line.strip()]

    def config(self) -> dict[str, str]:
        said = self._run("scontrol", "show", "config")
        pairs = (line.partition("=") for line in said.splitlines() if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def read_accounting(self, number: str) -> tuple[str, str] | None:
        """
        Return state (``CANCELLED by 1000``) and exit code (``1:0``) from the accounting, which remembers for long.

        None where there is no accounting, or it does not know the job.
        """
        try:
            said = self._run(
                "sacct",
                "--noheader",
                "--parsable2",
                "--allocations",
                f"--jobs={number}",
                "--format=State,ExitCode",
            )
        except EngineError:
            return None
        lines = [line.split("|") for line in said.splitlines() if line.count("|") == 1]
        return (lines[-1][0], lines[-1][1]) if lines else None

    def withdraw(self, number: str) -> None:
        """Take it out of the queue if it waits; one that runs is left alone. Raises EngineError."""
        self._run("scancel", "--state=PENDING", number)

    def requeue(self, number: str) -> None:
        """Put the job back in the queue; this ends all that runs of it, the caller included. Raises EngineError."""
        self._run("scontrol", "requeue", number)

    def version(self) -> str:
        return self._run("scontrol", "--version").strip().rpartition(" ")[2]

    def _run(
        self,
        program: str,
        *arguments: str,
        text: str = "",
        timeout_s: float = 0.0,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        environment = self._environment if environment is None else environment
        timeout_s = timeout_s or TIMEOUT_S
        if self._until is not None:
            timeout_s = min(timeout_s, self._until - time.monotonic())
            if timeout_s <= 0:
                raise SilentError(f"no time was left for {program}")
        path = shutil.which(program, path=environment.get("PATH"))
        if path is None:
            hint = "on a machine from which jobs are submitted, such as a login node, it is on the PATH"
            raise AbsentError(f"there is no {program} on this machine", hint)
        # A program begins with the signal mask of whoever starts it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._untaken)
        try:
            done = subprocess.run(  # noqa: S603 - the site's own Slurm, no shell
                [path, *arguments],
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout_s,
                env=environment,
                # sbatch gives a job its own limits.
                preexec_fn=kernel.find_core_undoing(),
            )
        except subprocess.TimeoutExpired as expired:
            raise SilentError(f"{program} has not answered for {format_seconds(timeout_s)}") from expired
        except OSError as error:
            raise SilentError(f"{program} could not be started: {error.strerror or error}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if done.returncode == 0:
            return done.stdout
        said = _last_words(done.stderr or done.stdout) or f"exit code {done.returncode}"
        if _ABSENCE in done.stderr:
            raise AbsentError(f"{program}: {said}")
        kind = SilentError if _SILENCE.search(done.stderr) or done.returncode < 0 else RefusedError
        raise kind(f"{program}: {said}")


def fields_of(line: str) -> dict[str, str]:
    """
    Split the ``Key=Value`` pairs of ``scontrol --oneliner``.

    Of several values of a key the first counts: what people have chosen, such as a comment, comes after what Slurm says
    of itself.
    """
    found: dict[str, str] = {}
    for key, value in re.findall(r"(?:^|\s)([A-Za-z][\w:/]*)=(\S*)", line):
        found.setdefault(key, value)
    reason = re.search(r"\sReason=(.*?)(?:\s\[\S+@\S+\])?(?=\s+[A-Z][A-Za-z]+=|\s*$)", line)
    if reason:
        found["Reason"] = reason.group(1).strip()
    return found


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines
    last = telling[-1] if telling else ""
    return re.sub(r"^\w+: (error: )?", "", last).rstrip(".")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:80] + "..."


def open_slurm(compute: Mapping[str, Any]) -> Slurm:
    """Return the client of the Slurm that a compute names; nothing is asked yet."""
    return Slurm(str(compute.get("slurm_conf") or ""))
