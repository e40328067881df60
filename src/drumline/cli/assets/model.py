"""``drumline model``: the verbs of ``az ml model``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, get_name, run_verb
from drumline.cli.assets.versioned import (
    VersionedNoun,
    add_create,
    add_which,
    collect_flags,
    refuse_verb,
    register,
)
from drumline.cli.entities import load_entity, make_absolute
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "type", "stage", "path", "description")


def main(argv: list[str]) -> int:
    return run_verb("model", "Manage models.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    add_create(parser, "model", example="stage=Production")
    text = (
        "a file or folder, azureml://jobs/JOB/outputs/OUTPUT/paths/PATH, or runs:/JOB/PATH; it is not copied"
    )
    parser.add_argument("-p", "--path", help=text)
    parser.add_argument("-t", "--type", help="custom_model (the default), mlflow_model or triton_model")
    parser.add_argument("-s", "--stage")


def _create(arguments: Namespace) -> int:
    from drumline.spec.load import load_model
    from drumline.spec.registered.assets import from_tree

    arguments.path = make_absolute(arguments.path)
    values = collect_flags(arguments, "path", "type", "stage")
    made = load_entity(arguments, values, load_model, partial(from_tree, "model"))
    return register(arguments, "model", made)


def _download_arguments(parser: Parser) -> None:
    add_name(parser, "model")
    add_which(parser)
    parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")


def _download(arguments: Namespace) -> int:
    from drumline.control.assets import asset_files

    name = get_name(arguments, "model")
    copied = asset_files.download_model(name, arguments.version, arguments.label, arguments.download_path)
    print(clean(f"downloaded to {copied}"), file=sys.stderr)
    return 0


VERBS = {
    "create": ("register a model", _create_arguments, _create),
    **VersionedNoun("model", _COLUMNS, stages=True).verbs(),
    "download": ("copy a model to a folder", _download_arguments, _download),
    "package": refuse_verb("not supported", "deploying models is not supported", "drumline model download"),
    "share": refuse_verb(
        "not supported",
        "registries are not supported",
        "drumline model show -o yaml, then create it elsewhere",
    ),
}
