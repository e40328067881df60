"""Hide the values of variables with the name of a secret, and the secrets in addresses."""

from __future__ import annotations

import re
from typing import Any

from drumline.contract.errors import UsageError
from drumline.contract.uris import hide_secrets

HIDDEN = "(hidden)"
# Not the tokens of a text: TOKENIZERS_PARALLELISM is no secret.
_SECRET = re.compile(
    r"token(?!i[sz])|secret|passw|pwd|key|credential|auth|cookie|private|signature|(?:^|_)(?:sas|dsn|conn)",
    re.IGNORECASE,
)
# A text of a job may be a million letters, each of which could begin an address.
_ADDRESS = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s'"]+""")


def is_secret(name: str) -> bool:
    """
    Return whether a variable has the name of a secret.

    >>> is_secret("WANDB_API_KEY"), is_secret("MASTER_ADDR"), is_secret("TOKENIZERS_PARALLELISM")
    (True, False, False)
    """
    return _SECRET.search(name) is not None


def hide_in_addresses(text: str) -> str:
    """Return a text, such as a command, with its addresses as people may see them."""
    return _ADDRESS.sub(lambda found: hide_secrets(found[0]), text)


def hide_in(value: Any, known: dict[int, Any] | None = None) -> Any:
    """
    Return what JSON or YAML can hold, such as a plan, without the texts of keys with the name of a secret.

    ``known``: the copies so far, by the identity of what they are of. What is there several times, as by aliases of
    YAML, is copied once, and may hold itself.

    >>> hide_in({"env": {"MY_TOKEN": "abc", "LR": "0.1"}, "secrets": ["MY_TOKEN"]})
    {'env': {'MY_TOKEN': '(hidden)', 'LR': '0.1'}, 'secrets': ['MY_TOKEN']}
    """
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, dict):
        copy: dict[Any, Any] = {}
        known[id(value)] = copy
        for key, inside in value.items():
            is_hidden = isinstance(inside, str) and inside and is_secret(str(key))
            copy[key] = HIDDEN if is_hidden else hide_in(inside, known)
        return copy
    if isinstance(value, list):
        listed: list[Any] = []
        known[id(value)] = listed
        listed.extend(hide_in(inside, known) for inside in value)
        return listed
    return hide_in_addresses(value) if isinstance(value, str) else value


def check_is_whole(text: str) -> None:
    """Raise UsageError for a text, such as a job file, in which values were hidden from whoever sends it back."""
    cut = any("://...@" in found[0] or found[0].endswith("?...") for found in _ADDRESS.finditer(text))
    if cut or HIDDEN in text:
        raise UsageError(
            "the job file has a value that was hidden, such as (hidden), and would run with that",
            "write the value in its place, or run the stored job again: drumline job rerun -n NAME",
        )
