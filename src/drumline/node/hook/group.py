"""
This process's first process group and first optimizer of PyTorch: their moments, for the timeline of the job's start,
and the store of the group.

The group: ``init_process_group`` calls ``distributed_c10d._update_default_pg`` by that name once the default group is
there, in PyTorch 1.8 to 2.13. Something of ours stands there until the first group, and then the module is as it was:
what scripts call, and what they see in a traceback, is PyTorch's own at any time.

The store: a client of PyTorch's TCPStore that is refused waits for half a second or more before it tries again (backoff
in ``TCPStore.cpp``, PyTorch 2.3 to 2.13), and all ranks wait with it. Ranks that start warm arrive within milliseconds
of each other, so that one is nearly always there before rank 0. ``rendezvous._create_c10d_store`` first asks
``_torchelastic_use_agent_store``. Something of ours stands in that place and, before it answers, tries a plain
connection every few milliseconds. It has returned when the store is looked for. A PyTorch that was built without libuv,
such as Debian's, refuses the store that is the default since 2.4; USE_LIBUV=0 asks for the older one.

The optimizer: ``Optimizer.__init__`` calls ``_patch_step_function``, in PyTorch 1.13 to 2.15. Something of ours stands
there until the first one, and then the class is as it was: steps cost nothing, and compiled ones are PyTorch's own.

As careful as ``sitecustomize``: the standard library alone, and where anything is otherwise, PyTorch's own way.
"""

from __future__ import annotations

import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_NAME = "_update_default_pg"
_STEP_NAME = "_patch_step_function"
_STORE_NAME = "_torchelastic_use_agent_store"
_CALLER = "_create_c10d_store"
_MOST_S = 3.0
"""Where rank 0 is that late, half a second more or less is not seen."""

_CONNECT_S = 0.5
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05

_SWITCH = "USE_LIBUV"
_NO_DESCRIPTOR = (1 << 31) - 1


def note_group(module: Any, write: Callable[[str], object], note_older_store: Callable[[], object]) -> None:
    """
    Have ``write`` called with the backend, once; a later call of this function replaces an earlier ``write``.

    ``module``: torch.distributed.distributed_c10d, which has imported its module. ``note_older_store`` is called where
    the store is the older one for our doing.
    """
    if _SWITCH not in os.environ and _lacks_libuv():
        os.environ[_SWITCH] = "0"
        note_older_store()
    _wait_for_store()
    own = getattr(module, _NAME, None)
    own = getattr(own, "drumline_own", own)
    if not callable(own):
        return

    def update_default_pg(*arguments: Any, **named: Any) -> Any:
        done = own(*arguments, **named)
        try:
            group = arguments[0] if arguments else named.get("pg")
            # Another module may have put something in our place, and calls us.
            if group is not None and not update_default_pg.drumline_is_done:  # type: ignore[attr-defined]
                update_default_pg.drumline_is_done = True  # type: ignore[attr-defined]
                if getattr(module, _NAME, None) is update_default_pg:
                    setattr(module, _NAME, own)
                write(_backend_of(module))
        except Exception:
            pass
        return done

    update_default_pg.drumline_is_done = False  # type: ignore[attr-defined]
    update_default_pg.drumline_own = own  # type: ignore[attr-defined]
    setattr(module, _NAME, update_default_pg)


def note_training(module: Any, write: Callable[[], object]) -> None:
    """
    Have ``write`` called once, at the first optimizer: from then on this process trains. A later call of this function
    replaces an earlier ``write``.
    """
    optimizer = getattr(module, "Optimizer", None)
    own = vars(optimizer).get(_STEP_NAME) if isinstance(optimizer, type) else None
    own = getattr(own, "drumline_own", own)
    if optimizer is None or not callable(own):
        return

    def patch_step_function(self: Any) -> Any:
        try:
            if vars(optimizer).get(_STEP_NAME) is patch_step_function:
                setattr(optimizer, _STEP_NAME, own)
                write()
        except Exception:
            pass
        return own(self)

    patch_step_function.drumline_own = own  # type: ignore[attr-defined]
    setattr(optimizer, _STEP_NAME, patch_step_function)


def _backend_of(module: Any) -> str:
    """Return ``gloo``, or ``cpu:gloo,cuda:nccl`` where no single one was chosen; empty where that cannot be told."""
    try:
        backend = str(module.get_backend())
        return str(module.get_backend_config()) if backend == "undefined" else backend
    except Exception:
        return ""


def _wait_for_store() -> None:
    """Have a rank look for the store once rank 0 has opened it."""
    rendezvous = sys.modules.get("torch.distributed.rendezvous")
    own = getattr(rendezvous, _STORE_NAME, None)
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
    setattr(rendezvous, _STORE_NAME, torchelastic_use_agent_store)


def _lacks_libuv() -> bool:
    """Return whether this PyTorch refuses the store with libuv."""
    try:
        # It looks at its build first. Any other fails of the descriptor at once: nothing listens, and nothing connects.
        sys.modules["torch._C"]._distributed_c10d.TCPStore(
            "127.0.0.1",
            0,
            is_master=True,
            master_listen_fd=_NO_DESCRIPTOR,
            wait_for_workers=False,
            use_libuv=True,
        )
    except Exception as error:
        return "without libuv" in str(error)
    return False


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
