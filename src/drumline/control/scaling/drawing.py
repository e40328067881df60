"""The drawings of a report, in SVG with the colours of the page."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from drumline.control.scaling.refusals import name_nodes
from drumline.control.scaling.sentences import PHASES, list_phases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.control.scaling.report import ScaleReport

_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 20, 30, 45
_BAR, _GAP, _LABEL = 26, 12, 90

Point = tuple[float, float]


class _Axes:
    """Places of sizes and speed-ups, both in powers of two, so that the ideal is a straight line."""

    def __init__(self, first: float, last: float) -> None:
        self._first = math.log2(first)
        self._span = max(1.0, math.log2(last) - self._first)
        self.nodes = [2**power for power in range(math.floor(self._first), math.ceil(math.log2(last)) + 1)]

    def place(self, nodes: float, speed_up: float) -> Point:
        """Return where a size with that speed-up, in sizes of the first, is drawn."""
        right = (math.log2(nodes) - self._first) / self._span
        up = math.log2(max(speed_up, 0.5)) / self._span
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * right
        return x, _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(1.05, max(-0.1, up))


def draw_curve(report: ScaleReport) -> str:
    """Draw speed-ups over nodes: measured, ideal, and predicted with its band."""
    rows = [one for one in report.reliable if one.speed_up is not None]
    if not rows:
        return '<p class="quiet">No size was measured whose figures can be trusted.</p>'
    first = rows[0]
    last = max([rows[-1].run.nodes, *(one.nodes for one in report.predicted)])
    axes = _Axes(first.run.nodes, max(last, 2 * first.run.nodes))
    measured = [axes.place(one.run.nodes, one.speed_up or 0.0) for one in rows]
    parts = [*_draw_grid(axes, first.run.nodes)]
    ends = [axes.place(first.run.nodes, 1), axes.place(last, last / first.run.nodes)]
    parts.append(_draw_line(ends, "ideal", dashes="2 4"))
    if report.predicted:
        parts += _draw_predicted(report, axes, measured[-1])
    parts.append(_draw_line(measured, "measured"))
    parts += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" style="fill:var(--measured)"><title>'
        f"{name_nodes(one.run.nodes)}: {one.speed_up:.2f}</title></circle>"
        for one, (x, y) in zip(rows, measured, strict=True)
    ]
    parts += _draw_legend(("measured", "predicted", "ideal") if report.predicted else ("measured", "ideal"))
    return _make_svg(_HEIGHT, parts, "speed-up over nodes")


def _draw_predicted(report: ScaleReport, axes: _Axes, start: Point) -> list[str]:
    middle, low, high = [start], [start], [start]
    for one in report.predicted:
        middle.append(axes.place(one.nodes, one.speed_up))
        # A step that takes longer is a smaller speed-up.
        low.append(axes.place(one.nodes, one.speed_up * one.step_s / one.high_s))
        high.append(axes.place(one.nodes, one.speed_up * one.step_s / max(one.low_s, one.step_s / 10)))
    band = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*high, *reversed(low)])
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" style="fill:var(--back);stroke:var(--predicted)"><title>'
        f"{name_nodes(one.nodes)}: {one.speed_up:.2f}{', a guess' if one.is_guess else ''}</title></circle>"
        for one, (x, y) in zip(report.predicted, middle[1:], strict=True)
    ]
    return [
        f'<polygon points="{band}" style="fill:var(--predicted);opacity:.18"/>',
        _draw_line(middle, "predicted", dashes="6 4"),
        *dots,
    ]


def _draw_grid(axes: _Axes, first: int) -> list[str]:
    parts = []
    for nodes in axes.nodes:
        x, y = axes.place(nodes, nodes / first)
        line = 'style="stroke:var(--line)"'
        parts += [
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_HEIGHT - _BOTTOM}" {line}/>',
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" {line}/>',
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{nodes}</text>',
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{nodes / first:g}</text>',
        ]
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle" class="quiet">nodes</text>')
    parts.append(f'<text x="{_LEFT}" y="16" class="quiet">times as fast as {name_nodes(first)}</text>')
    return parts


def _draw_line(points: Sequence[Point], colour: str, dashes: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<polyline points="{path}" style="fill:none;stroke:var(--{colour});stroke-width:2"{dashed}/>'


def _draw_legend(names: Sequence[str]) -> list[str]:
    parts = []
    for number, name in enumerate(names):
        x = _LEFT + 14 + 110 * number
        parts.append(
            f'<rect x="{x}" y="{_TOP + 6}" width="12" height="12" rx="2" style="fill:var(--{name})"/>'
        )
        parts.append(f'<text x="{x + 18}" y="{_TOP + 16}">{escape(name)}</text>')
    return parts


def draw_steps(report: ScaleReport) -> str:
    """Draw the parts of a step at each measured size, as bars of one scale."""
    rows = [(one.run.nodes, one.facts) for one in report.measured if one.facts is not None]
    if not rows:
        return '<p class="quiet">No step was measured.</p>'
    longest = max(max(facts.step_s, sum(seconds for _, seconds in list_phases(facts))) for _, facts in rows)
    scale = (_WIDTH - _LABEL - _RIGHT - 80) / longest
    parts = []
    for row, (nodes, facts) in enumerate(rows):
        y = _TOP + row * (_BAR + _GAP)
        x = float(_LABEL)
        parts.append(f'<text x="{_LABEL - 10}" y="{y + 17}" text-anchor="end">{name_nodes(nodes)}</text>')
        for phase, seconds in list_phases(facts):
            width = seconds * scale
            text = f"{PHASES[phase]}: {1e3 * seconds:.1f} ms"
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" style="fill:var(--{phase})">'
                f"<title>{escape(text)}</title></rect>"
            )
            x += width
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 17}">{1e3 * facts.step_s:.1f} ms</text>')
    height = _TOP + len(rows) * (_BAR + _GAP) + 48
    for number, (phase, words) in enumerate(PHASES.items()):
        x, y = _LABEL + 210 * (number % 3), height - 44 + 24 * (number // 3)
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" style="fill:var(--{phase})"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 10}">{escape(words)}</text>')
    return _make_svg(height, parts, "the parts of a step")


def _make_svg(height: int, parts: Sequence[str], label: str) -> str:
    inside = "\n".join(parts)
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">\n{inside}\n</svg>'
