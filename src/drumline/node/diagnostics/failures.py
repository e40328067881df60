"""
The failure of a rank, from what it left: the hook's notes and the end of its log.

``hook/sitecustomize.py`` writes a line for each uncaught exception of each Python of the rank, this module reads them,
and the line of a process's first process group.
All of it is the job's own text: nothing in it is trusted, and all of it is cut to a length.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any, Optional, cast

from drumline.contract.evidence import ExitEvidence
from drumline.contract.folder import read_plain
from drumline.contract.record import compile_late
from drumline.contract.words import format_size
from drumline.node.diagnostics import tracebacks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from drumline.contract.evidence import CodePlace, NotedException, RaisedException
    from drumline.node.diagnostics.tracebacks import Traceback

_MAX_BYTES = 1 << 16
_MAX_LOG_BYTES = 1 << 18
"""Of the end of a log: the stacks of many threads may follow the words that count."""

MAX_LINE = 300
_MAX_LINE_NUMBER = 10**9
_MAX_COUNT = 1 << 53
_LATEST = 1e12

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, not written to
_CONTAINERS_SHARED_BYTES = 64 << 20
"""Of shared memory, the default of Docker and Podman; machines have half of their memory."""

RAISED_FOR_ANOTHER = (
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
)
"""Exceptions with which a process says that one it started has failed: that one's own tells more."""

_NOTHING: dict[str, Any] = {"type": "", "message": "", "file": "", "line": 0, "function": ""}
_EXCEPTION: dict[str, Any] = {"type": str, "message": str, "file": str, "line": int, "function": str}
_KINDS: dict[str, Any] = {
    "at": (int, float),
    "pid": int,
    "parent": int,
    **_EXCEPTION,
    "chain": list,
    "saved_to": str,
    "exit": int,
    "limit": str,
    "changed": str,
    "entered": int,
    "world": int,
}
_NO_MORE = {"saved_to": "", "exit": -1, "limit": "", "changed": "", "entered": -1, "world": 0}
_FURTHER: dict[str, Any] = {"chain": [], **_NO_MORE}
"""
``entered``: collectives of all ranks of a ``world``, at the end of a program.
``exit``: the code of ``sys.exit``, of a note about the exception that was being handled then. ``limit``: of the
process, that it has met. ``changed``: variables of the rank that the program has changed.
"""

IN_FLIGHT = "%s.%d.in-flight"
"""Of the file of the notes and the process id. The hook has it too: it cannot import this."""

_MAX_CHAIN = 8
_MAX_INNER = 16

_GROUP_KEY = "group"
"""In a note that is no end: this process has its first process group (``hook/group.py``)."""

_LIBUV_KEY = "libuv"
"""Beside it, and false: PyTorch has none, and the hook chose the store (``hook/group.py``)."""

_TRAINING_KEY = "training"
"""In a note that is no end: this process has its first optimizer (``hook/group.py``)."""

_SENT_KEY = "sent"
"""In a note that is no end: this process has sent that signal ``to`` another or itself."""

_TERMINATED_KEY = "terminated"
"""In a note that is no end: SIGTERM has come to a handler of this process's program."""

_EXCEPTION_CODES = (1, 134)
"""The exit code of an uncaught exception, and what a shell makes of a crash while Python was ending of one."""

LIBRARY_FILE = compile_late(r"^<|/lib/python|site-packages|dist-packages|/drumline/node/hook/")
"""Finds a file that is not the program's own."""

_KILLED_WORKER = compile_late(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]{1,200})\) (?:is killed|exited).*")
_LOST_WORKER = ("ConnectionResetError", "ConnectionRefusedError", "EOFError", "FileNotFoundError")
"""What a program may meet sooner than the word of PyTorch's loader that one of its processes was killed."""

_CRASH = compile_late(r"^Fatal Python error: (.*)$", re.MULTILINE)
FRAME = compile_late(r'^  File "([^"\n]{1,4000})", line (\d{1,9}) in (.{1,200})$', re.MULTILINE)
"""A line of faulthandler's: file, line and function."""


