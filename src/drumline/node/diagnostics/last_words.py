"""The last words in a program's log that tell why it ended, which are not always the last line."""

from __future__ import annotations

import re

from drumline.contract.patterns import compile_late
from drumline.node.diagnostics.failures import MAX_LINE, make_printable

_ECHO = compile_late(r"(\S*: (?:-c: )?line \d{1,9}: )(`.*')")
"""Bash repeats the line in which a mistake of the syntax is, below what is wrong with it. Source: parse.y."""

_CHATTER = compile_late(
    # About what Open MPI goes on after, as where a process that it starts was faster than its own look at it. Source:
    # plm_rsh_module.c and plm_ssh.c, setpgid.
    r"\[[^\]]*\] \S+ Warning: "
    # What Open MPI and MPICH add to an explanation. Sources: show_help.c, orterun.c, hydra's pmiserv_cb.c.
    r"|\[[^\]]*\] (?:\d+ more process|Set MCA parameter )|\d+ total process"
    r"|This typically refers to a problem with your application|Please see the FAQ page for debugging"
)
_RULER = compile_late(r"([-=*])\1{9,}")

_NATIVE_DUMP = compile_late(r"^Fatal Python error: Aborted$", re.MULTILINE)
_MAX_BACK = 1 << 14
_MOST_LINES = 50

_GAVE_UP = compile_late(
    r"^terminate called after throwing an instance of '(?P<type>[^'\n]{1,300})'(?:\n\s*what\(\): +(?P<what>[^\n]*))?"
    r"|^(?P<line>"
    r"terminate called [^\n]*|libc\+\+abi: [^\n]*|terminating due to uncaught exception[^\n]*"
    r"|[^\n]{0,500}Assertion [`'][^\n]* failed\.?|Assertion failed: [^\n]*|[^\n]{0,200}Check failed: [^\n]*"
    r"|(?:free|malloc|realloc|munmap_chunk|calloc|malloc_consolidate)\(\): [^\n]*|double free or corruption[^\n]*"
    r"|corrupted (?:size|double-linked)[^\n]*|\*\*\* [^\n]* \*\*\*[^\n]*|Fatal glibc error: [^\n]*"
    r"|Fatal Python error: (?!Aborted)[^\n]*|thread '[^'\n]*' [^\n]{0,50}panicked at [^\n]*"
    r")",
    re.MULTILINE,
)
"""What native code says before it aborts: C++, assert, glibc's heap, glog and Abseil, Python, Rust."""


def find_last_words(text: str) -> str:
    """
    Return the last line with words; of a shell's two lines about a mistake in its syntax, the first too, and of an
    explanation between rulers its first sentence.
    """
    lines = _split_lines(text)[-_MOST_LINES:]
    framed = _find_framed(lines)
    if framed:
        return make_printable(framed, MAX_LINE)
    lines = [line for line in lines if _has_words(line)]
    if not lines:
        return ""
    echo = _ECHO.fullmatch(lines[-1])
    if echo and len(lines) > 1 and lines[-2].startswith(echo[1]):
        return make_printable(f"{lines[-2]}: {echo[2]}", MAX_LINE)
    return make_printable(lines[-1], MAX_LINE)


def find_first_words(text: str) -> str:
    """Return how the text of a launcher begins: the first line with words, or the first sentence between rulers."""
    lines = _split_lines(text)
    first = next((place for place, line in enumerate(lines) if _has_words(line)), len(lines))
    is_framed = first > 0 and _RULER.fullmatch(lines[first - 1])
    return _read_sentence(lines[first:] if is_framed else lines[first : first + 1])


def _find_framed(lines: list[str]) -> str:
    """
    Return the first sentence of an explanation between two rulers with which the lines end; empty: there is none.

    >>> _find_framed(["step 1", "-" * 74, "There are not enough slots for the 8", "that were asked for:", "-" * 74])
    'There are not enough slots for the 8 that were asked for:'
    """
    if not lines or not _RULER.fullmatch(lines[-1]):
        return ""
    begin = next((place for place in range(len(lines) - 2, -1, -1) if lines[place] == lines[-1]), None)
    return "" if begin is None else _read_sentence(lines[begin + 1 : -1])


def _split_lines(text: str) -> list[str]:
    """Return the lines, stripped, without blank ones at the end, and without chatter where there is anything else."""
    # A help text of Open MPI 5 ends with a NUL byte.
    lines = [line.strip(" \t\r\0") for line in text.rstrip(" \t\r\n\0").splitlines()]
    rest = [line for line in lines if not _CHATTER.match(line)]
    return rest if any(map(_has_words, rest)) else lines


def _has_words(line: str) -> bool:
    return any(map(str.isalnum, line))


def _read_sentence(lines: list[str]) -> str:
    """Return the first sentence of the first paragraph."""
    words: list[str] = []
    for line in lines:
        if _has_words(line):
            words.append(line.strip(" ="))
        elif words:
            break
    return " ".join(words).partition(". ")[0]


def find_abort_reason(text: str) -> str:
    """Return what a program that was ended by SIGABRT said of it; empty where it said nothing that is known."""
    dumps = list(_NATIVE_DUMP.finditer(text))
    end = dumps[-1].start() if dumps else len(text)
    found = list(_GAVE_UP.finditer(text[max(0, end - _MAX_BACK) : end]))
    if not found:
        return ""
    said = found[-1]
    if said["line"]:
        return make_printable(said["line"].strip(), MAX_LINE)
    return make_printable(f"{said['type']}: {said['what']}" if said["what"] else said["type"], MAX_LINE)
