"""Pages of a notebook: well-formed HTML, in which no text of a job is anything but text."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest
from html_pages import HOSTILE, Page
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.contract import events
from drumline.contract.outcome import Outcome, fold
from drumline.control.facts.job import SweepGoal
from drumline.control.facts.jobs import JobOverview
from drumline.control.facts.parts import StepFacts, TrialFacts
from drumline.sdk.notebook import look
from drumline.sdk.notebook.live_page import describe_preparation
from drumline.sdk.notebook.look import tag
from drumline.sdk.notebook.notebook_page import render_job, render_jobs
from drumline.tracking.metrics import Series


def job(status="Running", ranks=(), steps=(), trials=(), metric="", **fields):
    outcome = Outcome()
    outcome.kind = "pipeline" if steps else "sweep" if trials else "command"
    outcome.status, outcome.started = status, 1.0
    outcome.ranks = dict(enumerate(ranks))
    for name in ("reason", "failed_rank"):
        setattr(outcome, name, fields.pop(name, getattr(outcome, name)))
    nodes = Counter(rank.node for rank in ranks)
    known = {"name": "first", "display_name": "first", "spec": {}, "ranks_by_node": list(nodes.values())}
    parts = {"steps": steps, "trials": trials, "parts": steps or trials}
    return SimpleNamespace(
        **{"warnings": []} | known | parts | fields, outcome=outcome, objective=SweepGoal(metric, "", None)
    )


def step(name, status, **fields):
    return StepFacts(name, status, None, False, "", [], None, None, "", None)._replace(**fields)


def trial(name, status, rank, metric, params, *, stopped_early=False):
    return TrialFacts(name, status, rank, metric, params, stopped_early, "", None, None, None)


def overview(**fields):
    known = {
        "name": "first",
        "kind": "command",
        "status": "Running",
        "reason": "",
        "created": 1.0,
        "started": 2.0,
    }
    rest = {"ended": None, "experiment": "e", "compute": "local", "parent": "", "tags": {}, "size": "2x2"}
    return JobOverview(**{**known, **rest, "archived": False, **fields})


def ranks(*states, nodes=2):
    each = -(-len(states) // nodes)
    return [SimpleNamespace(rank=at, node=at // each, state=state) for at, state in enumerate(states)]


def series(*values, name="loss", run=""):
    one = Series(name, "mlflow", run)
    for step, value in enumerate(values):
        one.add(step, step, value)
    return one


def hostile_page(text):
    bad_trial = trial(text, text, 1, 0.5, {text: text, "n": {"a": text}})
    bad_step = step(text, text, job=text, needs=[text], reason=text)
    base = {
        "name": text,
        "display_name": text + "2",
        "status": text,
        "reason": text,
        "spec": {"compute": text},
        "warnings": [text],
    }
    curves = [series(1.0, 2.0, name=text, run=text)]
    return (
        render_job(job(**base, ranks=ranks(text)), curves, [text, text]),
        render_job(job(**base, steps=[bad_step]), curves, [text]),
        render_job(job(**base, steps=[bad_step._replace(step=f"{text}{n}") for n in range(70)])),
        render_job(job(**base, trials=[bad_trial], metric=text)),
        render_jobs([overview(name=text, status=text, reason=text, compute=text, metric=(text, 0.5))], 1),
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_a_job_stays_text(text):
    for markup in hostile_page(text):
        page = Page(markup)
        if "<" in text:
            assert text.split(">")[0] in page.text


@settings(max_examples=60)
@given(st.text(max_size=40))
def test_any_text_stays_text(text):
    for markup in hostile_page(text):
        Page(markup)


def test_a_page_has_a_cell_for_each_rank_in_the_colour_of_its_state():
    states = ("running", "done", "exit 1", "signal 15")
    page = Page(
        render_job(job(status="Failed", failed_rank=2, reason="rank 2 failed first", ranks=ranks(*states)))
    )
    cells = [style for style in page.styles if "text-align:center" in style]
    assert [re.search(r"background:(#\w+)", style)[1] for style in cells] == [
        look.BLUE,
        look.GREEN,
        look.RED,
        look.GREY,
    ]
    assert "rank 2 on node 1: exit 1" in page.text
    assert "rank 2 failed first" in page.text
    assert 'ml_client.jobs.logs("first", rank=2, tail=50)' in page.text
    assert "2 nodes x 2" in page.text


def test_thousands_of_ranks_are_one_page():
    page = Page(render_job(job(ranks=ranks(*["running"] * 5000, nodes=100))))
    assert sum("text-align:center" in style for style in page.styles) == 2048
    assert "and 2952 more ranks" in page.text


def test_metrics_have_their_course_and_their_last_value():
    page = Page(render_job(job(), [series(0.5, 0.25, 0.125), series(float("nan"), name="odd")]))
    assert "█▃▁" in page.texts
    assert "0.125" in page.text


def test_a_pipeline_is_a_table_of_its_steps():
    steps = [
        step("c", "Running", needs=["a", "b"], job="p_c"),
        step("a", "Completed"),
        step("b", "Completed", needs=["a"], reused=True, reason="same as p_b"),
    ]
    page = Page(render_job(job(steps=steps)))
    for text in ("a, b", "p_c", "Reused", "same as p_b"):
        assert text in page.texts


def test_a_sweep_is_a_table_of_its_trials():
    trials = [
        trial("t3", "Completed", 1, 0.75, {"lr": 0.3}, stopped_early=True),
        trial("t2", "Completed", 2, 0.5, {"lr": 0.2}),
        trial("t1", "Running", None, None, {"lr": 0.1}),
    ]
    page = Page(render_job(job(trials=trials, metric="accuracy")))
    assert [text for text in page.texts if re.fullmatch(r"t\d", text)] == ["t3", "t2", "t1"]
    assert "accuracy" in page.text
    assert "3 trials" in page.text


def test_a_list_says_how_many_it_leaves_out():
    page = Page(render_jobs([overview(), overview(metric=("loss", 0.12345))], 69))
    assert "2 of 69 jobs" in page.text
    assert "loss 0.123" in page.text
    assert "no jobs" in Page(render_jobs([], 0)).text


def test_a_job_that_is_prepared_says_what_takes_long():
    preparing = [
        events.JobPreparing(1.0),
        events.TransferProgress(2.0, "inputs.data", 1500, 3000, 1, 2),
        events.EnvironmentBuilding(2.0, "12 packages"),
    ]
    assert (
        describe_preparation(fold(preparing)) == "inputs.data: 1.46 KiB of 2.93 KiB; environment: 12 packages"
    )
    assert describe_preparation(fold([*preparing, events.RankStarted(3.0, 0, 0, 1)])) == ""


def luminance(colour):
    """Source: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance"""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colour", [look.GREEN, look.RED, look.BLUE, look.AMBER, look.GREY])
@pytest.mark.parametrize("ground", ["#ffffff", "#111111"])
def test_a_colour_of_a_state_can_be_read_on_light_and_dark(colour, ground):
    high, low = sorted((luminance(colour) + 0.05, luminance(ground) + 0.05), reverse=True)
    assert high / low >= 3


def test_an_attribute_is_quoted():
    assert tag("b", title='a"b<') == '<b title="a&quot;b&lt;"></b>'
