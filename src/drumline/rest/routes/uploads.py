"""
Code that clients upload: a folder for each version, until jobs were made of it, which have copies of their own; and
the names of containers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from typing import TYPE_CHECKING
from urllib.parse import unquote

from drumline.contract import folder as homes
from drumline.contract.errors import NotFoundError, UsageError
from drumline.contract.folder import home, private_folder
from drumline.control.access import job_files
from drumline.control.assets import asset_verbs
from drumline.control.jobs.lookup import folder_of
from drumline.control.upkeep.stored_jobs import UPLOADS
from drumline.rest.arm import choose_workspace
from drumline.rest.blob_files import Container, JobContainer, is_name, open_datastore
from drumline.staging.snapshot.partial_folder import snapshot_path
from drumline.staging.snapshot.take import take_snapshot

if TYPE_CHECKING:
    from drumline.rest.arm import Call

_CONTAINER = re.compile(r"(?P<kind>[cd])(?P<length>[0-9]{1,3})-(?P<rest>.+)")
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_CODE_OF_JOB = "job."
_CODE_OF_COMPONENT = "component."
_STATE = ".state"
"""Behind the name of a folder: what is left of uploads into it, which is no code."""

_LONGEST_CONTAINER = 128
_KEPT_S = 30 * 86_400.0


def folder_of_code(name: str, version: str) -> str:
    """Return where a version is, or will be. Raises UsageError."""
    if not (_VERSION.fullmatch(name) and _VERSION.fullmatch(version)):
        raise UsageError(f"{name[:100]!r}, version {version[:100]!r}, cannot be the name of code")
    return os.path.join(home(), UPLOADS, f"{name}.{version}")


def make_folder(name: str, version: str) -> None:
    """Make a version's folder, and remove those of versions that nobody has touched for a month. Raises OSError."""
    path = folder_of_code(name, version)
    private_folder(path)
    os.utime(path)
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(path)) as entries:
        for entry in entries:
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > _KEPT_S:
                shutil.rmtree(entry.path, ignore_errors=True)


def find_root(name: str, version: str) -> str:
    """Return the folder of the code: the client puts all into one folder. Raises NotFoundError, UsageError."""
    path = folder_of_code(name, version)
    try:
        names = os.listdir(path)
    except OSError:
        names = []
    if not names:
        raise NotFoundError(f"no code {name}, version {version}, was uploaded")
    only = os.path.join(path, names[0])
    return only if len(names) == 1 and os.path.isdir(only) and not os.path.islink(only) else path


def mark_programs(name: str, version: str) -> None:
    """Let what begins as a program be run: blobs have no such mark. Raises NotFoundError, UsageError, OSError."""
    for folder, _, files in os.walk(find_root(name, version)):
        for file in files:
            path = os.path.join(folder, file)
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as source:
                if source.read(4).startswith((b"#!", b"\x7fELF")):
                    os.fchmod(source.fileno(), 0o700)


def find_code(name: str, version: str) -> str:
    """
    Return the folder of uploaded code, or of the code that a job or a component was made of.

    Raises NotFoundError, UsageError.
    """
    if name.startswith(_CODE_OF_COMPONENT):
        found = asset_verbs.get("component", name.removeprefix(_CODE_OF_COMPONENT), version)
        return str(found.code)
    if not name.startswith(_CODE_OF_JOB):
        return find_root(name, version)
    job = name.removeprefix(_CODE_OF_JOB)
    path = job_files.find_code(folder_of(job))
    if not path:
        raise NotFoundError(f"the code of job {job} is not stored any more")
    return path


# containers


def find_context(call: Call, address: str) -> str:
    """Return the folder of an image's context uploaded here, of code a snapshot; any other address as it is."""
    if not address.startswith(f"{call.address}/"):
        return address
    name, _, inside = unquote(address.removeprefix(f"{call.address}/")).rstrip("/").partition("/")
    container = find_container(name)
    if not isinstance(container, Container) or (inside and not is_name(inside)):
        raise UsageError(f"the build context {address[:200]} is no folder of this server", "upload it first")
    path = os.path.join(container.folder, inside)
    return snapshot_path(home(), take_snapshot(path, home()).digest) if container.state else path


def name_datastore_container(call: Call, datastore: str) -> str:
    """
    Return the name of the container of a datastore: the address of a blob has nothing but that for the workspace too.
    """
    return _name_container("d", datastore, call)


def name_code_container(call: Call, name: str, version: str) -> str:
    return _name_container("c", f"{name}.{version}", call)


def _name_container(kind: str, name: str, call: Call) -> str:
    # The length says where the first name ends: both may have the same characters.
    found = f"{kind}{len(name)}-{name}-{choose_workspace(call.scope.workspace)}"
    if len(found) > _LONGEST_CONTAINER:
        raise UsageError(
            f"{name[:100]!r} and the workspace's name are too long together for a container's name"
        )
    return found


def find_container(name: str) -> Container | JobContainer | None:
    """Return the container of that name; None: there is none. Raises NotFoundError, PlanError, UsageError."""
    known = _CONTAINER.fullmatch(name)
    if known is None:
        return None
    length = int(known["length"])
    thing, dash, workspace = (
        known["rest"][:length],
        known["rest"][length : length + 1],
        known["rest"][length + 1 :],
    )
    if dash != "-":
        return None
    if known["kind"] == "d":
        return open_datastore(thing, workspace)
    with homes.workspace(workspace):
        path = folder_of_code(*thing.rsplit(".", 1))
    if not os.path.isdir(path):
        raise NotFoundError("no upload of that code was begun")
    return Container(path, is_ours=True, state=path + _STATE)
