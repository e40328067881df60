"""Workspaces: the folders ``workspaces/<name>`` of the base home, made by whoever first uses one."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING, Any

from drumline.contract import folder
from drumline.contract.errors import DrumlineError, NotFoundError, SpecError, UsageError, describe_os_error
from drumline.contract.folder import RunFolder, check_workspace, home_of, private_folder, write_whole
from drumline.control.jobs.lookup import all_names
from drumline.control.jobs.recovery import recover
from drumline.control.readable import readable
from drumline.control.settings import tracking
from drumline.linux import mounts
from drumline.spec.entity import to_dict
from drumline.spec.kinds.values import Report
from drumline.spec.reading.source import wrap
from drumline.spec.registered.workspace import Workspace, from_tree, load_workspace
from drumline.tracking import mlflow_files

if TYPE_CHECKING:
    from collections.abc import Callable

PROVIDER = "Microsoft.MachineLearningServices"
"""Of the ids of Azure Resource Manager."""

_FILE = "workspace.yml"
_HERE = "local"
EDITABLE = ("display_name", "description", "tags", "location")


def get(name: str) -> Workspace:
    """Return a workspace. Raises NotFoundError; SpecError for a damaged file."""
    if name not in folder.workspace_names():
        raise NotFoundError(f"there is no workspace {name!r}", _alike(name))
    return describe(name)


def describe(name: str) -> Workspace:
    """Describe a workspace, whether it exists or not; the empty name is the base home."""
    path = os.path.join(home_of(name), _FILE)
    found = load_workspace(path) if name and os.path.isfile(path) else Workspace(name=name)
    if found.name != name:
        raise SpecError(
            f"{path} holds the workspace {found.name!r}, not {name!r}", "mend the file, or remove it"
        )
    found.id = arm_id(name, group=found.resource_group)
    found.mlflow_tracking_uri = tracking.read_configured_uri() or mlflow_files.uri_of(home_of(name))
    found.discovery_url = "file://" + home_of(name)
    return found


def arm_id(name: str, *, subscription: str | None = None, group: str | None = None) -> str:
    """
    Return the id as scripts take it apart; ``local`` stands for what was not given.

    >>> arm_id("vision", group="team")
    '/subscriptions/local/resourceGroups/team/providers/Microsoft.MachineLearningServices/workspaces/vision'
    """
    place = f"/subscriptions/{subscription or _HERE}/resourceGroups/{group or _HERE}"
    return f"{place}/providers/{PROVIDER}/workspaces/{name}"


def is_placeholder(name: str | None) -> bool:
    """Return whether it looks like ``<WORKSPACE_NAME>``, which documents have in place of a name."""
    return bool(name) and str(name).startswith("<") and str(name).endswith(">")


def _alike(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(str(name), folder.workspace_names(), n=1)
    return f"did you mean {close[0]!r}?" if close else "drumline workspace list shows those there are"


def all(damaged: Callable[[str], None]) -> list[Workspace]:  # noqa: A001 - workspaces.all()
    """List the workspaces in alphabetical order. ``damaged`` is called for each unreadable file."""
    return readable(folder.workspace_names(), describe, damaged)


def settings(workspace: Workspace) -> dict[str, Any]:
    """Return a workspace as ``az ml workspace list`` prints it, with its number of jobs."""
    with folder.workspace(workspace.name):
        count = len(all_names())
    return {
        **to_dict(workspace),
        "jobs": count,
        "home": home_of(workspace.name),
        "id": workspace.id,
        "mlflow_tracking_uri": workspace.mlflow_tracking_uri,
    }


def create(workspace: Workspace) -> list[str]:
    """
    Make it, or change what is said of it, and return the warnings. As in Azure, what is not given stays as it was.

    Raises SpecError, UsageError.
    """
    if not isinstance(workspace, Workspace) or not isinstance(workspace.name, str) or not workspace.name:
        raise SpecError(f"{type(workspace).__name__} is not a workspace with a name", "Workspace(name=...)")
    check_workspace(workspace.name)
    given = to_dict(workspace)
    from_tree(wrap(given), Report(""))
    before: dict[str, Any] = {}
    with contextlib.suppress(SpecError):  # A file that was damaged is written anew.
        before = to_dict(describe(workspace.name))
    replace(Workspace(**{**before, **given}))
    return list(workspace._warnings)


def replace(workspace: Workspace) -> None:
    """Replace the settings of a workspace. Raises OSError."""
    home = home_of(workspace.name)
    private_folder(home)
    write_whole(os.path.join(home, _FILE), str(workspace))


def delete(name: str) -> None:
    """
    Delete a workspace with all jobs and assets in it.

    Raises NotFoundError; UsageError while a job of it has not ended; DrumlineError when something is left.
    """
    if name not in folder.workspace_names():
        raise NotFoundError(f"there is no workspace {name!r}", _alike(name))
    with folder.workspace(name):
        running = [job for job in all_names() if _runs(RunFolder.for_job(job))]
        if running:
            which = running[0] + (f" and {len(running) - 1} more" if running[1:] else "")
            hint = f"drumline job cancel -n {running[0]} -w {name}"
            raise UsageError(f"workspace {name!r} has jobs that have not ended: {which}", hint)
        elsewhere = _homes_elsewhere(name)
    # Out of sight at once, whatever becomes of the rest.
    aside = os.path.join(os.path.dirname(home_of(name)), f".{name}.{os.urandom(4).hex()}.deleted")
    os.rename(home_of(name), aside)
    for home in (*elsewhere, os.path.realpath(aside)):
        try:
            _remove(home)
        except OSError as error:
            what = f"workspace {name!r} is deleted, but not all of {home}: {describe_os_error(error)}"
            raise DrumlineError(what, f"rm -r {home}") from error
    if os.path.islink(aside):
        os.unlink(aside)


def _remove(path: str) -> None:
    """Remove a home, with folders that a job has made read-only. Raises OSError."""
    mounts.unmount_below(path)
    for parent, folders, _ in os.walk(path):
        for inside in (os.path.join(parent, name) for name in folders):
            if not os.path.islink(inside):
                with contextlib.suppress(OSError):
                    os.chmod(inside, 0o700)
    shutil.rmtree(path)


def _runs(run: RunFolder) -> bool:
    return run.exists() and not recover(run).is_final


def _homes_elsewhere(name: str) -> set[str]:
    """Return the homes of this workspace below folders of computes, which its jobs are links to."""
    try:
        with os.scandir(os.path.join(home_of(name), "jobs")) as entries:
            links = [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]
    except FileNotFoundError:
        return set()
    roots = {RunFolder(path).root for path in links}
    above = {root: os.path.dirname(os.path.dirname(root)) for root in roots}
    return {root for root in roots if os.path.isdir(root) and home_of(name, above[root]) == root}
