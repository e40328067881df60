"""The value of a scalar in YAML 1.1, exactly as PyYAML's ``safe_load`` reads it, and where that surprises people."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CORE = "tag:yaml.org,2002:"
CORE_TAGS = frozenset(_CORE + name for name in ("str", "int", "float", "bool", "null", "map", "seq"))
MERGE = _CORE + "merge"

_LONGEST_NUMBER = 100
"""Characters; what is longer is text. A number of a hundred thousand digits takes minutes to read."""

_SURPRISES = (
    ("a boolean", r"(?i:yes|no|on|off)\Z"),
    ("an octal number", r"[-+]?0[0-7_]+\Z"),
    ("a number in base 60", r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?\Z"),
    ("a date", r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"),
)


def implicit_tag(text: str) -> str:
    """Return the tag of an unquoted scalar."""
    if len(text) > _LONGEST_NUMBER:
        return _CORE + "str"
    import yaml

    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    for tag, pattern in (*resolvers.get(text[:1], ()), *resolvers.get(None, ())):
        if pattern.match(text):
            return str(tag)
    return _CORE + "str"


def construct(tag: str, text: str) -> Any:
    """Return the Python value of a scalar. Raises ValueError when the text does not fit the tag."""
    if tag in (_CORE + "str", MERGE):
        return text
    if tag == _CORE + "null":
        return None
    import yaml

    constructor = yaml.constructor.SafeConstructor
    make = constructor.yaml_constructors.get(tag)
    if make is None:  # the lone '=' of YAML 1.1
        return text
    try:
        return make(constructor(), yaml.ScalarNode(tag, text))
    except (KeyError, IndexError, AttributeError, OverflowError, yaml.YAMLError) as error:
        raise ValueError(str(error)) from error


def surprise(text: str, value: object) -> str:
    """Return ``a boolean``, ``a date``...: what unquoted text became, when its author may have meant the text."""
    if isinstance(value, str) or value is None:
        return ""
    return next((what for what, pattern in _SURPRISES if re.match(pattern, text)), "")
