"""How scripts of v1 sign in. There is nobody to sign in to: what they give is not kept."""

from __future__ import annotations

from typing import Any


class InteractiveLoginAuthentication:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


AzureCliAuthentication = MsiAuthentication = ServicePrincipalAuthentication = InteractiveLoginAuthentication
