"""
Containers of blobs, which are folders of this machine, and the files of jobs.

Each part of a blob's name is opened beneath the one before, and none that is a link: what a job puts into a folder
leads nowhere else. A blob is written to a file of another name, which takes its own when it is whole. Until then it is
in the container's state, with blocks that wait for their list, and with the properties of blobs: whatever ends the
server, the next one goes on.

Names of files that no blob can have, as those that are not UTF-8, are in no list.
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
from drumline.contract.folder import PARTIAL, private_folder, read_plain, write_whole
from drumline.contract.record import NamedTuple
from drumline.control.access.job_files import open_beneath
from drumline.control.assets import datastore_verbs
from drumline.control.jobs import job_outputs, lookup
from drumline.rest.blob_access import BlobError
from drumline.spec.paths import is_remote
from drumline.staging import file_copy
from drumline.staging.cache.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    Tree = str | Mapping[str, "Tree"]
    """The path of a folder or a file; or what is in a folder that is on no disk, by name."""

ARTIFACTS = "workspaceartifactstore"
RUNS = "ExperimentRun"
_RUN = "dcid."
_OUTPUTS = "named-outputs"
"""Of jobs: ``ExperimentRun/dcid.JOB/...``, as Azure names them."""

_STATE = ".drumline-blobs"
_KEPT_S = 86_400.0
"""How long the blocks of an upload wait for their list, as long as none is added."""

_LONGEST_NAME = 1024
_LONGEST_PART = 255
_DEEPEST = 64
_MOST_PROPERTIES = 1 << 20
_COPIED_AT_ONCE = 1 << 24
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Container(NamedTuple):
    """A folder as a container. It may not exist yet, and is made by the first upload if ``is_ours``."""

    folder: str
    is_writable: bool = True
    is_ours: bool = False
    state: str = ""
    """On the file system of ``folder``; empty: a hidden folder in it."""

    def find_tree(self, name: str) -> Tree:
        return os.path.realpath(self.folder)


class JobContainer(NamedTuple):
    """The logs and outputs of a workspace's jobs, to be read."""

    workspace: str

    def find_tree(self, name: str) -> Tree:
        """
        Return what the job has that a name, or the prefix of a list, is about: its artifacts, or the named output below
        ``ExperimentRun/dcid.JOB/named-outputs/NAME/``.
        """
        first, run, *rest = [*name.split("/"), ""]
        if first != RUNS or not run.startswith(_RUN) or not rest:
            return {}
        with homes.workspace(self.workspace):
            try:
                folder = lookup.folder_of(run.removeprefix(_RUN))
                if not lookup.is_own(folder):
                    return {}
                if rest[0] != _OUTPUTS:
                    return {RUNS: {run: dict(job_outputs.list_artifacts(folder))}}
                if len(rest) < 3 or not job_outputs.has_output(folder, rest[1]):
                    return {}
                path = job_outputs.find_output(folder.name, rest[1]).path
                return {} if is_remote(path) else {RUNS: {run: {_OUTPUTS: {rest[1]: path}}}}
            except DrumlineError:  # There is no such job or output, or it is not whole yet.
                return {}


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
    def etag(self) -> str:
        return f'"0x{self.facts.st_mtime_ns:X}{self.facts.st_ino & 0xFFFF:04X}{self.facts.st_size:X}"'


def split_name(name: str) -> list[str]:
    """Return the parts of a blob's name. Raises BlobError for one that no file can have here."""
    parts = name.split("/")
    if (
        not 0 < len(name) <= _LONGEST_NAME
        or len(parts) > _DEEPEST
        or parts[0] == _STATE
        or any(part in ("", ".", "..") or len(os.fsencode(part)) > _LONGEST_PART for part in parts)
        or not {"\0", "\\", "\ufffd"}.isdisjoint(name)
    ):
        raise BlobError(400, "InvalidResourceName", "the name of the blob cannot be that of a file here")
    return parts


# reading


def open_blob(container: Container | JobContainer, name: str) -> tuple[BinaryIO, Blob]:
    """Return a blob's open file, which the caller closes. Raises BlobError for what is no plain file."""
    absent = BlobError(404, "BlobNotFound", "there is no blob of that name")
    try:
        parts = split_name(name)
        tree = container.find_tree(name)
        while not isinstance(tree, str):
            tree = tree.get(parts.pop(0), {}) if parts else ""
        with open_beneath("/", [*_split_path(tree), *parts]) as descriptor:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise absent
            file = os.fdopen(os.dup(descriptor), "rb", buffering=0)
    except (BlobError, NotFoundError) as error:
        raise absent from error
    return file, Blob(facts, _read_properties(container, name, facts))


def _split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


class BlobFilter(NamedTuple):
    """``after``: a name that an earlier page ended with; ``by_folder``: folders in place of what is in them."""

    prefix: str = ""
    after: str = ""
    by_folder: bool = False


