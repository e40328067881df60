"""What is shown of a job's file and plan: no values of variables with the name of a secret."""

import json

import pytest
import yaml
from made_jobs import MadeJob

from drumline.contract.errors import DamagedError, UsageError
from drumline.contract.uris import hide_in_text
from drumline.control.hiding import HIDDEN, check_is_whole, hide_in
from drumline.control.observing.description import show_job
from drumline.control.observing.job_list.one_job import show_spec

PLAIN = "# ours\ncommand: >-\n  python train.py\nenvironment_variables: {LR: '0.1'}  # small\n"
LAUGHS = "a: &a0 [x, {MY_TOKEN: canary}]\n" + "".join(
    f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)
)


@pytest.fixture
def spec(drumline_home):
    job = MadeJob()

    def show(text):
        job.folder.write(job.folder.job, text)
        return show_spec(job.name)

    return show


def test_what_a_name_stands_for_is_shown_without_its_password(drumline_home):
    job = MadeJob()
    path = "http://bob:canary@127.0.0.1/f.txt"
    job.folder.write(job.folder.plan, json.dumps({"resolved": {"inputs.a.path": path}}))
    assert show_job(job.name)["resolved"] == {"inputs.a.path": "http://...@127.0.0.1/f.txt"}


def test_a_file_without_secrets_is_shown_as_it_is(spec):
    assert spec(PLAIN) == {"yaml": PLAIN, "is_whole": True}


def test_secrets_of_a_file_are_hidden_and_the_rest_keeps_its_order(spec):
    shown = spec(
        "command: curl https://me:canary@example.org/?sig=canary\n"
        "environment_variables: {MY_API_KEY: canary, LR: '0.1', EMPTY_TOKEN: ''}\n"
        "type: command\n"
    )
    assert not shown["is_whole"]
    assert "canary" not in shown["yaml"]
    assert list(yaml.safe_load(shown["yaml"]).items()) == [
        ("command", "curl https://...@example.org/?..."),
        ("environment_variables", {"MY_API_KEY": HIDDEN, "LR": "0.1", "EMPTY_TOKEN": ""}),
        ("type", "command"),
    ]
    with pytest.raises(UsageError, match="a value that was hidden"):
        check_is_whole(shown["yaml"])


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "a: &a\n  MY_TOKEN: canary\n  inner: *a\n",
        "a: &a [*a, {MY_TOKEN: canary}]\n",
        "one: &one {MY_TOKEN: canary}\ntwo: {<<: *one}\n",
    ],
    ids=["laughs", "in itself", "list in itself", "merged"],
)
def test_aliases_hide_nothing_and_hold_nobody_up(spec, text):
    shown = spec(text)
    assert "canary" not in shown["yaml"]
    assert len(shown["yaml"]) < 10 * len(text)


@pytest.mark.parametrize("text", ["[" * 1_000_000, "a: [canary", "a: !canary x", "a: canary\n---\nb: 1\n"])
def test_of_a_file_that_is_no_job_nothing_is_shown(spec, text):
    with pytest.raises(DamagedError, match="the job file of calm_drum is damaged") as raised:
        spec(text)
    assert "canary" not in str(raised.value)


def test_a_long_text_is_looked_through_once():
    # A pattern that begins anew at each letter would take minutes.
    text = "a" * 300_000
    assert hide_in_text(text) == text
    assert hide_in({"argv": [text + "://me:canary@x"]}) == {"argv": [text + "://...@x"]}


@pytest.mark.parametrize(
    "text",
    ["a: (hidden)", "path: https://...@example.org/x", 'path: "https://example.org/x?..."', "(hidden)"],
)
def test_what_was_hidden_is_not_taken_back(text):
    with pytest.raises(UsageError, match="hidden"):
        check_is_whole(text)


@pytest.mark.parametrize(
    "text", ["echo what?...", "echo https://example.org/a...b", "MY_TOKEN: abc", "hidden"]
)
def test_other_texts_are_taken(text):
    check_is_whole(text)
