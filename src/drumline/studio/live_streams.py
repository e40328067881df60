"""
Server-sent events: one look at the files for all viewers, one stream for each of them.

Source of the format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from drumline.contract import folder as homes
from drumline.contract.errors import DAMAGED, DrumlineError, EngineError
from drumline.control.facts.changes import EVENT, RESET, Feed, Message
from drumline.studio.answers import encode
from drumline.studio.queries import MOST_OFFSET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from starlette.types import Receive, Scope, Send

    from drumline.studio.tables import Tables

_PAUSE_S = 0.1
_PING_S = 15.0
_SEND_LIMIT_S = 5.0
"""A viewer that takes no data for so long is dropped."""

_MOST_VIEWERS = 50
_MOST_WAITING = 1000
_MOST_WAITING_BYTES = 1 << 20
_MOST_REPORTED = 100
_EPOCH = secrets.token_hex(4)
"""Which server counted the versions of a cursor."""


class Cursor(NamedTuple):
    """How far a viewer has come: the version of the list, and the last event of each job that it watches."""

    version: int
    seqs: dict[str, int]

    def __str__(self) -> str:
        jobs = "".join(f"|{quote(job, safe='')}:{seq}" for job, seq in self.seqs.items())
        return f"{_EPOCH}.{self.version}{jobs}"


def parse_cursor(text: str) -> Cursor | None:
    """Return the cursor of an id that this server has sent; None of another one."""
    head, *jobs = text.split("|")
    epoch, _, version = head.partition(".")
    try:
        parts = [job.rpartition(":") for job in jobs]
        found = Cursor(int(version), {unquote(name): int(seq) for name, _, seq in parts})
    except ValueError:
        return None
    if not all(0 <= number < MOST_OFFSET for number in (found.version, *found.seqs.values())):
        return None
    return found if epoch == _EPOCH else None


class Packed(NamedTuple):
    """A message with its data as they are sent, which all viewers share."""

    message: Message
    data: bytes


def pack(messages: Iterable[Message]) -> list[Packed]:
    return [Packed(message, encode(message.data)) for message in messages]


class Viewer:
    """One stream: what waits to be sent, and how far it has come."""

    def __init__(self, workspace: str, jobs: Sequence[str]) -> None:
        self.workspace = workspace
        self.jobs = frozenset(jobs)
        self.cursor = Cursor(0, {})
        self.queue: asyncio.Queue[Packed] = asyncio.Queue(_MOST_WAITING)
        self.waiting_bytes = 0
        self.is_behind = False

    def put(self, packed: Packed) -> None:
        """Add a message for this viewer; one that takes none any more is to be dropped."""
        if packed.message.job and packed.message.job not in self.jobs:
            return
        self.waiting_bytes += len(packed.data)
        if self.queue.full() or self.waiting_bytes > _MOST_WAITING_BYTES:
            self.is_behind = True
        else:
            self.queue.put_nowait(packed)

    def to_bytes(self, packed: Packed) -> bytes:
        """Return a message as it is sent, with the cursor behind it."""
        message = packed.message
        self.waiting_bytes -= len(packed.data)
        if message.kind == EVENT:
            self.cursor = self.cursor._replace(seqs={**self.cursor.seqs, message.job: message.mark})
        elif not message.job:
            self.cursor = self.cursor._replace(version=message.mark)
        return b"event: %s\nid: %s\ndata: %s\n\n" % (
            message.kind.encode(),
            str(self.cursor).encode(),
            packed.data,
        )


class Live:
    """All viewers. Looks at nothing while there is none."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._viewers: set[Viewer] = set()
        self._joining = 0
        """Those that wait to be viewers: they count already."""
        self._feeds: dict[str, Feed] = {}
        self._lock = asyncio.Lock()
        """Held from a look until all viewers have what it found, and while a viewer joins, which so misses nothing."""
        self._reported: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def open(self, workspace: str, jobs: Sequence[str], cursor: str) -> EventStream:
        """Return the stream of a new viewer, which goes on where the cursor is. Raises EngineError for too many."""
        if len(self._viewers) + self._joining >= _MOST_VIEWERS:
            raise EngineError(f"{_MOST_VIEWERS} pages are open already", "close some")
        viewer = Viewer(workspace, jobs)
        self._joining += 1
        try:
            async with self._lock:
                await run_in_threadpool(self._catch_up, viewer, cursor)
                self._viewers.add(viewer)
        finally:
            self._joining -= 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return EventStream(self, viewer)

    def leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)

    async def _run(self) -> None:
        while self._viewers:
            async with self._lock:
                places: dict[str, set[str]] = {}
                for viewer in self._viewers:
                    places.setdefault(viewer.workspace, set()).update(viewer.jobs)
                found = await run_in_threadpool(self._look, places)
                for viewer in self._viewers:
                    for packed in found.get(viewer.workspace, ()):
                        viewer.put(packed)
            await asyncio.sleep(_PAUSE_S)
        self._feeds.clear()

    # in threads, with the lock

    def _look(self, places: dict[str, set[str]]) -> dict[str, list[Packed]]:
        found = {}
        for workspace, jobs in places.items():
            try:
                with homes.workspace(workspace):
                    found[workspace] = pack(self._find_feed(workspace).look(jobs))
            except Exception as error:  # noqa: BLE001 - the next look may succeed, and other workspaces do
                self._report(f"news of {workspace or 'the jobs'}: {error!r}")
        return found

    def _report(self, problem: str) -> None:
        """Print a problem once."""
        if problem not in self._reported and len(self._reported) < _MOST_REPORTED:
            self._reported.add(problem)
            print(f"error: {problem}", file=sys.stderr)

    def _find_feed(self, workspace: str) -> Feed:
        if workspace not in self._feeds:
            self._feeds[workspace] = Feed(self._tables.here())
        return self._feeds[workspace]

    def _catch_up(self, viewer: Viewer, text: str) -> None:
        """Have the viewer begin where it was; one without a cursor begins now."""
        known = parse_cursor(text) if text else None
        with homes.workspace(viewer.workspace):
            feed = self._find_feed(viewer.workspace)
            is_ours = known is not None and known.version <= feed.version
            viewer.cursor = Cursor(feed.version, {})
            if known is not None and is_ours:
                for packed in pack(feed.list_rows(known.version)):
                    viewer.put(packed)
            elif text:
                viewer.put(*pack([Message(RESET, {}, mark=feed.version)]))
            for job in viewer.jobs:
                with contextlib.suppress(DrumlineError, OSError, *DAMAGED):
                    after = known.seqs.get(job) if known is not None and is_ours else None
                    found, seq = feed.watch(job, after)
                    missed = pack(found)
                    if viewer.waiting_bytes + sum(len(one.data) for one in missed) > _MOST_WAITING_BYTES // 2:
                        # The viewer asks again for all of the job, where it would never come to an end of this.
                        missed = pack([Message(RESET, {}, mark=feed.version)])
                        after = None
                    viewer.cursor.seqs[job] = after if missed and after is not None else seq
                    for packed in missed:
                        viewer.put(packed)


