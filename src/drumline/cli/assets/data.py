"""``drumline data``: the verbs of ``az ml data``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, run_verb
from drumline.cli.assets.versioned import VersionedNoun, add_create, collect_flags, refuse_verb, register
from drumline.cli.entity_flags import load_entity, make_absolute

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "type", "path", "description")


def main(argv: list[str]) -> int:
    return run_verb("data", "Manage the files and folders that jobs read.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    add_create(parser, "data", example="tags.team=vision", short="-d")
    parser.add_argument("-p", "--path", help="a file or folder, or a URI; it is not copied")
    parser.add_argument("-t", "--type", help="uri_file, uri_folder (the default) or mltable")


def _create(arguments: Namespace) -> int:
    from drumline.spec.load import load_data
    from drumline.spec.registered.assets import from_tree

    arguments.path = make_absolute(arguments.path)
    values = collect_flags(arguments, "path", "type")
    made = load_entity(arguments, values, load_data, partial(from_tree, "data"))
    return register(arguments, "data", made)


VERBS = {
    "create": ("register a file or folder", _create_arguments, _create),
    **VersionedNoun("data", _COLUMNS).verbs(),
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
