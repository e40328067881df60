"""Files of the base home that a person has had written: JSON objects, for their owner alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError
from drumline.contract.folder import base_home, open_text, write_whole
from drumline.contract.ownership import make_home

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def read(path: str, is_value: Callable[[Any], bool], example: str) -> dict[str, Any]:
    """
    Return the object; empty if there is no file. Raises UsageError if the file is damaged, or a value is not as it
    should be, with the command that begins it anew as an example.
    """
    import json

    try:
        with open_text(path) as file:
            data: Any = json.load(file)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or not all(map(is_value, data.values())):
        raise UsageError(f"{path} is damaged", f"remove it, and {example}")
    return data


def write(path: str, values: Mapping[str, Any]) -> None:
    """Replace the file. Raises OSError."""
    import json

    make_home()
    write_whole(path, json.dumps(values, indent=1) + "\n")


def path_of(name: str) -> str:
    return os.path.join(base_home(), name)
