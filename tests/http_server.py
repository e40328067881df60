"""A web server on loopback that does, file by file, what servers and networks do wrong."""

import contextlib
import hashlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


@dataclass
class Served:
    """One file, and how it is served. Lists are used up from their start, an entry a request."""

    content: bytes = b""
    etag: str | None = ""
    """Empty: made of the content; None: none is sent."""

    ranges: bool = True
    head: bool = True
    """False: HEAD is refused, as a signed address of GET does."""

    failures: list[int] = field(default_factory=list)
    """Statuses that are answered first."""

    cuts: list[int] = field(default_factory=list)
    """Bytes after which the connection is dropped, of answers of more than one byte."""

    always_cut: int | None = None
    told: int | str | None = None
    """Another Content-Length than the right one, of answers with the whole file."""

    told_total: int | str | None = None
    """Another size in Content-Range."""

    always_part: str = ""
    """This Content-Range and one byte, whatever was asked for."""

    is_chunked: bool = False
    redirect: str = ""
    changes: dict[int, bytes] = field(default_factory=dict)
    """What the content becomes once so many requests were answered."""

    headers: dict[str, str] = field(default_factory=dict)
    requests: list[dict[str, str]] = field(default_factory=list)
    """The headers of all that came, names in lower case, with ``method``."""

    @property
    def tag(self) -> str | None:
        return f'"{hashlib.md5(self.content).hexdigest()}"' if self.etag == "" else self.etag


class HttpServer:
    """``files`` by their path, with its slash; of every other path it answers 404."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.files: dict[str, Served] = {}

    def serve(self, path: str, content: bytes = b"", **how: object) -> Served:
        """What is served, to be looked at; its address is ``url(path)``."""
        self.files[path] = Served(content, **how)
        return self.files[path]

    def url(self, path: str) -> str:
        return self.address + path


@contextlib.contextmanager
def http_server(certificate: str = "") -> Iterator[HttpServer]:
    """In threads of this process; by https, with the file of a certificate and its key."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        scheme = "https" if certificate else "http"
        made = HttpServer(f"{scheme}://127.0.0.1:{server.server_address[1]}")
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        server.site = made
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
            server.hang_up()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True
    site: HttpServer

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()

    def get_request(self) -> tuple[socket.socket, object]:
        made = super().get_request()
        self._open.add(made[0])
        return made

    def shutdown_request(self, request: object) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """On clients that keep their connection."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is none."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 20
    server: _Server

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Nowhere."""

    def _answer(self) -> None:
        path = unquote(self.path.partition("?")[0])
        served = self.server.site.files.get(path, Served(failures=[404]))
        served.requests.append({"method": self.command, **{k.lower(): v for k, v in self.headers.items()}})
        served.content = served.changes.get(len(served.requests) - 1, served.content)
        if served.failures or (self.command == "HEAD" and not served.head):
            self._empty(served.failures.pop(0) if served.failures else 403, served)
        elif served.redirect:
            self._empty(302, served, Location=served.redirect)
        elif self.headers.get("If-Match", served.tag) not in (served.tag, "*"):
            self._empty(412, served)
        else:
            self._content(served)

    def _empty(self, status: int, served: Served, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, **served.headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _content(self, served: Served) -> None:
        if served.always_part:
            self.send_response(206)
            self.send_header("Content-Range", served.always_part)
            self.send_header("Content-Length", "1")
            self.end_headers()
            self.wfile.write(b"x")
            return
        whole = served.content
        part = self._part(served)
        if part is not None and part[0] >= len(whole):
            self._empty(416, served, **{"Content-Range": f"bytes */{len(whole)}"})
            return
        start, end = part or (0, len(whole))
        self.send_response(206 if part else 200)
        if served.tag is not None:
            self.send_header("ETag", served.tag)
        if part:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{served.told_total or len(whole)}")
        for name, value in served.headers.items():
            self.send_header(name, value)
        told = served.told if served.told is not None and not part else end - start
        if served.is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(told))
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self._body(served, whole[start:end])

    def _part(self, served: Served) -> tuple[int, int] | None:
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not wanted or not served.ranges or self.headers.get("If-Range", served.tag) != served.tag:
            return None
        return int(wanted[1]), min(int(wanted[2] or len(served.content)) + 1, len(served.content))

    def _body(self, served: Served, content: bytes) -> None:
        cut = served.always_cut
        if len(content) > 1 and served.cuts:
            cut = served.cuts.pop(0)
        if cut is not None and cut < len(content):
            self.wfile.write(content[:cut])
            self._drop()
        elif served.is_chunked:
            for at in range(0, len(content), 1000):
                piece = content[at : at + 1000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.wfile.write(content)
            self.close_connection = self.close_connection or served.told is not None

    def _drop(self) -> None:
        """As a network does: not even an end is sent."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.shutdown(socket.SHUT_WR)
        self.close_connection = True
