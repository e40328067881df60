"""
The studios of this user that run now, and the way into one; the servers of ``drumline azure`` likewise.

Each leaves a record in ``studio/`` of the base home, or in ``azure/``, for its owner alone, with its address and its
token. Nothing of it reaches a command line or an address but a login that is good once, for a minute.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import process_identity
from drumline.contract.errors import DrumlineError
from drumline.contract.folder import base_home, current_workspace, private_folder, write_once, write_whole
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_WORKSPACE = "-"
"""In an address: the jobs that are in no workspace, of a studio that shows one where none is named."""

ONCE_S = 60
"""How long a login is good."""

STUDIO = "studio"
AZURE = "azure"
"""The kinds of servers, and of their folders."""

_MOST_BYTES = 10_000
_SHORTEST_TOKEN = 32


class Studio(NamedTuple):
    """A running studio. ``address``: ``http://127.0.0.1:7878``, without a slash at its end."""

    address: str
    token: str
    started: float
    workspace: str = ""
    """Shown where an address names none."""

    def path_of(self, job: str, workspace: str) -> str:
        """Return the path of a job's page, or without a job that of the list."""
        return path_of(job, "" if workspace == self.workspace else workspace or NO_WORKSPACE)


def folder(kind: str = STUDIO) -> str:
    """Return where the records are; it exists once a studio has run."""
    return os.path.join(base_home(), kind)


def note(address: str, token: str, port: int, workspace: str = "", kind: str = STUDIO) -> str:
    """Write the record of this process and return its path. Raises OSError."""
    path = os.path.join(folder(kind), f"{port}.json")
    private_folder(folder(kind))
    who = process_identity.identify_process(os.getpid())
    known = {"address": address, "token": token, "started": time.time(), "workspace": workspace, "who": who}
    write_whole(path, json.dumps(known) + "\n")
    return path


def forget(path: str, token: str) -> None:
    """Remove a record, unless another studio has written its own there."""
    record = _read(path)
    if record and record.get("token") == token:
        with contextlib.suppress(OSError):
            os.unlink(path)


def remove_old_pages() -> None:
    """Remove the files that led browsers to a login, once none of them is good any more."""
    with contextlib.suppress(OSError), os.scandir(folder()) as entries:
        for entry in entries:
            is_page = entry.name.startswith("open-") and entry.name.endswith(".html")
            with contextlib.suppress(OSError):
                if is_page and time.time() - entry.stat(follow_symlinks=False).st_mtime > ONCE_S:
                    os.unlink(entry.path)


def find_running(kind: str = STUDIO, port: int | None = None) -> Studio | None:
    """Return the server of this user that was started last and still runs. ``port``: the one there, or None."""
    return max(_list_running(folder(kind), port), key=lambda one: one.started, default=None)


def _list_running(place: str, port: int | None) -> Iterator[Studio]:
    try:
        names = os.listdir(place) if port is None else [f"{port}.json"]
    except OSError:
        return
    for name in names:
        record = _read(os.path.join(place, name)) if name.endswith(".json") else None
        who = record.get("who") if record else None
        if not record or not isinstance(who, dict):
            continue
        # One on another machine that shares the home has an address that means nothing here.
        if process_identity.is_ours_to_judge(who) and process_identity.is_alive(who):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                started = float(record["started"])
                yield Studio(record["address"], record["token"], started, record["workspace"])


def _read(path: str) -> dict[str, Any] | None:
    """Return a record that this user alone can have written."""
    try:
        data = json.loads(_read_own(path))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _read_own(path: str) -> bytes:
    """Return a file that this user alone can read and have written; empty for another. Raises OSError."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        known = os.fstat(file.fileno())
        is_own = known.st_uid == os.geteuid() and not known.st_mode & 0o077
        return file.read(_MOST_BYTES) if is_own else b""


def get_metrics_token() -> str:
    """
    Return the token with which Prometheus reads ``/metrics``, and nothing else. It is made once, and stays.

    Raises OSError; DrumlineError for a file that others can read.
    """
    path = os.path.join(folder(), "metrics.token")
    private_folder(folder())
    with contextlib.suppress(FileExistsError):
        write_once(path, os.urandom(32).hex())
    token = _read_own(path).decode("ascii", "replace").strip()
    if len(token) < _SHORTEST_TOKEN:
        what = f"the token in {path} is no secret: others can read it, or it is too short"
        raise DrumlineError(what, "remove the file; a new token is made")
    return token


# pages and logins


def path_of(job: str, workspace: str = "") -> str:
    """
    Return the path of a job's page, or without a job that of the list.

    >>> path_of("calm_drum"), path_of("calm_drum", "vision")
    ('/jobs/calm_drum', '/jobs/calm_drum?workspace=vision')
    """
    from urllib.parse import quote

    return (f"/jobs/{quote(job, safe='')}" if job else "/jobs") + (
        f"?workspace={quote(workspace, safe='')}" if workspace else ""
    )


def find_page(job: str) -> str:
    """Return the address of the job's page in a studio that runs; empty where none does."""
    running = find_running()
    return running.address + running.path_of(job, current_workspace()) if running else ""


def make_login(token: str, to: str = "/") -> str:
    """Return the path of a login that leads to the page ``to``: good once, for ONCE_S seconds."""
    import secrets
    from urllib.parse import quote

    until = int(time.time()) + ONCE_S
    nonce = secrets.token_urlsafe(16)
    return f"/login?once={until}.{nonce}.{_sign(token, until, nonce)}&to={quote(to, safe='/')}"


def check_once(token: str, once: str) -> tuple[str, int] | None:
    """Return the name of a login and until when it is good, in seconds since 1970; None if it is not."""
    import hmac

    until, _, rest = once.partition(".")
    nonce, _, signature = rest.rpartition(".")
    if not (until.isascii() and until.isdigit() and len(until) < 12):
        return None
    if not hmac.compare_digest(signature.encode(), _sign(token, int(until), nonce).encode()):
        return None
    return (nonce, int(until)) if 0 <= int(until) - time.time() <= ONCE_S else None


def _sign(token: str, until: int, nonce: str) -> str:
    import hashlib
    import hmac

    return hmac.new(token.encode(), f"once {until} {nonce}".encode(), hashlib.sha256).hexdigest()
