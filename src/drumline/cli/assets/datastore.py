"""``drumline datastore``: the verbs of ``az ml datastore``, and datastores that are folders."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from drumline.cli.arguments import (
    Parser,
    add_name,
    add_output,
    add_set,
    get_name,
    parse_count,
    run_verb,
)
from drumline.cli.assets.versioned import refuse_verb
from drumline.control.assets import datastore_verbs

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs


def main(argv: list[str]) -> int:
    return run_verb(
        "datastore", "Manage datastores, which azureml://datastores/NAME/paths/... refers to.", VERBS, argv
    )


def _create_arguments(parser: Parser) -> None:
    add_name(parser, "datastore")
    parser.add_argument("-f", "--file", help="the datastore's file; - for standard input")
    add_set(parser, "tags.team=vision")
    parser.add_argument("-t", "--type", type=str.lower, help="local; Azure's types need --file")
    parser.add_argument("-p", "--path", help="the folder of a local datastore")
    parser.add_argument("--description")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    add_output(parser)


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "datastore")
    parser.add_argument("--include-secrets", action="store_true", help="include keys and tokens")
    add_output(parser)


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=parse_count, help="default: all")
    add_output(parser)


def _update_arguments(parser: Parser) -> None:
    _create_arguments(parser)
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="FIELD")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)


def _delete_arguments(parser: Parser) -> None:
    add_name(parser, "datastore")
    parser.add_argument("-y", "--yes", action="store_true", help=argparse.SUPPRESS)


def _delete(arguments: Namespace) -> int:
    datastore_verbs.delete(get_name(arguments, "datastore"))
    return 0


VERBS: Verbs = {
    "create": (
        "create or replace a datastore",
        _create_arguments,
        "assets.datastore_actions.create_datastore",
    ),
    "show": ("show a datastore", _show_arguments, "assets.datastore_actions.show_datastore"),
    "list": ("list datastores", _list_arguments, "assets.datastore_actions.list_datastores"),
    "update": ("change settings", _update_arguments, "assets.datastore_actions.update_datastore"),
    "delete": (
        "delete a datastore; its files are kept",
        _delete_arguments,
        _delete,
    ),
    "mount": refuse_verb(
        "not supported",
        "datastores are not mounted here: each is a folder",
        "drumline datastore show prints the path",
    ),
}