class EventStream(Response):
    """An answer that ends when its viewer does."""

    media_type = "text/event-stream"

    def __init__(self, live: Live, viewer: Viewer) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._live = live
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_wait_for_end(receive))
        try:
            await _take(send({"type": "http.response.start", "status": 200, "headers": self.raw_headers}))
            hello = f"retry: 1000\nid: {self._viewer.cursor}\nevent: hello\ndata: {{}}\n\n".encode()
            await _send(send, hello)
            while not (gone.done() or self._viewer.is_behind):
                await _send(send, await self._collect(gone))
        except TimeoutError:
            pass  # It takes no data any more; the connection is closed.
        finally:
            gone.cancel()
            self._live.leave(self._viewer)

    async def _collect(self, gone: asyncio.Task[None]) -> bytes:
        """Return all that waits to be sent, or after a while a sign of life."""
        queue = self._viewer.queue
        first = asyncio.create_task(queue.get())
        try:
            await asyncio.wait({first, gone}, timeout=_PING_S, return_when=asyncio.FIRST_COMPLETED)
            if not first.done():
                return b": ping\n\n"
            parts = [self._viewer.to_bytes(first.result())]
        finally:
            first.cancel()
        while not queue.empty():
            parts.append(self._viewer.to_bytes(queue.get_nowait()))
        return b"".join(parts)


async def _send(send: Send, data: bytes) -> None:
    await _take(send({"type": "http.response.body", "body": data, "more_body": True}))


async def _take(sending: Awaitable[None]) -> None:
    """Raise TimeoutError for a viewer that takes no data."""
    await asyncio.wait_for(sending, _SEND_LIMIT_S)


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