def read_failure(notes: str, pid: int, code: int, cwd: str, since: float, until: float) -> ExitEvidence:
    """
    Return what a rank's notes tell of its end: ``failure``, ``left_at``, ``inner`` and ``launcher``.

    ``pid``: of the rank's first process. ``code``: as ``os.waitstatus_to_exitcode`` has it. ``since``, ``until``: when
    it was started and had ended; what was noted at another time is not believed.
    """
    lines = read_lines(notes)
    noted = [one for one in _parse_notes(lines) if since <= one["at"] <= until]
    # One that was handled explains that code alone; of other processes nobody knows their codes here.
    noted = [
        {**one, "type": "", "exit": -1} if one["pid"] == pid and one["exit"] not in (-1, code) else one
        for one in noted
    ]
    own = [one for one in noted if one["pid"] == pid]
    is_left = code >= 0 and own and (not own[-1]["type"] or own[-1]["exit"] >= 0)
    left_at = own[-1]["at"] if is_left else None
    if not code:
        # Ranks enter collectives together, of whichever of their processes they are.
        entered, world = max(((one["entered"], one["world"]) for one in noted), default=(-1, 0))
        return ExitEvidence(
            left_at=left_at,
            collectives=min(entered, _MAX_COUNT) if entered >= 0 else None,
            world=min(max(0, world), _MAX_COUNT),
            terminated_at=_find_termination(lines, pid, since, until),
        )
    chosen, others = _choose_exception(noted, own, pid, code)
    launcher = _failure(chosen, cwd) if chosen else None
    if not others:
        return ExitEvidence(launcher, left_at=left_at)
    inner = [_failure(one, cwd) for one in sorted(others, key=lambda note: float(note["at"]))[:_MAX_INNER]]
    return ExitEvidence(inner[0], inner, launcher, left_at=left_at)


def read_uncaught(notes: str, cwd: str) -> dict[int, RaisedException]:
    """
    Return the uncaught exceptions of processes that may still be there, by process id as the process itself knows it.
    """
    noted = {one["pid"]: one for one in _parse_notes(read_lines(notes))} if notes else {}
    return {pid: _exception(one, cwd) for pid, one in noted.items() if one["type"]}


def read_in_flight(notes: str, pid: int, cwd: str) -> Optional[list[RaisedException]]:
    """
    Return what a process handled when it last told that: the latest exception, and then what it came of. None: it has
    not told.
    """
    try:
        told = json.loads(read_plain(IN_FLIGHT % (notes, pid), _MAX_BYTES))
    except (ValueError, RecursionError):
        return None
    return [_exception(one, cwd) for one in _chain(told)] if isinstance(told, list) else None


def _failure(noted: dict[str, Any], cwd: str) -> NotedException:
    failure = cast("NotedException", {"at": noted["at"], "pid": noted["pid"], **_exception(noted, cwd)})
    chain: list[RaisedException] = []
    for one in noted["chain"]:
        found = _exception(one, cwd)
        if not one["file"] or LIBRARY_FILE.search(one["file"]):
            # It was raised and handled inside of a library, which the program called here.
            found.update(_make_raised(found["type"], found["message"], chain[-1] if chain else failure))
        chain.append(found)
    if chain:
        failure["chain"] = chain
    if noted["saved_to"]:
        failure["saved_to"] = noted["saved_to"]
    if noted["exit"] >= 0:
        failure["handled"] = True
    circumstances = _describe_circumstances(noted)
    if circumstances:
        failure["circumstances"] = circumstances
    return failure


def _describe_circumstances(noted: dict[str, Any]) -> list[str]:
    """Describe a limit that the process has met, and variables of the rank that the program has changed."""
    said = []
    if noted["limit"]:
        said.append(f"its limit of {noted['limit']} was reached")
    if noted["changed"] and _MEETING.search(f"{noted['type']} {noted['message']}"):
        said.append(f"the program had changed {noted['changed']}")
    return [make_printable(one, MAX_LINE) for one in said]


_MEETING = compile_late(
    r"[Tt]imed? ?out|[Ss]tore|[Rr]endezvous|[Cc]onnect|EADDRINUSE|[Aa]ddress already in use|rank"
)
"""Finds errors of processes that have not found each other, for which such a change may be the reason."""


