"""What azureml sent home."""

from __future__ import annotations


def set_diagnostics_collection(send_diagnostics: bool = True, verbose: bool = False) -> None:
    """Nothing: Drumline sends nothing to anybody."""
