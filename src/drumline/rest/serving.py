"""The server of ``drumline azure serve`` and ``drumline studio --azure``: packages, socket, record and end."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
from typing import TYPE_CHECKING

from drumline.control.settings import studios
from drumline.linux import kernel
from drumline.studio.serve import check_home, check_packages, listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    import uvicorn

_HOST = "127.0.0.1"
_HINT = 'eval "$(drumline azure env)" leads programs there'
_GRACE_S = 30
"""For requests under way when the server ends: a submission is done to its end."""


def serve(port: int | None, *, ends_with: int = 0, new_key: bool = False) -> None:
    """
    Serve on loopback until SIGINT or SIGTERM, or until the process ``ends_with`` ends, which started this one.

    port: None: that of ``endpoint``, or the next one that is free; 0: any. new_key: no token or certificate of before
    is good any more. Raises UsageError, DrumlineError, OSError.
    """
    if ends_with:
        kernel.die_with_parent(signal.SIGTERM, ends_with)
    # That of one program is no other's: it ends with it.
    opened = _open_server(port, is_known=not ends_with, new_key=new_key)
    with contextlib.suppress(KeyboardInterrupt), opened as (server, listener, address):
        # uvicorn raises a signal again, for these, once it has ended in order.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if not ends_with:
            print(f"press Ctrl-C to end it; {_HINT}", file=sys.stderr)
        print(address, flush=True)
        # Nobody reads more there.
        os.dup2(2, 1)
        server.run(sockets=[listener])


@contextlib.contextmanager
def run_beside() -> Iterator[None]:
    """Serve in a thread for the length of a ``with``. Raises UsageError, DrumlineError, OSError."""
    with _open_server(None, is_known=True) as (server, listener, address):
        print(f"{address} is for azure-ai-ml; {_HINT}", file=sys.stderr)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def _open_server(
    port: int | None, *, is_known: bool, new_key: bool = False
) -> Iterator[tuple[uvicorn.Server, socket.socket, str]]:
    """Give a server, its socket and its address. ``is_known``: others of this user find it."""
    check_packages("drumline azure serve", ("starlette", "uvicorn", "cryptography"), "azure-server")
    check_home()
    from drumline.rest import blobs, certificate, endpoint
    from drumline.rest.routes.uploads import find_container
    from drumline.rest.service import RestService
    from drumline.studio.connection_limits import make_server

    if new_key:
        endpoint.remove_keys()
    context = certificate.make_context()
    listener = listen(_HOST, port, endpoint.PORT)
    record = ""
    try:
        taken = listener.getsockname()[1]
        address = f"https://{_HOST}:{taken}"
        key = endpoint.get_key()
        routes = blobs.make_routes(find_container, key)
        server = make_server(RestService(key, address, routes), context, _GRACE_S)
        # Its lines name addresses, and tracebacks of requests that a signal has cut off.
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        logging.getLogger("uvicorn").propagate = False
        if is_known:
            record = studios.note(address, secrets.token_hex(8), taken, kind=studios.AZURE)
        yield server, listener, address
    finally:
        # While the port is ours nobody else has a record of that name.
        with contextlib.suppress(OSError):
            os.unlink(record)
        listener.close()
