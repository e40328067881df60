"""The reference of Python's names, of the run folder, of its events and of the errors, from the code itself."""

import importlib
import inspect
import re
from typing import Any, get_args

import drumline
from drumline.contract import errors as all_errors
from drumline.contract import events as all_events
from drumline.contract import folder
from drumline.sdk.ml_client import MLClient

MODULES = (
    "drumline.entities",
    "drumline.dsl",
    "drumline.sweep",
    "drumline.parallel",
    "drumline.constants",
    "drumline.identity",
    "drumline.exceptions",
)


def reference() -> str:
    """The client with its groups, the functions, and the classes by module."""
    parts = [f"## `MLClient`\n\n{_class(MLClient, 3)}"]
    client = inspect.getsource(MLClient.__init__)
    for name, words in re.findall(r"self\.(\w+) = ([\w.]+)\(", client):
        group = _find_group(words)
        if group is not None:
            parts.append(f"## `MLClient.{name}`\n\n{_class(group, 3)}")
    parts.append("## `drumline`\n")
    seen: set[int] = {id(MLClient)}
    parts += _members(drumline, drumline.__all__, seen)
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", [name for name in dir(module) if not name.startswith("_")])
        members = _members(module, names, seen)
        if members:
            parts += [f"## `{module_name}`\n", *members]
    return "\n".join(parts)


def _find_group(words: str) -> type | None:
    module = inspect.getmodule(MLClient)
    found: Any = module
    for word in words.split("."):
        found = getattr(found, word, None)
    return found if inspect.isclass(found) and found.__name__.endswith("Operations") else None


def _members(module: Any, names: Any, seen: set[int]) -> list[str]:
    parts = []
    for name in sorted(names):
        value = getattr(module, name)
        if id(value) in seen or inspect.ismodule(value):
            continue
        seen.add(id(value))
        if inspect.isclass(value):
            parts.append(f"### `{name}`\n\n{_class(value, 4)}")
        elif callable(value):
            parts.append(f"### `{name}`\n\n{_callable(name, value)}")
    return parts


def _class(value: type, level: int) -> str:
    text = [_signature(value.__name__, value), _prose(value.__doc__)]
    for name, member in inspect.getmembers(value):
        if name.startswith("_") or not (inspect.isfunction(member) or inspect.ismethod(member)):
            continue
        if not member.__module__.startswith("drumline"):
            continue
        text.append(f"{'#' * level} `{value.__name__}.{name}`\n\n{_callable(name, member)}")
    return "\n".join(part for part in text if part)


def _callable(name: str, value: Any) -> str:
    return "\n".join(part for part in (_signature(name, value), _prose(value.__doc__)) if part)


class _Words(str):
    """An annotation as its source has it."""

    __slots__ = ()
    __repr__ = str.__str__


def _signature(name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    shown: list[str] = []
    has_star = False
    for one in signature.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not has_star:
            shown.append("*")
        has_star = has_star or one.kind in (one.KEYWORD_ONLY, one.VAR_POSITIONAL)
        is_text = isinstance(one.annotation, str)
        text = str(one.replace(annotation=_Words(one.annotation)) if is_text else one)
        shown.append(re.sub(r"<[^<>]* at 0x[^<>]*>", "...", text))
    line = f"{name}({', '.join(shown)})"
    if len(line) > 92:
        line = f"{name}(\n    " + ",\n    ".join(shown) + ",\n)"
    return f"```python\n{line}\n```\n"


def _prose(text: str | None) -> str:
    """Return a docstring as Markdown: literals in single backticks."""
    if not text:
        return ""
    text = inspect.cleandoc(text)
    pieces = re.split(r"(``[^`]+``)", text)
    done = [f"`{one[2:-2]}`" if one.startswith("``") else one.replace("<", "&lt;") for one in pieces]
    return "".join(done) + "\n"


def run_folder() -> str:
    """The files of a run folder, from the docstring of the module that has their paths."""
    lines = ["| file or folder | what it is |", "| --- | --- |"]
    for line in (folder.__doc__ or "").splitlines():
        found = re.fullmatch(r"    ([\w./-]+) +(\S.*)", line)
        if found:
            lines.append(f"| `{found[1]}` | {_prose(found[2]).strip()} |")
    return "\n".join(lines) + "\n"


def events() -> str:
    """Each event, with its fields."""
    lines = ["| event | fields | |", "| --- | --- | --- |"]
    for one in get_args(all_events.Event):
        fields = ", ".join(f"`{name}`" for name in one._fields)
        text = " ".join(_prose(one.__doc__).split()).replace("|", "\\|")
        lines.append(f"| `{one.__name__}` | {fields} | {text} |")
    return "\n".join(lines) + "\n"


def errors() -> str:
    """Each error that Drumline raises, with the exit code of a command that ends with it."""
    lines = ["| error | a kind of | exit code |", "| --- | --- | --- |"]
    for name, one in vars(all_errors).items():
        if inspect.isclass(one) and issubclass(one, all_errors.DrumlineError):
            lines.append(f"| `{name}` | `{one.__bases__[0].__name__}` | {one.exit_code} |")
    return "\n".join(lines) + "\n"
