"""An API server of a test's own, which answers what it is told to."""

import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Stalls(bytes):
    """An answer after which nothing more comes, not even its end."""


class Server:
    """
    ``answers``: by method and path, the status, and an object, a function of the one that came, or ``bytes``; headers
    may follow. A list of such is answered one by one, and its last for ever. Of every other it answers 404.
    ``asked``: what came; ``words``: the parameters of each.
    """

    def __init__(self):
        self.answers = {}
        self.asked = []
        self.words = []
        self.is_closed = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                path, _, query = self.path.partition("?")
                outer.asked.append((self.command, path, body, self.headers.get("Authorization")))
                outer.words.append(dict(urllib.parse.parse_qsl(query)))
                said = {"kind": "Status", "code": 404, "reason": "NotFound", "message": "there is none"}
                found = outer.answers.get((self.command, path), (404, said))
                if isinstance(found, list):
                    found = found.pop(0) if found[1:] else found[0]
                status, answer, *headers = found
                if callable(answer):
                    answer = answer(body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                stalls = isinstance(answer, Stalls)
                self.send_response(status)
                usual = {"Content-Type": "application/json", "Content-Length": str(len(data) + stalls)}
                for name, value in {**usual, **dict(*headers)}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
                self.wfile.flush()
                if stalls:
                    outer.is_closed.wait()

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names of the standard library

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.is_closed.set()
        self._server.shutdown()
        self._server.server_close()

    def config(self, **user):
        """A kubeconfig that leads here, as JSON, with that user."""
        config = {
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user or {"token": "t0k3n"}}],
            "contexts": [
                {"name": "one", "context": {"cluster": "c", "user": "u"}},
                {"name": "two", "context": {"cluster": "c", "user": "nobody"}},
            ],
            "current-context": "one",
        }
        return json.dumps(config)
