"""Whatever azure-ai-ml or mldesigner made, as an object of ours; ``drumline.spec.foreign`` knows how."""

from __future__ import annotations

from enum import Enum
from typing import Any

from drumline.contract.errors import SpecError
from drumline.spec.foreign_parts import is_foreign, ours

_VALUES = (str, int, float, Enum)
"""What is a value whatever its class."""


def translate_object(value: Any) -> Any:
    """
    Translate an object of theirs, or a function under ``@command_component``; return any other value as it is.

    Raises SpecError, which names the type, for what has nothing that stands for it.
    """
    from drumline.spec.foreign import component_of, is_function, job_of

    if isinstance(value, _VALUES) or not (is_foreign(value) or is_function(value)):
        return value
    made = job_of(value) or component_of(value) or ours(value)
    if made is not value:
        return made
    name = f"{type(value).__module__}.{type(value).__name__}"
    raise SpecError(
        f"{name} is not supported", "jobs, components, computes, data, environments and models are"
    )
