"""What a test needs of the Python that runs it."""

from importlib.util import find_spec

import pytest


def need_torch() -> None:
    """
    Skip the test, or the whole module, where PyTorch is not installed. It is not imported: its libuv then closes two
    descriptors by their numbers in each fork of this process, and those are others' in a supervisor that was forked.
    """
    if find_spec("torch") is None:
        pytest.skip("PyTorch is not installed; scripts/test installs it", allow_module_level=True)
