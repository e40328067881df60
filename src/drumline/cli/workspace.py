"""``drumline workspace``: the verbs of ``az ml workspace``, for folders of this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from drumline.cli.arguments import Parser, add_name, add_output, add_set, parse_count, run_verb

if TYPE_CHECKING:
    from drumline.cli.arguments import Verbs

IGNORED: dict[str, str] = {
    "kind": "", "storage-account": "-s", "container-registry": "-c", "key-vault": "-k", "application-insights": "-a",
    "image-build-compute": "-i", "public-network-access": "", "network-acls": "", "managed-network": "-m",
    "primary-user-assigned-identity": "-p", "system-datastores-auth-mode": "-d", "hub-id": "",
    "default-resource-group": "", "allow-roleassignment-on-rg": "-r", "enable-data-isolation": "-e",
    "provision-network-now": "", "update-dependent-resources": "-u",
}  # fmt: skip
"""Flags of ``az ml workspace create`` without a meaning here, with their short forms: each gets a warning."""


def main(argv: list[str]) -> int:
    return run_verb("workspace", "Manage workspaces.", VERBS, argv)


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=parse_count, help="default: all")
    parser.add_argument("--filtered-kinds", help=argparse.SUPPRESS)
    add_output(parser)


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "workspace")
    add_output(parser)


def _create_arguments(parser: Parser) -> None:
    add_name(parser, "workspace")
    parser.add_argument("-f", "--file", help="the workspace's file; - for standard input")
    add_set(parser, "description=vision")
    for field in ("display-name", "description"):
        parser.add_argument(f"--{field}")
    parser.add_argument("-l", "--location")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    for flag, short in IGNORED.items():
        # Some are true when no value follows.
        names = (short, f"--{flag}") if short else (f"--{flag}",)
        parser.add_argument(*names, nargs="?", const="true", help=argparse.SUPPRESS)
    add_output(parser)


def _update_arguments(parser: Parser) -> None:
    _create_arguments(parser)
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)


def _delete_arguments(parser: Parser) -> None:
    add_name(parser, "workspace")
    parser.add_argument(
        "-y", "--yes", action="store_true", help="confirm that all its jobs and assets are deleted"
    )
    for flag in ("--all-resources", "--no-wait"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-p", "--permanently-delete", action="store_true", help=argparse.SUPPRESS)


VERBS: Verbs = {
    "list": ("list workspaces", _list_arguments, "workspace_actions.list_workspaces"),
    "show": ("show a workspace", _show_arguments, "workspace_actions.show_workspace"),
    "create": (
        "create a workspace; using one creates it too",
        _create_arguments,
        "workspace_actions.create_workspace",
    ),
    "update": (
        "change a workspace's description, tags and other fields",
        _update_arguments,
        "workspace_actions.update_workspace",
    ),
    "delete": (
        "delete a workspace with all its jobs and assets",
        _delete_arguments,
        "workspace_actions.delete_workspace",
    ),
}
