"""Checks of what Drumline itself keeps on this machine, each with its remedy: the index, sockets, leftovers."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

from drumline.checks import orphans
from drumline.checks.findings import Finding, count_noun
from drumline.contract import identity
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import RunFolder, base_home, home
from drumline.control.jobs import listing
from drumline.control.jobs.recovery import recover
from drumline.linux import kernel_files
from drumline.node import leftovers, scratch
from drumline.node.warm import pool_folder
from drumline.store.index import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIX = "run drumline doctor --fix"


def check_home() -> Finding:
    """Check the folder in which Drumline keeps jobs."""
    folder = find_existing(home())
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding(
            "home",
            "error",
            None,
            f"{folder} cannot be written to",
            "set DRUMLINE_HOME to a folder of your own",
        )
    return Finding("home", "ok", None, home())


def check_index() -> Finding:
    """Check the index of jobs; it is not read before there is a job."""
    problem = Index(home()).find_damage()
    if problem:
        return Finding("index", "warning", None, f"the index of jobs is damaged: {problem}", _FIX)
    return Finding("index", "ok", None, "readable")


def fix_index() -> str:
    """Rebuild the index from the jobs. Raises DrumlineError."""
    Index(home()).repair()
    return f"rebuilt, with {count_noun(len(listing.names(archived=None)), 'job')}"


def check_sockets() -> Finding:
    """Check that a process listens at each socket."""
    stale = list(_list_stale())
    if not stale:
        return Finding("sockets", "ok", None, "none is stale")
    more = f" and {len(stale) - 1} more" if len(stale) > 1 else ""
    return Finding("sockets", "warning", None, f"nobody listens at {stale[0]}{more}", _FIX)


def fix_sockets() -> str:
    """Remove sockets at which nobody listens."""
    removed = 0
    for path in list(_list_stale()):
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += 1
    return f"removed {count_noun(removed, 'stale socket')}"


def _list_stale() -> Iterator[str]:
    """Yield the sockets of warm pools of this machine that were killed."""
    parent = os.path.join(base_home(), "warm", identity.name_machine())
    for name in kernel_files.list_folder(parent):
        folder = os.path.join(parent, name)
        path = os.path.join(folder, pool_folder.SOCKET)
        if not os.path.exists(path):
            continue
        try:
            pool_folder.connect_to_pool(folder).close()
        except ConnectionRefusedError:
            yield path
        except OSError:
            continue


def fix_leftovers() -> str:
    """End what jobs of this home have left whose supervisor is gone, and remove folders of agents that are gone."""
    facts = orphans.gather_leftovers({"home": base_home()})
    ended = 0
    for folder in dict.fromkeys(one["folder"] for one in facts["processes"]):
        run = RunFolder(folder)
        with contextlib.suppress(DrumlineError, OSError):
            if run.exists() and not recover(run).is_final:
                continue
        ended += leftovers.clear_leftovers(run)
    left = [path for path in facts["folders"] if not scratch.remove_abandoned(path)]
    gone = orphans.list_forgotten(left, time.time())
    for path in gone:
        scratch.remove_scratch(path)
        scratch.remove_scratch(scratch.choose_shared_memory_folder(path))
    removed = len(facts["folders"]) - len(left) + len(gone)
    return f"ended {count_noun(ended, 'process')}, removed {count_noun(removed, 'folder')}"


def find_existing(path: str) -> str:
    """Return the folder, or the nearest above it that is there."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path
