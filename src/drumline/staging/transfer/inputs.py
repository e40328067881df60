"""Remote inputs: listed, brought into the cache, put in place."""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.folder import private_folder
from drumline.contract.hiding import hide_secrets
from drumline.contract.uris import HTTP, S3
from drumline.contract.words import format_size
from drumline.staging import file_copy, transfer_messages
from drumline.staging.cache import cache_pruning, trees
from drumline.staging.cache.cache_folder import Cache, CachedSource, is_safe, key_of
from drumline.staging.cache.cache_pruning import CacheLease
from drumline.staging.mount import choice, filesystem
from drumline.staging.stores.store import Object, ObjectChangedError
from drumline.staging.transfer import outputs
from drumline.staging.transfer.downloaded_objects import Origin
from drumline.staging.transfer.object_download import Download, disk_full_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Fetch, Plan
    from drumline.contract.uris import Place
    from drumline.staging.stores.store import Store

    Open = Callable[[Fetch], tuple[Place, Store]]


_TRIES = 3
_OUTPUT = "outputs."
_LONGEST_BYTES = 255
_ENDPOINTS = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "STORAGE_EMULATOR_HOST",
)
"""Where the same address may mean something else."""


def fetch_inputs(
    folder: RunFolder,
    wanted: Iterable[Fetch],
    opened: Open,
    cache: Cache | None = None,
    plan: Plan | None = None,
) -> None:
    """
    Fetch or mount every one of them. Blocks. Raises DrumlineError, OSError.

    ``cache``: None: the base home's; ``plan``: the job's, None: nothing is mounted.
    """
    cache = cache or Cache()
    cache.make()
    lease = CacheLease(cache, folder.path)
    lease.begin()
    for fetch in wanted:
        with transfer_messages.prefix_errors(fetch.name):
            _InputFetch(cache, lease, folder, fetch, plan).run(opened)
    lease.close()


class _InputFetch:
    def __init__(
        self, cache: Cache, lease: CacheLease, folder: RunFolder, fetch: Fetch, plan: Plan | None
    ) -> None:
        self._cache = cache
        self._lease = lease
        self._folder = folder
        self._fetch = fetch
        self._plan = plan
        self._obstacle = ""
        self._shown = hide_secrets(fetch.uri)
        self._progress = transfer_messages.ProgressReport(fetch.name)
        self._cached = 0
        self._verified = 0

    def run(self, opened: Open) -> None:
        fetch = self._fetch
        if fetch.writable and has_copy(fetch.target):
            # What the ranks have changed since is theirs.
            return
        place, store = opened(fetch)
        filesystem.remove_record(self._folder, fetch.name)
        source = self._bring(place, store)
        if source is None:
            self._report(0, 0)
            return
        if isinstance(source, filesystem.MountedInput):
            # The process that serves it says so, when it does.
            filesystem.write_record(self._folder, source)
            link_tree(filesystem.mount_point(self._folder, source.name), self._fetch.target, source.file)
            return
        try:
            self._put_in_place(source)
        except OSError as error:
            where = error.filename2 or error.filename or fetch.target
            raise NodeError(f"could not put {fetch.name} in place: {error.strerror}: {where}") from error
        self._report(source.size, len(source.items))

    def _bring(self, place: Place, store: Store) -> CachedSource | filesystem.MountedInput | None:
        """Bring an input into the cache, or choose a mount; None if there is nothing, and need not be."""
        for left in reversed(range(_TRIES)):
            self._progress.restart()
            objects = self._list_objects(store)
            if not objects:
                return None
            if self._is_to_be_mounted(place, store, objects):
                file = place.name if not objects[0].path else ""
                return filesystem.MountedInput(self._fetch.name, _identify(place), file, tuple(objects))
            try:
                return self._bring_into_cache(place, store, objects)
            except ObjectChangedError as error:
                if not left:
                    raise NodeError(f"{self._shown} keeps changing while it is read") from error
        raise AssertionError

    def _list_objects(self, store: Store) -> list[Object]:
        """List the objects; none if there is nothing. Raises NodeError for another kind, or if it must not be empty."""
        if self._fetch.kind == "any":
            self._fetch = self._fetch._replace(kind="folder" if store.stat() is None else "file")
        fetch = self._fetch
        if fetch.kind == "file":
            one = store.stat()
            if one is None and store.can_list and next(iter(store.list()), None) is not None:
                raise NodeError(f"{self._shown} is a folder, and its type is uri_file", "type: uri_folder")
            objects = [] if one is None else [one]
        else:
            objects = self._list_files(store) if store.can_list else []
            if not objects and store.stat() is not None:
                raise NodeError(f"{self._shown} is a file, and its type is uri_folder", "type: uri_file")
        if not objects and not fetch.may_be_missing:
            raise NodeError(f"{fetch.name}: there is nothing at {self._shown}")
        self._progress.total_files = len(objects)
        self._progress.total_bytes = sum(max(0, one.size) for one in objects)
        self._progress.begin()
        return objects

    def _list_files(self, store: Store) -> list[Object]:
        objects = sorted(store.list())
        paths = {one.path for one in objects}
        for path in paths:
            parts = path.split("/")
            if not is_safe(path) or any(len(os.fsencode(part)) > _LONGEST_BYTES for part in parts):
                raise NodeError(f"{self._shown} has a file whose name is not valid here: {path[:200]!r}")
            above = ("/".join(parts[:count]) for count in range(1, len(parts)))
            if any(folder in paths for folder in above):
                raise NodeError(f"{self._shown}: {path[:200]!r} is in a folder that is also a file")
        return objects

    def _bring_into_cache(self, place: Place, store: Store, objects: list[Object]) -> CachedSource:
        identity = _identify(place)
        versions = [(one.path, one.version, one.size) for one in objects]
        key = key_of(identity, self._fetch.kind, versions)
        if all(one.version and one.size >= 0 for one in objects):
            source = self._cache.use_source(key)
            if source is not None:
                self._cached = source.size
                return source
        origin = Origin(store, identity, self._shown, believes_second=place.service == S3)
        download = Download(self._cache, origin, self._progress.add, self._progress.add_file)
        files = download.fetch(objects, self._make_room)
        if self._fetch.kind == "file":
            files = [files[0]._replace(path=place.name)]
        self._cached, self._verified = download.objects.cached_bytes, download.objects.verified
        source = CachedSource(key, self._shown, self._fetch.kind, tuple(files))
        self._cache.write_source(source)
        return source

    def _is_to_be_mounted(self, place: Place, store: Store, objects: list[Object]) -> bool:
        fetch = self._fetch
        if self._plan is None or not choice.asks_for_mount(fetch):
            return False
        mode = choice.choose_mode(fetch)
        if mode == choice.NEVER:
            return False
        if mode == choice.AUTO and choice.fits_in_cache(self._cache, _identify(place), objects):
            return False
        self._obstacle = choice.find_obstacle(self._folder, self._plan, place, store, objects)
        return not self._obstacle

    def _make_room(self, needed: int) -> None:
        warning = cache_pruning.make_room(self._cache, needed)
        left = cache_pruning.free_bytes(self._cache)
        if needed > left:
            error = disk_full_error(self._cache, self._shown)
            raise NodeError(f"{error.message}: {format_size(needed)} still to download", error.hint)
        if warning:
            transfer_messages.log_warning(warning)

    def _put_in_place(self, source: CachedSource) -> None:
        fetch = self._fetch
        if fetch.writable:
            copy_files(self._cache, source, fetch.target)
            if fetch.name.startswith(_OUTPUT):
                outputs.note_fetched_output(self._folder, fetch.name, fetch.target, fetch.kind)
            return
        self._lease.add(source.tree)
        tree = trees.make_tree(self._cache, source)
        link_tree(tree, fetch.target, source.items[0].path if fetch.kind == "file" else "")

    def _report(self, size: int, files: int) -> None:
        transfer_messages.send(
            "transferred",
            name=self._fetch.name,
            uri=self._shown,
            size_bytes=size,
            file_count=files,
            cached_bytes=self._cached,
            seconds=self._progress.seconds,
            verified=self._verified,
            note=_describe_difference(self._fetch, self._obstacle),
        )


