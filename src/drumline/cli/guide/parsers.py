"""The parser of any command, for completion and manual pages: made by the command itself, which then does nothing."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, ParserMade
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping


def read_parser(module: str, verb: str = "") -> Parser | None:
    """
    Return the parser of the command in a module. ``verb``: the one whose arguments it has, where it has verbs.

    None for a verb that is refused.
    """
    # Help makes a command make its parser alone: nothing is forked or imported for what it would do.
    words = [verb, "--help"] if verb else ["--help"]
    Parser.is_wanted = True
    try:
        import_module(module).main(words)
    except ParserMade as made:
        return made.parser
    except UsageError:
        return None
    finally:
        Parser.is_wanted = False
    return None


def find_verbs(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's verbs; empty if it has none."""
    for action in parser._actions:
        if action.nargs == "A..." and isinstance(action.choices, dict):
            return action.choices
    return {}


def describe_verbs(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the line of help of each verb, in order."""
    for action in parser._actions:
        if action.nargs == "A...":
            described = getattr(action, "_choices_actions", [])
            return {one.dest: one.help or "" for one in described}
    return {}
