"""
``drumline.identity``, in the place of ``azure.identity``: there is nobody to sign in to.

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

_LIFE_S = 3600


class AccessToken(NamedTuple):
    token: str
    expires_on: int
    """Seconds since 1970."""


class _Credential:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Whatever is given is not kept: it may be a secret."""

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        """Nothing is asked."""
        return AccessToken("", int(time.time()) + _LIFE_S)

    def close(self) -> None:
        """Nothing is open."""


class AzureCliCredential(_Credential):
    pass


class ClientSecretCredential(_Credential):
    pass


class DefaultAzureCredential(_Credential):
    pass


class InteractiveBrowserCredential(_Credential):
    pass


class ManagedIdentityCredential(_Credential):
    pass
