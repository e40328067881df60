"""The JSON Schemas of files: valid themselves, no stricter than our own reading, and not much laxer."""

import json
import os
import re
from pathlib import Path

import jsonschema
import pytest

from drumline.cli.main import main
from drumline.contract.errors import SpecError
from drumline.spec import entity_types
from drumline.spec.kinds.schemas import _BY_NOUN, _TEXTS
from drumline.spec.reading.files import read_tree
from drumline.spec.reading.source import plain

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases"
VALIDATORS = {kind: jsonschema.Draft7Validator(entity_types.make_schema(kind)) for kind in entity_types.KINDS}

ON_PURPOSE = ("dup_keys.yml",)
"""As of ``test_jobs.py``: our own reading refuses it."""

LEAST_REFUSED = 0.5
"""Of the files that our reading refuses: the rest needs other files, or rules that no schema has."""


def mistakes(kind, path):
    """The mistakes that an editor would show."""
    _, root, _ = read_tree(path, None, None)
    value = json.loads(json.dumps(plain(root), default=str))
    return [error.message for error in VALIDATORS[kind].iter_errors(value)]


@pytest.mark.parametrize("kind", entity_types.KINDS)
def test_a_schema_is_valid(kind):
    schema = entity_types.make_schema(kind)
    jsonschema.Draft7Validator.check_schema(schema)
    defined = set(schema["definitions"])
    used = {text.partition('"')[0] for text in json.dumps(schema).split('"#/definitions/')[1:]}
    assert used <= defined
    assert json.dumps(schema)


FOLDERS = {
    "assets/data": "data",
    "environment": "environment",
    "components": "component",
    "compute": "compute",
}
"""The kinds of files by their folders; the others are jobs."""


def cases():
    for name in ("verdicts.json", "asset_verdicts.json"):
        for case, accepted in json.loads((CASES.parent / name).read_text()).items():
            kind = next((kind for folder, kind in FOLDERS.items() if case.startswith(f"{folder}/")), "job")
            if case not in ON_PURPOSE:
                yield kind, CASES / case, accepted


def test_every_file_that_azure_accepts_is_valid():
    wrong = {}
    for kind, path, accepted in cases():
        if accepted and (found := mistakes(kind, path)):
            wrong[str(path.relative_to(CASES))] = found
    assert wrong == {}


def test_most_files_that_azure_refuses_are_not():
    refused, caught = 0, 0
    for kind, path, accepted in cases():
        if not accepted:
            refused += 1
            try:
                caught += bool(mistakes(kind, path))
            except SpecError:
                caught += 1
    print(f"{caught} of {refused} refused")
    assert caught >= LEAST_REFUSED * refused


EXAMPLES = sorted(
    path
    for path in ROOT.glob("examples/**/*.yml")
    if not re.search("^dependencies:|^drills:|DistributedComponent", path.read_text(), re.MULTILINE)
)
"""Without conda files, lists of drills, and files of the older SDK, which have tables of their own."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_is_valid(path):
    _, root, _ = read_tree(path, None, None)
    said = str(plain(root).get("$schema", "")).lower()
    kind = next((kind for kind in ("data", "environment", "component") if kind in said), "job")
    if plain(root).get("type") == "local":
        kind = "compute"
    assert mistakes(kind, path) == []


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "command: x\ndistribution: {type: pytorch, procces_count_per_instance: 2}\n",
            "procces_count_per_instance",
        ),
        ("command: x\nresources: {instance_count: many}\n", "many"),
        ("command: x\ndrumline: {hang_action: explode}\n", "explode"),
        ("code: src\n", "'command' is a required property"),
        ("type: sweep\n", "'trial' is a required property"),
        ("type: pipeline\njobs: {Upper: {command: x}}\n", "Upper"),
        ("type: pipeline\njobs: {a: {command: x, resources: {count: 1}}}\n", "count"),
        ("command: x\nenvironment: ubuntu\n", "ubuntu"),
        ("command: x\ninputs: {a: {type: uri_file, mode: teleport}}\n", "teleport"),
    ],
)
def test_an_editor_finds_a_mistake(text, mistake, tmp_path):
    (tmp_path / "job.yml").write_text(text)
    assert mistake in " ".join(mistakes("job", tmp_path / "job.yml"))


def test_keys_have_descriptions():
    command = entity_types.make_schema("command")
    without = [key for key, one in command["properties"].items() if not one.get("description")]
    assert without == []
    assert command["definitions"]["drumline"]["properties"]["hang_action"]["anyOf"][0]["enum"] == [
        "report",
        "end",
        "restart",
    ]


def test_every_description_is_of_a_key():
    keys, nouns = set(), set()
    for kind in entity_types.KINDS:
        schema = entity_types.make_schema(kind)
        for one in (schema, *schema["definitions"].values()):
            collect(one, keys)
        nouns |= set(schema["definitions"])
    assert set(_TEXTS) - keys == set()
    assert {name.rpartition(".")[2] for name in _BY_NOUN} - keys == set()


def collect(value, keys):
    if isinstance(value, dict):
        keys |= set(value.get("properties", ()))
        for one in value.values():
            collect(one, keys)
    elif isinstance(value, list):
        for one in value:
            collect(one, keys)


def test_the_command_prints_it(capsys, tmp_path):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == entity_types.make_schema("job")
    out = tmp_path / "compute.json"
    assert main(["schema", "compute", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"# yaml-language-server: $schema={out}\n"
    assert json.loads(out.read_text())["title"] == "Drumline: compute"
    assert os.stat(out).st_mode & 0o777 == 0o600
    assert main(["schema", "comput"]) == 2
    assert "did you mean 'compute'?" in capsys.readouterr().err
