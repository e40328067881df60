"""``drumline environment``: the verbs of ``az ml environment``, and ``build``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import assets, output
from drumline.cli.arguments import Parser, add_name, add_output, name_of, run_verb
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "python", "image", "description")


def main(argv: list[str]) -> int:
    return run_verb("environment", "Name what jobs' programs run in.", VERBS, argv)


def _create_arguments(parser: Parser) -> None:
    assets.add_create(parser, "environment", example="tags.team=vision")
    parser.add_argument("--python", help="an interpreter that the nodes have already; jobs run with it")
    parser.add_argument("-i", "--image", help="of Docker: used where this machine runs containers")
    parser.add_argument("-c", "--conda-file", help="packages; built when a job needs them")
    parser.add_argument("-b", "--build-context", help="a folder with a Dockerfile; as an image")
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


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "environment")
    assets.add_which(parser)
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control import assets as kept
    from drumline.control import built_environments

    which = (name_of(arguments, "environment"), arguments.version, arguments.label)
    shown = kept.describe("environment", *which)
    built = built_environments.state_of(kept.get("environment", *which))
    output.show({**shown, "built": built} if built else shown, arguments.output, arguments.query)
    return 0


def _build_arguments(parser: Parser) -> None:
    add_name(parser, "environment")
    parser.add_argument("-f", "--file", help="an environment's file, or a conda file")
    assets.add_which(parser)
    parser.add_argument("--force", action="store_true", help="make it again, newest versions included")
    add_output(parser)


def _build_it(arguments: Namespace) -> int:
    from drumline.control import assets as kept
    from drumline.control import built_environments

    if arguments.file:
        if arguments.name or arguments.given or arguments.version or arguments.label:
            raise UsageError("--file and a name exclude each other", "give one of them")
        environment = built_environments.in_file(arguments.file)
    else:
        name = name_of(arguments, "environment")
        environment = kept.get("environment", name, arguments.version, arguments.label)
    made = built_environments.build(environment, sys.stderr.fileno(), is_forced=arguments.force)
    output.show(made, arguments.output, arguments.query)
    return 0


VERBS = {
    "create": ("name an environment", _create_arguments, _create),
    **assets.Noun("environment", _COLUMNS).verbs(),
    "show": ("one version, and whether it is built here", _show_arguments, _show),
    "build": ("make what jobs of it run in, now", _build_arguments, _build_it),
    "share": assets.refused(
        "not here", "there are no registries here", "drumline environment show -o yaml, and create"
    ),
}
