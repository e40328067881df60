"""``drumline workspace``: the verbs of ``az ml workspace``, for homes of this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, add_set, name_of, run_verb
from drumline.cli.assets import count, loaded, tags_of, warn
from drumline.contract.errors import UsageError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

_LIST_COLUMNS = ("name", "jobs", "display_name", "description")
_AZURE: dict[str, str] = {
    "kind": "", "storage-account": "-s", "container-registry": "-c", "key-vault": "-k", "application-insights": "-a",
    "image-build-compute": "-i", "public-network-access": "", "network-acls": "", "managed-network": "-m",
    "primary-user-assigned-identity": "-p", "system-datastores-auth-mode": "-d", "hub-id": "",
    "default-resource-group": "", "allow-roleassignment-on-rg": "-r", "enable-data-isolation": "-e",
    "provision-network-now": "", "update-dependent-resources": "-u",
}  # fmt: skip
"""What ``az ml workspace create`` takes, and its short form. It has no meaning here, and is answered with a warning."""


def main(argv: list[str]) -> int:
    return run_verb("workspace", "Homes for jobs and assets, each its own.", VERBS, argv)


def _name(parser: Parser) -> None:
    add_name(parser, "workspace")


def _name_of(arguments: Namespace) -> str:
    """-w says it too."""
    if not (arguments.given or arguments.name) and arguments.workspace_name:
        return str(arguments.workspace_name)
    return name_of(arguments, "workspace")


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=count, help="default: all")
    parser.add_argument("--filtered-kinds", help=argparse.SUPPRESS)
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control import workspaces

    known = workspaces.all(damaged=lambda said: warn([said]))
    found = [workspaces.settings(one) for one in known[: arguments.max_results]]
    output.show(found, arguments.output, arguments.query, _LIST_COLUMNS)
    return 0


def _show_arguments(parser: Parser) -> None:
    _name(parser)
    add_output(parser)


def _show(arguments: Namespace) -> int:
    from drumline.control import workspaces

    found = workspaces.get(_name_of(arguments))
    output.show(workspaces.settings(found), arguments.output, arguments.query)
    return 0


def _create_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-f", "--file", help="the workspace's file; - is standard input")
    add_set(parser, "description=vision")
    for field in ("display-name", "description"):
        parser.add_argument(f"--{field}")
    parser.add_argument("-l", "--location")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    for flag, short in _AZURE.items():
        # Some are true when no value follows.
        names = (short, f"--{flag}") if short else (f"--{flag}",)
        parser.add_argument(*names, nargs="?", const="true", help=argparse.SUPPRESS)
    add_output(parser)


def _create(arguments: Namespace) -> int:
    from drumline.control import workspaces
    from drumline.spec.workspace import from_tree, load_workspace

    given = {
        "name": arguments.name or arguments.given or arguments.workspace_name or None,
        "display_name": arguments.display_name,
        "description": arguments.description,
        "location": arguments.location,
    }
    known = {**{key: value for key, value in given.items() if value is not None}, **tags_of(arguments)}
    if not arguments.file:
        known["name"] = _name_of(arguments)
    made = loaded(arguments, known, load_workspace, from_tree)
    azure = [flag for flag in _AZURE if getattr(arguments, flag.replace("-", "_")) is not None]
    warn([*workspaces.create(made), *(f"--{flag}: not used; a workspace is a folder" for flag in azure)])
    output.show(workspaces.settings(workspaces.get(made.name)), arguments.output, arguments.query)
    return 0


def _delete_arguments(parser: Parser) -> None:
    _name(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="all jobs and assets in it go for good")
    for flag in ("--all-resources", "--no-wait"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-p", "--permanently-delete", action="store_true", help=argparse.SUPPRESS)


def _delete(arguments: Namespace) -> int:
    from drumline.control import workspaces

    name = _name_of(arguments)
    found = workspaces.settings(workspaces.get(name))
    if not arguments.yes:
        jobs = found["jobs"]
        what = f"workspace {name!r} has {jobs} {'job' if jobs == 1 else 'jobs'}, and would be gone with all in it"
        raise UsageError(what, f"drumline workspace delete -n {name} --yes")
    workspaces.delete(name)
    return 0


VERBS: dict[str, tuple[str, Callable[[Parser], None], Callable[[Any], int]]] = {
    "list": ("the workspaces there are", _list_arguments, _list),
    "show": ("what is known of a workspace", _show_arguments, _show),
    "create": ("make a workspace; using one makes it too", _create_arguments, _create),
    "delete": ("remove a workspace, with all jobs and assets in it", _delete_arguments, _delete),
}
