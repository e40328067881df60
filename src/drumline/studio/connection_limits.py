"""
Connections with limits for those that have shown no token: whoever holds many open, and says nothing, closes the studio
to nobody.

uvicorn waits without end for the head of a first request, and counts connections whoever has them.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import ssl

    from starlette.types import ASGIApp

HEAD_S = 10.0
"""In which a request has begun after its connection did, or after the answer before it."""

MOST_STRANGERS = 100
"""Connections without a token; beyond it the oldest is closed, as whoever means to ask has asked by then."""

_MOST_CONNECTIONS = 300
_GRACE_S = 1


def make_server(app: ASGIApp, context: ssl.SSLContext | None, grace_s: int = _GRACE_S) -> uvicorn.Server:
    """Return the server of an application, with TLS where there is a context; ``grace_s``: for requests at its end."""
    strangers = Strangers()

    def connect(**given: Any) -> asyncio.Protocol:
        connection = Connection(strangers, **given)
        return connection if context is None else TlsDoor(connection, strangers, context)

    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=cast("type[asyncio.Protocol]", connect),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=grace_s,
    )
    return uvicorn.Server(config)


class Strangers:
    """The connections on which no request has shown a token, the oldest first."""

    def __init__(self) -> None:
        self._transports: dict[Connection, asyncio.Transport] = {}

    def add(self, connection: Connection, transport: asyncio.Transport) -> None:
        """Add a connection, or note the transport that it has by now."""
        self._transports[connection] = transport
        if len(self._transports) > MOST_STRANGERS:
            oldest = next(iter(self._transports))
            self._transports.pop(oldest).abort()

    def remove(self, connection: Connection) -> None:
        self._transports.pop(connection, None)


class Connection(H11Protocol):
    """A connection that is closed where no request begins in time."""

    def __init__(self, strangers: Strangers, *, app_state: dict[str, Any], **given: Any) -> None:
        # Each request has a copy of it: the guard says by it that the caller is known.
        state = {**app_state, "welcome": lambda: strangers.remove(self)}
        super().__init__(app_state=state, **given)
        self._strangers = strangers
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._strangers.add(self, transport)
        self._start_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._strangers.remove(self)
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self._timer = self.loop.call_later(HEAD_S, self._close_unless_busy)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_unless_busy(self) -> None:
        """Close it if no request has begun; the answer to one that has starts the time anew."""
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class TlsDoor(asyncio.Protocol):
    """
    The beginning of a connection with TLS: in uvicorn's own way, those that agree on no keys are not seen, and count
    for a minute against the files that the process may open.
    """

    def __init__(self, connection: Connection, strangers: Strangers, context: ssl.SSLContext) -> None:
        self._connection = connection
        self._strangers = strangers
        self._context = context
        self._early = bytearray()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._strangers.add(self._connection, transport)
        self._task = asyncio.get_running_loop().create_task(self._open(transport))

    def data_received(self, data: bytes) -> None:
        # What came with the end of the handshake.
        self._early += data

    async def _open(self, transport: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        inner = None
        # They may agree on nothing, or not in time.
        with contextlib.suppress(OSError, ValueError):
            inner = await loop.start_tls(
                transport, self, self._context, server_side=True, ssl_handshake_timeout=HEAD_S
            )
        if inner is None or inner.is_closing():
            self._strangers.remove(self._connection)
            transport.abort()
            return
        inner.set_protocol(self._connection)
        self._connection.connection_made(inner)
        if self._early:
            self._connection.data_received(bytes(self._early))
