"""Names of v1 without an effect here: there is no service to sign in to, and no telemetry."""

from __future__ import annotations

from typing import Any


class InteractiveLoginAuthentication:
    """Accepts credentials and keeps none of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass


AzureCliAuthentication = MsiAuthentication = ServicePrincipalAuthentication = InteractiveLoginAuthentication


def set_diagnostics_collection(send_diagnostics: bool = True, verbose: bool = False) -> None:
    """Do nothing: Drumline collects no diagnostics."""
