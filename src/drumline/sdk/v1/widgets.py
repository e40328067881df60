"""``azureml.widgets``, for scripts that show a run in a notebook."""

from __future__ import annotations

from typing import Any


class RunDetails:
    def __init__(self, run_instance: Any) -> None:
        self._run = run_instance

    def show(self, *args: Any, **kwargs: Any) -> None:
        """Print where the run is; nothing is drawn."""
        print(f"{self._run!r}\nWeb View: {self._run.get_portal_url()}")

    def get_widget_data(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {"status": self._run.get_status()}
