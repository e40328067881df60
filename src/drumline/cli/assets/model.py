"""``drumline model``: the verbs of ``az ml model``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, run_verb
from drumline.cli.assets.versioned import (
    VersionedNoun,
    add_create,
    make_download,
    refuse_verb,
)

if TYPE_CHECKING:
    from drumline.cli.arguments import Verbs


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


VERBS: Verbs = {
    "create": ("register a model", _create_arguments, "assets.asset_actions.create_model"),
    **VersionedNoun("model", stages=True).verbs(),
    "download": ("copy a model to a folder", *make_download("model")),
    "package": refuse_verb("not supported", "deploying models is not supported", "drumline model download"),
    "share": refuse_verb(
        "not supported",
        "registries are not supported",
        "drumline model show -o yaml, then create it elsewhere",
    ),
}
