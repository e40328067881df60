"""The server: its packages, its socket, its record for other commands, and its end."""

from __future__ import annotations

import os
import signal
import socket
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from drumline.contract import extras
from drumline.contract import folder as homes
from drumline.contract.errors import DrumlineError, UsageError
from drumline.control.access import browser
from drumline.control.settings import studios

if TYPE_CHECKING:
    import ssl

    import uvicorn

    from drumline.studio.security import StudioSettings

PORT = 7878
_PORTS_TRIED = 20
_HIGHEST_PORT = 65535
_STUCK_MS = 30_000


class Wish(NamedTuple):
    """``port`` None: 7878, or the next one that is free; 0: any. ``names``: under which browsers may reach it too."""

    host: str = "127.0.0.1"
    port: int | None = None
    names: tuple[str, ...] = ()
    certificate: str = ""
    key: str = ""
    opens_browser: bool = True


def serve(wish: Wish) -> None:
    """Serve until SIGINT or SIGTERM. Raises UsageError, DrumlineError."""
    check_packages("the studio", ("starlette", "uvicorn"), "studio")
    check_home()
    from drumline.control.settings import tracking
    from drumline.studio.app import make_app
    from drumline.studio.connection_limits import make_server
    from drumline.studio.security import StudioSettings, Tokens, is_loopback

    # A page asks for curves all the time, and a job may have written any address into its plan.
    tracking.rules.asks_others = False
    context = _load_certificate(wish)
    listener = listen(wish.host, wish.port, PORT)
    try:
        host, port = listener.getsockname()[:2]
        settings = StudioSettings(
            port=port,
            names=_list_names(wish),
            is_open=not is_loopback(host),
            has_tls=context is not None,
            workspace=homes.current_workspace(),
        )
        tokens = Tokens(studios.get_metrics_token())
        server = make_server(make_app(settings, tokens), context)
        _run(server, listener, settings, tokens.bearer, wish)
    finally:
        listener.close()


def _run(
    server: uvicorn.Server, listener: socket.socket, settings: StudioSettings, bearer: str, wish: Wish
) -> None:
    import logging

    from drumline.studio.tables import share_memory

    # Its lines name addresses, and ours go where a command's go.
    logging.getLogger("uvicorn").addHandler(logging.NullHandler())
    logging.getLogger("uvicorn").propagate = False
    share_memory()
    # uvicorn raises a signal again, for these, once it has ended in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    address = _address_of(wish, listener.getsockname()[0], settings)
    record = studios.note(address, bearer, settings.port, settings.workspace)
    try:
        _announce(address, record, settings)
        browser.open_page(studios.Studio(address, bearer, 0.0), opens_browser=wish.opens_browser)
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        studios.forget(record, bearer)


def _announce(address: str, record: str, settings: StudioSettings) -> None:
    print(address, flush=True)
    print(f"press Ctrl-C to end it; the token of programs is in {record}", file=sys.stderr)
    if settings.is_open:
        text = "others on the network can reach this page; it shows nothing without its token"
        if not settings.has_tls:
            text += ", but all that it shows, and the token, can be read on the way: use --certfile"
        print(f"warning: {text}", file=sys.stderr)
    from drumline.studio.pages import FOLDER

    if not os.path.exists(os.path.join(FOLDER, "vendor", "preact.js")):
        text = "the page cannot be shown: this Drumline was built without npm, and so without the page's libraries"
        print(f"warning: {text}; in a checkout, scripts/setup studio fetches them", file=sys.stderr)


# what it needs


def check_packages(what: str, names: tuple[str, ...], extra: str) -> None:
    """Raise UsageError where this Python lacks one of the packages."""
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        text = f"{what} needs {' and '.join(missing)}, which this Python lacks"
        raise UsageError(text, extras.install_line(extra))


def check_home() -> None:
    """Raise UsageError for the home of another user: its jobs are not shown by our name."""
    base = homes.base_home()
    if os.path.isdir(base) and os.stat(base).st_uid != os.geteuid():
        raise UsageError(f"the home {base} is not yours", "run it as its owner")


def _load_certificate(wish: Wish) -> ssl.SSLContext | None:
    """Return the TLS context; None without TLS. Raises UsageError."""
    if not wish.certificate:
        if wish.key:
            raise UsageError("--keyfile needs --certfile")
        return None
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(wish.certificate, wish.key or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--certfile: {wish.certificate} cannot be used: {error.strerror or error}",
            "a PEM file with the certificate, and its key there or in --keyfile",
        ) from error
    return context


def listen(host: str, wanted: int | None, default: int) -> socket.socket:
    """Listen at a port; None: at ``default``, or the next one that is free. Raises UsageError, DrumlineError."""
    if wanted is not None and not 0 <= wanted <= _HIGHEST_PORT:
        raise UsageError(f"--port: {wanted} is not a port", f"--port {default}")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host: there is no address {host!r} here", "--host 127.0.0.1") from error
    family, _, _, _, address = found[0]
    ports = [wanted] if wanted is not None else [*range(default, default + _PORTS_TRIED), 0]
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # A client that reads nothing for so long is gone; connections inherit it.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STUCK_MS)
            listener.bind((address[0], port, *address[2:]))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if wanted is not None:
                raise UsageError(
                    f"--port: {host}:{port} cannot be listened at: {error.strerror}", "--port 0"
                ) from error
        else:
            if wanted is None and port != default:
                print(f"port {default} is taken", file=sys.stderr)
            return listener
    raise DrumlineError(f"no port can be listened at on {host}", "--host 127.0.0.1")


def _list_names(wish: Wish) -> frozenset[str]:
    given = {name.lower() for name in wish.names}
    if wish.host not in ("", "0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        given.add(f"[{wish.host}]" if ":" in wish.host else wish.host.lower())
    return frozenset(given)


def _address_of(wish: Wish, host: str, settings: StudioSettings) -> str:
    """Return the address for browsers on this machine, or the name that was given."""
    name = wish.names[0] if wish.names else wish.host
    if host in ("0.0.0.0", "::") and not wish.names:  # noqa: S104 - compared, not bound
        name = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104 - likewise
    scheme = "https" if settings.has_tls else "http"
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{settings.port}"
