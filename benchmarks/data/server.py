"""
A folder as S3 and as a web server have it, for those who read: listings, heads, files and ranges of them.

    python server.py FOLDER

Prints its port. Buckets are folders of FOLDER. Signatures are not looked at; an ETag is the file's MD5. Files go out by
sendfile, so that little of the machine is the server's.
"""

import hashlib
import os
import re
import sys
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000


@cache
def etag_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self.answer(with_content=False)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if "list-type" in parts.query:
            self.keys(unquote(parts.path).strip("/"), parse_qs(parts.query, keep_blank_values=True))
        else:
            self.answer(with_content=True)

    def answer(self, *, with_content: bool) -> None:
        path = os.path.join(self.server.root, unquote(urlsplit(self.path).path).strip("/"))
        if not os.path.isfile(path):
            self.head(404, 0, {})
            return
        size = os.path.getsize(path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), min(size, int(asked[2] or size) + 1)) if asked else (0, size)
        headers = {
            "ETag": f'"{etag_of(path)}"',
            "Last-Modified": self.date_time_string(int(os.path.getmtime(path))),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self.head(206 if asked else 200, end - start, headers)
        if with_content:
            self.wfile.flush()
            with open(path, "rb") as file:
                while start < end:
                    start += os.sendfile(self.connection.fileno(), file.fileno(), start, end - start)

    def keys(self, bucket: str, query: dict[str, list[str]]) -> None:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        root = os.path.join(self.server.root, bucket)
        paths = (
            os.path.relpath(os.path.join(folder, name), root)
            for folder, _, files in os.walk(root)
            for name in files
        )
        names = sorted(key for key in paths if key.startswith(prefix) and key > after)
        page = names[:PAGE]
        entries = "".join(self.entry(os.path.join(root, key), key, query) for key in page)
        more = (
            f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > PAGE else ""
        )
        body = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
            f"<MaxKeys>{PAGE}</MaxKeys><IsTruncated>{str(bool(more)).lower()}</IsTruncated>{more}{entries}"
            "</ListBucketResult>"
        ).encode()
        self.head(200, len(body), {"Content-Type": "application/xml"})
        self.wfile.write(body)

    def entry(self, path: str, key: str, query: dict[str, list[str]]) -> str:
        name = quote(key) if query.get("encoding-type") == ["url"] else escape(key)
        return (
            f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{etag_of(path)}&quot;</ETag><Size>{os.path.getsize(path)}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents>"
        )

    def head(self, code: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Of a client that has enough."""


def main() -> None:
    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.root = os.path.abspath(sys.argv[1])
    for folder, _, names in os.walk(server.root):
        for name in names:
            etag_of(os.path.join(folder, name))
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
