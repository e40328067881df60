"""The page itself: our own files, the page of every deep link, and the way in."""

from __future__ import annotations

import gzip
import hashlib
import os
import time
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse, Response

from drumline.contract.errors import NotFoundError
from drumline.studio import page_bundle
from drumline.studio.answers import to_json
from drumline.studio.queries import body

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Scope

    from drumline.studio.security import Refusal, StudioSettings, Tokens

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page")
_MARK = "__STATIC__"
_KINDS = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "mjs": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
_FOREVER = "public, max-age=31536000, immutable"
_WELL = 6
_MOST_FILES = 12
"""That are kept as they are sent: a page asks for two, and for a few more later."""


class Pages:
    """
    Read anew when a file has changed: what is edited is seen at the next reload. Small files, so that no thread is
    needed, and the page comes while all threads work.
    """

    def __init__(self, settings: StudioSettings, tokens: Tokens) -> None:
        self._settings = settings
        self._tokens = tokens

    async def show(self, request: Request) -> Response:
        """Answer every path that is a page; which one, the page finds out from its address."""
        if request.url.path.startswith("/api"):
            raise NotFoundError(f"there is no {request.url.path[:200]}")
        return _render("index.html")

    async def send_file(self, request: Request) -> Response:
        """Send one of our own files. The hash in its path makes browsers keep it until there is another."""
        path = str(request.path_params["path"])
        parts = path.split("/")
        kind = _KINDS.get(path.rpartition(".")[2])
        if kind is None or any(part[:1] in ("", ".") or "\\" in part or "\0" in part for part in parts):
            raise NotFoundError("there is no such file")
        current = hash_files()
        packed = _pack_file(path, current)
        headers = {
            "cache-control": _FOREVER if request.path_params["hash"] == current else "no-store",
            "vary": "accept-encoding",
        }
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(packed, media_type=kind, headers={**headers, "content-encoding": "gzip"})
        return Response(gzip.decompress(packed), media_type=kind, headers=headers)

    async def log_in(self, request: Request) -> Response:
        """Exchange a login, or the token that somebody pastes, for the cookie."""
        if request.method == "POST":
            return self._take_token(body(request).text("token"))
        once = request.query_params.get("once")
        if once is None or request.method != "GET":
            return _render("login.html")
        # As a page, not by one of another site, as an image or in a frame. Programs and old browsers say neither.
        site = request.headers.get("sec-fetch-site", "none")
        is_page = site in ("none", "same-origin") or request.headers.get("sec-fetch-dest") == "document"
        if not is_page or not self._tokens.redeem(once):
            return _render("login.html", 401)
        # A redirect would come from the page that had the link, and SameSite=Strict would keep the cookie back.
        to = escape(choose_target(request.query_params.get("to", "/")), quote=True)
        page = f'<!doctype html><meta http-equiv="refresh" content="0;url={to}"><title>Drumline</title>'
        return self._with_cookie(HTMLResponse(page))

    def _take_token(self, token: str) -> Response:
        was_locked = self._tokens.is_locked
        if self._tokens.is_bearer(token.strip()):
            return self._with_cookie(to_json({}))
        if was_locked:
            return to_json({"error": {"message": "too many tries have failed", "hint": "wait a minute"}}, 429)
        return to_json({"error": {"message": "that is not this studio's token", "hint": ""}}, 401)

    def _with_cookie(self, answer: Response) -> Response:
        answer.set_cookie(
            self._settings.cookie,
            self._tokens.session,
            path="/",
            secure=self._settings.has_tls,
            httponly=True,
            samesite="strict",
        )
        return answer


def choose_target(to: str) -> str:
    """
    Return the page that a login leads to: a path of this server, never another one.

    >>> choose_target("/jobs/calm_drum?tab=logs"), choose_target("//evil.example"), choose_target("/\\\\evil.example")
    ('/jobs/calm_drum?tab=logs', '/', '/')
    """
    is_path = to.startswith("/") and not to.startswith("//") and "\\" not in to
    return to if is_path and to.isprintable() and to.isascii() else "/"


def refuse(scope: Scope, refusal: Refusal) -> Response:
    """Return the answer to a request that the guard refuses: for a page the way in, else an error as JSON."""
    if refusal.status == 401 and not scope["path"].startswith("/api") and scope["method"] == "GET":
        return _render("login.html", 401)
    answer = to_json({"error": {"message": refusal.message, "hint": refusal.hint}}, refusal.status)
    if refusal.status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    if refusal.status == 429:
        answer.headers["retry-after"] = "60"
    return answer


def _render(name: str, status: int = 200) -> Response:
    try:
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise NotFoundError(f"the page's {name} is missing", "install drumline again") from error
    return HTMLResponse(text.replace(_MARK, f"/static/{hash_files()}"), status)


@lru_cache(_MOST_FILES)
def _pack_file(path: str, _current: str) -> bytes:
    """Return what browsers are sent as that file, compressed, once for each state of the page's files."""
    try:
        if path == page_bundle.SCRIPT:
            data = page_bundle.join_scripts(FOLDER)
        elif path == page_bundle.STYLE:
            data = page_bundle.join_styles(FOLDER)
        else:
            data = page_bundle.read_file(FOLDER, path)
    except OSError as error:
        raise NotFoundError("there is no such file") from error
    return gzip.compress(data, _WELL, mtime=0)


def hash_files() -> str:
    """Return what changes with every file of the page, at most half a second later."""
    return _hash_files(int(time.monotonic() * 2))


@lru_cache(1)
def _hash_files(_moment: int) -> str:
    found = []
    for place, folders, names in os.walk(FOLDER):
        folders.sort()
        for name in sorted(names):
            known = os.stat(os.path.join(place, name))
            found.append(f"{os.path.relpath(place, FOLDER)}/{name} {known.st_size} {known.st_mtime_ns}")
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]
