"""``drumline cache``: the data that jobs have downloaded, kept for the next ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_output, confirm, parse_count, run_verb
from drumline.control.machine import data_cache

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs

_COLUMNS = ("uri", "size", "files", "last_used", "used_by")


def main(argv: list[str]) -> int:
    return run_verb("cache", "Manage the cache of data that jobs have downloaded.", VERBS, argv)


def _show(arguments: Namespace) -> int:
    output.show(data_cache.show(), arguments.output, arguments.query)
    return 0


def _list(arguments: Namespace) -> int:
    output.show(data_cache.entries()[: arguments.max_results], arguments.output, arguments.query, _COLUMNS)
    return 0


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=parse_count, help="default: all")
    add_output(parser)


def _prune_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--to", metavar="SIZE", help="shrink the cache to this size, such as 10GiB; default: the limit"
    )
    parser.add_argument(
        "--older-than", metavar="TIME", help="also remove data that was not used for this long, such as 30d"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be removed, and remove nothing"
    )
    add_output(parser)


def _prune(arguments: Namespace) -> int:
    removed = data_cache.prune(arguments.to, arguments.older_than, dry_run=arguments.dry_run)
    output.show(removed, arguments.output, arguments.query)
    return 0


def _clear_arguments(parser: Parser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    add_output(parser)


def _clear(arguments: Namespace) -> int:
    question = "Remove all data that no running job uses?"
    if not arguments.yes and not confirm(question, "drumline cache clear --yes"):
        return 1
    output.show(data_cache.clear(), arguments.output, arguments.query)
    return 0


def _limit_arguments(parser: Parser) -> None:
    parser.add_argument(
        "size", nargs="?", metavar="SIZE", help="such as 200GiB; default: a quarter of its file system"
    )
    add_output(parser)


def _limit(arguments: Namespace) -> int:
    if arguments.size:
        data_cache.set_limit(arguments.size)
    output.show(data_cache.limit(), arguments.output, arguments.query)
    return 0


VERBS: Verbs = {
    "show": ("show its folder, size and limit", add_output, _show),
    "list": ("list downloaded data, most recently used first", _list_arguments, _list),
    "prune": (
        "remove the least recently used data that no running job uses",
        _prune_arguments,
        _prune,
    ),
    "clear": ("remove all data that no running job uses", _clear_arguments, _clear),
    "limit": ("show the limit of its size, or set it", _limit_arguments, _limit),
}
