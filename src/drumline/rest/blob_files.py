"""
Containers of blobs, which are folders of this machine, and the files of jobs.

Each part of a blob's name is opened beneath the one before, and none that is a link: what a job puts into a folder
leads nowhere else. A blob is written to a file of another name, which takes its own when it is whole. Until then it is
in the container's state, with blocks that wait for their list and the properties of blobs: whatever ends the server,
the next one goes on. Files whose names no blob can have, as those that are not UTF-8, are in no list.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import time
from typing import TYPE_CHECKING, BinaryIO

from drumline.contract import folder as homes
from drumline.contract.errors import DrumlineError, NotFoundError
from drumline.contract.folder import PARTIAL, RunFolder, open_plain, private_folder, read_plain, write_whole
from drumline.contract.record import NamedTuple
from drumline.control.access.job_files import open_beneath
from drumline.control.assets import datastore_verbs
from drumline.control.jobs import job_outputs, lookup
from drumline.rest.blob_access import BlobError
from drumline.staging.cache.locks import hold_lock
from drumline.staging.file_copy import create_file

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

ARTIFACTS = "workspaceartifactstore"
_RUNS = "ExperimentRun/dcid."
_STATE = ".drumline-blobs"
_KEPT_S = 86_400.0
_LONGEST_NAME = 1024
_LONGEST_PART = 255
_MOST_PROPERTIES = 1 << 20
_COPIED_AT_ONCE = 1 << 24
_LAST = "\U0010ffff"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Container(NamedTuple):
    """A folder as a container; ``is_ours``: it is made where it is missing."""

    folder: str
    is_writable: bool = True
    is_ours: bool = False
    state: str = ""
    """On the file system of ``folder``; empty: a hidden folder in it."""

    def find_roots(self, name: str) -> dict[str, str]:
        """Return the paths at which a blob, or a list with that prefix, begins, by the beginnings of names."""
        return {"": os.path.realpath(self.folder)}

    @property
    def state_folder(self) -> str:
        return self.state or os.path.join(self.folder, _STATE)


class JobContainer(NamedTuple):
    """The artifacts of a workspace's jobs as ``ExperimentRun/dcid.JOB/...``, Azure's name for them, to be read."""

    workspace: str

    def find_roots(self, name: str) -> dict[str, str]:
        """Return those of a job's artifacts; below ``.../named-outputs/NAME/``, those of an output."""
        job, slash, inside = name.removeprefix(_RUNS).partition("/")
        kind, _, rest = inside.partition("/")
        output = rest.partition("/")[0] if kind == "named-outputs" else ""
        with homes.workspace(self.workspace), contextlib.suppress(DrumlineError):
            if not name.startswith(_RUNS) or not slash or not lookup.is_own(lookup.folder_of(job)):
                return {}
            folder = RunFolder(os.path.realpath(lookup.folder_of(job).path))
            found = job_outputs.list_artifacts(folder)
            if output and job_outputs.has_output(folder, output):
                above, last = os.path.split(job_outputs.find_output(job, output).path)
                found = {f"{kind}/{output}": os.path.join(os.path.realpath(above), last)}
            return {
                f"{_RUNS}{job}/{one}" + ("/" if os.path.isdir(path) else ""): path
                for one, path in found.items()
            }
        return {}  # There is no such job, or its output is not whole yet.


def open_datastore(name: str, workspace: str) -> Container | JobContainer:
    """Return a datastore's container. Raises NotFoundError; PlanError for a datastore that is no folder here."""
    if name == ARTIFACTS:
        return JobContainer(workspace)
    with homes.workspace(workspace):
        path = datastore_verbs.path_of(name, "")
        return Container(path, is_ours=path.startswith(homes.home() + os.sep))


class Properties(NamedTuple):
    """``headers``: those of HTTP that go with the content, such as ``content-type``."""

    headers: Mapping[str, str] = {}
    metadata: Mapping[str, str] = {}


class Blob(NamedTuple):
    facts: os.stat_result
    properties: Properties

    @property
    def stamp(self) -> list[int]:
        return [self.facts.st_ino, self.facts.st_size, self.facts.st_mtime_ns]

    @property
    def etag(self) -> str:
        return '"0x{:X}-{:X}-{:X}"'.format(*self.stamp)


AnyContainer = Container | JobContainer


def split_name(name: str) -> list[str]:
    """Return the parts of a blob's name. Raises BlobError for one that no file can have here."""
    if not is_name(name):
        raise BlobError(400, "InvalidResourceName", "no file here can have the name of this blob")
    return name.split("/")


