"""
``drumline.identity``, in the place of ``azure.identity``: there is no service to sign in to.

The credentials that scripts make are here, take what they take there, and hold nothing. A token of theirs is empty.
"""

from __future__ import annotations

import time
from typing import Any

from drumline.contract.record import NamedTuple

__all__ = [
    "AzureCliCredential",
    "ClientSecretCredential",
    "DefaultAzureCredential",
    "InteractiveBrowserCredential",
    "ManagedIdentityCredential",
]

_TOKEN_LIFETIME_S = 3600


class AccessToken(NamedTuple):
    token: str
    expires_on: int
    """Seconds since 1970."""


class _EmptyCredential:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Keep nothing of what is given: it may be a secret."""

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        """Return an empty token, without asking anybody."""
        return AccessToken("", int(time.time()) + _TOKEN_LIFETIME_S)

    def close(self) -> None:
        """Do nothing: nothing is open."""


class AzureCliCredential(_EmptyCredential):
    pass


class ClientSecretCredential(_EmptyCredential):
    pass


class DefaultAzureCredential(_EmptyCredential):
    pass


class InteractiveBrowserCredential(_EmptyCredential):
    pass


class ManagedIdentityCredential(_EmptyCredential):
    pass
