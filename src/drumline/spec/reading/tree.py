"""
The content of a job file: a small tree that remembers where each key and value stood.

The same tree is built from plain Python values (``wrap``), without marks, so that one set of schemas checks both.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Source:
    """A file as read: its name for messages, and its lines for the caret."""

    __slots__ = ("lines", "name")

    def __init__(self, name: str, lines: list[str]) -> None:
        self.name = name
        self.lines = lines


class Node:
    """
    ``line`` and ``column`` count from 1, 0 without a file; ``width`` is what a caret underlines.
    """

    __slots__ = ("column", "key", "line", "source", "width")

    def __init__(self, source: Source | None = None, line: int = 0, column: int = 0, width: int = 1) -> None:
        self.source = source
        self.line = line
        self.column = column
        self.width = width
        self.key: Scalar | None = None
        """The key that this node is the value of; messages about what is missing point at it."""


class Scalar(Node):
    __slots__ = ("surprise", "text", "value")

    def __init__(
        self,
        value: Any,
        text: str = "",
        source: Source | None = None,
        line: int = 0,
        column: int = 0,
        width: int = 1,
    ) -> None:
        super().__init__(source, line, column, width)
        self.value = value
        self.text = text
        self.surprise = ""
        """What YAML 1.1 made of unquoted text that reads like something else: ``a boolean``."""


class Mapping(Node):
    __slots__ = ("entries",)

    def __init__(self, source: Source | None = None, line: int = 0, column: int = 0, width: int = 1) -> None:
        super().__init__(source, line, column, width)
        self.entries: dict[Any, tuple[Scalar, Node]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __iter__(self) -> Iterator[tuple[Any, Scalar, Node]]:
        for key, (key_node, value) in self.entries.items():
            yield key, key_node, value

    def get(self, key: object) -> Node | None:
        entry = self.entries.get(key)
        return entry[1] if entry else None

    def put(self, key: Scalar, value: Node) -> None:
        if value.key is None:
            value.key = key
        self.entries[key.value] = (key, value)


class Sequence(Node):
    __slots__ = ("items",)

    def __init__(self, source: Source | None = None, line: int = 0, column: int = 0, width: int = 1) -> None:
        super().__init__(source, line, column, width)
        self.items: list[Node] = []


def plain(node: Node) -> Any:
    """Return the Python value that a node stands for."""
    if isinstance(node, Mapping):
        return {key: plain(value) for key, _, value in node}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    assert isinstance(node, Scalar)
    return node.value


def wrap(value: Any) -> Node:
    """Return a tree without marks over a plain Python value."""
    if isinstance(value, dict):
        mapping = Mapping()
        for key, item in value.items():
            mapping.put(Scalar(key, str(key)), wrap(item))
        return mapping
    if isinstance(value, (list, tuple)):
        sequence = Sequence()
        sequence.items = [wrap(item) for item in value]
        return sequence
    return Scalar(value, str(value))


def find(root: Node, path: str) -> Node | None:
    """Return the node at a dotted path such as ``inputs.data.path`` or ``jobs.a.command``; None when there is none."""
    node: Node | None = root
    for step in path.split(".") if path else ():
        if isinstance(node, Mapping):
            node = node.get(step)
        elif isinstance(node, Sequence) and step.isdecimal() and int(step) < len(node.items):
            node = node.items[int(step)]
        else:
            return None
    return node
