"""
The words in a program's log that tell why it ended, which are seldom the last line.

Two tables know the lines of the common languages and tools: reports of what ended a program, and lines that say
nothing of it, such as frames of stacks, warnings, and the summaries of trackers and launchers. Of these, torchrun's
report on the processes that it started is read as such.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple, compile_late
from drumline.contract.words import format_seconds
from drumline.node.diagnostics import failures, tracebacks
from drumline.node.diagnostics.failures import MAX_LINE, make_printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.contract.evidence import CodePlace, ReportedProcess
    from drumline.node.diagnostics.tracebacks import Traceback


_ECHO = compile_late(r"(\S*: (?:-c: )?line \d{1,9}: )(`.*')")
"""Bash repeats the line in which a mistake of the syntax is, below what is wrong with it. Source: parse.y."""

_NATIVE_DUMP = compile_late(r"^Fatal Python error: Aborted$", re.MULTILINE)

_REPORTS = tuple(
    compile_late(pattern, re.MULTILINE)
    for pattern in (
        # The sanitizers of LLVM and GCC.
        r"^(?:==\d+==\s*|=+\n)?(?P<what>(?:ERROR|WARNING|FATAL): \w+Sanitizer: .*|\S+:\d+:\d+: runtime error: .*)",
        # Python's faulthandler, when its timer ends the program.
        r"^Timeout \((?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d+)?)\)!$",
        # Go.
        r"^(?P<what>(?:panic|fatal error): .*(?:\n\t.*){0,20})(?=\n\n?(?:goroutine |runtime stack:|\[signal))",
        # Rust: since 1.73 the message is on the next line.
        r"^thread '.*?' (?:\(\d+\) )?panicked at (?:'(?P<old>.*)', (?P<old_file>.*?):(?P<old_line>\d+)(?::\d+)?$"
        r"|(?P<file>.*?):(?P<line>\d+):\d+:\n(?P<what>.*))",
        # Java, Kotlin and Scala; .NET; Dart.
        r'^(?:Exception in thread ".*?" |Unhandled exception[.:]\s)(?P<what>\S.*)',
        # Node.js and its like: the error, and then the first frame.
        r"^(?:Uncaught )?(?P<what>[\w.]*(?:Error|Exception)\b(?: \[\w+\])?: .*)(?=\n(?:[^\n]*\n){0,5}? +at )",
        # Julia and R.
        r"^ERROR: (?:LoadError: )?(?P<what>.+)(?=\n(?:[^\n]*\n){0,10}?Stacktrace:)",
        r"^(?P<what>Error(?=:| in .*:)(?:.*: *\n .*|.*))(?=\n(?:[^\n]*\n){0,20}?Execution halted)",
        # PHP, Swift, OCaml, Fortran.
        r"^(?P<what>(?:PHP )?Fatal error: .+|Fortran runtime error: .+)",
        # C++ and C, libraries that check with glog and Abseil, the heap of glibc, Python's own.
        r"^terminate called after throwing an instance of '(?P<type>.{1,300})'(?:\n\s*what\(\): +(?P<what>.*))?",
        r"^(?P<what>pure virtual method called|deleted virtual method called)$",
        r"^(?P<what>libc\+\+abi: .*|terminating due to uncaught exception.*"
        r"|.{0,500}Assertion [`'].* failed\.?|Assertion failed: .*|.{0,200}Check failed: .*"
        r"|(?:free|malloc|realloc|munmap_chunk|calloc|malloc_consolidate)\(\): .*|double free or corruption.*"
        r"|corrupted (?:size|double-linked).*|\*\*\* .* \*\*\*.*|Fatal glibc error: .*"
        r"|Fatal Python error: (?!Aborted).*)",
        r"^(?P<what>terminate called .*)",
    )
)
"""What languages and libraries say of the end of a program, those that say most in front."""

_CAUSED_BY = compile_late(r"^Caused by: (.+)", re.MULTILINE)
"""Java's; the last one is where it began."""

