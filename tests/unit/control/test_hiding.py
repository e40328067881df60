"""What is shown of a job's file and plan: no values of variables with the name of a secret."""

import io
import json
from typing import Any

import pytest
import yaml
from made_jobs import MadeJob

from drumline import Input, command
from drumline.cli.main import main
from drumline.contract.errors import DamagedError, SpecError, UsageError
from drumline.contract.hiding import HIDDEN, hide_in, hide_in_text
from drumline.control.assets import asset_verbs, datastore_verbs
from drumline.control.assets.asset_verbs import list_assets
from drumline.control.facts.description import show_job
from drumline.control.facts.job import show_spec
from drumline.control.submission.submit import submit
from drumline.spec.load import load_data, load_job
from drumline.spec.registered.assets import Data

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
    with pytest.raises(SpecError, match="a value that was hidden"):
        load_job(io.StringIO(shown["yaml"]))


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
    colons = "http://" + ":" * 300_000 + "]/@x"
    assert hide_in_text(colons) == colons


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("environment_variables: {A: (hidden)}", 28),
        ("environment: {image: x, conda_file: {dependencies: ['x @ https://...@h/x']}}", 53),
        ("command: get 'https://...@example.org/x'", 10),
        ("inputs: {a: {path: https://...@example.org/x}}", 20),
        ('inputs: {a: {path: "https://example.org/x?..."}}', 20),
        ("inputs: {a: https://...@example.org/x}", 13),
    ],
)
def test_what_was_hidden_is_not_taken_back(line, column):
    text = f"# shown\n{line}\n" + ("" if line.startswith("command") else "command: 'true'\n")
    with pytest.raises(SpecError, match="stands for a value that was hidden") as raised:
        load_job(io.StringIO(text))
    (problem,) = raised.value.problems
    assert (problem.line, problem.column) == (2, column)


def test_nor_from_python_nor_over_a_file(drumline_home):
    changed: Any = load_job(
        io.StringIO("command: 'true'\ninputs: {a: {path: a}}\n"),
        params_override=[{"inputs.a.path": ADDRESS}],
    )
    built: Any = command(command="true", inputs={"a": Input(path="a")})
    for job in (changed, built):
        job.inputs["a"].path = hide_in_text(ADDRESS)
        with pytest.raises(SpecError, match="stands for a value that was hidden"):
            submit(job)
    with pytest.raises(SpecError, match="stands for a value that was hidden"):
        asset_verbs.create(Data(name="d", path=hide_in_text(ADDRESS), type="uri_file"))


@pytest.mark.parametrize(
    "text",
    ["echo what?...", "echo https://example.org/a...b", "MY_TOKEN (hidden)", "hidden", "get https://h/x?"],
)
def test_other_texts_are_taken(text):
    job: Any = load_job(io.StringIO(yaml.safe_dump({"command": text})))
    assert job.command == text


ADDRESS = "https://me:canary@example.org/a?sig=canary"


def test_what_is_printed_of_an_entity_is_hidden_and_its_fields_are_whole(drumline_home, tmp_path):
    job = command(command=f"get {ADDRESS}", inputs={"a": Input(type="uri_file", path=ADDRESS), "b": ADDRESS})
    data = Data(name="d", path=ADDRESS, type="uri_file")
    for printed in (job, job.inputs, job.inputs["a"], data):
        for text in (str(printed), repr(printed)):
            assert "canary" not in text
    assert str(job).count("https://...@example.org/a?...") == 3
    assert (job.inputs["a"].path, data.path) == (ADDRESS, ADDRESS)
    for entity, load in ((job, load_job), (data, load_data)):
        entity.dump(tmp_path / "dumped.yml")
        assert load(tmp_path / "dumped.yml") == entity
        stream = io.StringIO()
        entity.dump(stream)
        assert ADDRESS in stream.getvalue()


@pytest.mark.parametrize(
    ("noun", "words"),
    [
        ("data", ("--path", ADDRESS, "--type", "uri_file")),
        ("model", ("--path", ADDRESS)),
        ("environment", ("--image", "docker.io/library/python", "--description", ADDRESS)),
        ("datastore", ("--path", "/", "--type", "local", "--description", ADDRESS)),
    ],
)
def test_what_is_registered_is_shown_without_passwords_and_changed_with_them(
    drumline_home, capsys, noun, words
):
    more = ["--set", "tags.a=1"]
    for line in (
        ["create", *words, "--tags", f"from={ADDRESS}"],
        ["show"],
        ["update", *more],
        ["show"],
        ["list"],
    ):
        name = [] if line == ["list"] else ["--name", "d"]
        assert main([noun, line[0], *name, *line[1:]]) == 0
        shown = capsys.readouterr().out
        assert "canary" not in shown
        assert "https://...@example.org/a?..." in shown
    assert "canary" not in json.dumps(list_assets())
    stored = datastore_verbs.get("d") if noun == "datastore" else asset_verbs.get(noun, "d")
    assert stored.tags == {"from": ADDRESS, "a": "1"}


@pytest.mark.parametrize(
    ("text", "underlined"),
    [
        (f"inputs: {{a: {{path: '{ADDRESS}', tipe: x}}}}", "tipe"),
        (f"command: [{ADDRESS}, x]", "["),
        (f"type: {ADDRESS}", "https://.........@example.org/a?.........."),
        (
            f"inputs: {{a: {{type: {ADDRESS}{'x' * 90}, path: a}}}}",
            "https://.........@example.org/a?" + "." * 68,
        ),
        (f"command: [{ADDRESS.replace('canary', 'canary' * 20)}]", "["),
        (
            f"inputs: {{a: {{type: {ADDRESS.replace('canary', 'canary' * 20)}, path: a}}}}",
            "https://" + "." * 92,
        ),
    ],
)
def test_the_line_that_an_error_quotes_hides_passwords_and_keeps_its_columns(text, underlined):
    with pytest.raises(SpecError) as raised:
        load_job(io.StringIO(text))
    assert "canary" not in str(raised.value)
    assert "canary" not in raised.value.message
    problem = raised.value.problems[-1]
    assert "canary" not in str(problem)
    begin = problem.column - 1
    assert problem.source_line[begin : begin + problem.width] == underlined
    assert f"| {problem.source_line}\n" in str(raised.value)


def test_no_error_of_ours_quotes_a_password():
    error = UsageError(f"--set: '{ADDRESS}' is odd", f"try {ADDRESS}")
    assert "canary" not in f"{error} {error.args} {error.message} {error.hint}"
