"""
``${{inputs.lr}}`` and its relatives in a command line.

Values go in once, in a single pass, and what they hold is never looked at again.
Nothing else is touched: ``$VAR`` and ``${VAR}`` belong to the shell, ``{{inputs.x}}`` to some
template of the user's.
"""

from __future__ import annotations

import re

from drumline.contract.errors import PlanError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME = r"(inputs|outputs|search_space)\.([\w.-]+)"
_BINDING = (
    # ${{x}}, and $${{x}}, which azure-ai-ml makes of the single braces of an f-string
    r"\$?\$\{\{\s*(?P<whole>\S*?)\s*\}\}"
    # ${inputs.x}: an f-string that ate one pair of braces
    r"|\$\{(?P<eaten>" + _NAME + r")\}"
    # {inputs.x}: the form of old files
    r"|(?<![{$])\{(?P<single>" + _NAME + r")\}(?!\})"
)
_OPTIONAL = r"\$\[\[((?:(?!\]\]).)*)\]\]"
_UNDEFINED = r"\$\{\{inputs\.([\w.-]+)\}\}"
_BRACKETED = r"\[[\w.\s-]*\$\{\{inputs\.([\w.-]+)\}\}\]"


MOST_PLACEHOLDERS = 1000


def expand(text: str, values: Mapping[str, str], *, where: str = "command") -> str:
    """
    Return the text with its placeholders filled in.

    values: by full name, as in ``{"inputs.lr": "0.1", "outputs.model": "/runs/j/model"}``.
    Raises PlanError for a name that ``values`` does not have, and for a ``${{`` that is never
    closed.

    >>> expand("a ${{inputs.x}} $[[--y ${{inputs.y}}]]", {"inputs.x": "1"})
    'a 1 '
    """
    if "{" not in text and "[" not in text:
        return text
    if text.count("${{") + text.count("$[[") > MOST_PLACEHOLDERS:
        raise PlanError(f"{where}: more than {MOST_PLACEHOLDERS} placeholders", path=where)
    return _expand(text, values, where)


def expand_group(text: str, group: str, values: Mapping[str, str], *, where: str = "command") -> str:
    """
    Expand the names of one group; the others stay for a later ``expand``, so values may not hold any.

    Raises PlanError.

    >>> expand_group("${{g.a}} ${{inputs.x}}$[[ ${{g.b}}]]", "g", {"g.a": "1"})
    '1 ${{inputs.x}}'
    """
    odd = next((name for name, value in values.items() if is_in(value)), None)
    if odd is not None:
        raise PlanError(f"{odd}: a value cannot hold a placeholder, and {values[odd]!r} does", path=odd)
    return _expand(text, values, where, group)


def _expand(text: str, values: Mapping[str, str], where: str, group: str = "") -> str:
    """Fill in the names of all groups, or of one alone: then an optional part with its values stays optional."""
    parts: list[str] = []
    position = 0
    for match in re.finditer(_OPTIONAL, text, re.DOTALL):
        parts.append(_fill(text[position : match.start()], values, where, group))
        names = [
            part["whole"] or part["eaten"] or part["single"] or "" for part in re.finditer(_BINDING, match[1])
        ]
        if all(name in values for name in names if not group or name.startswith(group + ".")):
            optional = _fill(match[1], values, where, group)
            parts.append(f"$[[{optional}]]" if group else optional)
        position = match.end()
    parts.append(_fill(text[position:], values, where, group))
    return "".join(parts)


def is_in(text: str) -> bool:
    """Return whether a placeholder is in the text, or the beginning of one."""
    return bool(re.search(_BINDING, text)) or "${{" in text or "$[[" in text


def legacy_forms(text: str) -> list[str]:
    """Return a warning for each placeholder in single braces."""
    warnings: list[str] = []
    if "{" not in text:
        return warnings
    for match in re.finditer(_BINDING, text):
        name = match["eaten"] or match["single"]
        if name:
            warnings.append(f"{match[0]!r} is read as '${{{{{name}}}}}'; write it so")
    return list(dict.fromkeys(warnings))


def undefined_inputs(command: str, known: Mapping[str, object]) -> list[str]:
    """
    Return inputs that a command refers to and the job does not have, as azure-ai-ml looks for them.

    It sees only ``${{inputs.x}}`` without spaces, and lets anything pass that stands alone in
    square brackets.
    """
    if "{" not in command:
        return []
    optional = set(re.findall(_BRACKETED, command))
    names = dict.fromkeys(re.findall(_UNDEFINED, command))
    return [name for name in names if known.get(name) is None and name not in optional]


def _fill(text: str, values: Mapping[str, str], where: str, group: str = "") -> str:
    """Fill in the names of placeholders. ``group``: leave the names of others alone."""

    def value_of(match: re.Match[str]) -> str:
        name = match["whole"] if match["whole"] is not None else match["eaten"] or match["single"]
        if group and not name.startswith(group + "."):
            return match[0]
        if name in values:
            return values[name]
        raise _unknown(name, match[0], values, where)

    filled: list[str] = []
    position = 0
    for match in re.finditer(_BINDING, text):
        filled += (_check_closed(text[position : match.start()], where), value_of(match))
        position = match.end()
    filled.append(_check_closed(text[position:], where))
    return "".join(filled)


def _check_closed(text: str, where: str) -> str:
    if "${{" in text:
        rest = text[text.index("${{") :].split("\n", 1)[0][:40]
        raise PlanError(
            f"{where}: {rest!r} is never closed",
            "close it with '}}', without spaces inside the name",
            path=where,
        )
    return text


def _unknown(name: str, written: str, values: Mapping[str, str], where: str) -> PlanError:
    from difflib import get_close_matches

    close = get_close_matches(name, values, 1, 0.7)
    known = "known: " + (", ".join(values) or "none")
    hint = f"did you mean '${{{{{close[0]}}}}}'?" if close else known
    what = f"{where}: {written!r} refers to {name!r}, which the job does not have"
    return PlanError(what, hint, path=where)