_SAYS_NOTHING = compile_late(
    r"\W*"
    # Frames: Java, Node, .NET; Go; C, sanitizers, PHP; Rust; Perl; Julia; Ruby; Lua; Python.
    r"|\s+at \S.*|\s*\.\.\. \d+ more|Caused by: .*"
    r"|goroutine \d+ .*|\t\S+\.(?:go|s):\d+.*|[\w./*-]+\.[\w.()*]+\((?:\.\.\.|\{?0x.*)?\)|created by .*|exit status \d+"
    r"|\[signal SIG.*|\s*#\d+ .*|\s+\d+: \S+|(?:stack backtrace|Stack trace|stack traceback|Stacktrace):"
    r"|note: .*|\t.* called at .* line \d+\.?|\teval \{.*|\s*\[\d+\] \S.*|\s+@ .*|in expression starting at .*"
    r"|\tfrom .*|\t\[C\].*|CallStack \(from .*|Calls: .*|Execution halted|In addition: .*|  thrown in .* on line \d+"
    r'|\s+File ".*", line \d+.*|.*Traceback \(most recent call last\):|(?:Current thread|Thread) 0x.*first\):'
    r"|(?:READ|WRITE) of size .*|0x[0-9a-f]+ is located .*|.*\bby thread T\d+.*:|Shadow byte.*|[\s=>]+0x[0-9a-f]+: .*"
    r"|  [A-Z][\w ]+: +[0-9a-f]{2}(?: [0-9a-f]{2})* ?"
    r"|\S*env: use -\[v\]S .*|Node\.js v[\d.]+|\(Use `node .*|==\d+==ABORTING|SUMMARY: .*|Extension modules: .*"
    # Trackers, and tools that started the program.
    r"|wandb: (?!ERROR).*|g?make(?:\[\d+\])?: .*|npm (?:ERR!|error) .*|srun: error: .*: Exited with .*"
    r"|\[[\d ,:.-]+\] \[(?:INFO|ERROR|WARNING)\] \[(?:launch|runner)\.py:.*|[EIW]\d{4} .*torch/distributed/.*"
    r"|  (?:time|host|rank|exitcode|error_file|traceback) *: .*|\[\d+\]:|Failures:|Root Cause .*|  <NO_OTHER_FAILURES>"
    r"|.*\.py FAILED|\S*ChildFailedError:.*|\S*CalledProcessError: .*"
    # Open MPI and MPICH, around their explanations. Sources: plm_rsh_module.c and plm_ssh.c, setpgid; show_help.c;
    # orterun.c; hydra's pmiserv_cb.c.
    r"|\[[^\]]*\] (?:\S+ Warning: |\d+ more process|Set MCA parameter ).*|\d+ total process.*"
    r"|This typically refers to a problem with your application.*|Please see the FAQ page for debugging.*"
    # Warnings.
    r"|.*Warning: .*|  warnings\.warn\(.*|\[?W\d{4} .*|WARNING\b.*|Exception ignored in.*|Warning message.*"
)
"""Lines that say nothing of why a program ended."""

_ERROR = compile_late(
    r"(?:^|[\s\[|:(-])(?:FATAL|CRITICAL|ERROR|PANIC)(?=[\s\])|:,-]|$)"
    r"|^(?:[^\s:]+: ){0,3}(?i:fatal(?: error)?|error|panic)(?:\[\w+\])?: (?!\s*[-+\d.e%]+$)"
    r"|^(?:[^\s:]+: )?[A-Za-z_][\w.]*(?:Error|Exception)(?:: |$)|^F\d{4} "
)
"""Finds a line in which a program says that something is an error."""

_RULER = compile_late(r"([-=*])\1{9,}")

_MOST_BACK = 10
"""Lines that a program may say at its end after the one that counts."""


class EndReport(NamedTuple):
    """A report of what ended a program, as its language or a library of it makes one."""

    said: str
    place: CodePlace | None


def find_last_words(text: str) -> str:
    """
    Return the line near the end that says most: one that says that it is an error, else the last that says something.

    Of a shell's two lines about a mistake in its syntax, the first comes too; an indented line, with the one above it.
    """
    lines = tracebacks.split_lines(text)
    framed = _find_framed(_drop_chatter(lines))
    if framed:
        return make_printable(framed, MAX_LINE)
    worded = [place for place, line in enumerate(lines) if _has_words(line)]
    if not worded:
        return ""
    last, before = (lines[place].strip() for place in (worded[-1], worded[-2:][0]))
    echo = _ECHO.fullmatch(last)
    if echo and before != last and before.startswith(echo[1]):
        return make_printable(f"{before}: {echo[2]}", MAX_LINE)
    saying = list_saying(lines) or worded
    for place in saying[: -_MOST_BACK - 1 : -1]:
        if _ERROR.search(lines[place]):
            return failures.quote_message(lines[place])
    head = place = saying[-1]
    titles = [one for one in saying[-_MOST_LISTED - 1 : -1] if lines[one].endswith(":")]
    if titles:
        return failures.quote_message("\n".join(lines[titles[0] : place + 1]))
    while head > 0 and lines[head].startswith(_INDENTS) and _has_words(lines[head - 1]):
        head -= 1
    if lines[head].startswith(_INDENTS):
        head = place
    return failures.quote_message("\n".join(lines[head : place + 1]))


_MOST_LISTED = 4
"""Lines at the end that may belong to one before them that ends with a colon."""

_INDENTS = (" ", "\t", "- ", "* ")


def find_first_words(text: str) -> str:
    """Return how the text of a launcher begins: the first line with words, or the first sentence between rulers."""
    lines = _drop_chatter(tracebacks.split_lines(text))
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


