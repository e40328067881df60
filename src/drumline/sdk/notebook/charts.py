"""Small drawings in SVG: the course of a metric, and the graph of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.sdk.notebook.look import BLUE, choose_colour
from drumline.sdk.notebook.markup import Markup, shorten, tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT, _EDGE = 140, 26, 3
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 160, 36, 46, 14
_NAME_LENGTH = 20


def draw_curve(values: Sequence[float | None]) -> Markup:
    """Draw values in even steps; None for a step without one. All others are finite."""
    known = [(index, value) for index, value in enumerate(values) if value is not None]
    if not known:
        return Markup("")
    # Halves, because the difference of two large numbers may be beyond all numbers.
    low, high = min(value for _, value in known) / 2, max(value for _, value in known) / 2
    span = high - low
    across = max(1, len(values) - 1)
    points = [
        (
            _EDGE + (_WIDTH - 2 * _EDGE) * index / across,
            _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * ((value / 2 - low) / span if span else 0.5),
        )
        for index, value in known
    ]
    last_x, last_y = points[-1]
    parts = [tag("circle", cx=f"{last_x:.1f}", cy=f"{last_y:.1f}", r="2", fill=BLUE)]
    if len(points) > 1:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.insert(0, tag("polyline", points=path, fill="none", stroke=BLUE, stroke_width="1.5"))
    return _svg(_WIDTH, _HEIGHT, *parts)


def draw_graph(steps: Sequence[Mapping[str, Any]]) -> Markup:
    """Draw the steps of a pipeline from left to right, each with the colour of its status."""
    columns = _arrange(steps)
    places: dict[str, tuple[int, int]] = {}
    for column, names in enumerate(columns):
        for row, name in enumerate(names):
            places[name] = (column * (_BOX_WIDTH + _GAP_X) + 1, row * (_BOX_HEIGHT + _GAP_Y) + 1)
    edges = [
        _draw_edge(places[need], places[str(step["step"])])
        for step in steps
        for need in map(str, step.get("needs") or ())
        if need in places
    ]
    boxes = [_draw_step(step, *places[str(step["step"])]) for step in steps]
    width = len(columns) * (_BOX_WIDTH + _GAP_X) - _GAP_X + 2
    height = max(map(len, columns), default=0) * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y + 2
    return _svg(width, height, *edges, *boxes)


def _svg(width: int, height: int, *parts: Markup) -> Markup:
    return tag(
        "svg",
        *parts,
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
        style="vertical-align:middle;overflow:visible",
    )


def _arrange(steps: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return columns of names: each step stands to the right of all that it needs."""
    needs = {str(step["step"]): [str(need) for need in step.get("needs") or ()] for step in steps}
    depth: dict[str, int] = dict.fromkeys(needs, 0)
    # Each round moves at least one step to its place; a circle, which no pipeline has, ends with the rounds.
    for _ in needs:
        moved = False
        for name, others in needs.items():
            place = max((depth[other] + 1 for other in others if other in depth), default=0)
            if depth[name] < place:
                depth[name], moved = place, True
        if not moved:
            break
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name, place in depth.items():
        columns[place].append(name)
    return [column for column in columns if column]


def _draw_edge(begin: tuple[int, int], end: tuple[int, int]) -> Markup:
    x1, y1 = begin[0] + _BOX_WIDTH, begin[1] + _BOX_HEIGHT // 2
    x2, y2 = end[0], end[1] + _BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    path = f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"
    return tag("path", d=path, fill="none", stroke="currentColor", stroke_opacity=".45", stroke_width="1.3")


def _draw_step(step: Mapping[str, Any], x: int, y: int) -> Markup:
    name, state = str(step["step"]), str(step.get("status") or "")
    word = "Reused" if step.get("reused") else state
    colour = choose_colour(state)
    frame = tag(
        "rect",
        x=x,
        y=y,
        width=_BOX_WIDTH,
        height=_BOX_HEIGHT,
        rx="5",
        fill=colour,
        fill_opacity=".12",
        stroke=colour,
    )
    texts = {"font_family": "inherit", "fill": "currentColor"}
    label = tag("text", shorten(name, _NAME_LENGTH), x=x + 10, y=y + 15, font_size="12", **texts)
    below = tag("text", word, x=x + 10, y=y + 29, font_size="10", fill_opacity=".75", **texts)
    return tag("g", tag("title", f"{name}: {word} {step.get('reason') or ''}".strip()), frame, label, below)
