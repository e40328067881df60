"""``drumline environment``: the verbs of ``az ml environment``, and ``build``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, add_output, run_verb
from drumline.cli.assets.versioned import (
    VersionedNoun,
    add_create,
    add_which,
    refuse_verb,
)

if TYPE_CHECKING:
    from drumline.cli.arguments import Verbs


def main(argv: list[str]) -> int:
    return run_verb("environment", "Manage environments.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    add_create(parser, "environment", example="tags.team=vision")
    parser.add_argument("--python", help="a Python interpreter that exists on the nodes; jobs run with it")
    parser.add_argument("-i", "--image", help="a Docker image; used if this machine can run containers")
    parser.add_argument("-c", "--conda-file", help="a conda file; built when a job first needs it")
    parser.add_argument("-b", "--build-context", help="a folder with a Dockerfile; built as an image")
    parser.add_argument(
        "-d", "--dockerfile-path", help="a path inside the build context; default: Dockerfile"
    )
    parser.add_argument("--os-type", help="linux or windows")


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "environment")
    add_which(parser)
    add_output(parser)


def _build_arguments(parser: Parser) -> None:
    add_name(parser, "environment")
    parser.add_argument("-f", "--file", help="an environment's file, or a conda file")
    add_which(parser)
    parser.add_argument(
        "--force", action="store_true", help="rebuild it with the newest versions of its packages"
    )
    add_output(parser)


VERBS: Verbs = {
    "create": ("register an environment", _create_arguments, "assets.asset_actions.create_environment"),
    **VersionedNoun("environment").verbs(),
    "show": (
        "show one version, and whether it is built on this machine",
        _show_arguments,
        "assets.asset_actions.show_environment",
    ),
    "build": (
        "build it now, not when a job first needs it",
        _build_arguments,
        "assets.asset_actions.build_environment",
    ),
    "share": refuse_verb(
        "not supported",
        "registries are not supported",
        "drumline environment show -o yaml, then create it elsewhere",
    ),
}