def list_blobs(container: Container | JobContainer, wanted: BlobFilter) -> Generator[tuple[str, Blob | None]]:
    """Yield blobs in the order of their names; folders, which end with a slash, have none."""
    for name, facts in _walk(container.find_tree(wanted.prefix), "", wanted):
        try:
            split_name(name.removesuffix("/"))
        except (BlobError, UnicodeEncodeError):
            continue
        yield name, facts and Blob(facts, _read_properties(container, name, facts))


def _walk(tree: Tree | int, at: str, wanted: BlobFilter) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield names and facts of plain files. ``tree``: likewise, or an open folder; ``at``: its name."""
    with _enter(tree) as inside:
        for name in sorted(_list_names(inside)) if at.count("/") < _DEEPEST else ():
            full = at + name
            is_beneath = full.startswith(wanted.prefix)
            if not name.endswith("/"):
                if is_beneath and full > wanted.after and (facts := _look_at(inside, name)):
                    yield full, facts
            elif (is_beneath or wanted.prefix.startswith(full)) and (
                full > wanted.after or wanted.after.startswith(full)
            ):
                child = _open_child(inside, name[:-1])
                if wanted.by_folder and is_beneath and full != wanted.prefix:
                    is_used = next(_walk(child, full, BlobFilter(full)), None) is not None
                    if is_used and full > wanted.after:
                        yield full, None
                else:
                    yield from _walk(child, full, wanted)


@contextlib.contextmanager
def _enter(tree: Tree | int) -> Iterator[int | Mapping[str, Tree]]:
    """Give an open folder, which is closed in the end, or what is in one on no disk; nothing of one that is gone."""
    if isinstance(tree, str):
        with contextlib.ExitStack() as stack:
            try:
                found: int | Mapping[str, Tree] = stack.enter_context(open_beneath("/", _split_path(tree)))
            except NotFoundError:
                found = {}
            yield found
    elif isinstance(tree, int):
        try:
            yield tree
        finally:
            os.close(tree)
    else:
        yield tree


def _list_names(inside: int | Mapping[str, Tree]) -> Iterator[str]:
    """Yield the names in a folder; those of folders end with a slash, by which they sort as the names in them do."""
    if not isinstance(inside, int):
        for name, tree in inside.items():
            is_folder = not isinstance(tree, str) or (os.path.isdir(tree) and not os.path.islink(tree))
            yield f"{name}/" if is_folder else name
        return
    with os.scandir(inside) as entries:
        for entry in entries:
            yield f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _open_child(inside: int | Mapping[str, Tree], name: str) -> Tree | int:
    if not isinstance(inside, int):
        return inside[name]
    try:
        return os.open(name, _FOLDER, dir_fd=inside)
    except OSError:  # It is gone, or nobody may list it.
        return {}


def _look_at(inside: int | Mapping[str, Tree], name: str) -> os.stat_result | None:
    """Return the facts of a plain file; None of anything else."""
    try:
        if isinstance(inside, int):
            facts = os.stat(name, dir_fd=inside, follow_symlinks=False)
        else:
            facts = os.lstat(str(inside[name]))
    except OSError:
        return None
    return facts if stat.S_ISREG(facts.st_mode) else None


# properties, which are those of a file as it was written: what changes it otherwise ends them


def _state_of(container: Container) -> str:
    return container.state or os.path.join(container.folder, _STATE)


def _properties_path(container: Container, name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return os.path.join(_state_of(container), "properties", digest[:2], digest)


def _stamp(facts: os.stat_result) -> list[int]:
    return [facts.st_ino, facts.st_size, facts.st_mtime_ns]


def _read_properties(container: Container | JobContainer, name: str, facts: os.stat_result) -> Properties:
    if isinstance(container, JobContainer):
        return Properties()
    try:
        found = json.loads(read_plain(_properties_path(container, name), _MOST_PROPERTIES))
        if found["stamp"] == _stamp(facts):
            return Properties(dict(found["headers"]), dict(found["metadata"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # There are none, or something has damaged them: the client uploads anew.
    return Properties()


def _write_properties(container: Container, name: str, facts: os.stat_result, properties: Properties) -> None:
    path = _properties_path(container, name)
    private_folder(os.path.dirname(path))
    write_whole(path, json.dumps({"stamp": _stamp(facts), "blob": name, **properties._asdict()}))


def set_metadata(container: Container, name: str, metadata: Mapping[str, str]) -> Blob:
    """Replace the metadata of a blob. Raises BlobError, OSError."""
    with _hold(container):
        file, blob = open_blob(container, name)
        file.close()
        properties = blob.properties._replace(metadata=metadata)
        _write_properties(container, name, blob.facts, properties)
    return blob._replace(properties=properties)


@contextlib.contextmanager
def _hold(container: Container) -> Iterator[None]:
    """Hold what puts a blob in place."""
    with hold_lock(os.path.join(_make_state(container), "lock")):
        yield


def _make_state(container: Container) -> str:
    """Return the folder of a container's state. Raises BlobError, OSError."""
    state = _state_of(container)
    if container.is_ours:
        private_folder(container.folder)
    elif not os.path.isdir(container.folder):
        raise BlobError(404, "ContainerNotFound", "the folder of this container is not there")
    if os.path.islink(state):
        raise BlobError(409, "ResourceTypeMismatch", f"{state} is a link, which is not followed; remove it")
    private_folder(state)
    return state


