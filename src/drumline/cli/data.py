"""``drumline data``: the verbs of ``az ml data``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from drumline.cli import assets
from drumline.cli.arguments import Parser, run_verb

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "type", "path", "description")
_STAYS = "data stays where its path says, and jobs find it there"


def main(argv: list[str]) -> int:
    return run_verb("data", "Name files and folders that jobs read.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    assets.add_create(parser, "data", example="tags.team=vision", short="-d")
    parser.add_argument("-p", "--path", help="a file or folder, or a URI; it is not copied")
    parser.add_argument("-t", "--type", help="uri_file, uri_folder (the default) or mltable")


def _create(arguments: Namespace) -> int:
    from drumline.spec.assets import from_tree
    from drumline.spec.load import load_data

    arguments.path = assets.in_full(arguments.path)
    values = assets.given(arguments, "path", "type")
    made = assets.loaded(arguments, values, load_data, partial(from_tree, "data"))
    return assets.create(arguments, "data", made)


VERBS = {
    "create": ("name a file or folder", _create_arguments, _create),
    **assets.Noun("data", _COLUMNS).verbs(),
    "mount": assets.refused(
        "not here", f"there is nothing to mount: {_STAYS}", "drumline data show has the path"
    ),
    "import": assets.refused(
        "not here", "nothing is fetched from databases", "drumline data create --path FOLDER"
    ),
    "share": assets.refused(
        "not here", "there are no registries here", "drumline data show -o yaml, and create"
    ),
}
