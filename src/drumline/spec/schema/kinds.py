"""
The kinds of value a job file holds, and how each is checked and coerced.

``check`` returns the value as the entities want it; what is wrong goes to the report, and the value
is then None.
Coercions are azure-ai-ml's: ``"4"`` and ``4.7`` are whole numbers there, ``true`` is not.
"""

from __future__ import annotations

from drumline.spec.nodes import Mapping, Scalar, Sequence, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from drumline.spec.nodes import Node
    from drumline.spec.schema.report import Report


def join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def shown(node: Node) -> str:
    """A value as messages quote it."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    assert isinstance(node, Scalar)
    if node.value is None:
        return "null"
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    if isinstance(node.value, str):
        return repr(node.value if len(node.value) <= 60 else node.value[:57] + "...")
    return node.text or repr(node.value)


class Kind:
    """The root; ``word`` is what the value should have been."""

    word = "a value"

    def __init__(self, *, nullable: bool = False) -> None:
        self.nullable = nullable

    def check(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and node.value is None:
            if not self.nullable:
                report.add(f"{path} may not be null", node, path, "remove the key, or give it a value")
            return None
        return self.take(node, path, report)

    def take(self, node: Node, path: str, report: Report) -> Any:
        """Check a value that is not null."""
        raise NotImplementedError

    def refuse(self, node: Node, path: str, report: Report, hint: str = "") -> None:
        report.add(f"{path} must be {self.word}, got {shown(node)}", node, path, hint)


class Anything(Kind):
    def check(self, node: Node, path: str, report: Report) -> Any:
        return plain(node)


class Text(Kind):
    word = "text"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        quotable = isinstance(node, Scalar) and node.source is not None
        hint = f'quote it: "{node.text}"' if quotable and isinstance(node, Scalar) else ""
        self.refuse(node, path, report, "" if isinstance(node, Scalar) and node.surprise else hint)
        return None


class VersionText(Kind):
    """Text, or a number that stands for it."""

    word = "text or a number"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, (str, int, float)):
            return str(node.value)
        self.refuse(node, path, report)
        return None


class Integer(Kind):
    word = "a whole number"

    def __init__(self, *, strict: bool = False, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.strict = strict

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        allowed = int if self.strict else (int, float, str)
        if value is not None and not isinstance(value, bool) and isinstance(value, allowed):
            try:
                return int(value)
            except (ValueError, OverflowError):
                pass
        self.refuse(node, path, report)
        return None


class Number(Kind):
    word = "a number"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, (float, str)):
            try:
                number = float(value)
            except ValueError:
                number = float("nan")
            if number - number == 0:  # neither infinite nor nan
                return number
        self.refuse(node, path, report)
        return None


class Seconds(Number):
    """A number that is not negative."""

    word = "a number of seconds, 0 or more"

    def take(self, node: Node, path: str, report: Report) -> Any:
        before = report.count
        number = super().take(node, path, report)
        if number is not None and number < 0 and report.count == before:
            self.refuse(node, path, report)
            return None
        return number


_TRUE = frozenset(("t", "true", "on", "y", "yes", "1"))
_FALSE = frozenset(("f", "false", "off", "n", "no", "0"))


class Flag(Kind):
    word = "true or false"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, (bool, int, str)):
            node.surprise = ""
            text = str(node.value).lower()
            if text in _TRUE or text in _FALSE:
                return text in _TRUE
        self.refuse(node, path, report)
        return None


def lower(text: str) -> str:
    return text.lower()


class Choice(Kind):
    """
    One of a set; ``fold`` says which spellings are the same (azure-ai-ml ignores case almost
    everywhere).
    """

    def __init__(self, *values: str, fold: Callable[[str], str] = lower, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.values = values
        self.fold = fold

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, str) and self.fold(value) in self.values:
            return self.fold(value)
        known = ", ".join(map(repr, self.values))
        word = known if len(self.values) == 1 else f"one of {known}"
        hint = ""
        if isinstance(value, str):
            from drumline.spec.schema.hints import did_you_mean

            hint = did_you_mean(self.fold(value), self.values)
        report.add(f"{path} must be {word}, got {shown(node)}", node, path, hint)
        return None


def switch(text: str) -> str:
    """``true`` and ``1`` as ``on``, ``no`` as ``off``; other words as they are, in lower case."""
    text = text.lower()
    return "on" if text in _TRUE else "off" if text in _FALSE else text


class Switch(Choice):
    """``on``, ``off``, which unquoted are true and false in YAML 1.1, and other words."""

    def __init__(self, *others: str) -> None:
        super().__init__(*others, "on", "off", fold=switch)

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, (bool, int)) and node.value in (0, 1):
            node.surprise = ""
            return "on" if node.value else "off"
        return super().take(node, path, report)


class ListOf(Kind):
    word = "a list"

    def __init__(self, item: Kind, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.item = item

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Sequence):
            self.refuse(node, path, report)
            return None
        return [self.item.check(item, join(path, index), report) for index, item in enumerate(node.items)]


class MapOf(Kind):
    """A mapping whose keys the author names."""

    word = "a mapping"

    def __init__(self, item: Kind, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.item = item

    def take(self, node: Node, path: str, report: Report) -> Any:
        if not isinstance(node, Mapping):
            self.refuse(node, path, report)
            return None
        values = {}
        for key, key_node, value in node:
            if not isinstance(key, str):
                text = key_node.text or str(key)
                report.add(f"the key {text} in {path} must be text", key_node, path, f'quote it: "{text}"')
                continue
            values[key] = self.item.check(value, join(path, key), report)
        return values


class TextOrList(Kind):
    word = "text or a list of texts"

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Sequence):
            return ListOf(Text()).check(node, path, report)
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        self.refuse(node, path, report)
        return None
