"""
Every path of a run, and the only code that writes its events.

``$DRUMLINE_HOME`` is the base home. A workspace is a home of its own, ``$DRUMLINE_HOME/workspaces/<name>``: jobs,
snapshots, assets and metrics are in it. Computes, defaults and the line before this machine are the base home's.

``<home>/jobs/<name>/``::

    maker.json       which process makes the folder, until it has handed the job over
    job.yml          the job as submitted, defaults filled in
    plan.json        what runs
    graph.json       of a pipeline or a sweep, in the place of a plan: its steps
    code.json        of a job in the user's own folder: where its code is stored, or why it is not
    driver.lock      held by the driver of a pipeline or a sweep, so that there is one
    supervisor.json  which process looks after it
    engine.json      what its engine calls it, where that is a number of its own
    agents.json      where its supervisor is to be reached, and the secret, for agents that others start
    secrets.pad      random bytes, which make the job's secrets out of what its engine has: ``contract/secrets.py``
    cancel           there when somebody asked for its end
    drills/          requests to make a failure on purpose, each until it begins: ``contract/drill_kinds.py``
    stacks-request   there when somebody asked where the ranks are; stacks.json is the answer
    tracking.json    the run that an MLflow server has given it
    uploads.json     what of its outputs was written elsewhere
    environment.lock what its environment was made of
    hang.json        where they were when the job was last found to hang
    hosts            the nodes' addresses and how many ranks each has, for a launcher in the job's command
    hosts.hydra      the same in MPICH's form
    scratch          the nodes' folders for temporary files, one a line
    events.jsonl     what happened; the truth
    code/            the working folder of the ranks
    inputs/          copies of inputs in mode download
    outputs/         what the job writes to ./outputs
    named-outputs/   a folder for each named output
    user_logs/       what the ranks print, a file each
    system_logs/     what supervisor and agents say
    system_metrics/  what each node and its ranks use, a file a node: ``contract/samples.py``
    steps/           the steps of training loops, a file for a node in an attempt: ``contract/steps.py``
    scale.json       of a job of ``drumline scale``: the report for which it was measured
    rehearsal.json   of a job of ``drumline rehearse``: the table that it ran for
    clocks.json      the clocks of nodes that are several machines: when each node's monotonic clock was 0, by ours
    log_times/       when each log grew, a file for a node in an attempt: ``contract/log_times.py``

All of it is for its owner alone: folders 0700, our files 0600. The job can write to it, so its files are opened by
``open_plain`` and read no further than a limit; what does not parse is damaged.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, BinaryIO, Optional, TextIO

from drumline.contract import events as e
from drumline.contract import process_identity
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


MARKER = "DRUMLINE_RUN_FOLDER"
"""The variable by which a process is known to be of a run, whoever its parent is by now."""


WORKSPACE = "DRUMLINE_WORKSPACE"
"""The variable that names the workspace where nothing else does; ranks have that of their job."""

STEPS = "DRUMLINE_STEPS"
"""The variable that is 0 where steps are not to be followed; in a rank, the file that its hook writes to."""

_WORKSPACES = "workspaces"
_LONGEST_NAME = 64
_chosen: ContextVar[Optional[str]] = ContextVar("drumline_workspace", default=None)


def base_home() -> str:
    """
    Return ``$DRUMLINE_HOME``, else the XDG data folder's ``drumline``; absolute, may not exist yet.

    Raises UsageError for a path that is not UTF-8: plans, job files and URIs hold it as text.
    """
    named = os.environ.get("DRUMLINE_HOME")
    if named:
        path = os.path.realpath(os.path.expanduser(named))
    else:
        data = os.environ.get("XDG_DATA_HOME") or os.path.join(_users_home(), ".local", "share")
        path = os.path.realpath(os.path.join(data, "drumline"))
    try:
        path.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise UsageError(
            f"the home {shown!r} has bytes in its path that are not UTF-8",
            "set DRUMLINE_HOME to another folder",
        ) from error
    return path


def home(base: str = "") -> str:
    """
    Return the home of the current workspace, which may not exist yet; the base home when none is chosen.

    ``base``: what is to be taken for the base home, such as a compute's folder. Raises UsageError as ``workspace``.
    """
    return home_of(current_workspace(), base)


def home_of(workspace: str, base: str = "") -> str:
    """Return the home of a workspace, whose name was checked; empty: the base home."""
    base = base or base_home()
    return os.path.join(base, _WORKSPACES, workspace) if workspace else base


def current_workspace() -> str:
    """Return its name; empty for the base home. Raises UsageError for a DRUMLINE_WORKSPACE that cannot be a name."""
    chosen = _chosen.get()
    if chosen is None:
        chosen = os.environ.get(WORKSPACE, "")
        check_workspace(chosen, WORKSPACE)
    return chosen


def chosen_workspace() -> Optional[str]:
    """Return the name that the innermost ``workspace`` was given."""
    return _chosen.get()


@contextmanager
def workspace(name: Optional[str]) -> Iterator[None]:
    """
    Have ``home`` be that workspace's in this thread. Empty: the base home; None: as DRUMLINE_WORKSPACE says.

    Raises UsageError for what cannot be a name.
    """
    check_workspace(name or "")
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def check_workspace(name: str, where: str = "workspace") -> None:
    """Check a name that becomes a folder's. Raises UsageError."""
    if not name or _is_workspace(name):
        return

    shown = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "..."
    hint = f"letters, digits, '-', '_' and '.', beginning with a letter or digit, {_LONGEST_NAME} at most"
    raise UsageError(f"{where}: {shown!r} cannot be a workspace's name", hint)


