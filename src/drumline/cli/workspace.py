"""``drumline workspace``: the verbs of ``az ml workspace``, for folders of this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import Parser, add_name, add_output, add_set, get_name, parse_count, run_verb
from drumline.cli.entity_flags import load_entity, parse_edits, parse_tags
from drumline.contract.errors import UsageError
from drumline.contract.folder import current_workspace
from drumline.contract.words import format_count

if TYPE_CHECKING:
    from argparse import Namespace

    from drumline.cli.arguments import Verbs
    from drumline.spec.registered.workspace import Workspace

_LIST_COLUMNS = ("name", "jobs", "display_name", "description")
_IGNORED: dict[str, str] = {
    "kind": "", "storage-account": "-s", "container-registry": "-c", "key-vault": "-k", "application-insights": "-a",
    "image-build-compute": "-i", "public-network-access": "", "network-acls": "", "managed-network": "-m",
    "primary-user-assigned-identity": "-p", "system-datastores-auth-mode": "-d", "hub-id": "",
    "default-resource-group": "", "allow-roleassignment-on-rg": "-r", "enable-data-isolation": "-e",
    "provision-network-now": "", "update-dependent-resources": "-u",
}  # fmt: skip
"""Flags of ``az ml workspace create`` without a meaning here, with their short forms: each gets a warning."""


def main(argv: list[str]) -> int:
    return run_verb("workspace", "Manage workspaces.", VERBS, argv)


def _get_name(arguments: Namespace) -> str:
    """Return the name, which may also come from -w."""
    if not (arguments.given or arguments.name) and arguments.workspace_name:
        return str(arguments.workspace_name)
    return get_name(arguments, "workspace")


def _find_workspace(arguments: Namespace) -> Workspace:
    """Return the named workspace, else that of DRUMLINE_WORKSPACE or ``drumline configure``, used or not."""
    from drumline.control.settings import workspaces

    is_named = arguments.given or arguments.name or arguments.workspace_name
    if not is_named and (mine := current_workspace()):
        return workspaces.describe(mine)
    return workspaces.get(_get_name(arguments))


def _describe(workspace: Workspace, arguments: Namespace) -> dict[str, Any]:
    """Describe it as ``az`` does: its id has the command's subscription and group, or the configured ones."""
    from drumline.control.settings import defaults, workspaces

    known = defaults.read()
    subscription = arguments.subscription or known.get("subscription")
    group = workspace.resource_group or arguments.resource_group or known.get("group")
    workspace.id = workspaces.arm_id(workspace.name, subscription=subscription, group=group)
    return workspaces.settings(workspace)


def _print(workspace: Workspace, arguments: Namespace) -> int:
    output.show(_describe(workspace, arguments), arguments.output, arguments.query)
    return 0


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=parse_count, help="default: all")
    parser.add_argument("--filtered-kinds", help=argparse.SUPPRESS)
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control.settings import workspaces

    known = workspaces.all(damaged=lambda said: output.print_warnings([said]))
    found = [_describe(one, arguments) for one in known[: arguments.max_results]]
    output.show(found, arguments.output, arguments.query, _LIST_COLUMNS)
    return 0


def _show_arguments(parser: Parser) -> None:
    add_name(parser, "workspace")
    add_output(parser)


def _show(arguments: Namespace) -> int:
    return _print(_find_workspace(arguments), arguments)


def _create_arguments(parser: Parser) -> None:
    add_name(parser, "workspace")
    parser.add_argument("-f", "--file", help="the workspace's file; - for standard input")
    add_set(parser, "description=vision")
    for field in ("display-name", "description"):
        parser.add_argument(f"--{field}")
    parser.add_argument("-l", "--location")
    parser.add_argument("--tags", nargs="+", metavar="NAME=VALUE")
    parser.add_argument("--no-wait", action="store_true", help=argparse.SUPPRESS)
    for flag, short in _IGNORED.items():
        # Some are true when no value follows.
        names = (short, f"--{flag}") if short else (f"--{flag}",)
        parser.add_argument(*names, nargs="?", const="true", help=argparse.SUPPRESS)
    add_output(parser)


