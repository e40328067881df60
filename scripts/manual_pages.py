"""
Manual pages from the parsers: ``python scripts/manual_pages.py FOLDER`` writes ``FOLDER/man1/drumline*.1``.

The build of a wheel does the same, so that ``man drumline-job`` works where Drumline is installed. The pages use
man(7), which every ``man`` reads. Nothing needs to be installed.
"""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src"))

from drumline import __version__
from drumline.cli.guide.completion import describe_verbs, find_verbs, read_parser
from drumline.cli.main import COMMANDS, list_modules

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_SUPPRESSED = "==SUPPRESS=="


def write_pages(folder: str) -> list[str]:
    """Write a page for ``drumline`` and one for each command below ``FOLDER/man1``; return their paths."""
    os.makedirs(os.path.join(folder, "man1"), exist_ok=True)
    paths = []
    for name, text in make_pages().items():
        path = os.path.join(folder, "man1", f"{name}.1")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        paths.append(path)
    return paths


def make_pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    pages = {"drumline": _format_overview()}
    for command, module in list_modules().items():
        parser = read_parser(module)
        if parser is not None:
            page = "".join(
                f"{line}\n" for line in _format_command(command, COMMANDS[command], parser, module)
            )
            pages[f"drumline-{command}"] = page
    return pages


def _format_overview() -> str:
    lines = [
        *_format_head("drumline", "run distributed-training jobs on your own machines"),
        ".SH SYNOPSIS",
        r"\fBdrumline\fR \fICOMMAND\fR [\fIarguments\fR]",
        ".SH DESCRIPTION",
        "Run distributed-training jobs written for Azure ML on your own machines.",
        ".SH COMMANDS",
    ]
    for command, text in COMMANDS.items():
        lines += [".TP", rf"\fBdrumline\-{_escape(command)}\fR(1)", _escape_line(text)]
    lines += [
        ".SH EXIT STATUS",
        "0: the command succeeded. 1: the job or the operation failed. 2: wrong usage, or an invalid job. "
        "3: the named thing does not exist. 130: interrupted.",
        r"\fBdrumline run\fR exits with the exit code of its job.",
        ".SH ENVIRONMENT",
        ".TP",
        r"\fBDRUMLINE_HOME\fR",
        r"The folder of jobs, computes and assets; default: \fI~/.local/share/drumline\fR.",
        ".TP",
        r"\fBDRUMLINE_WORKSPACE\fR",
        r"The workspace of commands without \fB\-w\fR.",
    ]
    return "".join(f"{line}\n" for line in lines)


def _format_head(name: str, text: str) -> list[str]:
    # Two builds of one release are the same where the builder sets this variable.
    day = time.strftime("%Y-%m-%d", time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH") or time.time())))
    title = f'.TH "{_escape(name.upper())}" "1" "{day}" "drumline {_escape(__version__)}" "Drumline"'
    return [title, ".SH NAME", rf"{_escape(name)} \- {_escape(text)}"]


def _format_command(command: str, text: str, parser: argparse.ArgumentParser, module: str) -> Iterator[str]:
    yield from _format_head(f"drumline-{command}", text.partition(":")[0])
    verbs = describe_verbs(parser)
    yield ".SH SYNOPSIS"
    if verbs:
        yield rf"\fBdrumline {_escape(command)}\fR \fIVERB\fR [\fIarguments\fR]"
    else:
        yield from _format_usage(parser)
    yield ".SH DESCRIPTION"
    yield _escape_line(parser.description or text)
    if not verbs:
        yield ".SH OPTIONS"
        yield from _format_arguments(parser)
    else:
        yield ".SH VERBS"
    for verb in verbs:
        made = read_parser(module, verb)
        found = find_verbs(made).get(verb) if made is not None else None
        if found is not None:
            yield rf".SS drumline {_escape(command)} {_escape(verb)}"
            yield _escape_line(found.description or verbs[verb])
            yield ".PP"
            yield from _format_usage(found)
            yield from _format_arguments(found)
    yield ".SH SEE ALSO"
    yield r"\fBdrumline\fR(1)"


def _format_usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage:").split())
    name, rest = parser.prog, usage.removeprefix(parser.prog).strip()
    yield rf"\fB{_escape(name)}\fR {_escape(rest)}".rstrip()


def _format_arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == _SUPPRESSED or action.dest == "help":
            continue
        yield ".TP"
        yield ", ".join(_format_names(action))
        choices = f"one of {', '.join(map(str, action.choices))}" if action.choices is not None else ""
        said = "; ".join(filter(None, (action.help, choices if choices not in str(action.help) else "")))
        yield _escape_line(said % {"default": action.default} if "%(" in said else said) or r"\&"


def _format_names(action: argparse.Action) -> list[str]:
    word = action.metavar if isinstance(action.metavar, str) else action.dest.upper().replace("-", "_")
    value = "" if action.nargs == 0 else rf"\fI{_escape(word)}\fR"
    if not action.option_strings:
        return [value]
    return [rf"\fB{_escape(name)}\fR {value}".rstrip() for name in action.option_strings]


def _escape(text: str) -> str:
    return text.replace("\\", r"\e").replace("-", r"\-")


def _escape_line(text: str) -> str:
    """Escape a line of text, whose first letter may otherwise make it a request; hyphens in words stay hyphens."""
    text = re.sub(r"(?<!\w)-|-(?!\w)", r"\\-", text.replace("\\", r"\e"))
    return rf"\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python scripts/manual_pages.py FOLDER")
    print("\n".join(write_pages(sys.argv[1])))