def is_name(name: str) -> bool:
    """Return whether a file here can have that name below its container."""
    parts = name.split("/")
    try:
        longest = max(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        return False
    is_inside = {"", ".", ".."}.isdisjoint(parts) and parts[0] != _STATE
    is_text = {"\0", "\\", "\ufffd"}.isdisjoint(name)
    return is_inside and is_text and longest <= _LONGEST_PART and len(name) <= _LONGEST_NAME


# reading


def open_blob(container: AnyContainer, name: str) -> tuple[BinaryIO, Blob]:
    """Return a blob's open file, which the caller closes. Raises BlobError for what is no plain file."""
    absent = BlobError(404, "BlobNotFound", "there is no blob of that name")
    try:
        split_name(name)
        for root, path in container.find_roots(name).items():
            if name != root and not (name.startswith(root) and root[-1:] in ("", "/")):
                continue
            parts = [part for part in f"{path}/{name[len(root) :]}".split("/") if part]
            with open_beneath("/", parts) as descriptor:
                facts = os.fstat(descriptor)
                if stat.S_ISREG(facts.st_mode):
                    file = os.fdopen(os.dup(descriptor), "rb", buffering=0)
                    return file, Blob(facts, _read_properties(container, name, facts))
    except (BlobError, NotFoundError) as error:
        raise absent from error
    raise absent


class _Walk:
    """A walk through folders in the order of blobs' names; ``after``: what it skips up to, also from now on."""

    def __init__(self, prefix: str, after: str) -> None:
        self.prefix = prefix
        self.after = after

    def find_files(self, path: str, at: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield names and facts of plain files; ``at``: the name of the folder."""
        found: dict[str, os.DirEntry[str]] = {}
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            # Names of folders sort as those in them do.
            found |= {
                f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name: one for one in entries
            }
        for name in sorted(found):
            full = at + name
            if name.endswith("/"):
                is_wanted = full.startswith(self.prefix) or self.prefix.startswith(full)
                is_left = full > self.after or self.after.startswith(full)
                if is_wanted and is_left and len(full) < _LONGEST_NAME:
                    yield from self.find_files(found[name].path, full)
            elif full.startswith(self.prefix) and full > self.after:
                yield from _look_at(full, found[name].path)


def _look_at(name: str, path: str) -> Iterator[tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError):  # It may be gone.
        facts = os.lstat(path)
        if stat.S_ISREG(facts.st_mode):
            yield name, facts


def list_blobs(
    container: AnyContainer, prefix: str, after: str, *, by_folder: bool
) -> Generator[tuple[str, Blob | None]]:
    """
    Yield the blobs of a prefix in the order of their names, which are greater than ``after``.

    ``by_folder``: folders below the prefix, without a Blob, in place of the blobs in them.
    """
    walk = _Walk(prefix, after)
    for root, path in sorted(container.find_roots(prefix).items()):
        if os.path.realpath(path) != path or not os.path.exists(path):
            continue
        is_folder = root[-1:] in ("", "/")
        for name, facts in walk.find_files(path, root) if is_folder else _look_at(root, path):
            folder = name[: name.find("/", len(prefix)) + 1] if by_folder else ""
            if (folder or name) > walk.after and name.startswith(prefix) and is_name(name):
                yield (
                    folder or name,
                    None if folder else Blob(facts, _read_properties(container, name, facts)),
                )
            if folder:
                walk.after = folder + _LAST


# properties, which are those of a file as it was written: what changes it otherwise ends them


def _properties_path(container: Container, name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return os.path.join(container.state_folder, "properties", digest[:2], digest)


def _read_properties(container: AnyContainer, name: str, facts: os.stat_result) -> Properties:
    if isinstance(container, JobContainer):
        return Properties()
    try:
        found = json.loads(read_plain(_properties_path(container, name), _MOST_PROPERTIES))
        if found["stamp"] == Blob(facts, Properties()).stamp:
            return Properties(dict(found["headers"]), dict(found["metadata"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # There are none, or something has damaged them: the client uploads anew.
    return Properties()


def _write_properties(container: Container, name: str, blob: Blob) -> None:
    path = _properties_path(container, name)
    private_folder(os.path.dirname(path))
    write_whole(path, json.dumps({"stamp": blob.stamp, "blob": name, **blob.properties._asdict()}))


def set_metadata(container: Container, name: str, metadata: Mapping[str, str]) -> Blob:
    """Replace the metadata of a blob. Raises BlobError, OSError."""
    with _hold(container):
        file, blob = open_blob(container, name)
        file.close()
        blob = blob._replace(properties=blob.properties._replace(metadata=metadata))
        _write_properties(container, name, blob)
    return blob


# writing


def _hold(container: Container) -> contextlib.AbstractContextManager[None]:
    """Hold what puts blobs in place."""
    return hold_lock(os.path.join(_make_state(container), "lock"))


def _make_state(container: Container) -> str:
    """Return the folder of a container's state. Raises BlobError, OSError."""
    state = container.state_folder
    if container.is_ours:
        private_folder(container.folder)
    elif not os.path.isdir(container.folder):
        raise BlobError(404, "ContainerNotFound", "the folder of this container is not there")
    if os.path.islink(state):
        raise BlobError(409, "ResourceTypeMismatch", f"{state} is a link, which is not followed; remove it")
    private_folder(state)
    return state


def _remove_leftovers(uploads: str) -> None:
    """Remove what nobody has gone on with for a day."""
    with contextlib.suppress(OSError), os.scandir(uploads) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT_S:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


class PartialBlob:
    """A file that is being written, with the MD5 of what was written to it. Methods raise OSError."""

    def __init__(self, container: Container) -> None:
        uploads = os.path.join(_make_state(container), "uploads")
        private_folder(uploads)
        _remove_leftovers(uploads)
        self.container = container
        self.path = os.path.join(uploads, os.urandom(8).hex() + PARTIAL)
        self.file = os.fdopen(create_file(self.path, 0o600), "wb", buffering=0)
        self._md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: bytes | bytearray) -> None:
        self._md5.update(data)
        written = 0
        while written < len(data):
            written += self.file.write(memoryview(data)[written:])

    def append(self, blocks: Sequence[str], name: str) -> None:
        """Append blocks of a blob, which count for no MD5. Raises BlobError too."""
        for block in blocks:
            try:
                source = open_plain(os.path.join(_blocks_of(self.container, name), block))
            except FileNotFoundError as error:
                what = "the list names a block that was not uploaded, or was dropped after a day"
                raise BlobError(400, "InvalidBlockList", what) from error
            with source:
                at = 0
                while copied := os.sendfile(self.file.fileno(), source.fileno(), at, _COPIED_AT_ONCE):
                    at += copied

    @property
    def md5(self) -> str:
        return base64.b64encode(self._md5.digest()).decode()

    def discard(self) -> None:
        """Close it, and remove what has not got its place."""
        self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def place_as_block(self, name: str, block: str) -> None:
        """Keep it as a block of a blob, until a list names it. ``block``: its ID as hex."""
        os.fsync(self.file.fileno())
        blocks = _blocks_of(self.container, name)
        while True:
            private_folder(blocks)
            try:
                os.replace(self.path, os.path.join(blocks, block))
            except FileNotFoundError:
                if not os.path.exists(self.path):
                    raise
            else:
                return  # Else a list was committed meanwhile, which took the folder away.

    def place(self, name: str, properties: Properties, *, is_new: bool) -> Blob:
        """Give it a blob's name; blocks of that name that are in no list are dropped. Raises BlobError too."""
        os.fsync(self.file.fileno())
        blob, parts = Blob(os.fstat(self.file.fileno()), properties), split_name(name)
        with _hold(self.container):
            if is_new:
                check_is_new(self.container, name)
            with _open_parent(self.container, parts, makes=True) as parent:
                # First: what is there by then has another stamp, and so none of these.
                _write_properties(self.container, name, blob)
                os.replace(self.path, parts[-1], dst_dir_fd=parent)
        drop_blocks(self.container, name)
        return blob


def check_is_new(container: Container, name: str) -> None:
    """Raise BlobError for a blob that is there."""
    try:
        open_blob(container, name)[0].close()
    except BlobError:
        return
    raise BlobError(409, "BlobAlreadyExists", "a blob of that name is there, and is not to be replaced")


@contextlib.contextmanager
def _open_parent(container: Container, parts: Sequence[str], *, makes: bool) -> Iterator[int]:
    """Give the open folder that a blob is in. Raises BlobError, also for a folder that the blob would replace."""
    descriptor = os.open(os.path.realpath(container.folder), _FOLDER)
    try:
        for part in parts[:-1]:
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=descriptor)
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EISDIR):
            raise
        what = (
            "a folder has the name of this blob, or a file or link that of its folder; links are not followed"
        )
        raise BlobError(409, "ResourceTypeMismatch", what) from error
    finally:
        os.close(descriptor)


def delete_blob(container: Container, name: str) -> None:
    """Delete a blob. Raises BlobError, OSError."""
    with _hold(container):
        open_blob(container, name)[0].close()
        parts = split_name(name)
        with _open_parent(container, parts, makes=False) as parent:
            os.unlink(parts[-1], dir_fd=parent)
        with contextlib.suppress(OSError):
            os.unlink(_properties_path(container, name))


def _blocks_of(container: Container, name: str) -> str:
    return os.path.join(container.state_folder, "uploads", hashlib.sha256(name.encode()).hexdigest())


def drop_blocks(container: Container, name: str) -> None:
    shutil.rmtree(_blocks_of(container, name), ignore_errors=True)
