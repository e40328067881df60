"""
Bytes to nodes: YAML read from PyYAML's event stream, with a guard on everything that can hurt.

Events come one at a time, so a file nested a million deep ends at the 65th level, before anything recurses.
PyYAML's own loaders die on such a file, and keep the last of two equal keys in silence; both are mistakes here.
Scalars are read exactly as PyYAML's ``safe_load`` reads them. The tree remembers where each key and value stood; one
without marks is built from plain Python values (``wrap``), so that one set of tables checks both.
"""

from __future__ import annotations

import re

from drumline.contract.errors import Problem, SpecError
from drumline.contract.words import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 10_000
_LONG_LINE = 120

_PLAIN_SPACE = {ord("\n"): None, ord("\t"): None}
# Compiled only for a text with something odd in it: that takes 4 ms.
_NOT_TEXT = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\ufeff"


def parse(data: bytes | str, name: str) -> Mapping:
    """
    Return the mapping that a file holds.

    Raises SpecError for what is not one YAML document with a mapping at its root, or too large,
    deep or clever.
    """
    text = _decode(data, name)
    source = Source(name, text.splitlines())
    builder = _TreeBuilder(source)
    for event in _events(text, source):
        builder.take(event)
    root = builder.root
    if root is None or (isinstance(root, Scalar) and root.value is None):
        raise SpecError([Problem("the file is empty", file=name)])
    if not isinstance(root, Mapping):
        kind = "a list" if isinstance(root, Sequence) else "a single value"
        raise SpecError([problem_at(root, f"expected a mapping of keys to values, got {kind}")])
    return root


def problem_at(node: Node, what: str, *, path: str = "", hint: str = "") -> Problem:
    """Return a problem whose caret underlines a node; without a file when the node has none."""
    source = node.source
    if source is None:
        return Problem(what, path=path, hint=hint)
    from drumline.contract.hiding import hide_in_text

    line = source.lines[node.line - 1] if 0 < node.line <= len(source.lines) else ""
    if node.column > _LONG_LINE:  # too far right for a caret to be of use
        line = ""
    return Problem(
        what,
        path=path,
        file=source.name,
        line=node.line,
        column=node.column,
        source_line=hide_in_text(line, keeps_width=True)[:_LONG_LINE].replace("\t", " "),
        width=max(1, min(node.width, _LONG_LINE - node.column)),
        hint=hint,
    )


def _refusal(source: Source, line: int, column: int, what: str, hint: str = "") -> SpecError:
    return SpecError([problem_at(Node(source, line, column), what, hint=hint)])


