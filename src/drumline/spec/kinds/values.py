"""
The kinds of value a job file holds, and how each is checked and coerced.

``check`` returns the value as the entities want it; what is wrong goes to the report, and the value
is then None.
Coercions are azure-ai-ml's: ``"4"`` and ``4.7`` are whole numbers there, ``true`` is not.
"""

from __future__ import annotations

from drumline.contract.errors import SpecError
from drumline.spec.entity import text_path, whole
from drumline.spec.hints import did_you_mean
from drumline.spec.kinds.schemas import match_any_case
from drumline.spec.reading.source import Mapping, Scalar, Sequence, plain, problem_at, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    import collections.abc
    from collections.abc import Callable, Iterable
    from typing import Any

    from drumline.contract.errors import Problem
    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.reading.source import Node


PRIMITIVES = ("string", "integer", "number", "boolean")
"""Types of inputs that a component declares; a job gives the value itself."""


JSON_REFERENCE = {"type": "string", "pattern": "^(azureml:|file:)"}
"""The JSON Schema of text that refers to something registered, or to a file."""


def join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def quote_node(node: Node) -> str:
    """Return a value as messages quote it."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Sequence):
        return "a list"
    if node.value is None:
        return "null"
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    if isinstance(node.value, str):
        from drumline.contract.hiding import hide_in_text

        text = hide_in_text(node.value)
        return repr(text if len(text) <= 60 else text[:57] + "...")
    return node.text or repr(node.value)


def refuse_hidden(node: Node, path: str, report: Report) -> bool:
    """Report the first text within that people see in place of a secret, and return whether there is one."""
    if isinstance(node, Mapping):
        return any(refuse_hidden(value, join(path, key), report) for key, _, value in node)
    if isinstance(node, Sequence):
        return any(refuse_hidden(item, join(path, at), report) for at, item in enumerate(node.items))
    text = node.value
    if not isinstance(text, str) or not ("://" in text or text.startswith("(")):
        return False
    from drumline.contract.hiding import is_hidden

    if not is_hidden(text):
        return False
    what = f"{path}: {quote_node(node)} stands for a value that was hidden, such as a password"
    hint = "write the value itself; a datastore's credentials or a secret environment variable keep it out of the file"
    report.add(what, node, path, hint)
    return True


class Kind:
    """The root; ``word`` is what the value should have been."""

    word = "a value"
    json_types: tuple[str, ...] = ()
    """Those that an editor should allow for a value that is not null. They may be more than ``take`` does, not less."""
    json_pattern = ""
    json_choices: tuple[Kind | dict[str, Any], ...] = ()
    """In place of types: the kinds, and schemas, of which a value has one."""

    def __init__(self, *, nullable: bool = False) -> None:
        self.nullable = nullable

    def check(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Scalar) and node.value is None:
            if not self.nullable:
                report.add(f"{path} may not be null", node, path, "remove the key, or give it a value")
            return None
        if isinstance(node, Scalar) and refuse_hidden(node, path, report):
            return None
        return self.take(node, path, report)

    def take(self, node: Node, path: str, report: Report) -> Any:
        """Check a value that is not null."""
        made = self.convert(node)
        if made is None:
            self.refuse(node, path, report)
        return made

    def convert(self, node: Node) -> Any:
        """Return a value that is not null as entities want it; None for one that is not of this kind."""
        raise NotImplementedError

    def adopt(self, value: Any) -> Any:
        """Return a value of Python, not None, as an entity keeps it. Nothing is checked here."""
        return value

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        """Return what an editor should know of a value that is not null."""
        if self.json_choices:
            choices = [
                schemas.make(choice) if isinstance(choice, Kind) else choice for choice in self.json_choices
            ]
            return {"anyOf": choices}
        types = {"type": self.json_types[0] if len(self.json_types) == 1 else list(self.json_types)}
        pattern = {"pattern": self.json_pattern} if self.json_pattern else {}
        return {**types, **pattern} if self.json_types else {}

    def refuse(self, node: Node, path: str, report: Report, hint: str = "") -> None:
        report.add(f"{path} must be {self.word}, got {quote_node(node)}", node, path, hint)


class Anything(Kind):
    def check(self, node: Node, path: str, report: Report) -> Any:
        return None if refuse_hidden(node, path, report) else plain(node)


class Text(Kind):
    word = "text"
    json_types = ("string",)

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node.value, str):
            return node.value
        is_quotable = isinstance(node, Scalar) and node.source is not None and not node.surprise
        self.refuse(node, path, report, f'quote it: "{node.text}"' if is_quotable else "")
        return None


class PathText(Text):
    """Text; Python may give what stands for a path."""

    def adopt(self, value: Any) -> Any:
        return text_path(value)


class VersionText(Kind):
    """Text, or a number that stands for it."""

    word = "text or a number"
    json_types = ("string", "number", "boolean")

    def adopt(self, value: Any) -> Any:
        return str(value)

    def convert(self, node: Node) -> Any:
        return str(node.value) if isinstance(node.value, (str, int, float)) else None


class Integer(Kind):
    word = "a whole number"
    json_types = ("integer", "number", "string")
    json_pattern = r"^\s*[-+]?[0-9](_?[0-9])*\s*$"

    def adopt(self, value: Any) -> Any:
        """Return the whole number that text or a float stands for, as in YAML."""
        return whole(value)

    def convert(self, node: Node) -> Any:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return None
        try:
            return int(value)
        except (ValueError, OverflowError):
            return None


class Number(Kind):
    word = "a number"
    json_types = ("number", "string")
    json_pattern = r"^\s*[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)([eE][-+]?\d+)?\s*$"

    def convert(self, node: Node) -> Any:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            return None
        if isinstance(value, int):
            return value
        try:
            number = float(value)
        except ValueError:
            return None
        return number if number - number == 0 else None  # neither infinite nor nan


class Seconds(Number):
    """A number that is not negative."""

    word = "a number of seconds, 0 or more"

    def convert(self, node: Node) -> Any:
        number = super().convert(node)
        return number if number is not None and number >= 0 else None

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {**super().json_schema(schemas), "minimum": 0}


_TRUE = frozenset(("t", "true", "on", "y", "yes", "1"))
_FALSE = frozenset(("f", "false", "off", "n", "no", "0"))


class Flag(Kind):
    word = "true or false"

    def convert(self, node: Node) -> Any:
        if not isinstance(node.value, (bool, int, str)):
            return None
        node.surprise = ""
        text = str(node.value).lower()
        return text in _TRUE if text in _TRUE or text in _FALSE else None

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        words = {"type": "string", "pattern": _match_any_case((*_TRUE, *_FALSE))}
        return {"anyOf": [{"type": "boolean"}, {"enum": [0, 1]}, words]}


def _match_any_case(words: Iterable[str]) -> str:
    return match_any_case(sorted(words))


def lower(text: str) -> str:
    return text.lower()


class OneOf(Kind):
    """
    One of a set; ``fold`` says which spellings are the same (azure-ai-ml ignores case almost
    everywhere).
    """

    def __init__(self, *values: str, fold: Callable[[str], str] = lower, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self.values = values
        self.fold = fold

    def adopt(self, value: Any) -> Any:
        """Fold the spelling; what is none of the values stays as written."""
        folded = self.fold(value) if isinstance(value, str) else value
        return folded if folded in self.values or not self.values else value

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value
        if isinstance(value, str) and self.fold(value) in self.values:
            return self.fold(value)
        known = ", ".join(map(repr, self.values))
        word = known if len(self.values) == 1 else f"one of {known}"
        hint = ""
        if isinstance(value, str):
            hint = did_you_mean(self.fold(value), self.values)
        report.add(f"{path} must be {word}, got {quote_node(node)}", node, path, hint)
        return None

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        if self.fold("Ab") == "Ab":
            return {"enum": list(self.values)}
        in_any_case = {"type": "string", "pattern": _match_any_case(self.values)}
        return {"anyOf": [{"enum": list(self.values)}, in_any_case]}


def switch(text: str) -> str:
    """Return ``true`` and ``1`` as ``on``, ``no`` as ``off``; other words as they are, in lower case."""
    text = text.lower()
    return "on" if text in _TRUE else "off" if text in _FALSE else text


class Switch(OneOf):
    """``on``, ``off``, which unquoted are true and false in YAML 1.1, and other words."""

    def __init__(self, *others: str) -> None:
        super().__init__(*others, "on", "off", fold=switch)

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node.value, (bool, int)) and node.value in (0, 1):
            node.surprise = ""
            return "on" if node.value else "off"
        return super().take(node, path, report)

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        words = {"type": "string", "pattern": _match_any_case((*self.values, *_TRUE, *_FALSE))}
        return {"anyOf": [{"enum": list(self.values)}, {"type": "boolean"}, {"enum": [0, 1]}, words]}


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

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"type": "array", "items": schemas.make(self.item)}


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

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"type": "object", "additionalProperties": schemas.make(self.item)}


class TextOrList(Kind):
    word = "text or a list of texts"

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"type": ["string", "array"], "items": {"type": "string"}}

    def take(self, node: Node, path: str, report: Report) -> Any:
        if isinstance(node, Sequence):
            return ListOf(Text()).check(node, path, report)
        return super().take(node, path, report)

    def convert(self, node: Node) -> Any:
        return node.value if isinstance(node.value, str) else None


def refuse_wrong(
    given: collections.abc.Mapping[str, Any], kinds: collections.abc.Mapping[str, Kind], where: str = ""
) -> None:
    """
    Raise SpecError for arguments of Python that their fields cannot hold.

    ``where``: the field of the job that takes them, such as ``resources``; empty for the job itself. None stands for
    an argument that is not given; objects, and text with ``${{``, for values that are known later.
    """
    checked = {name: kind for name, kind in kinds.items() if _is_plain(given.get(name))}
    if not checked:
        return
    report = Report("")
    for name, kind in checked.items():
        kind.check(wrap(given[name]), join(where, name), report)
    if report.count:
        raise SpecError(report.problems)


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return "${{" not in value
    # By their very classes: the inputs of a job are a dictionary too, and no value of a field.
    return type(value) in (int, float, bool, list, tuple, dict)


# The mistakes and warnings found in one reading of a job, in the order of its file.


class Report:
    """Collects problems while schemas walk the tree."""

    def __init__(self, base_path: str) -> None:
        self.base_path = base_path
        """
        The folder that relative paths resolve against; changes while a referenced file is read.
        """
        self.open_files: tuple[str, ...] = ()
        """Referenced files being read, outermost first, so that a file cannot refer to itself."""
        self._anchor: tuple[int, int] | None = None
        self._found: list[tuple[int, int, Problem]] = []

    @property
    def problems(self) -> list[Problem]:
        return [entry[-1] for entry in sorted(self._found, key=lambda entry: entry[:2])]

    @property
    def count(self) -> int:
        return len(self._found)

    def add(self, what: str, node: Node, path: str, hint: str = "") -> None:
        if not hint and node.surprise:
            hint = f"unquoted {node.text!r} is {node.surprise} in YAML 1.1; quote it"
            node.surprise = ""
        self.put(problem_at(node, what, path=path, hint=hint))

    def put(self, problem: Problem) -> None:
        line, column = self._anchor or (problem.line, problem.column)
        self._found.append((line, column, problem))

    def enter(self, node: Node, file: str, folder: str) -> tuple[object, ...]:
        """Read on in a referenced file; its problems are listed where ``node`` refers to it."""
        before = (self._anchor, self.base_path, self.open_files)
        self._anchor = self._anchor or (node.line, node.column)
        self.base_path = folder
        self.open_files = (*self.open_files, file)
        return before

    def leave(self, before: tuple[object, ...]) -> None:
        self._anchor, self.base_path, self.open_files = before  # type: ignore[assignment]
