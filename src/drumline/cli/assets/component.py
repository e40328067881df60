"""``drumline component``: the verbs of ``az ml component``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli import output
from drumline.cli.arguments import Parser, add_file, add_output, parse_overrides, run_verb
from drumline.cli.assets.versioned import (
    VersionedNoun,
    add_create,
    make_download,
    refuse_verb,
)
from drumline.spec.load import load_component

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs


def main(argv: list[str]) -> int:
    return run_verb("component", "Manage components, the steps of pipelines.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    add_create(parser, "component", example="display_name=Train")


def _validate_arguments(parser: Parser) -> None:
    add_file(parser, "component")
    add_output(parser)


def _validate(arguments: Namespace) -> int:
    load_component(arguments.file, params_override=parse_overrides(arguments.set))
    output.show({"result": "Succeeded"}, arguments.output, arguments.query)
    return 0


VERBS: Verbs = {
    "create": (
        "register a component with its current code",
        _create_arguments,
        "assets.asset_actions.create_component",
    ),
    **VersionedNoun("component").verbs(),
    "download": ("copy its file and code to a folder", *make_download("component")),
    "validate": ("check a component's file without registering it", _validate_arguments, _validate),
    "prepare-for-sign": refuse_verb(
        "not supported", "signing components is not supported", "drumline component create"
    ),
}
