"""Hide the values of variables with the name of a secret, and the secrets in addresses."""

from __future__ import annotations

import re
from typing import Any

from drumline.contract.uris import hide_secrets

HIDDEN = "(hidden)"
_SECRET = re.compile(
    r"token|secret|passw|pwd|key|credential|auth|cookie|private|signature|(?:^|_)(?:sas|dsn|conn)",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"""[A-Za-z][A-Za-z0-9+.-]*://[^\s'"]+""")


def is_secret(name: str) -> bool:
    """
    Return whether a variable has the name of a secret.

    >>> is_secret("WANDB_API_KEY"), is_secret("MASTER_ADDR")
    (True, False)
    """
    return _SECRET.search(name) is not None


def hide_in_addresses(text: str) -> str:
    """Return a text, such as a command, with its addresses as people may see them."""
    return _ADDRESS.sub(lambda found: hide_secrets(found[0]), text)


def hide_in(value: Any) -> Any:
    """
    Return what JSON can hold, such as a plan, without the texts of keys with the name of a secret.

    >>> hide_in({"env": {"MY_TOKEN": "abc", "LR": "0.1"}, "secrets": ["MY_TOKEN"]})
    {'env': {'MY_TOKEN': '(hidden)', 'LR': '0.1'}, 'secrets': ['MY_TOKEN']}
    """
    if isinstance(value, dict):
        return {
            key: HIDDEN if isinstance(inside, str) and inside and is_secret(str(key)) else hide_in(inside)
            for key, inside in value.items()
        }
    if isinstance(value, list):
        return [hide_in(inside) for inside in value]
    return hide_in_addresses(value) if isinstance(value, str) else value
