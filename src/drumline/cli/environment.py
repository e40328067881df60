"""``drumline environment``: the verbs of ``az ml environment``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.cli import assets
from drumline.cli.arguments import Parser, run_verb
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "python", "image", "description")


def main(argv: list[str]) -> int:
    return run_verb("environment", "Name what jobs' programs run in.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    assets.add_create(parser, "environment", example="tags.team=vision")
    parser.add_argument("--python", help="an interpreter that the nodes have already; jobs run with it")
    parser.add_argument("-i", "--image", help="of Docker; kept, not used")
    parser.add_argument("-c", "--conda-file", help="packages on top of the image; kept, not used")
    parser.add_argument("-b", "--build-context", help="a folder with a Dockerfile; kept, not used")
    parser.add_argument("-d", "--dockerfile-path", help="inside the build context; default: Dockerfile")
    parser.add_argument("--os-type", help="linux or windows")


def _create(arguments: Namespace) -> int:
    from drumline.spec.environment import from_tree
    from drumline.spec.load import load_environment

    arguments.conda_file = assets.in_full(arguments.conda_file)
    values = {**assets.given(arguments, "python", "image", "conda_file", "os_type"), **_build(arguments)}
    return assets.create(
        arguments, "environment", assets.loaded(arguments, values, load_environment, from_tree)
    )


def _build(arguments: Namespace) -> dict[str, Any]:
    folder, dockerfile = assets.in_full(arguments.build_context), arguments.dockerfile_path
    if dockerfile and not folder and not arguments.file:
        raise UsageError(
            "--dockerfile-path: there is no build context that it is in", "--build-context FOLDER"
        )
    values = {"build.path": folder, "build.dockerfile_path": dockerfile}
    return {path: value for path, value in values.items() if value}


VERBS = {
    "create": ("name an environment", _create_arguments, _create),
    **assets.Noun("environment", _COLUMNS).verbs(),
    "share": assets.refused(
        "not here", "there are no registries here", "drumline environment show -o yaml, and create"
    ),
}
