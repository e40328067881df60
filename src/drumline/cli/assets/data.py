"""``drumline data``: the verbs of ``az ml data``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, run_verb
from drumline.cli.assets.versioned import VersionedNoun, add_create, refuse_verb

if TYPE_CHECKING:
    from drumline.cli.arguments import Verbs


def main(argv: list[str]) -> int:
    return run_verb("data", "Manage the files and folders that jobs read.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    add_create(parser, "data", example="tags.team=vision", short="-d")
    parser.add_argument("-p", "--path", help="a file or folder, or a URI; it is not copied")
    parser.add_argument("-t", "--type", help="uri_file, uri_folder (the default) or mltable")


VERBS: Verbs = {
    "create": ("register a file or folder", _create_arguments, "assets.asset_actions.create_data"),
    **VersionedNoun("data").verbs(),
    "mount": refuse_verb(
        "not supported",
        "data is not mounted here: jobs read it at its path",
        "drumline data show prints the path",
    ),
    "import": refuse_verb(
        "not supported", "database inputs are not supported", "drumline data create --path FOLDER"
    ),
    "share": refuse_verb(
        "not supported",
        "registries are not supported",
        "drumline data show -o yaml, then create it elsewhere",
    ),
}
