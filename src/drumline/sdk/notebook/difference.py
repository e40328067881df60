"""Differences between two jobs, as ``MLClient.jobs.diff`` returns them: for programs, and as a page in a notebook."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from drumline.contract.status import COMPLETED
from drumline.contract.words import format_count, format_number
from drumline.control.comparing import SECTIONS
from drumline.sdk.notebook import look
from drumline.sdk.notebook.look import Markup, join, shorten, tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_COLOURS = {"+": look.GREEN, "-": look.RED}
_MOST_ROWS = 200
_MOST_LINES = 400
_LONGEST_VALUE = 400
_LONGEST_LINE = 500


class JobDifferences(dict[str, Any]):
    """Differences by section, with the keys of ``drumline job diff -o json``; in a notebook they show themselves."""

    def _repr_html_(self) -> str:
        return render_differences(self)


def render_differences(told: Mapping[str, Any]) -> Markup:
    """Return the page. ``told``: as ``compare_jobs`` returns it."""
    parts = [_job(letter, job) for letter, job in zip("ab", told["jobs"], strict=True)]
    same = []
    for section, key in SECTIONS.items():
        shown = _code(told["code"]) if section == "code" else _differences(told[section], key)
        if shown:
            parts.append(look.block(tag("strong", section), shown))
        else:
            same.append(section)
    if told["metrics"]:
        parts.append(_numbers("metric", told["metrics"], ("a", "b", "difference")))
    parts.append(_numbers("time", told["times"], ("a", "b")))
    if told["phases"]:
        parts.append(_numbers("phase", told["phases"], ("a", "b")))
    if same:
        parts.append(look.block(look.quiet(f"the same: {', '.join(same)}")))
    return look.box(*parts)


def _job(letter: str, job: Mapping[str, Any]) -> Markup:
    reason = job["reason"] if job["status"] != COMPLETED else ""
    return tag(
        "div",
        tag("strong", f"{letter} "),
        look.badge(str(job["status"])),
        " ",
        tag("strong", shorten(job["name"], 80)),
        " ",
        look.quiet(shorten(reason or "", 300)),
    )


def _differences(listed: Sequence[Mapping[str, Any]], key: str) -> Markup:
    if not listed:
        return Markup("")
    rows = [(shorten(one[key], 100), _value(one["a"]), _value(one["b"])) for one in listed[:_MOST_ROWS]]
    return join(
        look.table([(key, False), ("a", False), ("b", False)], rows), _more(len(listed) - _MOST_ROWS, key)
    )


def _value(value: Any) -> Markup:
    """Return a value as it is, with its line breaks, in a cell of bounded width."""
    if value is None:
        return Markup("-")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[: _LONGEST_VALUE - 1]}…"
    return tag("div", text, style="white-space:pre-wrap;overflow-wrap:anywhere;max-width:32em")


def _code(code: Mapping[str, Any]) -> Markup:
    parts = [tag("div", look.quiet(shorten(note, 300))) for note in code["notes"]]
    lines: list[Markup] = []
    for file in code["files"]:
        if file["diff"]:
            lines += map(_line, file["diff"].split("\n")[:-1])
        else:
            hashes = " -> ".join(str(file[side] or "none") for side in ("a", "b"))
            parts.append(tag("div", shorten(f"{file['path']}: {file['change']}, {hashes}", 300)))
    if lines:
        parts.append(look.lines_of(lines[:_MOST_LINES]))
    parts.append(_more(len(lines) - _MOST_LINES, "line"))
    parts.append(_more(code["left_out"], "file"))
    return join(*parts)


def _line(text: str) -> Markup:
    shown = text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"
    colour = _COLOURS.get(text[:1])
    return tag("span", shown, style=f"color:{colour}" if colour else None)


def _numbers(key: str, listed: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> Markup:
    rows = [(shorten(one[key], 60), *(format_number(one[column]) for column in columns)) for one in listed]
    heads = [(key, False), *(("b - a" if column == "difference" else column, True) for column in columns)]
    return look.table(heads, rows[:_MOST_ROWS])


def _more(count: int, word: str) -> Markup:
    if count <= 0:
        return Markup("")
    return look.quiet(f"and {format_count(count, f'more {word}')}")
