"""``drumline model``: the verbs of ``az ml model``."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from drumline.cli import assets
from drumline.cli.arguments import Parser, add_name, name_of, run_verb

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "type", "stage", "path", "description")


def main(argv: list[str]) -> int:
    return run_verb("model", "Name what jobs have trained.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    assets.add_create(parser, "model", example="stage=Production")
    text = (
        "a file or folder, azureml://jobs/JOB/outputs/OUTPUT/paths/PATH, or runs:/JOB/PATH; it is not copied"
    )
    parser.add_argument("-p", "--path", help=text)
    parser.add_argument("-t", "--type", help="custom_model (the default), mlflow_model or triton_model")
    parser.add_argument("-s", "--stage")


def _create(arguments: Namespace) -> int:
    from drumline.spec.assets import from_tree
    from drumline.spec.load import load_model

    arguments.path = assets.in_full(arguments.path)
    values = assets.given(arguments, "path", "type", "stage")
    made = assets.loaded(arguments, values, load_model, partial(from_tree, "model"))
    return assets.create(arguments, "model", made)


def _download_arguments(parser: Parser) -> None:
    add_name(parser, "model")
    assets.add_which(parser)
    parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")


def _download(arguments: Namespace) -> int:
    from drumline.control import asset_files
    from drumline.control.terminal import clean

    name = name_of(arguments, "model")
    copied = asset_files.download_model(name, arguments.version, arguments.label, arguments.download_path)
    print(clean(f"downloaded to {copied}"), file=sys.stderr)
    return 0


VERBS = {
    "create": ("name a model", _create_arguments, _create),
    **assets.Noun("model", _COLUMNS, stages=True).verbs(),
    "download": ("copy a model to a folder", _download_arguments, _download),
    "package": assets.refused("not here", "models are not deployed from here", "drumline model download"),
    "share": assets.refused(
        "not here", "there are no registries here", "drumline model show -o yaml, and create"
    ),
}
