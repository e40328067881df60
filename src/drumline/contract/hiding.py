"""Hide the values of variables with the name of a secret, and the secrets in addresses."""

from __future__ import annotations

import re
from typing import Any

from drumline.contract.record import compile_late

_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://"
ADDRESS = compile_late(rf"""{_SCHEME}(?:(?!{_SCHEME})[^\s'"])+""")
"""
An address in a text, which another one may follow behind a comma. A text of a job may be a million letters, each of
which could begin one.
"""
HIDDEN = "(hidden)"
"""What people see in place of the value of a variable with the name of a secret."""

_HIDDEN = compile_late(r"://\.{3}@|\?\.{3}$")
_WEB = compile_late(r"(?:[A-Za-z0-9.-]+\+)?https?", re.IGNORECASE)
# Not the tokens of a text: TOKENIZERS_PARALLELISM is no secret.
_SECRET = compile_late(
    r"token(?!i[sz])|secret|passw|passphrase|passcode|pwd|key|cred(?:s|ential)|auth(?!ors?(?:$|_))|cookie|private"
    r"|signature|bearer|jwt|webhook|(?:^|_)(?:sas|dsn|conn)|(?:^|_)(?:pat|otp|sig|pem)(?:$|_)|(?<!by)pass(?:$|_)",
    re.IGNORECASE,
)
_VARIABLES = ("environment_variables", "env")
"""Keys of a job file below which a name is that of a variable."""


def is_secret(name: str) -> bool:
    """
    Return whether a variable has the name of a secret.

    >>> [is_secret(name) for name in ("WANDB_API_KEY", "DB_PASS", "GITHUB_PAT", "SLACK_WEBHOOK_URL")]
    [True, True, True, True]
    >>> [is_secret(name) for name in ("MASTER_ADDR", "TOKENIZERS_PARALLELISM", "GIT_AUTHOR_NAME", "PATH")]
    [False, False, False, False]
    """
    return _SECRET.search(name) is not None


def hide_in_job(spec: dict[str, Any]) -> dict[str, Any]:
    """
    Return the fields of a job as people may see them: a key with the name of a secret may be a tag's.

    >>> hide_in_job({"tags": {"key": "a"}, "environment_variables": {"KEY": "a", "DB": "db://me:word@host"}})
    {'tags': {'key': 'a'}, 'environment_variables': {'KEY': '(hidden)', 'DB': 'db://...@host'}}
    """
    hidden: dict[str, Any] = _hide(spec, {}, is_named=False)
    return hidden


def hide_in(value: Any) -> Any:
    """
    Return what JSON or YAML can hold, such as a plan, without the texts of keys with the name of a secret.

    >>> hide_in({"env": {"MY_TOKEN": "abc", "LR": "0.1"}, "secrets": ["MY_TOKEN"]})
    {'env': {'MY_TOKEN': '(hidden)', 'LR': '0.1'}, 'secrets': ['MY_TOKEN']}
    """
    return _hide(value, {}, is_named=True)


def _hide(value: Any, known: dict[tuple[int, bool], Any], *, is_named: bool) -> Any:
    """
    Copy a value. ``is_named``: whether its keys may be names of secrets.

    ``known``: the copies so far, by the identity of what they are of. What is there several times, as by aliases of
    YAML, is copied once, and may hold itself.
    """
    place = (id(value), is_named)
    if place in known:
        return known[place]
    if isinstance(value, dict):
        copy: dict[Any, Any] = {}
        known[place] = copy
        for key, inside in value.items():
            is_value = isinstance(inside, (str, int, float)) and not isinstance(inside, bool) and inside != ""
            is_hidden = is_named and is_value and is_secret(str(key))
            copy[key] = HIDDEN if is_hidden else _hide(inside, known, is_named=is_named or key in _VARIABLES)
        return copy
    if isinstance(value, list):
        listed: list[Any] = []
        known[place] = listed
        listed.extend(_hide(inside, known, is_named=is_named) for inside in value)
        return listed
    return hide_in_text(value) if isinstance(value, str) else value


def hide_secrets(text: str, *, keeps_width: bool = False) -> str:
    """
    Return an address for people, logs and events: without its user, which may be a token, passwords and signatures.

    ``keeps_width``: with as many dots as characters are hidden. A ``/`` in a password makes the port no number.

    >>> hide_secrets("https://me:pa/ss@host/a?sig=x"), hide_secrets("ssh://git@host/a")
    ('https://...@host/a?...', 'ssh://git@host/a')
    """
    before, separator, rest = text.partition("://")
    if not separator:
        return text
    authority, slash, path = rest.partition("/")
    port = authority.rpartition("]")[2].partition(":")[2]
    if "@" not in authority and "@" in path and port.strip("0123456789"):
        authority, slash, path = rest, "", ""
    user, at, host = authority.rpartition("@")
    if user.strip(".") and (":" in user or _WEB.fullmatch(before)):
        authority = f"{'.' * len(user) if keeps_width else '...'}{at}{host}"
    whole, question, query = f"{authority}{slash}{path}".partition("?")
    if query.strip("."):
        query = "." * len(query) if keeps_width else "..."
    return f"{before}://{whole}{question}{query}"


def hide_in_text(text: str, *, keeps_width: bool = False) -> str:
    """
    Return a text, such as a command, with its addresses as people may see them.

    >>> hide_in_text("get https://me:word@host/a,https://me:word@host/b?sig=x 'now'")
    "get https://...@host/a,https://...@host/b?... 'now'"
    """
    if "://" not in text:
        return text
    return ADDRESS.sub(lambda found: hide_secrets(found[0], keeps_width=keeps_width), text)


def is_hidden(text: str) -> bool:
    """
    Return whether a text is what people see in place of a secret, or has an address with that.

    >>> [is_hidden(text) for text in ("(hidden)", "get https://...@host/a", "https://host/a?...", "https://host/a")]
    [True, True, True, False]
    """
    return text == HIDDEN or any(_HIDDEN.search(address[0]) for address in ADDRESS.finditer(text))


def has_secret(text: str) -> bool:
    """Return whether an address holds a password or a signature."""
    is_signed = re.search(
        r"[?&](sig|X-Amz-Signature|X-Goog-Signature|token|key|password)=", text, re.IGNORECASE
    )
    return bool(is_signed) or hide_secrets(text).partition("?")[0] != text.partition("?")[0]
