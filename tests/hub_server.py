"""The few answers of the Hugging Face hub that reading a repository needs, on loopback."""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LARGE = 1000  # bytes from which a file is kept as those of Git LFS are


class HubServer:
    """``files``: content by ``datasets/org/name/path``. What is large is sent by another host, as the real one does."""

    def __init__(self, address: str, other: str) -> None:
        self.address = address
        self.other = other
        self.files: dict[str, bytes] = {}
        self.token = ""
        """Asked for where it is not empty."""

        self.carried: list[str] = []
        """The Authorization headers that the other host was sent."""


@contextlib.contextmanager
def hub_server() -> Iterator[HubServer]:
    """In threads of this process."""
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(_Server(("127.0.0.1", 0), _Handler)) for _ in range(2)]
        addresses = [f"http://127.0.0.1:{server.server_address[1]}" for server in servers]
        hub = HubServer(addresses[0], addresses[1])
        for server in servers:
            server.hub = hub
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield hub


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    hub: HubServer


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *args: object) -> None:
        """Nowhere."""

    def _answer(self, body: bytes) -> None:
        hub, path = self.server.hub, unquote(self.path.partition("?")[0])
        if self.headers["Host"] in hub.other:
            hub.carried.append(self.headers.get("Authorization", ""))
            self._send(hub.files[path[1:]])
        elif hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._json({"error": "Repository not found"}, 401, **{"X-Error-Code": "RepoNotFound"})
        elif found := re.fullmatch(
            r"/api/(\w+/[^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)/?(.*))?", path
        ):
            repository, verb, revision, inside = found.groups(default="")
            self._about(repository, verb, revision, inside, parse_qs(body.decode()).get("paths", []))
        else:
            self._file(path)

    def _about(self, repository: str, verb: str, revision: str, inside: str, paths: list[str]) -> None:
        root = f"{repository}/"
        inside_it = {
            path.removeprefix(root): c for path, c in self.server.hub.files.items() if path.startswith(root)
        }
        if not inside_it:
            self._json({"error": "Repository not found"}, 404, **{"X-Error-Code": "RepoNotFound"})
        elif revision not in ("", "main", "v2", COMMIT):
            self._json({"error": "Invalid rev id"}, 404, **{"X-Error-Code": "RevisionNotFound"})
        elif verb in ("", "revision"):
            self._json({"id": repository.partition("/")[2], "_id": "1", "sha": COMMIT, "siblings": []})
        elif verb == "tree":
            below = [
                _described(path, c)
                for path, c in inside_it.items()
                if not inside or path.startswith(f"{inside}/")
            ]
            if inside and not below:
                self._json({"error": "not found"}, 404, **{"X-Error-Code": "EntryNotFound"})
            else:
                self._json([{"type": "directory", "path": "folder", "oid": "0"}, *below])
        else:
            self._json([_described(path, inside_it[path]) for path in paths if path in inside_it])

    def _file(self, path: str) -> None:
        found = re.fullmatch(r"/(datasets/|spaces/)?([^/]+/[^/]+)/resolve/([^/]+)/(.*)", path)
        assert found, path
        key = f"{found[1] or 'models/'}{found[2]}/{found[4]}"
        content = self.server.hub.files[key]
        if len(content) < _LARGE:
            self._send(content)
            return
        self.send_response(302)
        self.send_header("Location", f"{self.server.hub.other}/{key}?signature=1")
        self.end_headers()

    def _send(self, content: bytes) -> None:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        assert found, "not asked for a part"
        start, end = int(found[1]), min(int(found[2]) + 1, len(content))
        self.send_response(206)
        self.send_header("ETag", f'"{_git_id(content)}"')
        self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.write(content[start:end])

    def _json(self, value: object, status: int = 200, **headers: str) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        for name, content in {
            **headers,
            "Content-Type": "application/json",
            "Content-Length": str(len(text)),
        }.items():
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(text)


def _described(path: str, content: bytes) -> dict[str, object]:
    told: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": _git_id(content)}
    if len(content) >= _LARGE:
        digest = hashlib.sha256(content).hexdigest()
        told["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 130}
    return told


def _git_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()
