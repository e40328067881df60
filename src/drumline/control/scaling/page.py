"""A report as one HTML page, which loads nothing: a curve, the parts of a step, the table and the sentences."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from drumline.control.scaling import drawing
from drumline.control.scaling.refusals import describe_ms, name_nodes
from drumline.control.scaling.sentences import list_sentences
from drumline.control.terminal import clean
from drumline.control.times import utc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from drumline.control.scaling.report import ScaleReport

_STYLE = """
:root { color-scheme: light dark; --text: #1d2430; --quiet: #5b6675; --line: #d6dbe2; --back: #ffffff;
  --measured: #2f74c9; --predicted: #a8550a; --ideal: #7d7d7d;
  --input: #8250df; --forward: #2f74c9; --backward: #2b8a4f; --exchange: #d03f3f; --waiting: #a86a08;
  --other: #7d7d7d; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ee; --quiet: #9aa6b5; --line: #3a4350; --back: #151a21;
  --measured: #6ea8f0; --predicted: #f0a35a; --ideal: #9aa0a8;
  --input: #b48cf2; --forward: #6ea8f0; --backward: #5cc285; --exchange: #f07070; --waiting: #e0b050;
  --other: #9aa0a8; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  max-width: 60em; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 1.8em; }
table { border-collapse: collapse; }
th, td { padding: .25em .9em; text-align: right; border-bottom: 1px solid var(--line); }
svg { max-width: 100%; height: auto; } svg text { fill: var(--text); font-size: 12px; }
.quiet, svg text.quiet { color: var(--quiet); fill: var(--quiet); }
.scroll { overflow-x: auto; }
"""

HEADINGS = ("nodes", "ranks", "step, ms", "from", "to", "speed-up", "efficiency", "")


def make_page(report: ScaleReport) -> str:
    """Return the page as text."""
    title = escape(clean(f"How far {report.title} scales"))
    sentences = "".join(f"<li>{escape(clean(one))}</li>\n" for one in list_sentences(report))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<ul>
{sentences}</ul>
<h2>Speed-up</h2>
{drawing.draw_curve(report)}
<h2>A step</h2>
{drawing.draw_steps(report)}
<h2>Figures</h2>
<div class="scroll">{_make_table(list_rows(report))}</div>
<p class="quiet">{escape(clean(_describe_origin(report)))}</p>
</body>
</html>
"""


def _describe_origin(report: ScaleReport) -> str:
    """Return whence the figures are: who finds the page a year later has no folder beside it."""
    moment = utc(report.at, "minutes")
    when = f" on {moment[:10]} at {moment[11:16]} UTC" if moment else ""
    jobs = ", ".join(f"{one.run.job} ({name_nodes(one.run.nodes)})" for one in report.measured if one.run.job)
    return f"Made by drumline scale{when}" + (f". Its jobs: {jobs}." if jobs else ".")


def list_rows(report: ScaleReport) -> list[tuple[str, ...]]:
    """List the cells of the table, measured sizes before predicted ones."""
    rows: list[tuple[str, ...]] = []
    for one in report.measured:
        head = (str(one.run.nodes), str(one.run.ranks))
        if one.facts is None:
            rows.append((*head, "-", "-", "-", "-", "-", "not measured"))
            continue
        times = [describe_ms(value) for value in (one.facts.step_s, *one.facts.band_s)]
        how = "not trusted" if one.refused else "measured"
        rows.append((*head, *times, *_format_gain(one.speed_up, one.efficiency), how))
    for two in report.predicted:
        times = [describe_ms(value) for value in (two.step_s, two.low_s, two.high_s)]
        gain = _format_gain(two.speed_up, two.efficiency)
        rows.append((str(two.nodes), str(two.ranks), *times, *gain, "guess" if two.is_guess else "predicted"))
    return rows


def _format_gain(speed_up: float | None, efficiency: float | None) -> tuple[str, str]:
    if speed_up is None or efficiency is None:
        return "-", "-"
    return f"{speed_up:.2f}", f"{100 * efficiency:.0f} %"


def _make_table(rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f"<th>{escape(one)}</th>" for one in HEADINGS)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(clean(cell))}</td>" for cell in row) + "</tr>\n" for row in rows
    )
    return f"<table>\n<tr>{heads}</tr>\n{body}</table>"
