"""The page of a job on a terminal: the facts of ``control.facts.job`` in blocks, at most 100 columns wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.cli.colour import colour_of, paint
from drumline.cli.columns import cut, measure, to_line, wrap
from drumline.cli.views.parts import format_steps, format_trials
from drumline.contract.words import format_count, format_duration, format_number, format_ranges, format_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from drumline.cli.colour import Colour

_INDENT = "  "
_LABEL = 10
_APART = "   "
_MOST_PARTS = 30
"""Steps or trials on a page; the list has all of them."""

_MOST_ATTEMPTS = 3
_FILE_NAMES = {"outputs": "outputs/", "named-outputs": "named-outputs/", "user_logs": "user_logs/"}


def format_page(page: Mapping[str, Any], width: int) -> list[str]:
    """Return the lines of a page, each at most ``width`` columns wide but for the command to paste."""
    blocks = [
        _format_title(page, width),
        _format_verdict(page, width),
        [*_format_facts(page, width)],
        _format_parts(page, width),
        _format_last_lines(page, width),
    ]
    lines: list[str] = []
    for block in blocks:
        if block:
            lines += ["", *block] if lines else block
    if page["next"]:
        lines.append(f"{paint('next:', 'bold')} {to_line(page['next'])}")
    return lines


def _format_title(page: Mapping[str, Any], width: int) -> list[str]:
    state = _format_state(page)
    facts = [to_line(page["name"]), state]
    if page["display_name"] != page["name"]:
        facts.append(cut(to_line(page["display_name"]), width // 3))
    facts.append(_format_size(page))
    attempt, most = page.get("attempt", 0), page.get("attempts_most")
    if most or attempt:
        facts.append(f"attempt {attempt}" + (f" of 0-{most - 1}" if most and attempt < most else ""))
    if page["parent"]:
        facts.append(f"of {to_line(page['parent'])}")
    lines = _fill(facts, width, _APART)
    lines = [lines[0], *(_INDENT + line for line in lines[1:])]
    colour = colour_of(page["status"])
    return [
        line.replace(state, paint(state, colour), 1) if at == 0 else line for at, line in enumerate(lines)
    ]


def _format_state(page: Mapping[str, Any]) -> str:
    status = to_line(page["status"])
    if page["seconds"] is not None:
        return f"{status} {'after' if page['ended'] else 'for'} {format_duration(page['seconds'])}"
    if page["ended"] is None and page["waited_s"] is not None:
        return f"{status}, submitted {format_duration(page['waited_s'])} ago"
    return status


def _format_size(page: Mapping[str, Any]) -> str:
    """Return ``4 nodes x 4 ranks on lab``, or how many steps or trials."""
    where = f" on {to_line(page['compute'])}"
    if page["type"] == "pipeline":
        return format_count(len(page["steps"]), "step")
    if page["type"] == "sweep":
        most = page["trials_most"]
        return format_count(len(page["trials"]), "trial") + (f" of {most}" if most else "")
    counts = page["ranks_by_node"]
    if not counts:
        return where.strip()
    if len(set(counts)) == 1:
        return f"{format_count(len(counts), 'node')} x {format_count(counts[0], 'rank')}{where}"
    return f"{format_count(sum(counts), 'rank')} on {format_count(len(counts), 'node')} of {to_line(page['compute'])}"


def _fill(parts: Iterable[str], width: int, between: str) -> list[str]:
    """Put parts on as few lines as they fit on; a part that is too long is cut."""
    lines = [""]
    for part in parts:
        room = width if len(lines) == 1 else width - len(_INDENT)
        longer = f"{lines[-1]}{between}{part}" if lines[-1] else part
        if measure(longer) <= room or not lines[-1]:
            lines[-1] = cut(longer, room)
        else:
            lines.append(cut(part, width - len(_INDENT)))
    return lines


def _format_verdict(page: Mapping[str, Any], width: int) -> list[str]:
    """Format how it ended or why it waits: a line a sentence, the one about the first failure in red."""
    lines: list[str] = []
    for at, sentence in enumerate(page["sentences"]):
        colour: Colour | None = "red" if at == 0 and page["status"] == "Failed" else None
        for row, part in enumerate(wrap(to_line(sentence), width - 2 * len(_INDENT))):
            lines.append(_INDENT * (2 if row else 1) + paint(part, colour))
    if page.get("hang") and page["ended"] is None:
        lines += [
            _INDENT * (2 if row else 1) + paint(part, "red")
            for row, part in enumerate(wrap(f"hangs: {to_line(page['hang'])}", width - 2 * len(_INDENT)))
        ]
    lines += [
        _INDENT * (2 if row else 1) + paint(part, "yellow")
        for text in page.get("warnings") or ()
        for row, part in enumerate(wrap(f"warning: {to_line(text)}", width - 2 * len(_INDENT)))
    ]
    lines += _format_drills((*(page.get("drills") or ()), *(page.get("notes") or ())), width)
    earlier = page.get("earlier_attempts") or ()
    for one in earlier[-_MOST_ATTEMPTS:]:
        text = f"attempt {one['attempt']}: {to_line(one['reason'])}"
        lines.append(_INDENT + paint(cut(text, width - len(_INDENT)), "grey"))
        lines += _format_drills(one.get("drills") or (), width)
    return lines


def _format_drills(sentences: Iterable[str], width: int) -> list[str]:
    """Format the failures that were made on purpose, below what happened meanwhile."""
    return [
        _INDENT * (2 if row else 1) + part
        for sentence in sentences
        for row, part in enumerate(wrap(to_line(sentence), width - 2 * len(_INDENT)))
    ]


def _format_facts(page: Mapping[str, Any], width: int) -> Iterable[str]:
    if page["type"] != "command":
        return
    for label, parts in (
        ("runs", [to_line(page["command"])] if page["command"] else []),
        ("inputs", [f"{to_line(one['name'])} {to_line(one['value'])}" for one in page["inputs"]]),
        ("ranks", _list_states(page["rank_states"])),
        ("steps", _list_steps(page)),
        ("start-up", _list_phases(page["start"])),
        ("metrics", _list_metrics(page["metrics"], page["metrics_left_out"])),
        ("used", _list_usage(page["usage"])),
        ("files", _list_files(page["files"])),
        (
            "pruned",
            [f"{', '.join(map(to_line, page['pruned']))} on {page['pruned_at'][:10]}"]
            if page["pruned"]
            else [],
        ),
    ):
        room = width - len(_INDENT) - _LABEL
        for at, line in enumerate(_fill(parts, room, _APART) if parts else ()):
            head = paint(f"{label:<{_LABEL}}", "grey") if at == 0 else " " * _LABEL
            yield f"{_INDENT}{head}{line}"


def _list_states(states: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{to_line(format_ranges(one['ranks']))} {one['state']}" for one in states]


def _list_steps(page: Mapping[str, Any]) -> list[str]:
    steps = page.get("training")
    if not steps:
        return []
    from drumline.control.observing.steps import words

    return [to_line(part) for part in words.list_parts(steps, is_over=page["ended"] is not None)]


def _list_phases(start: Mapping[str, Any] | None) -> list[str]:
    if start is None:
        return []
    phases = [
        f"{to_line(one['phase'])} {'...' if one['seconds'] is None else format_duration(one['seconds'])}"
        for one in start["phases"]
    ]
    return [f"{format_duration(start['total_s'])} in all", *phases]


def _list_metrics(found: Sequence[Mapping[str, Any]], left_out: int) -> list[str]:
    parts = []
    for one in found:
        text = f"{cut(to_line(one['metric']), 40)} {format_number(one['last'])}"
        best = one["best"]
        if best is not None and best["value"] != one["last"]:
            text += f" (best {format_number(best['value'])} at {best['step']:,})"
        elif best is None and one["lowest"] is not None and one["lowest"] != one["highest"]:
            text += f" ({format_number(one['lowest'])} to {format_number(one['highest'])})"
        parts.append(text)
    return [*parts, f"and {left_out:,} more"] if left_out else parts


def _list_usage(usage: Mapping[str, Any] | None) -> list[str]:
    if usage is None:
        return []
    parts = []
    if usage["peak_memory_bytes"]:
        parts.append(f"{format_size(usage['peak_memory_bytes'])} of memory at most in a rank")
    if usage["mean_cpu_percent"] is not None:
        parts.append(f"{usage['mean_cpu_percent']:.0f} % of a core on average")
    return parts


def _list_files(files: Sequence[Mapping[str, Any]]) -> list[str]:
    parts = []
    for one in files:
        if one["what"] != "code":
            more = "more than " if one["is_more"] else ""
            parts.append(f"{_FILE_NAMES[one['what']]} {more}{format_size(one['bytes'])}")
        elif one["files"] is None:
            parts.append(f"code as it was in {to_line(one['path'])}")
        else:
            more = "more than " if one["is_more"] else ""
            git = one["git"]
            which = f"git {to_line(git['commit'])[:7]}" if git else one["digest"][:7]
            if git and git["branch"]:
                which += f" on {cut(to_line(git['branch']), 30)}"
            parts.append(f"code {more}{format_count(one['files'], 'file')} ({which})")
    return parts


def _format_parts(page: Mapping[str, Any], width: int) -> list[str]:
    if page["type"] == "pipeline":
        rows, table = page["steps"], format_steps(page["steps"][:_MOST_PARTS], width)
    elif page["type"] == "sweep":
        rows = page["trials"]
        table = format_trials(page["trials"][:_MOST_PARTS], page["metric"], page["goal"], width)
    else:
        return []
    if len(rows) > _MOST_PARTS:
        table.append(
            paint(
                f"{_MOST_PARTS} of {len(rows):,}; drumline job list -p {to_line(page['name'])} has all",
                "grey",
            )
        )
    return table


def _format_last_lines(page: Mapping[str, Any], width: int) -> list[str]:
    failed = page.get("failed_rank")
    if not failed or not failed["last_lines"]:
        return []
    title = f"{_INDENT}last lines of rank {to_line(failed['label'])}"
    room = width - 2 * len(_INDENT)
    return [
        paint(title, "grey"),
        *(f"{_INDENT * 2}{cut(to_line(line, keep_blanks=True), room)}" for line in failed["last_lines"]),
    ]
