"""``drumline environment``: the verbs of ``az ml environment``, and ``build``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, get_name, run_verb
from drumline.cli.assets.versioned import (
    VersionedNoun,
    add_create,
    add_which,
    collect_flags,
    refuse_verb,
    register,
)
from drumline.cli.entity_flags import load_entity, make_absolute
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace

_COLUMNS = ("name", "version", "python", "image", "description")


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


def _create(arguments: Namespace) -> int:
    from drumline.spec.load import load_environment
    from drumline.spec.parts.environment import from_tree

    arguments.conda_file = make_absolute(arguments.conda_file)
    values = {**collect_flags(arguments, "python", "image", "conda_file", "os_type"), **_build(arguments)}
    return register(arguments, "environment", load_entity(arguments, values, load_environment, from_tree))


def _build(arguments: Namespace) -> dict[str, Any]:
    folder, dockerfile = make_absolute(arguments.build_context), arguments.dockerfile_path
    if dockerfile and not folder and not arguments.file:
        raise UsageError("--dockerfile-path needs a build context", "--build-context FOLDER")
    values = {"build.path": folder, "build.dockerfile_path": dockerfile}
    return {path: value for path, value in values.items() if value}


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "environment")
    add_which(parser)
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control.assets import asset_verbs
    from drumline.control.environments import environment_builds

    which = (get_name(arguments, "environment"), arguments.version, arguments.label)
    shown = asset_verbs.describe("environment", *which)
    built = environment_builds.state_of(asset_verbs.get("environment", *which))
    output.show({**shown, "built": built} if built else shown, arguments.output, arguments.query)
    return 0


def _build_arguments(parser: Parser) -> None:
    add_name(parser, "environment")
    parser.add_argument("-f", "--file", help="an environment's file, or a conda file")
    add_which(parser)
    parser.add_argument(
        "--force", action="store_true", help="rebuild it with the newest versions of its packages"
    )
    add_output(parser)


def _build_it(arguments: Namespace) -> int:
    from drumline.control.assets import asset_verbs
    from drumline.control.environments import environment_builds

    if arguments.file:
        if arguments.name or arguments.given or arguments.version or arguments.label:
            raise UsageError("--file and a name exclude each other", "give one of them")
        environment = environment_builds.in_file(arguments.file)
    else:
        name = get_name(arguments, "environment")
        environment = asset_verbs.get("environment", name, arguments.version, arguments.label)
    made = environment_builds.build(environment, sys.stderr.fileno(), is_forced=arguments.force)
    output.show(made, arguments.output, arguments.query)
    return 0


VERBS = {
    "create": ("register an environment", _create_arguments, _create),
    **VersionedNoun("environment", _COLUMNS).verbs(),
    "show": ("show one version, and whether it is built on this machine", _show_arguments, _show),
    "build": ("build it now, not when a job first needs it", _build_arguments, _build_it),
    "share": refuse_verb(
        "not supported",
        "registries are not supported",
        "drumline environment show -o yaml, then create it elsewhere",
    ),
}