def _build_workspace(arguments: Namespace, name: str | None) -> Workspace:
    """Build the workspace of the file and the flags. Raises SpecError."""
    from drumline.spec.registered.workspace import from_tree, load_workspace

    flags = {
        "name": name or None,
        "display_name": arguments.display_name,
        "description": arguments.description,
        "location": arguments.location,
    }
    values = {key: value for key, value in flags.items() if value is not None}
    made: Workspace = load_entity(arguments, {**values, **parse_tags(arguments)}, load_workspace, from_tree)
    return made


def _create(arguments: Namespace) -> int:
    from drumline.control.settings import workspaces

    name = arguments.name or arguments.given or arguments.workspace_name
    made = _build_workspace(arguments, name if arguments.file else _get_name(arguments))
    output.print_warnings([*workspaces.create(made), *_list_unused(arguments)])
    return _print(workspaces.get(made.name), arguments)


def _list_unused(arguments: Namespace) -> list[str]:
    azure = [flag for flag in _IGNORED if getattr(arguments, flag.replace("-", "_")) is not None]
    return [f"--{flag}: not used; a workspace is a folder" for flag in azure]


def _update_arguments(parser: Parser) -> None:
    _create_arguments(parser)
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)


def _update(arguments: Namespace) -> int:
    """Apply flags over the file, then ``--set`` and ``--remove`` over both, as az does."""
    from drumline.control.settings import workspaces
    from drumline.spec.entity import to_dict
    from drumline.spec.registered.workspace import UNUSED, Workspace

    if arguments.add:
        raise UsageError("--add: no field of a workspace is a list", "--set tags.NAME=VALUE")
    before = _find_workspace(arguments)
    edits, arguments.set = arguments.set, []
    given = _build_workspace(arguments, before.name)
    unused = [text for text in edits if text.partition("=")[0].partition(".")[0] in UNUSED]
    values = {**to_dict(before), **to_dict(given)}
    kept = [text for text in edits if text not in unused]
    values |= parse_edits(values, kept, arguments.remove, editable=workspaces.EDITABLE, noun="workspace")
    workspaces.replace(Workspace(**{key: value for key, value in values.items() if value is not None}))
    paths = (text.partition("=")[0] for text in unused)
    warnings = [*given._warnings, *_list_unused(arguments)]
    output.print_warnings([*warnings, *(f"{path}: not used; a workspace is a folder" for path in paths)])
    return _print(workspaces.get(before.name), arguments)


def _delete_arguments(parser: Parser) -> None:
    add_name(parser, "workspace")
    parser.add_argument(
        "-y", "--yes", action="store_true", help="confirm that all its jobs and assets are deleted"
    )
    for flag in ("--all-resources", "--no-wait"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-p", "--permanently-delete", action="store_true", help=argparse.SUPPRESS)


def _delete(arguments: Namespace) -> int:
    from drumline.control.settings import workspaces

    name = _get_name(arguments)
    found = workspaces.settings(workspaces.get(name))
    if not arguments.yes:
        jobs = found["jobs"]
        what = f"workspace {name!r} has {format_count(jobs, 'job')}; delete removes them and all its assets"
        raise UsageError(what, f"drumline workspace delete -n {name} --yes")
    workspaces.delete(name)
    return 0


VERBS: Verbs = {
    "list": ("list workspaces", _list_arguments, _list),
    "show": ("show a workspace", _show_arguments, _show),
    "create": ("create a workspace; using one creates it too", _create_arguments, _create),
    "update": ("change a workspace's description, tags and other fields", _update_arguments, _update),
    "delete": ("delete a workspace with all its jobs and assets", _delete_arguments, _delete),
}
