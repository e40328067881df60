"""Python's tracebacks as text: in the log of a program without the hook, and in messages that hold another's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple, compile_late

if TYPE_CHECKING:
    from collections.abc import Sequence

    Frame = tuple[str, int, str]

_PREFIX = compile_late(
    r"^(?:\[(?:rank|default)?\d+\]: ?|\[\d+,\d+\]<std\w{3}>: ?|\(\w[\w.]* pid=\d[^)\n]*\) ?)(?=[^\n])",
    re.MULTILINE,
)
"""How PyTorch, torchrun, Open MPI and Ray begin each line of a rank. Source: torch/distributed/distributed_c10d.py."""

_MAX_LINE = 1000
"""Of a line: nothing that a job writes may keep a pattern busy for long."""

_SHELL_RETURN = compile_late(r"\r: ")
"""In what a shell says of a word from a script with Windows line ends."""

_BEGIN = compile_late(r" *(?:\+ Exception Group |Original )?Traceback \(most recent call last\):")
_FRAME = compile_late(r'  File "([^"]{1,4000})", line (\d{1,9})(?:, in (.{1,200}))?')
_EXCEPTION = compile_late(r"([A-Za-z_][\w.<>]{0,300})(?:: (.*))?")
_GROUP_LINE = compile_late(r" *(?:\||\+[-+ ])")
_GROUP_MARGIN = compile_late(r" *(?:\+[-+ ]*\d*[-+ ]*|\| ?)")
_GROUP_OF = compile_late(r".* \(\d+ sub-exceptions?\)")
_IGNORED = "Exception ignored in"
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


class Traceback(NamedTuple):
    """
    One traceback. ``frames``: outermost first. ``begin``, ``end``: its lines. ``is_ignored``: a destructor's, which
    ends nothing. ``follows``: it has the one before it as its cause or context.
    """

    type: str
    message: str
    frames: Sequence[Frame]
    begin: int
    end: int
    is_ignored: bool
    follows: bool


def split_lines(text: str) -> list[str]:
    """
    Return the lines of a log without what a launcher puts before each, and without trailing blanks.

    Of a line that was written over, as a progress bar is, only its last state counts.
    """
    text = _SHELL_RETURN.sub(r"\\r: ", text.replace("\0", "\n"))
    return [line.rstrip().rpartition("\r")[2][:_MAX_LINE] for line in _PREFIX.sub("", text).split("\n")]


def parse(lines: Sequence[str]) -> list[Traceback]:
    """Return the tracebacks among these lines, in their order."""
    found: list[Traceback] = []
    place = 0
    while place < len(lines):
        if not _BEGIN.fullmatch(lines[place]):
            place += 1
            continue
        is_group = lines[place].lstrip().startswith("+")
        parsed = _parse_group(lines, place) if is_group else _parse_one(lines, place)
        if parsed:
            before = [line for line in lines[max(0, place - 3) : place] if line.strip()]
            parsed = parsed._replace(
                is_ignored=bool(before) and before[-1].startswith(_IGNORED),
                follows=bool(before) and bool(found) and before[-1].strip() in _LINKS,
            )
            found.append(parsed)
        place = parsed.end if parsed else place + 1
    return found


def _parse_one(lines: Sequence[str], begin: int) -> Traceback | None:
    frames: list[Frame] = []
    place = begin + 1
    while place < len(lines) and _goes_on(lines[place]):
        frame = _FRAME.fullmatch(lines[place])
        if frame:
            frames.append((frame[1], int(frame[2]), frame[3] or ""))
        place += 1
    raised = _EXCEPTION.fullmatch(lines[place]) if place < len(lines) else None
    if raised is None:
        return None
    message = [raised[2] or ""]
    place += 1
    # Messages of several lines, as YAML's: a line that is followed by an indented one belongs to it.
    while place < len(lines) and (
        lines[place].startswith(" ") or (place + 1 < len(lines) and _is_head(lines, place))
    ):
        message.append(lines[place])
        place += 1
    return Traceback(raised[1], "\n".join(message), frames, begin, place, is_ignored=False, follows=False)


def _goes_on(line: str) -> bool:
    """Return whether the line may be of the frames: at another beginning they end, so that no line is read twice."""
    return (line.startswith("  ") or not line) and not _BEGIN.fullmatch(line)


def _is_head(lines: Sequence[str], place: int) -> bool:
    line, following = lines[place], lines[place + 1]
    return (
        bool(line)
        and following.startswith("  ")
        and not _BEGIN.fullmatch(line)
        and not line.startswith(_IGNORED)
    )


def _parse_group(lines: Sequence[str], begin: int) -> Traceback | None:
    """Parse the tree of a group of exceptions: its message, then its leaves, one a line."""
    names: list[tuple[str, str, list[Frame]]] = []
    frames: list[Frame] = []
    end = begin + 1
    while end < len(lines) and _GROUP_LINE.match(lines[end]) and not _BEGIN.fullmatch(lines[end]):
        text = _GROUP_MARGIN.sub("", lines[end], count=1)
        frame, raised = _FRAME.fullmatch(text), _EXCEPTION.fullmatch(text)
        if frame:
            frames.append((frame[1], int(frame[2]), frame[3] or ""))
        elif raised and not text.startswith(" "):
            names.append((raised[1], raised[2] or "", frames))
            frames = []
        end += 1
    if not names:
        return None
    kind, message, own = names[0]
    leaves = [one for one in names[1:] if not _GROUP_OF.fullmatch(one[1])]
    first = leaves[0][2] if leaves else []
    said = "\n".join([message, *(f"{name}: {text}" if text else name for name, text, _ in leaves)])
    return Traceback(kind, said, [*own, *first], begin, end, is_ignored=False, follows=False)
