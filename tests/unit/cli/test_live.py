"""Tables of steps and trials that are drawn over themselves while a pipeline or a sweep runs."""

import io
from types import SimpleNamespace

import pytest

from drumline.cli import screen
from drumline.cli.views import live, page
from drumline.contract.outcome import Outcome
from drumline.control.facts.job import SweepGoal
from drumline.control.facts.parts import StepFacts, TrialFacts

HOSTILE = "鼓" * 60 + "\x1b[2J\n"


def make_trial(name, metric, status="Completed", **fields):
    params = {"lr": 0.15911457756865252, "batch": 16, HOSTILE: HOSTILE}
    return TrialFacts(name, status, None, metric, params, False, HOSTILE, None, None, 12.3)._replace(**fields)


def make_step(name, status="Completed", **fields):
    return StepFacts(name, status, name, False, "", [], None, None, HOSTILE, None)._replace(**fields)


def make_facts(trials=(), steps=(), metric="loss"):
    outcome = Outcome()
    outcome.kind, outcome.status = "sweep" if trials else "pipeline", "Completed"
    outcome.started, outcome.ended = 0.0, 57.0
    objective = SweepGoal(metric, "minimize", 4)
    return SimpleNamespace(
        name="s", outcome=outcome, objective=objective, trials=trials, parts=trials or steps
    )


@pytest.mark.parametrize("width", [60, 80, 100])
def test_tables_of_parts_fit(width):
    trials = [make_trial(HOSTILE, 1e-9, "Failed"), make_trial("s_1", None, "Running", reason="")]
    steps = [make_step(HOSTILE, "Failed"), make_step("b", "Running", reason="")]
    tables = (
        page.format_table(make_facts(trials, metric=HOSTILE), trials, width, {"s_1": HOSTILE}),
        page.format_table(make_facts(steps=steps), steps, width, {"b": HOSTILE}),
    )
    for lines in tables:
        assert len(lines) == 3
        assert all(line.isprintable() and screen.measure(line) <= width for line in lines)


def test_numbers_are_short_and_at_the_right():
    trials = [
        make_trial("s_0", 0.48292072628946187, params={"lr": 0.15911457756865252, "batch": 16}),
        make_trial("s_10", 12.5, params={"lr": 1e-05, "batch": 128}),
    ]
    heads, first, second = page.format_table(make_facts(trials), trials, 80)
    assert heads == "TRIAL  loss (min)  TIME     lr  batch  STATUS"
    assert first == "s_0         0.483   12s  0.159     16  Completed"
    assert second == "s_10         12.5   12s   1e-5    128  Completed"


def test_of_many_rows_the_best_and_those_that_run_are_shown():
    rows = [make_step("a") for _ in range(100)]
    rows[50], rows[60] = make_step("a", "Running"), make_step("a", "Failed")
    shown = live._choose_rows(rows, 7, best=5)
    assert [row.status for row in shown[-3:]] == ["Completed", "Running", "Failed"]
    assert len(shown) == 7
    assert live._choose_rows(rows, None, best=5) == rows


def test_lines_are_drawn_over_those_before(monkeypatch):
    monkeypatch.setenv("COLUMNS", "10")
    out = io.StringIO()
    lines = live.LiveLines(out)
    lines.draw(["a", "x" * 25])
    lines.draw(["a", "x" * 25])
    lines.draw(["b"])
    # The second line has taken three rows of a terminal of ten columns.
    assert out.getvalue() == "a\n" + "x" * 25 + "\n" + "\x1b[4A\r\x1b[Jb\n"


def test_the_line_about_the_whole():
    trials = [make_trial("s_0", 0.25, rank=1), make_trial("s_1", None, "Failed")]
    title, *table = live.format_parts(make_facts(trials), 79, live.NewestLines())
    assert title == "s   Completed after 57s   2 of 4 trials ended   best 0.25 of s_0"
    assert len(table) == 3
