"""Inputs that are elsewhere: looked through, brought into the cache, put in place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.uris import HTTP, S3, shown
from drumline.staging import cache_room, cache_trees, mounting, placing, reporting, sizes, uploads
from drumline.staging.cache import Cache, Source, is_safe, key_of
from drumline.staging.fetching import Fetching, full
from drumline.staging.fetching import Place as From
from drumline.staging.leases import Lease
from drumline.staging.stores.base import Changed, Object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Fetch, Plan
    from drumline.contract.uris import Place
    from drumline.staging.stores.base import Store

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


def run(
    folder: RunFolder,
    wanted: Iterable[Fetch],
    opened: Open,
    cache: Cache | None = None,
    plan: Plan | None = None,
) -> None:
    """
    Every one of them. ``cache``: None: the base home's; ``plan``: of the job, None: nothing is mounted. Blocks. Raises
    DrumlineError, OSError.
    """
    cache = cache or Cache()
    cache.make()
    lease = Lease(cache, folder.path)
    lease.begin()
    for fetch in wanted:
        with reporting.named(fetch.name):
            _One(cache, lease, folder, fetch, plan).run(opened)
    lease.close()


class _One:
    def __init__(
        self, cache: Cache, lease: Lease, folder: RunFolder, fetch: Fetch, plan: Plan | None
    ) -> None:
        self._cache = cache
        self._lease = lease
        self._folder = folder
        self._fetch = fetch
        self._plan = plan
        self._obstacle = ""
        self._shown = shown(fetch.uri)
        self._progress = reporting.Progress(fetch.name)
        self._cached = 0
        self._verified = 0

    def run(self, opened: Open) -> None:
        fetch = self._fetch
        if fetch.writable and placing.is_there(fetch.target):
            # What the ranks have changed since is theirs.
            return
        place, store = opened(fetch)
        mounting.forget(self._folder, fetch.name)
        source = self._brought(place, store)
        if source is None:
            self._tell(0, 0)
            return
        if isinstance(source, mounting.Found):
            # The process that serves it says so, when it does.
            self._mount(source)
            return
        try:
            self._put(source)
        except OSError as error:
            where = error.filename2 or error.filename or fetch.target
            raise NodeError(f"could not put {fetch.name} in place: {error.strerror}: {where}") from error
        self._tell(source.size, len(source.items))

    def _brought(self, place: Place, store: Store) -> Source | mounting.Found | None:
        """None where there is nothing, and may be nothing."""
        for left in reversed(range(_TRIES)):
            self._progress.begin_again()
            objects = self._objects(store)
            if not objects:
                return None
            if self._is_to_be_mounted(place, store, objects):
                file = place.name if not objects[0].path else ""
                return mounting.Found(self._fetch.name, _identity(place), file, tuple(objects))
            try:
                return self._in_cache(place, store, objects)
            except Changed as error:
                if not left:
                    raise NodeError(f"{self._shown} keeps changing while it is read") from error
        raise AssertionError

    def _objects(self, store: Store) -> list[Object]:
        """Empty where there is nothing. Raises NodeError where it is of another kind, or must not be empty."""
        if self._fetch.kind == "any":
            self._fetch = self._fetch._replace(kind="folder" if store.stat() is None else "file")
        fetch = self._fetch
        if fetch.kind == "file":
            one = store.stat()
            if one is None and store.can_list and next(iter(store.list()), None) is not None:
                raise NodeError(f"{self._shown} is a folder, and its type is uri_file", "type: uri_folder")
            objects = [] if one is None else [one]
        else:
            objects = self._files(store) if store.can_list else []
            if not objects and store.stat() is not None:
                raise NodeError(f"{self._shown} is a file, and its type is uri_folder", "type: uri_file")
        if not objects and not fetch.may_be_missing:
            raise NodeError(f"{fetch.name}: there is nothing at {self._shown}")
        self._progress.total_files = len(objects)
        self._progress.total_bytes = sum(max(0, one.size) for one in objects)
        self._progress.begin()
        return objects

    def _files(self, store: Store) -> list[Object]:
        objects = sorted(store.list())
        paths = {one.path for one in objects}
        for path in paths:
            parts = path.split("/")
            if not is_safe(path) or any(len(os.fsencode(part)) > _LONGEST_BYTES for part in parts):
                raise NodeError(f"{self._shown} has a file that cannot be one here: {path[:200]!r}")
            above = ("/".join(parts[:count]) for count in range(1, len(parts)))
            if any(folder in paths for folder in above):
                raise NodeError(f"{self._shown}: {path[:200]!r} is in a folder that is a file as well")
        return objects

    def _in_cache(self, place: Place, store: Store, objects: list[Object]) -> Source:
        identity = _identity(place)
        versions = [(one.path, one.version, one.size) for one in objects]
        key = key_of(identity, self._fetch.kind, versions)
        if all(one.version and one.size >= 0 for one in objects):
            source = self._cache.use_source(key)
            if source is not None:
                self._cached = source.size
                return source
        origin = From(store, identity, self._shown, believes_second=place.service == S3)
        fetching = Fetching(self._cache, origin, self._progress.add, self._progress.add_file)
        items = fetching.fetch(objects, self._make_room)
        if self._fetch.kind == "file":
            items = [items[0]._replace(path=place.name)]
        self._cached, self._verified = fetching.cached_bytes, fetching.verified
        source = Source(key, self._shown, self._fetch.kind, tuple(items))
        self._cache.note_source(source)
        return source

    def _is_to_be_mounted(self, place: Place, store: Store, objects: list[Object]) -> bool:
        fetch = self._fetch
        if self._plan is None or not mounting.may_be(fetch):
            return False
        mode = mounting.mode_of(fetch)
        if mode == mounting.NEVER:
            return False
        if mode == mounting.AUTO and mounting.fits(self._cache, _identity(place), objects):
            return False
        self._obstacle = mounting.obstacle(self._folder, self._plan, place, store, objects)
        return not self._obstacle

    def _mount(self, found: mounting.Found) -> None:
        mounting.note(self._folder, found)
        placing.link(mounting.place_of(self._folder, found.name), self._fetch.target, found.file)

    def _make_room(self, needed: int) -> None:
        warning = cache_room.make_room(self._cache, needed)
        left = cache_room.free(self._cache)
        if needed > left:
            error = full(self._cache, self._shown)
            raise NodeError(f"{error.message}: {sizes.shown(needed)} are to come", error.hint)
        if warning:
            reporting.warn(warning)

    def _put(self, source: Source) -> None:
        fetch = self._fetch
        if fetch.writable:
            placing.copy(self._cache, source, fetch.target)
            if fetch.name.startswith(_OUTPUT):
                uploads.note_fetched(self._folder, fetch.name, fetch.target, fetch.kind)
            return
        self._lease.add(source.tree)
        tree = cache_trees.provide(self._cache, source)
        placing.link(tree, fetch.target, source.items[0].path if fetch.kind == "file" else "")

    def _tell(self, size: int, files: int) -> None:
        reporting.say(
            "transferred",
            name=self._fetch.name,
            uri=self._shown,
            size_bytes=size,
            file_count=files,
            cached_bytes=self._cached,
            seconds=self._progress.seconds,
            verified=self._verified,
            note=_note(self._fetch, self._obstacle),
        )


def _note(fetch: Fetch, obstacle: str) -> str:
    """What is not as the job asked for it."""
    if fetch.name.startswith(_OUTPUT):
        return "from what it held before"
    if not fetch.mode.endswith("mount"):
        return ""
    why = f" ({obstacle})" if obstacle else ""
    return f"not mounted{why}: fetched before the ranks start"


def _identity(place: Place) -> str:
    """What tells that place from all others, whoever asks for it; of the signatures in queries only HTTP's counts."""
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
