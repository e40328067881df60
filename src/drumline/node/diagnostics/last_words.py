"""The last words in a program's log that tell why it ended, which are not always the last line."""

from __future__ import annotations

import re

from drumline.contract.patterns import compile_late
from drumline.node.diagnostics.failures import MAX_LINE, make_printable

_ECHO = compile_late(r"(\S*: (?:-c: )?line \d{1,9}: )(`.*')")
"""Bash repeats the line in which a mistake of the syntax is, below what is wrong with it. Source: parse.y."""

_NATIVE_DUMP = compile_late(r"^Fatal Python error: Aborted$", re.MULTILINE)
_MAX_BACK = 1 << 14

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
    """Return the last line that is not blank; of a shell's two lines about a mistake in its syntax, the first too."""
    lines = [line.strip() for line in text.splitlines()[-50:] if line.strip()]
    if not lines:
        return ""
    echo = _ECHO.fullmatch(lines[-1])
    if echo and len(lines) > 1 and lines[-2].startswith(echo[1]):
        return make_printable(f"{lines[-2]}: {echo[2]}", MAX_LINE)
    return make_printable(lines[-1], MAX_LINE)


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