def _describe_difference(fetch: Fetch, obstacle: str) -> str:
    """Return a note if the input is not as the job asked for it."""
    if fetch.name.startswith(_OUTPUT):
        return "from what it held before"
    if not fetch.mode.endswith("mount"):
        return ""
    why = f" ({obstacle})" if obstacle else ""
    return f"not mounted{why}: fetched before the ranks start"


def _identify(place: Place) -> str:
    """Return what tells that place from all others, whoever asks; of signatures in queries only HTTP's counts."""
    endpoints = [os.environ.get(name, "") for name in _ENDPOINTS]
    parts = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    endpoints += [part for part in parts if part.partition("=")[0].lower().endswith("endpoint")]
    query = place.query if place.service == HTTP else ""
    return key_of(
        place.service,
        place.account,
        place.container,
        place.path,
        place.host,
        query,
        place.is_plain,
        endpoints,
    )


# placement: a link to a tree of the cache, or a copy that ranks may change; by one rename


def has_copy(target: str) -> bool:
    """Return whether an earlier call has put a copy there; an empty folder does not count."""
    if os.path.islink(target):
        return False
    if os.path.isdir(target):
        with os.scandir(target) as entries:
            return next(entries, None) is not None
    return os.path.lexists(target)


def link_tree(tree: str, target: str, name: str = "") -> None:
    """Link the target to a tree, or to the one file ``name`` in it. Raises OSError."""
    private_folder(os.path.dirname(target))
    beside = f"{target}.{os.urandom(4).hex()}.partial"
    os.symlink(os.path.join(tree, name) if name else tree, beside)
    try:
        if not os.path.islink(target):
            _give_way(target)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise


def copy_files(cache: Cache, source: CachedSource, target: str) -> None:
    """Copy all files, or the only one if the source is a file. Raises OSError."""
    private_folder(os.path.dirname(target))
    # One name, so that what a killed process has left is found.
    beside = f"{target}.partial"
    _remove(beside)
    try:
        if source.kind == "file":
            _copy(cache.content_path(source.items[0].digest), beside)
        else:
            os.mkdir(beside, 0o700)
            trees.fill_folder(cache, source, beside, _copy)
        _give_way(target)
        os.rename(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(beside)
        raise


def _copy(content: str, target: str) -> None:
    source = os.open(content, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        copied = file_copy.create_file(target, 0o600)
        try:
            file_copy.copy_content(source, copied)
        finally:
            os.close(copied)
    finally:
        os.close(source)


def _give_way(target: str) -> None:
    """Remove an empty folder or an earlier link. Raises OSError for a folder that is not empty."""
    if os.path.islink(target):
        os.unlink(target)
    elif os.path.isdir(target):
        os.rmdir(target)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