def _is_workspace(name: str) -> bool:
    plain = all(one.isascii() and (one.isalnum() or one in "-_.") for one in name)
    return plain and len(name) <= _LONGEST_NAME and name[0].isalnum()


def workspace_names() -> list[str]:
    """Return those there are, in alphabetical order."""
    try:
        with os.scandir(os.path.join(base_home(), _WORKSPACES)) as entries:
            return sorted(one.name for one in entries if _is_workspace(one.name) and one.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _users_home() -> str:
    if os.environ.get("HOME"):
        return os.path.expanduser("~")
    # Unset or empty, which would make a folder at the root.
    import pwd

    return pwd.getpwuid(os.getuid()).pw_dir


_MOST_BYTES = 64 << 20
LONGEST_EVENT = 16 << 20
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC


class RunFolder:
    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(path)
        at = path + "/"  # Lists make thousands of these, and join() takes its time.
        self.job = at + "job.yml"
        self.plan = at + "plan.json"
        self.graph = at + "graph.json"
        self.stored_code = at + "code.json"
        self.driver_lock = at + "driver.lock"
        self.supervisor = at + "supervisor.json"
        self.engine = at + "engine.json"
        self.agents = at + "agents.json"
        self.cancel = at + "cancel"
        self.preempt = at + "preempt"
        self.drills = at + "drills"
        self.secrets = at + "secrets.pad"
        self.stacks_request = at + "stacks-request"
        self.stacks = at + "stacks.json"
        self.hang = at + "hang.json"
        self.ended = at + "ended.json"
        self.reserve = at + "system_logs/reserve"
        self.hosts = at + "hosts"
        self.hydra_hosts = at + "hosts.hydra"
        self.scratch = at + "scratch"
        self.events = at + "events.jsonl"
        self.clocks = at + "clocks.json"
        self.scale = at + "scale.json"
        self.rehearsal = at + "rehearsal.json"
        self.code = at + "code"
        self.inputs = at + "inputs"
        self.outputs = at + "outputs"
        self.named_outputs = at + "named-outputs"
        self.user_logs = at + "user_logs"
        self.system_logs = at + "system_logs"
        self.maker = at + "maker.json"
        self._made_by: Optional[dict[str, Any]] = None
        self._torn = b""
        """What ends a line of events that is torn: empty where there is none of this process."""

    @classmethod
    def for_job(cls, name: str, root: str | None = None) -> RunFolder:
        """
        Return the folder of a job, whether it exists or not. ``name`` was checked where a user gave it; ``root`` is a
        home, that of the current workspace where it is left out.

        Where that is a link, as for a job of a compute with a folder of its own, what it leads to.
        """
        path = os.path.join(root or home(), "jobs", name)
        return cls(os.path.realpath(path) if os.path.islink(path) else path)

    @property
    def root(self) -> str:
        """Return the home that it is in."""
        return os.path.dirname(os.path.dirname(self.path))

    @property
    def workspace(self) -> str:
        """Return the workspace of this machine that it is in; empty for every other home."""
        above, name = os.path.split(self.root)
        return name if above == os.path.join(base_home(), _WORKSPACES) else ""

    def log_times_path(self, attempt: int, node: int) -> str:
        """Return the file in which the agent of a node notes when logs grow."""
        return os.path.join(self.path, "log_times", f"attempt-{attempt}-node-{node}")

    def steps_path(self, attempt: int, node: int) -> str:
        """Return the file in which the agent of a node notes the steps of training loops."""
        return os.path.join(self.path, "steps", f"attempt-{attempt}-node-{node}.jsonl")

    def create(self) -> None:
        """
        Make it. Raises FileExistsError when the name is taken: exactly one of many at once wins. Raises OSError, as for
        a full disk; nothing is left then.
        """
        private_folder(os.path.dirname(self.path))
        os.mkdir(self.path, 0o700)
        try:
            self.adopt()
            for folder in (self.outputs, self.user_logs, self.system_logs):
                os.mkdir(folder, 0o700)
        except BaseException:
            import shutil

            shutil.rmtree(self.path, ignore_errors=True)
            raise

    def adopt(self) -> None:
        """Record this process as the maker. Raises OSError."""
        self._made_by = process_identity.identify_process(os.getpid())
        self.write(self.maker, json.dumps(self._made_by))

    def exists(self) -> bool:
        return os.path.exists(self.events)

    def write(self, path: str, text: str) -> None:
        """Write a file as ``write_whole`` does."""
        write_whole(path, text)

    def remove_secrets(self) -> None:
        """Remove what makes the secrets of a job that has ended; without it, its engine's part says nothing."""
        with suppress(OSError):
            os.unlink(self.secrets)

    def is_abandoned(self, after_s: float) -> bool:
        """
        Return whether its maker ended before the job had begun. Of a maker on another machine nothing is known: it is
        taken to have ended ``after_s`` after it made the folder.
        """
        try:
            made = os.stat(self.path).st_mtime
        except OSError:
            return False
        has_ended = self.has_lost_maker()
        if has_ended is None:
            has_ended = time.time() - made > after_s
        # Last: a maker that is no more may have begun the job since its file was read.
        return has_ended and not self.exists()

    def has_lost_maker(self) -> Optional[bool]:
        """Return whether its maker ended; None if that cannot be seen, or the maker has handed the job over."""
        maker = self.read_json(self.maker)
        return (
            not process_identity.is_alive(maker)
            if maker and process_identity.is_ours_to_judge(maker)
            else None
        )

    def was_taken_over(self) -> bool:
        """
        Return whether another process took the name since ``create``, because this one took too long to ``begin``.
        """
        return self._made_by is not None and self.read_json(self.maker) != self._made_by

    def begin(self, event: e.JobSubmitted) -> None:
        """Write the first event, with which the job exists; all of it at once. Raises OSError."""
        self.write(self.events, e.to_line(event).decode())
        self._made_by = None
        if event.engine != "local":  # Its engine knows whether it has a supervisor.
            self._forget_maker()

    def hand_over(self, pid: int) -> None:
        """
        Record which process is to look after the job, unless one is recorded. Raises OSError.

        From here on the job has failed if that process ends; until here, if its maker does. Readers of the record may
        send it SIGUSR1.
        """
        with suppress(FileExistsError):
            write_once(self.supervisor, json.dumps(process_identity.identify_process(pid) or {}))
        self._forget_maker()

    def _forget_maker(self) -> None:
        with suppress(OSError):
            os.unlink(self.maker)

    def append(self, event: e.Event) -> None:
        """
        Append one whole line in one write, so that several processes of a machine may do so; on a network file system
        two machines that do so at once can overwrite each other. Raises OSError, as for a full disk.
        """
        descriptor = os.open(self.events, _APPEND, 0o600)
        line, self._torn = self._torn + e.to_line(event), b""
        try:
            written = os.write(descriptor, line)
            if written < len(line):
                # A disk that is full but for a few bytes. The torn line is ended, so that the next one is whole: now,
                # or before that one where even a byte finds no room.
                self._torn = b"\n"
                os.write(descriptor, self._torn)
                self._torn = b""
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.events)
        except OSError as error:
            error.filename = self.events
            raise
        finally:
            os.close(descriptor)

    def read_events(self, *kinds: type) -> Iterator[e.Event]:
        """
        Return the events in the order of the file, of these kinds or all; lines that are cut short are left out. A line
        that is far too long for one is the end: a job can make its file as large as it likes, at no cost.
        """
        begins = tuple(e.begin_of(kind) for kind in kinds)
        try:
            with open_plain(self.events) as file:
                while (line := file.readline(LONGEST_EVENT)) and len(line) < LONGEST_EVENT:
                    if begins and not line.startswith(begins):
                        continue
                    event = e.from_line(line)
                    if event is not None:
                        yield event
        except FileNotFoundError:
            return

    def read_json(self, path: str) -> dict[str, Any] | None:
        """Return the object in a file; None when there is no such file, or not a whole one."""
        try:
            data = json.loads(load_plain(path))
        except (OSError, ValueError, RecursionError):
            return None
        return data if isinstance(data, dict) else None

    def read_word(self, path: str, most: int = 100) -> str:
        """Return the beginning of a small file; empty when there is none."""
        return read_plain(path, most).decode("ascii", "replace")


