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

    from drumline.spec.workspace import Workspace

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


def _current_or_named(arguments: Namespace) -> Workspace:
    """The one of DRUMLINE_WORKSPACE or ``drumline configure`` where no name is given, used or not."""
    from drumline.contract.folder import current_workspace
    from drumline.control import workspaces

    is_named = arguments.given or arguments.name or arguments.workspace_name
    if not is_named and (mine := current_workspace()):
        return workspaces.described(mine)
    return workspaces.get(_name_of(arguments))


def _settings(workspace: Workspace, arguments: Namespace) -> dict[str, Any]:
    """As ``az`` prints one: its id has the subscription and the group of the command, or the configured ones."""
    from drumline.control import defaults, workspaces

    known = defaults.read()
    subscription = arguments.subscription or known.get("subscription")
    group = workspace.resource_group or arguments.resource_group or known.get("group")
    workspace.id = workspaces.arm_id(workspace.name, subscription=subscription, group=group)
    return workspaces.settings(workspace)


def _print(workspace: Workspace, arguments: Namespace) -> int:
    output.show(_settings(workspace, arguments), arguments.output, arguments.query)
    return 0


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("-r", "--max-results", type=count, help="default: all")
    parser.add_argument("--filtered-kinds", help=argparse.SUPPRESS)
    add_output(parser)


def _list(arguments: Namespace) -> int:
    from drumline.control import workspaces

    known = workspaces.all(damaged=lambda said: warn([said]))
    found = [_settings(one, arguments) for one in known[: arguments.max_results]]
    output.show(found, arguments.output, arguments.query, _LIST_COLUMNS)
    return 0


def _show_arguments(parser: Parser) -> None:
    _name(parser)
    add_output(parser)


def _show(arguments: Namespace) -> int:
    return _print(_current_or_named(arguments), arguments)


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


def _given(arguments: Namespace, name: str | None) -> Workspace:
    """The workspace of the file and the flags. Raises SpecError."""
    from drumline.spec.workspace import from_tree, load_workspace

    flags = {
        "name": name or None,
        "display_name": arguments.display_name,
        "description": arguments.description,
        "location": arguments.location,
    }
    values = {key: value for key, value in flags.items() if value is not None}
    made: Workspace = loaded(arguments, {**values, **tags_of(arguments)}, load_workspace, from_tree)
    return made


def _create(arguments: Namespace) -> int:
    from drumline.control import workspaces

    name = arguments.name or arguments.given or arguments.workspace_name
    made = _given(arguments, name if arguments.file else _name_of(arguments))
    warn([*workspaces.create(made), *_unused(arguments)])
    return _print(workspaces.get(made.name), arguments)


def _unused(arguments: Namespace) -> list[str]:
    azure = [flag for flag in _AZURE if getattr(arguments, flag.replace("-", "_")) is not None]
    return [f"--{flag}: not used; a workspace is a folder" for flag in azure]


def _update_arguments(parser: Parser) -> None:
    _create_arguments(parser)
    parser.add_argument("--remove", action="extend", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--add", action="extend", nargs="+", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--force-string", action="store_true", help=argparse.SUPPRESS)


def _update(arguments: Namespace) -> int:
    """Flags change what the file says, and ``--set`` and ``--remove`` what both say, as with az."""
    from drumline.cli.edits import changes_of
    from drumline.control import workspaces
    from drumline.spec.schema.workspace import UNUSED
    from drumline.spec.workspace import Workspace, to_dict

    if arguments.add:
        raise UsageError("--add: no field of a workspace is a list", "--set tags.NAME=VALUE")
    before = _current_or_named(arguments)
    edits, arguments.set = arguments.set, []
    given = _given(arguments, before.name)
    unused = [text for text in edits if text.partition("=")[0].partition(".")[0] in UNUSED]
    values = {**to_dict(before), **to_dict(given)}
    kept = [text for text in edits if text not in unused]
    values |= changes_of(values, kept, arguments.remove, editable=workspaces.EDITABLE, noun="workspace")
    workspaces.replace(Workspace(**{key: value for key, value in values.items() if value is not None}))
    paths = (text.partition("=")[0] for text in unused)
    warn(
        [
            *given._warnings,
            *_unused(arguments),
            *(f"{path}: not used; a workspace is a folder" for path in paths),
        ]
    )
    return _print(workspaces.get(before.name), arguments)


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
    "update": ("change what is said of a workspace", _update_arguments, _update),
    "delete": ("remove a workspace, with all jobs and assets in it", _delete_arguments, _delete),
}
