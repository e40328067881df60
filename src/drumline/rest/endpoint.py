"""
The way to this user's server: its folder, its key, its tokens, and the variables that lead Microsoft's client there.

All is for the owner alone. The key outlives the server: a shell that has its variables goes on when another is started.
Tokens are JWTs, which the client reads: ``tid``, ``aud``, three parts of base64url.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from typing import Any

from drumline.contract.errors import DrumlineError, UsageError
from drumline.contract.folder import private_folder, write_once
from drumline.contract.mlflow_variables import ALLOW
from drumline.contract.rank_variables import BEFORE, TRUST
from drumline.control.settings import studios

PORT = 7979
LIFE_S = 24 * 3600.0
"""Of a token; the client asks for another before it ends."""

_MOST_KEY_BYTES = 100
_KEY = re.compile("[0-9a-f]{64}")
_FOREIGN = ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID", "AZURE_FEDERATED_TOKEN_FILE")
"""What leads azure-identity to Azure before it asks here."""


def folder() -> str:
    """Return where the server keeps what is its own; it exists then. Raises OSError."""
    path = studios.folder(studios.AZURE)
    private_folder(path)
    return path


def get_key() -> bytes:
    """Return the key that signs tokens and addresses of blobs; it is made once. Raises OSError, DrumlineError."""
    path = os.path.join(folder(), "key")
    with contextlib.suppress(FileExistsError):
        write_once(path, secrets.token_hex(32))
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="ascii") as file:
        facts, text = os.fstat(file.fileno()), file.read(_MOST_KEY_BYTES)
    if not _KEY.fullmatch(text) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        raise DrumlineError(
            f"the key in {path} is damaged, or others can read it", "remove it: another is made"
        )
    return bytes.fromhex(text)


def remove_keys() -> None:
    """Remove the key and the authority: tokens, addresses of blobs and certificates end. Raises UsageError, OSError."""
    running = find_running()
    if running:
        raise UsageError(f"the server at {running} still has the key that is to end", "end that server first")
    for name in os.listdir(folder()):
        if name == "key" or name.endswith(".pem"):
            os.unlink(os.path.join(folder(), name))


def find_running() -> str:
    """Return the address of the server of this user that was started last and still runs; empty: none does."""
    running = studios.find_running(studios.AZURE)
    return running.address if running else ""


def make_secret(key: bytes) -> str:
    """Return what a program shows to get a token: the value of ``IDENTITY_HEADER``."""
    return hmac.new(key, b"identity", hashlib.sha256).hexdigest()


def make_token(key: bytes, audience: str) -> tuple[str, int]:
    """Return a token, and when it ends in seconds since 1970."""
    now = int(time.time())
    until = now + int(LIFE_S)
    claims = {
        "aud": audience.removesuffix("/.default"), "iss": "https://sts.windows.net/local/", "tid": "local",
        "oid": "local", "appid": "drumline", "iat": now, "nbf": now, "exp": until,
    }  # fmt: skip
    body = b".".join(_encode(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims))
    return b".".join((body, _sign(key, body))).decode(), until


def is_token(key: bytes, given: str) -> bool:
    """Return whether ``make_token`` made it, and it has not ended."""
    if not given.isascii():
        return False
    body, _, signature = given.encode().rpartition(b".")
    if not hmac.compare_digest(signature, _sign(key, body)):
        return False
    claims: Any = json.loads(base64.urlsafe_b64decode(body.partition(b".")[2] + b"=="))
    return float(claims["exp"]) > time.time()


def _sign(key: bytes, body: bytes) -> bytes:
    return _encode(hmac.new(key, b"token " + body, hashlib.sha256).digest())


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def find_trust(name: str) -> str:
    """Return what a variable of ``TRUST`` was before it named a file of ours; empty: nothing."""
    value = os.environ.get(name, "")
    return os.environ.get(BEFORE + name, "") if os.path.dirname(value) == folder() else value


def list_variables(address: str, bundle: str) -> dict[str, str | None]:
    """
    Return the variables of a program that is to find the server at ``address``; None: one that it must not have.

    bundle: the path of the authorities to trust.
    """
    # requests asks a proxy for loopback too, where nothing says otherwise.
    before = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    no_proxy = ",".join(dict.fromkeys([*filter(None, before.split(",")), "127.0.0.1", "localhost"]))
    return {
        "AZUREML_DEV_URL_MFE": address,
        "IDENTITY_ENDPOINT": f"{address}/msi/token",
        "IDENTITY_HEADER": make_secret(get_key()),
        **{BEFORE + name: find_trust(name) for name in TRUST},
        **dict.fromkeys(TRUST, bundle),
        ALLOW: os.environ.get(ALLOW) or "true",
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "DRUMLINE_AZURE": None,
        **dict.fromkeys(_FOREIGN),
    }
