"""The links of a compute's nodes over time, once the compute is detached."""

from __future__ import annotations

import contextlib

from drumline.contract.folder import base_home, home_of, workspace_names
from drumline.store import link_history


def forget_links(compute: str, folder: str) -> None:
    """Remove those of a compute from all homes, as far as that may be. ``folder``: its own, if it has one."""
    for base in filter(None, (base_home(), folder)):
        for workspace in ("", *workspace_names()):
            with contextlib.suppress(OSError):
                link_history.forget(home_of(workspace, base), compute)