def add_logged(
    evidence: ExitEvidence, logged: Sequence[Traceback], pid: int, code: int, cwd: str, at: float
) -> ExitEvidence:
    """
    Add the exception whose traceback stands at the end of the log, where the notes have none that explains the end.

    ``logged``: as of ``last_words.find_traceback``. ``at``: when the rank had ended.
    """
    if evidence.failure or evidence.inner or not logged or (code <= 0 and code != -signal.SIGABRT):
        return evidence
    chain = [
        _exception({"type": raised.type, "message": raised.message, **_place_of_frames(raised.frames)}, cwd)
        for raised in logged
    ]
    failure = cast("NotedException", {"at": at, "pid": pid, **chain[0]})
    if len(chain) > 1:
        failure["chain"] = chain[1:]
    if evidence.left_at is not None or (code > 0 and code not in _EXCEPTION_CODES):
        failure["handled"] = True
        failure["at"] = evidence.left_at or at
    return evidence._replace(failure=failure, launcher=failure)


def _place_of_frames(frames: Sequence[tuple[str, int, str]]) -> dict[str, Any]:
    """Return the last of these frames that is the program's own, else the first; nothing where there is none."""
    own = [frame for frame in frames if not LIBRARY_FILE.search(frame[0])]
    file, line, function = (own[-1] if own else frames[0]) if frames else ("", 0, "")
    return {"file": file, "line": min(line, _MAX_LINE_NUMBER), "function": function}


def _exception(noted: dict[str, Any], cwd: str) -> RaisedException:
    """Describe an exception; of one that only repeats the traceback of another process, the other's."""
    inner = tracebacks.parse(noted["message"].splitlines())
    if inner:
        noted = {**noted, "type": inner[-1].type, "message": inner[-1].message}
        origin = _place_of_frames(inner[-1].frames)
        if not LIBRARY_FILE.search(origin["file"]):
            noted.update(origin)
    place = show_place(noted["file"], noted["line"], noted["function"], cwd)
    found = _make_raised(make_printable(noted["type"], 200), quote_message(noted["message"]), place)
    if isinstance(noted.get("python"), str) and os.path.isabs(noted["python"]):
        found["python"] = make_printable(noted["python"], 300)
    return found


def _make_raised(kind: str, message: str, at: CodePlace) -> RaisedException:
    place = {"file": at["file"], "line": at["line"], "function": at["function"]}
    return cast("RaisedException", {"type": kind, "message": message, **place})


def _choose_exception(
    noted: list[dict[str, Any]], own: list[dict[str, Any]], pid: int, code: int
) -> tuple[Optional[dict[str, Any]], list[dict[str, Any]]]:
    """
    Return the exception that the rank ended of, and those of processes that it started, where they explain it.

    The rank may have expected such a process to fail: its exception counts where the exit code is an exception's, and
    where nothing came after it.
    """
    failed = [one for one in noted if one["type"]]
    if own and own[-1]["type"]:
        chosen = own[-1]
    elif own:
        # A launcher in Python that ends in order, with the code of what it started.
        return None, [one for one in failed if one["pid"] != pid] if code == 1 else []
    else:
        # A shell: the last command's code is its own.
        below = [one for one in noted if one["parent"] == pid]
        if not below or not below[-1]["type"] or code not in (below[-1]["exit"], *_EXCEPTION_CODES):
            return None, []
        chosen = below[-1]
    if str(chosen["type"]).rpartition(".")[2] not in RAISED_FOR_ANOTHER:
        return chosen, []
    return chosen, [one for one in failed if one["pid"] != chosen["pid"]]


def list_failures(evidence: ExitEvidence) -> list[NotedException]:
    """Return the exceptions of a rank and of what it started."""
    return [one for one in (evidence.failure, *evidence.inner) if one]


def join_messages(evidence: ExitEvidence) -> str:
    """Return all that those say."""
    return " ".join(
        link["message"] for one in list_failures(evidence) for link in (one, *one.get("chain", []))
    )


