"""The server of ``drumline azure serve``: its packages, its socket, its record for other commands, and its end."""

from __future__ import annotations

import signal
import sys

from drumline.control.settings import studios
from drumline.linux import kernel
from drumline.studio.serve import check_home, check_packages, listen

_HOST = "127.0.0.1"


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
        server = make_server(RestService(key, address, blobs.make_routes(find_container, key)), context)
        # uvicorn raises a signal again, for these, once it has ended in order.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        record = studios.note(address, "", taken, kind=studios.AZURE)
        print(address, flush=True)
        if not ends_with:
            print(
                'press Ctrl-C to end it; eval "$(drumline azure env)" leads programs there', file=sys.stderr
            )
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
        studios.forget(record, "")
