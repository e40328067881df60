"""
The moment of this process's first optimizer of PyTorch, in a job of several ranks: from then on it trains.

``Optimizer.__init__`` calls ``_patch_step_function``, in PyTorch 1.13 to 2.15. Something of ours stands there until the
first optimizer, and then the class is as it was: steps cost nothing, and compiled ones are PyTorch's own. As careful as
``sitecustomize``: the standard library alone, and where anything is otherwise, nothing is noted.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

_NAME = "_patch_step_function"


def put_into(module: Any, write: Callable[[], object]) -> None:
    """Have ``write`` called once; a later call of this function replaces an earlier ``write``."""
    optimizer = getattr(module, "Optimizer", None)
    own = vars(optimizer).get(_NAME) if isinstance(optimizer, type) else None
    own = getattr(own, "drumline_own", own)
    if optimizer is None or not callable(own):
        return

    def patch_step_function(self: Any) -> Any:
        try:
            if vars(optimizer).get(_NAME) is patch_step_function:
                setattr(optimizer, _NAME, own)
                write()
        except Exception:
            pass
        return own(self)

    patch_step_function.drumline_own = own  # type: ignore[attr-defined]
    setattr(optimizer, _NAME, patch_step_function)
