"""Jobs by name: their run folders, and hints for names that are not there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DAMAGED, DamagedError, DrumlineError, NotFoundError, UsageError
from drumline.contract.folder import (
    WORKSPACE,
    RunFolder,
    base_home,
    chosen_workspace,
    current_workspace,
    home,
    home_of,
    load_plain,
    workspace,
    workspace_names,
)

if TYPE_CHECKING:
    from drumline.contract.plan import Plan


_MOST_SPEC = 16 << 20
_DEEPEST = 100
"""Levels of a job file."""


def folder_of(name: str | None) -> RunFolder:
    """
    Return the run folder of a job. Raises NotFoundError, with its workspace or a similar name as a hint.

    UsageError for None, the name of a job that was not submitted.
    """
    if name is None:
        what = "a job's name is text, and this is None"
        raise UsageError(what, "create_or_update returns the job that has one")
    folder = RunFolder.for_job(name)
    is_name = "/" not in name and name not in ("", ".", "..")
    if not is_name or not folder.exists():
        raise NotFoundError(f"there is no job {name!r}", (is_name and hint_elsewhere(name)) or _alike(name))
    return folder


def as_arguments(name: str) -> str:
    """Return the job as command-line arguments: ``-n NAME``, and ``-w`` if this command alone chose the workspace."""
    return f"-n {name}{workspace_arguments()}"


def workspace_arguments() -> str:
    """Return `` -w NAME`` if this command alone chose the workspace, else nothing."""
    chosen = chosen_workspace()
    return f" -w {chosen}" if chosen and chosen != os.environ.get(WORKSPACE) else ""


def hint_elsewhere(name: str) -> str:
    """Return a hint to the other workspace that has a job of that name; empty for none."""
    for other in _other_workspaces():
        if RunFolder.for_job(name, home_of(other)).exists():
            return (
                f"it is in workspace {other!r}: add -w {other}"
                if other
                else "it is in no workspace: add -w ''"
            )
    return ""


def _other_workspaces() -> list[str]:
    """List the other workspaces; the empty name is the base home."""
    here = current_workspace()
    return [other for other in ("", *workspace_names()) if other != here]


def counts_elsewhere() -> dict[str, int]:
    """Return the number of jobs of each other workspace that has any; the empty name is the base home."""
    counts = {}
    for other in _other_workspaces():
        with workspace(other):
            count = len(all_names())
        if count:
            counts[other] = count
    return counts


def may_have_studio() -> bool:
    """Return whether a studio has ever run, so that it is worth asking for one that runs."""
    return os.path.isdir(os.path.join(base_home(), "studio"))


def _alike(name: str) -> str:
    import difflib

    others = all_names()
    if name in others:
        return f"{RunFolder.for_job(name).path} holds no job: it is being submitted, or was not submitted to the end"
    close = [one for one in difflib.get_close_matches(name, others) if RunFolder.for_job(one).exists()]
    return f"did you mean {close[0]!r}?" if close else "drumline job list shows those there are"


def all_names() -> list[str]:
    """List the names of all jobs, in no order."""
    try:
        with os.scandir(os.path.join(home(), "jobs")) as entries:
            # The bin of a removal is there where the folder is on another file system.
            return [entry.name for entry in entries if entry.name[:1] != "." and _is_folder(entry)]
    except FileNotFoundError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # Such as a link to itself.
        return False


def read_plan(folder: RunFolder) -> Plan:
    """Read the plan of a job. Raises DrumlineError if its file is damaged, or of a newer version."""
    from drumline.contract.plan import Plan

    try:
        return Plan.read(folder.plan)
    except (OSError, ValueError) as error:
        hint = "its logs and outputs are still in " + folder.path
        raise DrumlineError(f"the plan of job {folder.name} cannot be read: {error}", hint) from error


def find_plan(folder: RunFolder) -> Plan | None:
    """Read the plan of a job; None: it has none, or it is damaged, or of a newer version."""
    from drumline.contract.plan import Plan

    try:
        return Plan.read(folder.plan)
    except (OSError, ValueError):
        return None


def read_spec(folder: RunFolder) -> dict[str, Any]:
    """Read the job as it was submitted; empty if its file is damaged."""
    import yaml

    try:
        data = load_yaml(load_plain(folder.job, _MOST_SPEC))
    except (OSError, yaml.YAMLError, *DAMAGED):
        return {}
    return data if isinstance(data, dict) else {}


def load_yaml(data: bytes) -> Any:
    """
    Load YAML that a job can have written. Raises yaml.YAMLError, ValueError and the other errors of DAMAGED.

    libyaml calls itself for each level, so that a million of them end the whole process: the levels come first.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    may_be_deep = data.count(b"[") + data.count(b"{") + data.count(b"- ") + data.count(b"? ") > _DEEPEST
    if may_be_deep:
        depth = 0
        for event in yaml.parse(data, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise DamagedError(f"more than {_DEEPEST} levels")
    return yaml.load(data, Loader=loader)  # noqa: S506


def is_own(folder: RunFolder) -> bool:
    """
    Return whether a run folder is there and this user's own: in the folder of jobs can be a link to another user's.

    Raises OSError, as for a file server that does not answer.
    """
    try:
        return os.stat(folder.path).st_uid == os.geteuid()
    except (FileNotFoundError, NotADirectoryError):
        return False
