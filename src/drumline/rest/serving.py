"""The server of ``drumline azure serve``: its packages, its socket, its record for other commands, and its end."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys

from drumline.control.settings import studios
from drumline.linux import kernel
from drumline.studio.serve import check_home, check_packages, listen

_HOST = "127.0.0.1"
_GRACE_S = 30
"""For requests under way when the server ends: a submission is done to its end."""


def serve(port: int | None, *, ends_with: int = 0) -> None:
    """
    Serve on loopback until SIGINT or SIGTERM, or until the process ``ends_with`` ends, which started this one.

    port: None: that of ``endpoint``, or the next one that is free; 0: any. Raises UsageError, DrumlineError, OSError.
    """
    check_packages("drumline azure serve", ("starlette", "uvicorn", "cryptography"), "azure-server")
    check_home()
    from drumline.rest import blobs, certificate, endpoint
    from drumline.rest.routes.uploads import find_container
    from drumline.rest.service import RestService
    from drumline.studio.connection_limits import make_server

    if ends_with:
        kernel.die_with_parent(signal.SIGTERM, ends_with)
    context = certificate.make_context()
    listener = listen(_HOST, port, endpoint.PORT)
    record = ""
    try:
        taken = listener.getsockname()[1]
        address = f"https://{_HOST}:{taken}"
        key = endpoint.get_key()
        routes = blobs.make_routes(find_container, key)
        server = make_server(RestService(key, address, routes), context, _GRACE_S)
        # uvicorn raises a signal again, for these, once it has ended in order.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # Its lines name addresses, and tracebacks of requests that a signal has cut off.
        logging.getLogger("uvicorn").addHandler(logging.NullHandler())
        logging.getLogger("uvicorn").propagate = False
        if not ends_with:
            # That of one program is no other's: it ends with it.
            record = studios.note(address, secrets.token_hex(8), taken, kind=studios.AZURE)
            print(
                'press Ctrl-C to end it; eval "$(drumline azure env)" leads programs there', file=sys.stderr
            )
        print(address, flush=True)
        # Nobody reads more there.
        os.dup2(2, 1)
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        # While the port is ours nobody else has a record of that name.
        with contextlib.suppress(OSError):
            os.unlink(record)
        listener.close()
