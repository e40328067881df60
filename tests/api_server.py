"""An API server of a test's own, which answers what it is told to."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server:
    """
    ``answers``: by method and path, the status, and an object or a function of the one that came; of every other it
    answers 404. ``asked``: what came.
    """

    def __init__(self):
        self.answers = {}
        self.asked = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                path = self.path.split("?")[0]
                outer.asked.append((self.command, path, body, self.headers.get("Authorization")))
                said = {"kind": "Status", "code": 404, "message": "there is none"}
                status, answer = outer.answers.get((self.command, path), (404, said))
                data = json.dumps(answer(body) if callable(answer) else answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the names of the standard library

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
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
