"""Names of v1 without an effect here: there is no service to sign in to, and no telemetry."""

from __future__ import annotations

from typing import Any


class InteractiveLoginAuthentication:
    """Accepts credentials and keeps none of them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def get_authentication_header(self) -> dict[str, str]:
        """Return an empty token: nothing here asks for one."""
        return {"Authorization": "Bearer "}


AzureCliAuthentication = MsiAuthentication = ServicePrincipalAuthentication = InteractiveLoginAuthentication


def set_diagnostics_collection(send_diagnostics: bool = True, verbose: bool = False) -> None:
    """Do nothing: Drumline collects no diagnostics."""


class RunDetails:
    def __init__(self, run_instance: Any) -> None:
        self._run = run_instance

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print where the run is; nothing is drawn."""
        print(f"{self._run!r}\nWeb View: {self._run.get_portal_url()}")

    def get_widget_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"status": self._run.get_status()}
