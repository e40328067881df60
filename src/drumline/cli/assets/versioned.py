"""The verbs that ``data``, ``model``, ``environment`` and ``component`` have in common: assets with versions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from drumline.cli.arguments import Parser, add_name, add_output, add_set, parse_count
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Verb = tuple[str, Callable[[Parser], None], Callable[[Any], int] | str]


# create


def add_create(parser: Parser, kind: str, *, example: str, short: str = "") -> None:
    """Add the arguments of every ``create``. ``short``: az's letter for the description, where it has one."""
    add_name(parser, kind)
    parser.add_argument("-f", "--file", help=f"the {kind}'s file; - for standard input")
    add_set(parser, example)
    parser.add_argument("-v", "--version", help="default: the file's, else the next number")
    parser.add_argument(*filter(None, (short, "--description")))
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    text = "move this label to the new version; can be repeated"
    parser.add_argument("--label", action="append", default=[], metavar="NAME", help=text)
    parser.add_argument("--skip-validation", action="store_true", help="do not check what it refers to")
    parser.add_argument("--datastore", help=argparse.SUPPRESS)
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    _add_registry(parser)
    add_output(parser)


def _add_registry(parser: Parser) -> None:
    def refuse(name: str) -> str:
        hint = "leave it out: assets registered without a workspace are visible in all workspaces"
        raise UsageError(f"--registry-name: registries are not supported; got {name!r}", hint)

    parser.add_argument("--registry-name", type=refuse, help=argparse.SUPPRESS)


# download


def make_download(kind: str) -> tuple[Callable[[Parser], None], str]:
    """Return the arguments and the function of ``download`` of a model or a component."""

    def add_arguments(parser: Parser) -> None:
        add_name(parser, kind)
        add_which(parser)
        parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")

    return add_arguments, "assets.asset_actions.download"


# the other verbs


class VersionedNoun:
    """The verbs of one kind of asset. ``stages``: whether they have a stage."""

    def __init__(self, kind: str, *, stages: bool = False) -> None:
        self.kind = kind
        self.stages = stages

    def verbs(self) -> dict[str, Verb]:
        return {
            "show": (
                "show one version; default: the latest",
                self._show_arguments,
                "assets.asset_actions.show",
            ),
            "list": (
                "list the latest version of each name, or all versions of one",
                self._list_arguments,
                "assets.asset_actions.list_versions",
            ),
            "update": (
                "change description, tags, labels and other fields",
                self._update_arguments,
                "assets.asset_actions.update",
            ),
            "archive": (
                "hide one version, or all versions of a name",
                self._add_which,
                "assets.asset_actions.archive",
            ),
            "restore": ("undo archive", self._add_which, "assets.asset_actions.restore"),
        }

    def _add_which(self, parser: Parser) -> None:
        add_name(parser, self.kind)
        add_which(parser)

    def _show_arguments(self, parser: Parser) -> None:
        self._add_which(parser)
        add_output(parser)

    def _list_arguments(self, parser: Parser) -> None:
        add_name(parser, self.kind)
        parser.add_argument("-r", "--max-results", type=parse_count, help="default: all")
        parser.add_argument("--archived-only", action="store_true", help="list only archived ones")
        parser.add_argument("--include-archived", action="store_true", help="list archived ones too")
        if self.stages:
            parser.add_argument("-s", "--stage", help="only models of this stage")
        _add_registry(parser)
        add_output(parser)

    def _update_arguments(self, parser: Parser) -> None:
        self._show_arguments(parser)
        parser.add_argument("--set", action="extend", nargs="+", default=[], metavar="PATH=VALUE")
        parser.add_argument(
            "--remove", action="extend", nargs="+", default=[], metavar="PATH", help="a field, or labels.NAME"
        )
        parser.add_argument(
            "--add", action="append", nargs="+", default=[], metavar="WORD", help="labels NAME adds a label"
        )
        parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)
        if self.stages:
            parser.add_argument("-s", "--stage")


def add_which(parser: Parser) -> None:
    parser.add_argument("-v", "--version")
    parser.add_argument("-l", "--label", help="a label instead of a version, such as latest")
    _add_registry(parser)


def refuse_verb(what: str, why: str, instead: str) -> Verb:
    """Return a verb of ``az ml`` that is refused: say why, and what to use instead."""

    def arguments(_: Parser) -> None:
        raise UsageError(why, instead)

    return what, arguments, lambda _: 2
