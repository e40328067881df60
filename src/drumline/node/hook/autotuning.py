"""
The fixed waits of DeepSpeed's autotuner: it looks for the end of an experiment every five seconds, twice.

Each experiment ends so five to ten seconds late. The waits are one number of its module, read anew for each of them, in
DeepSpeed 0.5 to 0.19. As careful as ``sitecustomize``: where the number is missing, nothing changes.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SHORT_S = 0.1


def put_into(module: Any) -> None:
    """Make the waits of ``deepspeed.autotuning.scheduler`` short."""
    if isinstance(getattr(module, "TIMEOUT", None), (int, float)):
        module.TIMEOUT = _SHORT_S
