"""The reference of the command line, from the parsers that read it."""

import argparse
import contextlib
import io
import re
from collections.abc import Iterator
from unittest import mock

from drumline.cli.arguments import Parser
from drumline.cli.main import COMMANDS, main


def reference() -> str:
    """Every command and verb, with its arguments and options."""
    parts = []
    for command, text in COMMANDS.items():
        parser = parser_of(command)
        if parser is None:
            parts.append(f"## `drumline {command}`\n\n{sentence(text)}\n")
            continue
        verbs = verbs_of(parser)
        parts.append(f"## `drumline {command}`\n\n{sentence(parser.description or text)}\n")
        if not verbs:
            parts.append(arguments(parser))
        for verb in verbs:
            own = parser_of(command, verb)
            if own is None:
                continue
            parts.append(f"### `drumline {command} {verb}`\n\n{sentence(own.description or '')}\n")
            parts.append(arguments(own))
    return "\n".join(parts)


def parser_of(*words: str) -> argparse.ArgumentParser | None:
    """Return the parser whose help ``drumline WORDS --help`` shows; None for a verb that only names another."""
    shown: list[argparse.ArgumentParser] = []
    format_help = Parser.format_help

    def remember(parser: Parser) -> str:
        shown.append(parser)
        return format_help(parser)

    with mock.patch.object(Parser, "format_help", remember), _silently():
        main([*words, "--help"])
    return shown[-1] if shown else None


@contextlib.contextmanager
def _silently() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def verbs_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the verbs of a command; empty if it has none."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return list(action.choices)
    return []


def arguments(parser: argparse.ArgumentParser) -> str:
    """Return the usage line and a table of what a command takes."""
    usage = re.sub(r"\s+", " ", re.sub(r"^usage: ", "", parser.format_usage())).strip()
    rows = [row(action) for action in parser._actions if action.help != argparse.SUPPRESS]
    rows = [one for one in rows if one]
    lines = ["```text", *wrap(usage), "```", ""]
    if rows:
        lines += ["| argument | meaning |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def row(action: argparse.Action) -> str:
    """Return an argument's row; empty for ``--help``, which every command has."""
    if "--help" in action.option_strings:
        return ""
    formatter = argparse.HelpFormatter("drumline")
    value = ""
    if action.nargs != 0:
        value = formatter._format_args(action, _default_metavar(action))
    if action.option_strings:
        name = ", ".join(f"`{option}`" for option in action.option_strings)
        name += f" `{value}`" if value else ""
    else:
        name = f"`{value or action.dest}`"
    text = str(action.help or "")
    with contextlib.suppress(KeyError, ValueError, TypeError):
        text = text % {**vars(action), "prog": "drumline"}
    return f"| {cell(name)} | {cell(text)} |"


def _default_metavar(action: argparse.Action) -> str:
    return action.dest.upper() if action.option_strings else action.dest


def cell(text: str) -> str:
    """Write text so that it stays in its cell, and placeholders such as ``<name>`` stay visible."""
    text = text.replace("|", "\\|")
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def sentence(text: str) -> str:
    """Return the text as one that ends with a full stop."""
    text = cell(text.strip())
    return text if not text or text.endswith((".", "!", "?", ":")) else text + "."


def wrap(usage: str) -> list[str]:
    """Break a usage line between its arguments."""
    words = re.findall(r"\[[^\]]*(?:\[[^\]]*\][^\]]*)*\]|\S+", usage)
    lines, width = [""], 92
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("    ")
        lines[-1] += ("" if not lines[-1].strip() else " ") + word
    return lines
