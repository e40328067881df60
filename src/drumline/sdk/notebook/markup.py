"""HTML whose texts are escaped, whatever a job wrote: tags are made by ``tag`` alone."""

from __future__ import annotations

from html import escape

from drumline.control.terminal import clean

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