def add_killed_worker(evidence: ExitEvidence, log: str) -> ExitEvidence:
    """
    Add what PyTorch's loader says of a process that was killed, or ended unexpectedly.

    It may raise that while another exception is noted, and then only the log has it.
    """
    found = _KILLED_WORKER.search(log)
    if not found:
        return evidence
    said = make_printable(found[0], MAX_LINE)
    return evidence._replace(
        failure=_with_worker(evidence.failure, said) if evidence.failure else None,
        inner=[_with_worker(one, said) for one in evidence.inner],
    )


def _with_worker(failure: NotedException, said: str) -> NotedException:
    if failure["type"] not in _LOST_WORKER:
        return failure
    worker = _make_raised("RuntimeError", said, failure)
    return {**failure, "chain": [*failure.get("chain", []), worker]}


def find_killed_workers(messages: str) -> list[int]:
    """List the processes of PyTorch's loader that were killed or ended by themselves, according to such messages."""
    return [int(pid) for pids in _KILLED_WORKER.findall(messages) for pid in pids.replace(",", " ").split()]


def _load_notes(lines: Iterable[bytes], mark: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield the notes in those lines that have the mark."""
    for line in lines:
        if mark in line:
            with contextlib.suppress(ValueError, RecursionError):
                note = json.loads(line)
                if isinstance(note, dict):
                    yield note


def _parse_notes(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    ends = []
    for note in _load_notes(lines):
        end = {**_NOTHING, **_FURTHER, **note}
        is_end = not {_GROUP_KEY, _TRAINING_KEY, _SENT_KEY, _TERMINATED_KEY} & note.keys()
        if is_end and _is_whole(end, _KINDS) and abs(end["at"]) < _LATEST:
            end["line"], end["chain"] = min(end["line"], _MAX_LINE_NUMBER), _chain(end["chain"])
            ends.append(end)
    return ends


def _is_whole(one: dict[str, Any], kinds: dict[str, Any]) -> bool:
    return all(isinstance(one.get(name), kind) for name, kind in kinds.items())


def _chain(noted: list[Any]) -> list[dict[str, Any]]:
    links = [link for link in noted if isinstance(link, dict) and _is_whole(link, _EXCEPTION)]
    return [{**link, "line": min(link["line"], _MAX_LINE_NUMBER)} for link in links[:_MAX_CHAIN]]


def find_sender(notes: Mapping[str, str], pid: int, number: int, since: float, until: float, cwd: str) -> str:
    """
    Return which Python of the node's ranks has sent a signal to a process: ``sent by rank 0 (train.py:12, in main)``.

    Empty: none has. ``notes``: the file of each rank's notes, by its name.
    """
    mark = b'"sent": %d, "to": %d,' % (number, pid)
    senders = [
        (float(note["at"]), rank, note)
        for rank, path in notes.items()
        for note in _load_notes(read_lines(path), mark)
        if _is_whole(note, _SENT) and since <= note["at"] <= until
    ]
    if not senders:
        return ""
    _, rank, one = max(senders, key=lambda sender: sender[0])
    place = show_place(one["file"], min(one["line"], _MAX_LINE_NUMBER), one["function"], cwd)
    where = f" ({place['file']}:{place['line']}, in {place['function']})" if place["file"] else ""
    return f"sent by {'itself' if one['pid'] == pid else rank}{where}"


_SENT: dict[str, Any] = {"at": (int, float), "pid": int, "file": str, "line": int, "function": str}


def read_lines(notes: str) -> list[bytes]:
    """Return the notes of a rank, for the functions that look for one of them."""
    return read_plain(notes, _MAX_BYTES).splitlines()


def find_first_group(lines: Iterable[bytes], since: float, until: float) -> Optional[tuple[float, str, bool]]:
    """
    Return when a process of the rank had its first process group, its backend, and whether the hook had to choose its
    store; None where that was not noted.
    """
    for note in _load_notes(lines, b'"%s"' % _GROUP_KEY.encode()):
        at, backend = note.get("at"), note.get(_GROUP_KEY)
        if isinstance(at, (int, float)) and isinstance(backend, str) and since <= at <= until:
            return float(at), make_printable(backend, 100), note.get(_LIBUV_KEY) is False
    return None


def _find_termination(lines: Iterable[bytes], pid: int, since: float, until: float) -> Optional[float]:
    """Return when SIGTERM first came to a process of the rank."""
    for note in _load_notes(lines, b'"%s"' % _TERMINATED_KEY.encode()):
        at = note.get("at")
        if note.get("pid") == pid and isinstance(at, (int, float)) and since <= at <= until:
            return float(at)
    return None


def has_training(lines: Iterable[bytes], since: float, until: float) -> bool:
    """Return whether a process of the rank has noted its first optimizer."""
    times = [
        note.get("at")
        for note in _load_notes(lines, b'"%s"' % _TRAINING_KEY.encode())
        if note.get(_TRAINING_KEY) is True
    ]
    return any(isinstance(at, (int, float)) and since <= at <= until for at in times)


def ends_with_exception(lines: Sequence[bytes], since: float, until: float) -> bool:
    """Return whether the newest note is of an exception that has ended a program of the rank."""
    noted = _parse_notes(lines[-1:])
    return bool(noted and noted[0]["type"]) and since <= noted[0]["at"] <= until


def quote_message(text: str) -> str:
    r"""
    Return a message on one line, without the advice and the stacks that follow it.

    >>> quote_message("while parsing a mapping\n  in \"c.yml\", line 3, column 1\nexpected <block end>")
    'while parsing a mapping in "c.yml", line 3, column 1; expected <block end>'
    """
    said = ""
    for line in text.splitlines():
        words = " ".join(line.split())
        if not words.strip(" -=^~"):
            continue
        if _STACK.match(words):
            break
        if not said:
            # The exceptions of a group follow, whose number says nothing.
            group = _COUNTED.fullmatch(words)
            said = words if group is None else f"{group[1]}:" if group[1] else ""
        elif said.endswith(":") or not _ADVICE.match(words):
            goes_on = line.startswith((" ", "\t")) or (said[-1].isalpha() and words[0].islower())
            said += (" " if goes_on or said.endswith((":", ",", ".", ";")) else "; ") + words
    return shorten(make_printable(_drop_repeats(said), 1 << 16), MAX_LINE)


_COUNTED = compile_late(r"(?:unhandled errors.*|(.*?)) \(\d+ sub-exceptions?\)")
_STACK = compile_late(
    r"Exception raised from |frame #\d|C\+\+ CapturedTraceback|Python Callstack|#\d+ 0x"
    r"|.*\(most recent call first\)"
)
"""The stacks that native code appends to its messages."""

_ADVICE = compile_late(
    r"(?:in addition, |otherwise,? |alternatively,? |\(\d\) |also,? |and )*"
    r"(?:you (?:can|may|might|should|need|have)|please|try|make sure|making sure|consider"
    r"|if (?:you|the above|.* try )|set [A-Z]|see |to (?:fix|enable|avoid|debug|silence|load|see|suppress|use)"
    r"|this (?:error|warning|file|may|might|probably|usually|could|is often|typically)|"
    r"compile with|for (?:more|further|debugging)|refer to|note that|hint:|visit|it is (?:recommended|possible)|"
    r"did you|do you|learn more|CUDA kernel errors might|otherwise|alternatively|re-?run|run with|in pytorch \d|"
    r"check (?:that|the|whether|if|your|out))",
    re.IGNORECASE,
)
"""How advice begins, which errors of libraries repeat whatever has happened."""

_SENTENCE = compile_late(r"(?<=[.!?;])\s+(?=\S)")
_PARTICULAR = (compile_late(r"\d|['\"`/\[]"), compile_late(r": "), compile_late(r"[Ee]rror|ERROR"))


def shorten(text: str, most: int) -> str:
    """
    Return the text with at most so many characters: its first sentence and those that say most of this one failure.

    >>> shorten("It failed. Please reinstall everything from scratch. Shard 7: empty.", 40)
    'It failed. ... Shard 7: empty.'
    """
    if len(text) <= most:
        return text
    first, *others = _SENTENCE.split(text)
    weights = {
        place: sum(bool(pattern.search(one)) for pattern in _PARTICULAR)
        for place, one in enumerate(others)
        if not _ADVICE.match(one)
    }
    kept: list[int] = []
    for place in sorted(weights, key=lambda place: (-weights[place], place)):
        if len(_join_sentences(first, others, [*kept, place])) <= most:
            kept.append(place)
    said = _join_sentences(first, others, kept)
    if len(said) <= most:
        return said
    return f"{text[: most * 2 // 3 - 5]} ... {text[-(most // 3) :]}"[:most]


def _join_sentences(first: str, others: Sequence[str], kept: Sequence[int]) -> str:
    said, before = first, -1
    for place in sorted(kept):
        said += (" " if place == before + 1 else " ... ") + others[place]
        before = place
    return said if before == len(others) - 1 or len(said) > MAX_LINE - 4 else f"{said} ..."


def _drop_repeats(text: str) -> str:
    """
    Drop repeated words before colons, of which XLA's errors have one for each computation that was on its way.

    >>> _drop_repeats("INTERNAL: Error dispatching: Error dispatching: Error dispatching: Connection reset by peer")
    'INTERNAL: Error dispatching: Connection reset by peer'
    """
    parts = text.split(": ")
    return ": ".join(part for place, part in enumerate(parts) if place == 0 or part != parts[place - 1])


def make_printable(text: str, most: int) -> str:
    """Return the text on one line, without anything that a terminal would obey, of at most so many characters."""
    text = "".join(character if character.isprintable() else " " for character in text)
    return text if len(text) <= most else text[: most - 3] + "..."


def show_path(path: str, cwd: str) -> str:
    """Return a path as shown to people: relative, where it is the job's own."""
    real = os.path.realpath(cwd) if cwd else ""
    for folder in (cwd, real):
        if folder and path.startswith(folder + os.sep):
            return make_printable(path[len(folder) + 1 :], 500)
    return make_printable(path, 500)


def show_place(file: str, line: int, function: str, cwd: str) -> CodePlace:
    """Return a place as shown to people: of a package below its folder; nothing of Python's own library."""
    shown = show_path(file, cwd)
    if os.path.isabs(shown) and LIBRARY_FILE.search(shown):
        shown = shown.rpartition("-packages/")[2] if "-packages/" in shown else ""
    if not shown:
        return {"file": "", "line": 0, "function": ""}
    return {"file": shown, "line": line, "function": make_printable(function, 200)}


def read_log_end(log: str) -> str:
    """Return the last bytes of a log as text."""
    return read_plain(log, _MAX_LOG_BYTES, from_end=True).decode(errors="replace")


def parse_crash(text: str, cwd: str) -> Optional[CodePlace]:
    """
    Return file, line and function of the last crash that faulthandler wrote, of the user's own code where it can be.
    """
    crashes = list(_CRASH.finditer(text))
    if not crashes:
        return None
    return find_own_frame(text[crashes[-1].end() :], cwd)


def find_own_frame(stack: str, cwd: str) -> Optional[CodePlace]:
    """Return the first frame of a stack of faulthandler's that is the program's own, else the first; None for none."""
    frames = [(name, int(line), function) for name, line, function in FRAME.findall(stack)]
    if not frames:
        return None
    in_folder = (one for one in frames if not os.path.isabs(show_path(one[0], cwd)) and one[0][:1] != "<")
    own = next(in_folder, None) or next((one for one in frames if not LIBRARY_FILE.search(one[0])), frames[0])
    return show_place(*own, cwd)


def describe_shared_memory(*, full_only: bool = False) -> str:
    """Return ``/dev/shm has 0 B of 64 MiB free``, with what to do in a container; empty where there is none."""
    try:
        found = os.statvfs(_SHARED_MEMORY)
    except OSError:
        return ""
    free, size = (blocks * found.f_frsize for blocks in (found.f_bavail, found.f_blocks))
    if full_only and (free or not size):
        return ""
    hint = "; start the container with more: --shm-size=2g" if size == _CONTAINERS_SHARED_BYTES else ""
    return f"{_SHARED_MEMORY} has {format_size(free)} of {format_size(size)} free{hint}"
