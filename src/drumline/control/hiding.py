"""Hide the values of variables with the name of a secret, and the secrets in addresses."""

from __future__ import annotations

import re
from typing import Any

from drumline.contract.errors import UsageError
from drumline.contract.uris import ADDRESS, hide_in_text

HIDDEN = "(hidden)"
# Not the tokens of a text: TOKENIZERS_PARALLELISM is no secret.
_SECRET = re.compile(
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


def check_is_whole(text: str) -> None:
    """Raise UsageError for a text, such as a job file, in which values were hidden from whoever sends it back."""
    cut = any("://...@" in found[0] or found[0].endswith("?...") for found in ADDRESS.finditer(text))
    if cut or HIDDEN in text:
        raise UsageError(
            "the job file has a value that was hidden, such as (hidden), and would run with that",
            "write the value in its place, or run the stored job again: drumline job rerun -n NAME",
        )
