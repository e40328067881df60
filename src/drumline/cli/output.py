"""Results on standard output, in the formats of ``az``."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import UsageError, describe_os_error
from drumline.contract.record import describe_record
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from drumline.contract.folder import RunFolder

_PARTS = {
    "trials": ("trial", "status", "rank", "metric", "params", "reason"),
    "steps": ("step", "status", "job", "reason"),
}
"""The parts of a job that are printed as tables, and their columns."""


def show(result: Any, form: str | None, query: str | None, columns: tuple[str, ...] = ()) -> None:
    """
    Print a record, or what JSON can hold. ``form`` None: a table on a terminal, else JSON. ``columns``: of a table of a
    list. Nothing is printed of a query that finds nothing, as ``az`` has it.

    Raises UsageError for a query that is no JMESPath.
    """
    result = describe_record(result)
    if query:
        result = _search(query, result)
        columns = ()
        if result is None:
            return
    form = form or ("table" if sys.stdout.isatty() else "json")
    writers: dict[str, Callable[[Any], str]] = {
        "json": _json,
        "jsonc": _jsonc,
        "yaml": _yaml,
        "yamlc": _yaml,
        "tsv": _tsv,
        "none": lambda _: "",
        "table": lambda value: _table(value, columns),
    }
    sys.stdout.write(writers[form](result))


def is_for_people(form: str | None, query: str | None) -> bool:
    """Return whether a person reads the result: on a terminal, or as a table that was asked for, without a query."""
    return not query and (form or ("table" if sys.stdout.isatty() else "json")) == "table"


def check_query(query: str | None) -> None:
    """Raise UsageError for a query that is no JMESPath, before a command does what takes long."""
    if query:
        import jmespath

        try:
            jmespath.compile(query)
        except jmespath.exceptions.JMESPathError as error:
            raise UsageError(f"--query: {query!r} is not a JMESPath expression: {error}") from error


def print_warnings(warnings: Iterable[str]) -> None:
    """Print each to standard error."""
    for warning in warnings:
        print(f"warning: {clean(warning)}", file=sys.stderr)


def explain(error: Exception) -> list[str]:
    """Return the lines that tell a user of an error: all problems of a file, or a sentence with its hint."""
    problems = getattr(error, "problems", ())
    if len(problems) > 1 or any(problem.file for problem in problems):
        count = [f"({len(problems)} errors)"] if len(problems) > 1 else []
        return [*(clean(f"error: {problem}") for problem in problems), *count]
    if hasattr(error, "hint"):
        hint = [clean(f"hint: {error.hint}")] if error.hint else []
        return [clean(f"error: {getattr(error, 'message', str(error))}"), *hint]
    told = describe_os_error(error) if isinstance(error, OSError) else f"internal error: {error!r}"
    return [clean(f"error: {told}")]


def tell(text: str) -> None:
    """Print a line of progress to standard error; one that nobody can read must not cost what is being done."""
    with suppress(OSError):
        print(clean(text), file=sys.stderr, flush=True)


def _search(query: str, result: Any) -> Any:
    import jmespath

    try:
        return jmespath.search(query, result)
    except jmespath.exceptions.JMESPathError as error:
        raise UsageError(f"--query: {query!r} is not a JMESPath expression: {error}") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        # JMESPath's own functions let these through, for a slice of step 0 and the like.
        raise UsageError(f"--query: {query!r} cannot be evaluated: {error}") from error


def _json(result: Any) -> str:
    text = json.dumps(result, indent=2, ensure_ascii=False, default=str) + "\n"
    return clean(text) if sys.stdout.isatty() else text


def _jsonc(result: Any) -> str:
    from drumline.cli.colour import is_on

    text = _json(result)
    if not is_on():
        return text
    return re.sub(r'^(\s*)("(?:[^"\\]|\\.)*")(?=: )', "\\1\x1b[34m\\2\x1b[0m", text, flags=re.MULTILINE)


def _yaml(result: Any) -> str:
    import yaml

    text = str(yaml.safe_dump(result, sort_keys=False, allow_unicode=True))
    return clean(text) if sys.stdout.isatty() else text


def _tsv(result: Any) -> str:
    """Format as az does: a line an item, tabs between its values, nothing for nested mappings."""
    text = ""
    for row in result if isinstance(result, list) else [result]:
        values = row.values() if isinstance(row, dict) else row if isinstance(row, list) else [row]
        text += "\t".join(map(_tsv_cell, values)) + "\n"
    return clean(text) if sys.stdout.isatty() else text


def _tsv_cell(value: Any) -> str:
    if isinstance(value, list):
        return str(len(value))
    if isinstance(value, dict):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _table(result: Any, columns: tuple[str, ...]) -> str:
    if isinstance(result, dict):
        parts = [key for key in _PARTS if _is_table(result.get(key))]
        facts = [
            (clean(str(key)), _cell(value))
            for key, value in result.items()
            if value not in (None, {}, [], "") and key not in parts
        ]
        return "\n".join([_align(facts), *(_table(result[key], _PARTS[key]) for key in parts)])
    if not isinstance(result, list):
        return f"{_cell(result)}\n"
    if not all(isinstance(row, dict) for row in result):
        return "".join(f"{_cell(row)}\n" for row in result)
    names = columns or tuple(dict.fromkeys(key for row in result for key in row))
    rows = [tuple(_cell(row.get(name)) for name in names) for row in result]
    heading = [tuple(clean(str(name)).upper() for name in names)]
    if not sys.stdout.isatty():
        return _align([*heading, *rows])
    from drumline.cli.screen import PAGE_WIDTH, fit_table, join, terminal_width

    cells = fit_table([*heading, *rows], terminal_width(PAGE_WIDTH))
    return "".join(join(row) + "\n" for row in cells)


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (dict, list)):
        return clean(json.dumps(value, ensure_ascii=False, default=str))
    return clean(str(value)).replace("\n", " ")


def _align(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "".join(line.rstrip() + "\n" for line in lines)


def choose_progress() -> Callable[[RunFolder], str] | None:
    """Return a function that gives a line about a job's steps, for standard error; None: it is no terminal."""
    if not sys.stderr.isatty():
        return None
    from drumline.control.facts.steps import StepsLine

    return StepsLine().read