def read_plain(path: str, most: int, *, from_end: bool = False) -> bytes:
    """Return the beginning of a plain file, or its end; empty of anything else: a job can put a pipe there."""
    try:
        with open_plain(path) as file:
            if from_end:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most)
    except OSError:
        return b""


def load_plain(path: str, most: int = _MOST_BYTES) -> bytes:
    """
    Return all of a plain file. Raises OSError as ``open_plain``, and for more bytes than that, which cost a job nothing
    but us the memory.
    """
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return file.read(most)


def open_plain(path: str) -> BinaryIO:
    """Open a plain file of a run folder to read it. Raises OSError for a pipe, a link or a device, at once."""
    return open(_open_regular(path, os.O_NOFOLLOW), "rb")


def open_text(path: str, errors: str = "strict") -> TextIO:
    """Open a plain file of a home to read it, also by a link of its owner's. Raises OSError as ``open_plain``."""
    return open(_open_regular(path, 0), encoding="utf-8", errors=errors)


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", path)
    return descriptor


def private_folder(path: str) -> None:
    """Make a folder and those above it where they are missing, for their owner alone."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent and parent != path:
            private_folder(parent)
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            if not os.path.isdir(path):
                raise


PARTIAL = ".partial"
"""The end of the name of a file that is being written."""


def write_whole(path: str, content: str | bytes, mode: int = 0o600) -> None:
    """
    Write all of a file or nothing: a reader never sees half of it. A link that is there is replaced. Raises OSError.

    ``mode`` is less the umask: 0o666 for a file that the user asked for, in place of one for its owner alone.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape")
    partial = f"{path}.{os.urandom(4).hex()}{PARTIAL}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(partial)
        if isinstance(error, OSError):
            error.filename = path
        raise


def write_once(path: str, text: str) -> None:
    """
    Write as ``write_whole``, by one of many at once. Raises FileExistsError for the others; their text is not written.

    On a file system without hard links a reader may find the file empty for a moment.
    """
    whole = f"{path}.{os.urandom(4).hex()}"
    write_whole(whole, text)
    try:
        try:
            os.link(whole, path)
        except FileExistsError:
            raise
        except OSError:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
    finally:
        os.unlink(whole)
