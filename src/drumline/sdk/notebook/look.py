"""
The colours and boxes of pages in a notebook, as HTML whose texts are escaped, whatever a job wrote: tags are made by
``tag`` alone.

Texts and borders take the colours of the notebook, light or dark; colours of states are readable on both.
Styles stand in each element: a sheet of styles would reach the rest of the notebook, and viewers remove it.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from drumline.contract import status
from drumline.control.terminal import clean

if TYPE_CHECKING:
    from collections.abc import Sequence


GREEN, RED, BLUE, AMBER, GREY = "#2b8a4f", "#d03f3f", "#2f74c9", "#a86a08", "#7d7d7d"
_LINE = "1px solid rgba(128,128,128,.35)"
_COLOURS = {
    status.COMPLETED: GREEN,
    status.FAILED: RED,
    status.NOT_RESPONDING: RED,
    status.CANCELED: GREY,
    status.CANCEL_REQUESTED: GREY,
    status.SKIPPED: GREY,
    status.NOT_STARTED: AMBER,
    status.QUEUED: AMBER,
    status.PROVISIONING: AMBER,
}
SMALL = "font-size:85%"


def choose_colour(state: str) -> str:
    """Return the colour of a job's status."""
    return _COLOURS.get(state, BLUE)


def badge(state: str) -> Markup:
    style = (
        f"display:inline-block;padding:0 .6em;border-radius:.8em;color:#fff;background:{choose_colour(state)};"
        "font-weight:600;line-height:1.6"
    )
    return tag("span", state, style=style)


def box(*children: object) -> Markup:
    """Return the frame of a page."""
    style = (
        f"border:{_LINE};border-radius:6px;padding:.7em .9em;max-width:70em;overflow-x:auto;line-height:1.5"
    )
    return tag("div", *children, style=style)


def block(*children: object, style: str = "") -> Markup:
    return tag("div", *children, style=f"margin-top:.6em;{style}")


def quiet(*children: object) -> Markup:
    """Return text that stands back."""
    return tag("span", *children, style=f"opacity:.7;{SMALL}")


def code(*children: object) -> Markup:
    return tag("code", *children, style="background:transparent;color:inherit;padding:0")


def lines_of(lines: Sequence[str]) -> Markup:
    """Return lines of a log as they are."""
    style = (
        f"margin:.6em 0 0;padding:.5em .7em;border:{_LINE};border-radius:4px;overflow-x:auto;white-space:pre;"
        "background:rgba(128,128,128,.08);color:inherit;font-size:85%;line-height:1.35"
    )
    parts = [part for line in lines for part in (line, "\n")]
    return tag("pre", *parts[:-1], style=style)


def table(heads: Sequence[tuple[str, bool]], rows: Sequence[Sequence[object]]) -> Markup:
    """Return a table. ``heads``: of each column the title, and whether it holds numbers."""
    sides = ["right" if is_number else "left" for _, is_number in heads]
    head = [
        tag("th", title, style=_cell(side) + "font-weight:600")
        for (title, _), side in zip(heads, sides, strict=True)
    ]
    body = [
        tag(
            "tr",
            *(tag("td", cell, style=_cell(side)) for cell, side in zip(row, sides, strict=True)),
            style="background:transparent",
        )
        for row in rows
    ]
    style = "border-collapse:collapse;margin-top:.6em;background:transparent;color:inherit"
    return tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body), style=style)


def _cell(side: str) -> str:
    space = "padding:.15em .8em .15em 0;white-space:nowrap;vertical-align:middle"
    return f"text-align:{side};{space};border:0;border-bottom:{_LINE};"


def next_step(text: str) -> Markup:
    return block(quiet("next: "), code(text))


# markup


LONGEST = 200


class Markup(str):
    """HTML. Any other text is escaped when it becomes part of it."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """
    Return an element. An underscore in the name of an attribute becomes a hyphen; None leaves one out.

    >>> tag("b", "1 < 2", tag("i", "x"), title='"')
    '<b title="&quot;">1 &lt; 2<i>x</i></b>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{to_markup(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{join(*children)}</{name}>")


def join(*parts: object) -> Markup:
    return Markup("".join(map(to_markup, parts)))


def to_markup(value: object) -> Markup:
    """Return markup as it is, and text escaped and without control characters."""
    if isinstance(value, Markup):
        return value
    # Half of a surrogate pair, as of a name that is not UTF-8, has no bytes to be sent as.
    text = clean(str(value)).encode("utf-8", "replace").decode("utf-8")
    return Markup(escape(text))


def shorten(value: object, longest: int = LONGEST) -> str:
    """Return the text, cut where it is longer."""
    text = " ".join(clean(str(value)).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
