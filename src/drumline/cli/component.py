"""``drumline component``: the verbs of ``az ml component``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from drumline.cli import assets
from drumline.cli.arguments import Parser, add_file, add_name, add_output, name_of, overrides, run_verb

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "type", "display_name", "description")


def main(argv: list[str]) -> int:
    return run_verb("component", "Name the steps that pipelines are made of.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    assets.add_create(parser, "component", example="display_name=Train")


def _create(arguments: Namespace) -> int:
    from drumline.contract.errors import UsageError
    from drumline.spec.load import load_component

    if not arguments.file:
        raise UsageError("create needs --file", "drumline component create --file component.yml")
    return assets.create(
        arguments, "component", assets.loaded(arguments, assets.given(arguments), load_component, _none)
    )


def _none(*_: object) -> None:
    """A component is always a file."""


def _download_arguments(parser: Parser) -> None:
    add_name(parser, "component")
    assets.add_which(parser)
    parser.add_argument("-p", "--download-path", default=".", help="default: the current folder")


def _download(arguments: Namespace) -> int:
    from drumline.control import asset_files
    from drumline.control.terminal import clean

    name = name_of(arguments, "component")
    folder = asset_files.download_component(name, arguments.version, arguments.label, arguments.download_path)
    print(clean(f"downloaded to {folder}"), file=sys.stderr)
    return 0


def _validate_arguments(parser: Parser) -> None:
    add_file(parser)
    add_output(parser)


def _validate(arguments: Namespace) -> int:
    from drumline.cli import output
    from drumline.spec.load import load_component

    load_component(arguments.file, params_override=overrides(arguments.set))
    output.show({"result": "Succeeded"}, arguments.output, arguments.query)
    return 0


VERBS = {
    "create": ("name a component, with its code as it is now", _create_arguments, _create),
    **assets.Noun("component", _COLUMNS).verbs(),
    "download": ("its file and its code, to a folder", _download_arguments, _download),
    "validate": ("check a component's file, without registering it", _validate_arguments, _validate),
    "prepare-for-sign": assets.refused(
        "not here", "components are not signed here", "drumline component create"
    ),
}
