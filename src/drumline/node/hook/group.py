"""
The moment of this process's first process group of PyTorch, for the timeline of the job's start.

``init_process_group`` calls ``distributed_c10d._update_default_pg`` by that name once the default group is there, in
PyTorch 1.8 to 2.13. Something of ours stands there until the first group, and then the module is as it was: what
scripts call, and what they see in a traceback, is PyTorch's own at any time. As careful as ``sitecustomize``: the
standard library alone, and where anything is otherwise, nothing is noted.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_NAME = "_update_default_pg"


def put_into(module: Any, write: Callable[[str], object]) -> None:
    """Have ``write`` called with the backend, once; a later call of this function replaces an earlier ``write``."""
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


def _backend_of(module: Any) -> str:
    """Return ``gloo``, or ``cpu:gloo,cuda:nccl`` where no single one was chosen; empty where that cannot be told."""
    try:
        backend = str(module.get_backend())
        return str(module.get_backend_config()) if backend == "undefined" else backend
    except Exception:
        return ""