def _decode(data: bytes | str, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise SpecError([Problem(f"the file is larger than {format_size(MAX_BYTES)}", file=name)])
    if isinstance(data, bytes):
        encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
        try:
            text = data.decode(encoding)
        except UnicodeDecodeError as error:
            good = data[: error.start].decode(encoding, "replace")
            line, column = _position(good)
            where = Problem(f"the file is not valid {encoding.upper()}", file=name)
            where.line, where.column = line, column
            raise SpecError([where]) from None
    else:
        text = data
    text = text.removeprefix("\ufeff")
    bad = None if text.translate(_PLAIN_SPACE).isprintable() else re.search(_NOT_TEXT, text)
    if bad:
        line, column = _position(text[: bad.start()])
        what = f"the character U+{ord(bad[0]):04X} is not allowed"
        raise SpecError([Problem(what, file=name, line=line, column=column)])
    return text


def _position(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _events(text: str, source: Source) -> Iterator[Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        yield from yaml.parse(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what, hint = _in_our_words(str(getattr(error, "problem", "") or error), source, line)
        raise _refusal(source, line, column, what, hint) from None


_SCANNER_WORDS = (
    (
        "mapping values are not allowed",
        "':' is not allowed here",
        "quote the value, or check the indentation",
    ),
    ("could not find expected ':'", "expected ':' after this key", ""),
    ("found unexpected end of stream", "a quote or bracket is never closed", ""),
    ("did not find expected ',' or", "expected ',' or a closing bracket", ""),
    ("expected ',' or", "expected ',' or a closing bracket", ""),
    ("did not find expected", "this does not fit what stands before it", "check the indentation"),
    ("expected <block end>", "this does not fit what stands before it", "check the indentation"),
    ("found undefined tag handle", "tags are not allowed in a job file", ""),
    # libyaml from 0.2.6 on looks ahead, and gives up at 1,000 levels before it tells of the 65th.
    ("exceeded maximum nesting depth", f"nested more than {MAX_DEPTH} levels deep", ""),
    ("cannot start any token", "this character cannot start a value", "quote the value"),
    ("unknown escape character", "unknown escape in a double-quoted text", "use single quotes"),
    ("found unknown escape", "unknown escape in a double-quoted text", "use single quotes"),
)


def _in_our_words(problem: str, source: Source, line: int) -> tuple[str, str]:
    text = source.lines[line - 1] if 0 < line <= len(source.lines) else ""
    if "\t" in text[: len(text) - len(text.lstrip())]:
        return "a tab cannot indent YAML", "use spaces"
    for theirs, ours, hint in _SCANNER_WORDS:
        if theirs in problem:
            return ours, hint
    return f"not valid YAML: {problem.strip().splitlines()[0]}", ""


class _Frame:
    """A mapping or sequence whose end has not come yet."""

    __slots__ = ("anchor", "first_count", "key", "lines", "merged", "node")

    def __init__(self, node: Mapping | Sequence, anchor: str | None, first_count: int) -> None:
        self.node = node
        self.anchor = anchor
        self.first_count = first_count
        self.key: Scalar | None = None
        self.lines: dict[Any, int] = {}
        """The line of every key the mapping has of its own; merged keys give way to these."""
        self.merged: list[Node] = []


class _TreeBuilder:
    """Takes events, and holds the root once the document has ended."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.root: Node | None = None
        self.count = 0
        self.frames: list[_Frame] = []
        self.anchors: dict[str, tuple[Node, int] | None] = {}
        """A node and how many nodes it stands for; None while it is being read."""

    def take(self, event: Any) -> None:
        kind = type(event).__name__
        if kind == "ScalarEvent":
            self._add(self._scalar(event), event.anchor, 1)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._open(event, Mapping if kind == "MappingStartEvent" else Sequence)
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._close()
        elif kind == "AliasEvent":
            self._alias(event)
        elif kind == "DocumentStartEvent" and self.root is not None:
            raise self._at(event, "a job file holds one document", "remove what follows '---'")

    def _at(self, event: Any, what: str, hint: str = "") -> SpecError:
        mark = event.start_mark
        return _refusal(self.source, mark.line + 1, mark.column + 1, what, hint)

    def _mark(self, event: Any) -> tuple[int, int, int]:
        start, end = event.start_mark, event.end_mark
        width = end.column - start.column if start.line == end.line else 1
        return start.line + 1, start.column + 1, max(1, width)

    def _check_tag(self, event: Any) -> None:
        if event.tag not in (None, "!") and event.tag not in CORE_TAGS:
            raise self._at(event, f"the tag {event.tag!r} is not allowed in a job file", "remove it")

    def _scalar(self, event: Any) -> Scalar:
        self._check_tag(event)
        line, column, width = self._mark(event)
        is_plain = bool(event.implicit[0])
        tag = event.tag if event.tag in CORE_TAGS else ""
        if not tag:
            tag = implicit_tag(event.value) if is_plain else "tag:yaml.org,2002:str"
        try:
            value = construct(tag, event.value)
        except ValueError:
            name = tag.rpartition(":")[2]
            raise self._at(event, f"{event.value!r} is not a valid {name}", "quote it") from None
        node = Scalar(value, event.value, self.source, line, column, width)
        node.style = event.style or ""
        if is_plain:
            node.surprise = surprise(event.value, value)
            if tag == MERGE:
                node.text = MERGE
        return node

    def _open(self, event: Any, make: type[Mapping | Sequence]) -> None:
        self._check_tag(event)
        if len(self.frames) >= MAX_DEPTH:
            raise self._at(event, f"nested more than {MAX_DEPTH} levels deep")
        line, column, _ = self._mark(event)
        self._grow(event, 1)
        if event.anchor:
            self.anchors[event.anchor] = None
        self.frames.append(_Frame(make(self.source, line, column), event.anchor, self.count - 1))
        parent = self.frames[-2] if len(self.frames) > 1 else None
        if parent and isinstance(parent.node, Mapping) and parent.key is None:
            raise self._at(event, "a key must be text, not a list or mapping")

    def _grow(self, event: Any, count: int) -> None:
        self.count += count
        if self.count > MAX_NODES:
            raise self._at(event, f"the file holds more than {MAX_NODES:,} values")

    def _close(self) -> None:
        frame = self.frames.pop()
        if frame.merged:
            assert isinstance(frame.node, Mapping)
            self._merge(frame.node, frame.merged)
        self._place(frame.node, frame.anchor, self.count - frame.first_count)

    def _add(self, node: Scalar, anchor: str | None, count: int) -> None:
        self.count += count
        if self.count > MAX_NODES:
            raise SpecError([problem_at(node, f"the file holds more than {MAX_NODES:,} values")])
        self._place(node, anchor, count)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise self._at(event, f"the alias '*{event.anchor}' has no '&{event.anchor}' before it")
        target = self.anchors[event.anchor]
        if target is None:
            raise self._at(event, f"the alias '*{event.anchor}' stands inside itself")
        node, count = target
        self._grow(event, count)
        self._place(node, None, count)

    def _place(self, node: Node, anchor: str | None, count: int) -> None:
        if anchor:
            self.anchors[anchor] = (node, count)
        if not self.frames:
            self.root = node
            return
        frame = self.frames[-1]
        if isinstance(frame.node, Sequence):
            frame.node.items.append(node)
        elif frame.key is None:
            frame.key = self._key(frame, node)
        elif frame.key.text == MERGE:
            frame.merged.append(node)
            frame.key = None
        else:
            frame.node.put(frame.key, node)
            frame.key = None

    def _key(self, frame: _Frame, node: Node) -> Scalar:
        if not isinstance(node, Scalar):
            raise SpecError([problem_at(node, "a key must be text, not a list or mapping")])
        if node.text == MERGE:
            return node
        if node.value in frame.lines:
            what = f"{node.text!r} is already set on line {frame.lines[node.value]}"
            raise SpecError([problem_at(node, what, hint="remove one of the two")])
        frame.lines[node.value] = node.line
        return node

    def _merge(self, target: Mapping, merged: list[Node]) -> None:
        """Merge the mappings that ``<<`` names; keys of the mapping itself stay, and of several the first one wins."""
        for node in merged:
            for mapping in node.items if isinstance(node, Sequence) else (node,):
                if not isinstance(mapping, Mapping):
                    raise SpecError([problem_at(mapping, "'<<' takes a mapping or a list of mappings")])
                for key, key_node, value in mapping:
                    if key not in target:
                        target.entries[key] = (key_node, value)


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

    __slots__ = ("column", "key", "line", "source", "surprise", "width")

    value: Any = None
    """Of a scalar its value; None of a mapping or a list."""
    text = ""

    def __init__(self, source: Source | None = None, line: int = 0, column: int = 0, width: int = 1) -> None:
        self.source = source
        self.line = line
        self.column = column
        self.width = width
        self.key: Scalar | None = None
        """The key that this node is the value of; messages about what is missing point at it."""
        self.surprise = ""
        """What YAML 1.1 made of unquoted text that reads like something else: ``a boolean``."""


class Scalar(Node):
    """``style``: how it is written: ``|`` literal, ``>`` folded, a quote, or nothing."""

    __slots__ = ("style", "text", "value")

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
        self.style = ""


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

    def value_of(self, key: object) -> Any:
        """Return the value of the scalar under a key; None if another or no node is there."""
        node = self.get(key)
        return None if node is None else node.value

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
    return [plain(item) for item in node.items] if isinstance(node, Sequence) else node.value


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
