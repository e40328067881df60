"""
A rank looks for the process group's store once rank 0 has opened it.

A client of PyTorch's TCPStore that is refused waits for half a second or more before it tries again (backoff in
``TCPStore.cpp``, PyTorch 2.3 to 2.13), and all ranks wait with it. Ranks that start warm arrive within milliseconds of
each other, so that one is nearly always there before rank 0.

``rendezvous._create_c10d_store`` first asks ``_torchelastic_use_agent_store``. Something of ours stands in that place
and, before it answers, tries a plain connection every few milliseconds. It has returned when the store is looked for:
what scripts see in a traceback is PyTorch's own. As careful as ``sitecustomize``: the standard library alone, and where
anything is otherwise, PyTorch's own way.
"""

from __future__ import annotations

import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = "_torchelastic_use_agent_store"
_CALLER = "_create_c10d_store"
_MOST_S = 3.0
"""Where rank 0 is that late, half a second more or less is not seen."""

_CONNECT_S = 0.5
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05


def put_into(module: Any) -> None:
    """
    Replace a function of PyTorch's. ``module``: torch.distributed.distributed_c10d, which has imported its module.
    """
    rendezvous = sys.modules.get("torch.distributed.rendezvous")
    own = getattr(rendezvous, _NAME, None)
    if not callable(own) or hasattr(own, "drumline_own"):
        return

    def torchelastic_use_agent_store() -> Any:
        # With torchrun inside the job its agent has the store, which is there before the ranks are.
        is_agents = own()
        try:
            caller = sys._getframe(1)
            if caller.f_code.co_name == _CALLER and not is_agents and caller.f_locals["rank"] != 0:
                _wait_for_listener(caller.f_locals["hostname"], caller.f_locals["port"])
        except Exception:
            pass
        return is_agents

    torchelastic_use_agent_store.drumline_own = own  # type: ignore[attr-defined]
    setattr(rendezvous, _NAME, torchelastic_use_agent_store)


def _wait_for_listener(host: str, port: int) -> None:
    """Return when somebody listens there, or after ``_MOST_S``."""
    until, pause_s = time.monotonic() + _MOST_S, _FIRST_PAUSE_S
    while time.monotonic() < until:
        try:
            socket.create_connection((host, port), _CONNECT_S).close()
            return
        except OSError:
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)
