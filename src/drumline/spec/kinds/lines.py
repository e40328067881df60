"""Values that become part of a script, a manifest or a setting of the kernel: checked by a pattern, kept as text."""

from __future__ import annotations

import re

from drumline.contract.sbatch import OURS, USERS
from drumline.spec.kinds.values import (
    Integer,
    Kind,
    Number,
    Text,
    quote_node,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.schemas import JsonSchema, Schemas
    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node


_CONTROL = r"[\x00-\x1f\x7f\x85\u2028\u2029]"


class Line(Text):
    """One line of text, for it becomes part of a batch script; ``pattern`` is of all of it."""

    def __init__(self, pattern: str = ".*", word: str = "text", hint: str = "") -> None:
        super().__init__()
        self.pattern = pattern
        self.said = word
        self.hint = hint

    def take(self, node: Node, path: str, report: Report) -> Any:
        if self.hint and not isinstance(node.value, str):
            report.add(f"{path} must be {self.said}, got {quote_node(node)}", node, path, self.hint)
            return None
        value = super().take(node, path, report)
        if not isinstance(value, str):
            return None
        if re.search(_CONTROL, value):
            report.add(f"{path} must be one line without control characters", node, path)
            return None
        if not re.fullmatch(self.pattern, value):
            report.add(f"{path} must be {self.said}, got {quote_node(node)}", node, path, self.hint)
            return None
        return value

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


class ScriptText(Text):
    """Lines of a shell."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if isinstance(value, str) and re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value):
            report.add(f"{path} may hold no control characters but tabs and line ends", node, path)
            return None
        return value


class Count(Integer):
    def __init__(self, least: int, most: int = 1 << 31) -> None:
        super().__init__()
        self.least = least
        self.most = most
        self.word = f"a whole number, {least} or more"

    def convert(self, node: Node) -> Any:
        number = super().convert(node)
        return number if number is not None and self.least <= number <= self.most else None

    def json_schema(self, schemas: Schemas) -> JsonSchema:
        return {**super().json_schema(schemas), "minimum": self.least, "maximum": self.most}


class TimeLimit(Kind):
    """A time as ``sbatch --time`` reads it, kept as text: YAML makes a number of base 60 of ``1:30:00``."""

    word = "a time of Slurm: minutes, 'HH:MM:SS' or 'D-HH:MM:SS'"
    json_types = ("string", "integer")

    def convert(self, node: Node) -> Any:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            return None
        text = value if isinstance(value, str) else node.text
        if not re.fullmatch(r"\d+-\d+(:\d+){0,2}|\d+(:\d+){0,2}", text) or not re.search("[1-9]", text):
            return None
        node.surprise = ""
        return text


class Amount(Number):
    """A number above 0."""

    word = "a number above 0"

    def convert(self, node: Node) -> Any:
        number = super().convert(node)
        return number if number is not None and number > 0 else None


class Quantity(Kind):
    """An amount of a resource, kept as text."""

    word = "a whole number above 0, or a size such as 64Gi"
    json_types = ("string", "integer")

    def convert(self, node: Node) -> Any:
        text = str(node.value)
        return text if re.fullmatch(r"[1-9][0-9]*([kMGT]|[KMGT]i)?", text) else None


class SbatchOption(Line):
    """``--name`` or ``--name=value``, of those that are the user's to choose."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is None:
            return None
        what, hint = refusal_of(value)
        if what:
            report.add(f"{path}: {what}", node, path, hint)
            return None
        return value


_FIELDS = {
    "requeue": "use `requeue: true`",
    "no-requeue": "use `requeue: false`",
    "partition": "use `partition:`",
    "account": "use `account:`",
    "qos": "use `qos:`",
    "time": "use `time_limit:`",
    "nice": "use `priorities:`",
}
_OURS = {**OURS, **_FIELDS, "clusters": "one compute is one cluster; `slurm_conf` says which"}
_LETTERS = {
    "N": "nodes", "n": "ntasks", "J": "job-name", "o": "output", "e": "error", "i": "input", "a": "array",
    "D": "chdir", "M": "clusters", "p": "partition", "A": "account", "q": "qos", "t": "time", "W": "wait",
    "Q": "quiet", "h": "help", "V": "version", "C": "constraint", "w": "nodelist", "x": "exclude", "G": "gpus",
    "c": "cpus-per-task", "d": "dependency", "L": "licenses", "F": "nodefile", "H": "hold", "k": "no-kill",
}  # fmt: skip


def refusal_of(option: str) -> tuple[str, str]:
    """Return why an option of sbatch cannot be, and what to do; two empty texts for one that can."""
    found = re.fullmatch(r"--([a-z][a-z0-9-]*)(=.*)?", option)
    if found is None:
        return _misspelt(option)
    name = found[1]
    # sbatch takes an option by its beginning too.
    begun = next((one for one in _OURS if one.startswith(name)), "") if name not in USERS else ""
    ours = name if name in _OURS else begun
    if ours:
        return f"--{ours} is set by Drumline", _OURS[ours]
    if name in USERS:
        return "", ""
    import difflib

    close = difflib.get_close_matches(name, USERS, n=1)
    return (
        f"sbatch has no option --{name}",
        f"did you mean --{close[0]}?" if close else "long names, written out",
    )


def _misspelt(option: str) -> tuple[str, str]:
    letter = re.fullmatch(r"-([A-Za-z])(.*)", option)
    if letter:
        name = _LETTERS.get(letter[1], "NAME")
        value = letter[2].strip().removeprefix("=")
        long = f"--{name}" + (f"={value}" if value else "")
        what, hint = refusal_of(long) if name != "NAME" else ("", "")
        return (what, hint) if what else (f"{option!r} is short", f"write it long: {long}")
    parted = re.fullmatch(r"(--[a-z][a-z0-9-]*)\s+(.+)", option)
    if parted:
        return f"{option!r} is two words", f"write it as one: {parted[1]}={parted[2]}"
    return f"{option!r} is not an option of sbatch", "write it as --NAME or --NAME=VALUE"
