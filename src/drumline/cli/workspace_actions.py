"""The functions of the verbs of ``drumline workspace``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.cli import output
from drumline.cli.arguments import get_name
from drumline.cli.entity_flags import load_entity, parse_edits, parse_tags
from drumline.cli.workspace import IGNORED
from drumline.contract.errors import UsageError
from drumline.contract.folder import current_workspace
from drumline.contract.words import format_count
from drumline.control.settings import defaults, workspaces
from drumline.spec.entity import to_dict
from drumline.spec.registered.workspace import UNUSED, Workspace, from_tree, load_workspace

if TYPE_CHECKING:
    from argparse import Namespace

_LIST_COLUMNS = ("name", "jobs", "display_name", "description")


def _get_name(arguments: Namespace) -> str:
    """Return the name, which may also come from -w."""
    if not (arguments.given or arguments.name) and arguments.workspace_name:
        return str(arguments.workspace_name)
    return get_name(arguments, "workspace")


def _find_workspace(arguments: Namespace) -> Workspace:
    """Return the named workspace, else that of DRUMLINE_WORKSPACE or ``drumline configure``, used or not."""

    is_named = arguments.given or arguments.name or arguments.workspace_name
    if not is_named and (mine := current_workspace()):
        return workspaces.describe(mine)
    return workspaces.get(_get_name(arguments))


def _describe(workspace: Workspace, arguments: Namespace) -> dict[str, Any]:
    """Describe it as ``az`` does: its id has the command's subscription and group, or the configured ones."""
    known = defaults.read()
    subscription = arguments.subscription or known.get("subscription")
    group = workspace.resource_group or arguments.resource_group or known.get("group")
    workspace.id = workspaces.arm_id(workspace.name, subscription=subscription, group=group)
    return workspaces.settings(workspace)


def _print(workspace: Workspace, arguments: Namespace) -> int:
    output.show(_describe(workspace, arguments), arguments.output, arguments.query)
    return 0


def list_workspaces(arguments: Namespace) -> int:
    known = workspaces.all(damaged=lambda said: output.print_warnings([said]))
    found = [_describe(one, arguments) for one in known[: arguments.max_results]]
    output.show(found, arguments.output, arguments.query, _LIST_COLUMNS)
    return 0


def show_workspace(arguments: Namespace) -> int:
    return _print(_find_workspace(arguments), arguments)


def _build_workspace(arguments: Namespace, name: str | None) -> Workspace:
    """Build the workspace of the file and the flags. Raises SpecError."""

    flags = {
        "name": name or None,
        "display_name": arguments.display_name,
        "description": arguments.description,
        "location": arguments.location,
    }
    values = {key: value for key, value in flags.items() if value is not None}
    made: Workspace = load_entity(arguments, {**values, **parse_tags(arguments)}, load_workspace, from_tree)
    return made


def create_workspace(arguments: Namespace) -> int:
    name = arguments.name or arguments.given or arguments.workspace_name
    made = _build_workspace(arguments, name if arguments.file else _get_name(arguments))
    output.print_warnings([*workspaces.create(made), *_list_unused(arguments)])
    return _print(workspaces.get(made.name), arguments)


def _list_unused(arguments: Namespace) -> list[str]:
    azure = [flag for flag in IGNORED if getattr(arguments, flag.replace("-", "_")) is not None]
    return [f"--{flag}: not used; a workspace is a folder" for flag in azure]


def update_workspace(arguments: Namespace) -> int:
    """Apply flags over the file, then ``--set`` and ``--remove`` over both, as az does."""

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


def delete_workspace(arguments: Namespace) -> int:
    name = _get_name(arguments)
    found = workspaces.settings(workspaces.get(name))
    if not arguments.yes:
        jobs = found["jobs"]
        what = f"workspace {name!r} has {format_count(jobs, 'job')}; delete removes them and all its assets"
        raise UsageError(what, f"drumline workspace delete -n {name} --yes")
    workspaces.delete(name)
    return 0
