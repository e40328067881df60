"""
``drumline.identity``, in the place of ``azure.identity``: there is no service to sign in to.

The credentials that scripts make are here, take what they take there, and hold nothing. A token of theirs is empty.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from drumline import azure
from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AccessToken",
    "AuthorizationCodeCredential",
    "AzureAuthorityHosts",
    "AzureCliCredential",
    "AzureDeveloperCliCredential",
    "AzureMLOnBehalfOfCredential",
    "AzurePipelinesCredential",
    "AzurePowerShellCredential",
    "CertificateCredential",
    "ChainedTokenCredential",
    "ClientAssertionCredential",
    "ClientSecretCredential",
    "DefaultAzureCredential",
    "DeviceCodeCredential",
    "EnvironmentCredential",
    "InteractiveBrowserCredential",
    "ManagedIdentityCredential",
    "OnBehalfOfCredential",
    "SharedTokenCacheCredential",
    "UsernamePasswordCredential",
    "VisualStudioCodeCredential",
    "WorkloadIdentityCredential",
    "get_bearer_token_provider",
]

_TOKEN_LIFETIME_S = 3600


class AccessToken(NamedTuple):
    token: str
    expires_on: int
    """Seconds since 1970."""


class AzureAuthorityHosts:
    AZURE_CHINA = "login.chinacloudapi.cn"
    AZURE_GOVERNMENT = "login.microsoftonline.us"
    AZURE_PUBLIC_CLOUD = "login.microsoftonline.com"


class _EmptyCredential:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Keep nothing of what is given: it may be a secret."""

    def get_token(self, *scopes: str, **kwargs: Any) -> AccessToken:
        """Return an empty token, without asking anybody."""
        return AccessToken("", int(time.time()) + _TOKEN_LIFETIME_S)

    def close(self) -> None:
        """Do nothing: nothing is open."""


def get_bearer_token_provider(credential: _EmptyCredential, *scopes: str, **kwargs: Any) -> Callable[[], str]:
    """Return a function that returns an empty token."""
    return lambda: ""


AuthorizationCodeCredential = AzureCliCredential = AzureDeveloperCliCredential = _EmptyCredential
AzureMLOnBehalfOfCredential = AzurePipelinesCredential = AzurePowerShellCredential = _EmptyCredential
CertificateCredential = ChainedTokenCredential = ClientAssertionCredential = _EmptyCredential
ClientSecretCredential = DefaultAzureCredential = DeviceCodeCredential = _EmptyCredential
EnvironmentCredential = InteractiveBrowserCredential = ManagedIdentityCredential = _EmptyCredential
OnBehalfOfCredential = SharedTokenCacheCredential = UsernamePasswordCredential = _EmptyCredential
VisualStudioCodeCredential = WorkloadIdentityCredential = _EmptyCredential

if not TYPE_CHECKING:

    def __getattr__(name: str) -> type:
        return azure.stand_in(__name__, name, __all__)
