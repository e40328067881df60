import json

import pytest
import yaml

from drumline.cli.output import show

JOBS = [{"name": "a", "n": 1, "ok": True, "tags": {"x": "y"}, "none": None}, {"name": "b\tc", "n": 2}]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("x", "x\n"),
        (1, "1\n"),
        (True, "true\n"),
        ([], ""),
        (["a", "b"], "a\nb\n"),
        ([["a", 1], ["b", False]], "a\t1\nb\tfalse\n"),
        ({"a": 1, "b": {"c": 2}, "d": [1, 2]}, "1\t\t2\n"),
    ],
)
def test_tsv(capsys, result, text):
    show(result, "tsv", None)
    assert text == capsys.readouterr().out


@pytest.mark.parametrize("form", ["json", "jsonc", "yaml"])
def test_structured_formats_hold_the_value(capsys, form):
    show(JOBS, form, None)
    text = capsys.readouterr().out
    assert (yaml.safe_load(text) if form == "yaml" else json.loads(text)) == JOBS


@pytest.mark.parametrize("form", ["json", "yaml", "tsv", "table", "none"])
def test_a_query_that_finds_nothing_prints_nothing(capsys, form):
    show({"a": 1}, form, "b")
    assert capsys.readouterr().out == ""


def test_a_table_has_the_columns_asked_for(capsys):
    show(JOBS, "table", None, ("name", "n", "none"))
    assert capsys.readouterr().out == "NAME  N  NONE\na     1  -\nb\tc   2  -\n"


def test_a_table_of_one_thing_leaves_out_what_is_empty(capsys):
    show({"name": "a", "tags": {}, "reason": "", "exit_code": None, "n": 0}, "table", None)
    assert capsys.readouterr().out == "name  a\nn     0\n"


def test_a_cell_is_one_line_and_safe(capsys):
    show([{"a": "x\ny\x1b[2J"}], "table", None)
    assert capsys.readouterr().out == "A\nx y\n"


def test_the_trials_of_a_sweep_are_a_table_below_its_facts(capsys):
    trials = [
        {
            "trial": "s_0",
            "status": "Completed",
            "rank": 1,
            "metric": 0.5,
            "params": {"x": 1},
            "reason": "good",
        }
    ]
    show({"name": "s", "trials": trials, "reason": "", "steps": []}, "table", None)
    assert capsys.readouterr().out == (
        "name  s\n"
        "\n"
        "TRIAL  STATUS     RANK  METRIC  PARAMS    REASON\n"
        's_0    Completed  1     0.5     {"x": 1}  good\n'
    )
