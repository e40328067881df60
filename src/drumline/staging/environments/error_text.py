"""The last error of a resolver as one sentence: without frames, colours and secrets."""

from __future__ import annotations

import re

from drumline.contract.hiding import hide_in_text

_MOST = 600
_NEAR = 2
_SEQUENCES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)"
_CROSS = chr(0xD7)
_FRAME = "".join(("[", chr(0x2500), "-", chr(0x257F), chr(0x25B6), "]+"))
"""What uv draws its causes with, and libmamba its trees: lines, and an arrow. A cross stands before an error."""

_WRAPPED = 60
"""A line of so many characters goes on in the next one, which then begins with a small letter."""

_BEGIN = re.compile(
    r"^(?:error\b|ERROR:|critical\b|fatal:|\w*(?:Error|NotFound|Exception)\b|[x!] )", re.IGNORECASE
)
_NOISE = re.compile(
    r"^(?:Using Python|WARNING:|warning\b|\[notice\]|Traceback|hint: See|info\s)", re.IGNORECASE
)
_TOKEN = re.compile(r"/t/[^/\s]+/")


def summarize_output(output: str) -> str:
    r"""
    Summarize the output of a program that failed; empty if it printed nothing.

    >>> summarize_output("Using Python 3.11\nerror: No solution found\n  cause: Because x==9 is not there\n")
    'No solution found: Because x==9 is not there'
    """
    lines = [_clean_line(line) for line in re.sub(_SEQUENCES, "", output).replace("\r", "\n").split("\n")]
    lines = [line for line in lines if line and not _NOISE.match(line)]
    begins = [index for index, line in enumerate(lines) if _BEGIN.match(line)]
    said = lines[_block(lines, begins) :] if begins else lines[-4:]
    return hide_secrets(_join_lines(said))


def hide_secrets(text: str) -> str:
    """
    Hide tokens and passwords of addresses in a text, also those that channels of conda have in their paths.

    >>> hide_secrets("https://me:secret@host/t/secret/simple")
    'https://...@host/t/***/simple'
    """
    return _TOKEN.sub("/t/***/", hide_in_text(text))


def _clean_line(line: str) -> str:
    line = re.sub(_FRAME, " ", line.replace(_CROSS, "error: "))
    return " ".join("".join(one if one.isprintable() else " " for one in line).split())


def _block(lines: list[str], begins: list[int]) -> int:
    """Return where the last error starts: pip has two lines, libmamba the reason first and at last that it gives up."""
    first = begins[-1]
    for index in reversed(begins[:-1]):
        if first - index > _NEAR and not lines[first].startswith("critical"):
            break
        first = index
    return first


def _join_lines(lines: list[str]) -> str:
    parts: list[str] = []
    for line in lines:
        part = re.sub(
            r"^(?:(?:error|cause|critical|fatal|x)\b:?|ERROR:)\s*(?:libmamba\s+)?",
            "",
            line,
            flags=re.IGNORECASE,
        )
        if part and part not in parts:
            parts.append(part)
    text = before = ""
    for part in parts:
        text += _between(text, before, part) + part
        before = part
    text = text.rstrip(" .:")
    return text if len(text) <= _MOST else text[: _MOST - 4].rstrip() + " ..."


def _between(text: str, before: str, part: str) -> str:
    goes_on = text.endswith((":", ",", ".", ";")) or part[0] in "-("
    if not text or goes_on or (len(before) >= _WRAPPED and part[0].islower()):
        return " " if text else ""
    return ": "