# writing


class PartialBlob:
    """A file that is being written, with the MD5 of what it has by now. Methods raise OSError."""

    def __init__(self, container: Container) -> None:
        uploads = os.path.join(_make_state(container), "uploads")
        private_folder(uploads)
        self.container = container
        self.path = os.path.join(uploads, os.urandom(8).hex() + PARTIAL)
        self.file = os.fdopen(file_copy.create_file(self.path, 0o600), "wb", buffering=0)
        self._md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: bytes | bytearray) -> None:
        self._md5.update(data)
        written = 0
        while written < len(data):
            written += self.file.write(memoryview(data)[written:])

    def append(self, source: BinaryIO) -> None:
        """Append all of a file, which counts for no MD5."""
        at = 0
        while copied := os.sendfile(self.file.fileno(), source.fileno(), at, _COPIED_AT_ONCE):
            at += copied

    @property
    def md5(self) -> str:
        return base64.b64encode(self._md5.digest()).decode()

    def flush(self) -> os.stat_result:
        """Bring it to the disk; its facts."""
        os.fsync(self.file.fileno())
        return os.fstat(self.file.fileno())

    def discard(self) -> None:
        """Close it, and remove what has not got its place."""
        self.file.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def check_is_new(container: Container, name: str) -> None:
    """Raise BlobError for a blob that is there."""
    try:
        open_blob(container, name)[0].close()
    except BlobError:
        return
    raise BlobError(409, "BlobAlreadyExists", "a blob of that name is there, and is not to be replaced")


def place_blob(upload: PartialBlob, name: str, properties: Properties, *, is_new: bool) -> Blob:
    """Give an upload its name; its blocks that were in no list are dropped. Raises BlobError, OSError."""
    container, facts = upload.container, upload.flush()
    parts = split_name(name)
    with _hold(container):
        if is_new:
            check_is_new(container, name)
        with _open_parent(container, parts, makes=True) as parent:
            # First: what is there by then has another stamp, and so none of these.
            _write_properties(container, name, facts, properties)
            try:
                os.replace(upload.path, parts[-1], dst_dir_fd=parent)
            except IsADirectoryError as error:
                what = "a folder has the name of this blob; a file and a folder cannot share one here"
                raise BlobError(409, "ResourceTypeMismatch", what) from error
    shutil.rmtree(_blocks_of(container, name), ignore_errors=True)
    return Blob(facts, properties)


@contextlib.contextmanager
def _open_parent(container: Container, parts: Sequence[str], *, makes: bool) -> Iterator[int]:
    """Give the open folder that a blob is in. Raises BlobError, OSError."""
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
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        what = "a file or a link is where this blob's folder would be; links are not followed"
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


# blocks


def _blocks_of(container: Container, name: str) -> str:
    return os.path.join(_state_of(container), "uploads", hashlib.sha256(name.encode()).hexdigest())


def place_block(upload: PartialBlob, name: str, block: str) -> None:
    """Keep an upload as a block of a blob, until a list names it. ``block``: its ID as hex. Raises OSError."""
    upload.flush()
    blocks = _blocks_of(upload.container, name)
    while True:
        private_folder(blocks)
        try:
            os.replace(upload.path, os.path.join(blocks, block))
        except FileNotFoundError:
            if not os.path.exists(upload.path):
                raise
        else:
            return  # Else a list was committed meanwhile, which took the folder away.


def join_blocks(upload: PartialBlob, name: str, blocks: Sequence[str]) -> None:
    """Append the blocks to an upload, in the order of the list. Raises BlobError, OSError."""
    folder = _blocks_of(upload.container, name)
    for block in blocks:
        try:
            source = homes.open_plain(os.path.join(folder, block))
        except FileNotFoundError as error:
            what = "the list names a block that was not uploaded, or was dropped after a day"
            raise BlobError(400, "InvalidBlockList", what) from error
        with source:
            upload.append(source)


def remove_leftovers(container: Container) -> None:
    """Remove what uploads have left that nobody has gone on with for a day."""
    uploads = os.path.join(_state_of(container), "uploads")
    with contextlib.suppress(OSError), os.scandir(uploads) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_mtime < time.time() - _KEPT_S:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