def _drop_chatter(lines: Sequence[str]) -> list[str]:
    """Return the lines, stripped, without blank ones at the end, and without chatter where there is anything else."""
    rest = [line.strip() for line in lines if not _has_words(line) or not _SAYS_NOTHING.fullmatch(line)]
    kept = rest if any(map(_has_words, rest)) else [line.strip() for line in lines]
    while kept and not kept[-1]:
        kept.pop()
    return kept


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


def list_saying(lines: Sequence[str]) -> list[int]:
    """List the lines, by number, that may say why the program ended."""
    silent = {
        place
        for one in tracebacks.parse(lines)
        if one.is_ignored or one.type.rpartition(".")[2] in failures.RAISED_FOR_ANOTHER
        for place in range(one.begin, one.end)
    }
    return [
        place for place, line in enumerate(lines) if place not in silent and not _SAYS_NOTHING.fullmatch(line)
    ]


def find_traceback(text: str) -> list[Traceback]:
    """
    Return the traceback near the end of a log and what it came of, latest first; empty where there is none.

    Launchers' and destructors' are left out.
    """
    lines = tracebacks.split_lines(text)
    found = tracebacks.parse(lines)
    if found and any(line.startswith("Fatal Python error") for line in lines[found[-1].end :]):
        return []  # It went on, and crashed later.
    saying = list_saying(lines)
    for place in range(len(found) - 1, -1, -1):
        one = found[place]
        if sum(line >= one.end for line in saying) > _MOST_BACK:
            return []
        if one.is_ignored or one.type.rpartition(".")[2] in failures.RAISED_FOR_ANOTHER:
            continue
        chain = [one]
        while chain[-1].follows and place > 0:
            place -= 1  # noqa: PLW2901 - it ends here
            chain.append(found[place])
        return chain
    return []


def find_report(text: str, cwd: str) -> EndReport:
    """Return what a program that ended by itself reported; ``said`` is empty where it is nothing that is known."""
    dumps = list(_NATIVE_DUMP.finditer(text))
    lines = tracebacks.split_lines(text[: dumps[-1].start()] if dumps else text)
    saying = list_saying(lines)
    latest = saying[-_MOST_BACK - 1] if len(saying) > _MOST_BACK else 0
    end = "\n".join(lines)
    begin = sum(len(line) + 1 for line in lines[:latest])
    for pattern in _REPORTS:
        matches = [one for one in pattern.finditer(end) if one.start() >= begin]
        if matches:
            return _describe_report(matches[-1], end, cwd)
    return EndReport("", None)


def _describe_report(match: re.Match[str], text: str, cwd: str) -> EndReport:
    parts = match.groupdict()
    if "seconds" in parts:
        seconds = int(parts["hours"]) * 3600 + int(parts["minutes"]) * 60 + float(parts["seconds"])
        place = failures.find_own_frame(text[match.end() :], cwd)
        return EndReport(f"its own faulthandler gave up after {format_seconds(seconds)}", place)
    said = parts.get("what") or parts.get("old") or ""
    if parts.get("type"):
        said = f"{parts['type']}: {said}" if said else parts["type"]
    file, line = parts.get("file") or parts.get("old_file"), parts.get("line") or parts.get("old_line")
    if file and line:
        said = f"panicked: {said}"
    causes = _CAUSED_BY.findall(text[match.end() :])
    if causes:
        said += f"; caused by: {causes[-1]}"
    place = None
    if file and line:
        place = {"file": failures.show_path(file, cwd), "line": int(line), "function": ""}
    return EndReport(failures.quote_message(said), place)


# Torchrun's report on the processes that it started: the table at the end of its log, accelerate's too.


_TABLE = compile_late(r"^=+\n.{1,1000} FAILED\n-+\n(.*?)^=+$", re.MULTILINE | re.DOTALL)
"""Source: torch/distributed/elastic/multiprocessing/errors/__init__.py, ChildFailedError."""

_ENTRY = compile_late(
    r"^  rank +: (\d{1,9}) \(local_rank: \d{1,9}\)\n  exitcode +: (-?\d{1,9}) \(pid: (\d{1,9})\)",
    re.MULTILINE,
)
_ROOT = "Root Cause"
_MAX_PROCESSES = 64


def parse_report(log: str) -> list[ReportedProcess]:
    """
    Return the failures that the last table lists, that which it calls the root cause first: rank, pid, code, signal.
    Empty where there is none.
    """
    tables = _TABLE.findall(log)
    if not tables:
        return []
    others, _, root = tables[-1].partition(_ROOT)
    found: list[ReportedProcess] = []
    for rank, code, pid in _ENTRY.findall(root) + _ENTRY.findall(others):
        number = int(code)
        ended, killed = (number, None) if number >= 0 else (None, -number)
        found.append({"rank": int(rank), "pid": int(pid), "code": ended, "signal": killed})
    return found[:_MAX_PROCESSES]
