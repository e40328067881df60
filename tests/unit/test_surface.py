"""
docs/reference/azure-ml.md has a row with a verdict for each field, value, method, name, verb and flag, and for
nothing else.

Whether the verdicts are right is for test_surface_verdicts.py.
"""

import ast
import importlib
import importlib.util
import inspect
import textwrap
from typing import Any

import pytest
from surface import (
    ELSEWHERE,
    PAGE,
    REFUSED,
    TABLES,
    VERDICTS,
    all_records,
    flags_of,
    keys_of,
    nouns,
    records_below,
    records_of,
    sections,
    verdicts,
)

from drumline import MLClient
from drumline.azure import Refused
from drumline.cli.main import find_module
from drumline.contract.errors import DrumlineError

PAGES = sections()


# the page itself


def test_every_row_has_a_verdict_and_a_name():
    for heading, rows in PAGES.items():
        for row in rows:
            assert row.verdict in VERDICTS, f"{heading}: {row}"
            assert row.names, f"{heading}: {row}"


# fields


@pytest.mark.parametrize("heading", TABLES)
def test_every_field_has_a_row_and_every_row_a_field(heading):
    assert set(verdicts(heading)) == keys_of(heading)


def test_every_record_of_the_tables_is_one_of_a_section():
    known = {
        id(record)
        for parts in TABLES.values()
        for _, kinds in parts
        for kind in kinds
        for record in records_of(kind)
    }
    known |= {id(record) for kinds in ELSEWHERE.values() for kind in kinds for record in records_below(kind)}
    assert [name for found, (name, _) in all_records().items() if found not in known] == []


def test_what_is_not_azures_is_in_its_own_page():
    for name, kinds in ELSEWHERE.items():
        page = (PAGE.parents[1] / "howto" / f"{name}.md").read_text()
        for kind in kinds:
            for key in kind.fields:
                assert f"`{key}`" in page, key


def _names(heading):
    return set(verdicts(heading))


def test_every_value_of_the_choices_has_a_row():
    from drumline.spec import other_dialects
    from drumline.spec.jobs import component
    from drumline.spec.jobs import pipeline_tables as pipeline
    from drumline.spec.parts import io, search
    from drumline.spec.registered import compute, datastores

    output: Any = io.OUTPUTS.item
    modes = {*io._TABLE_MODES, *output.fields["mode"].values}
    assert _names("Modes") == modes
    assert set(component._MODES) - modes == {"link"}
    assert _names("Search spaces") == search.SPACE.records.keys()
    algorithms = search.ALGORITHMS.keys() | search.EARLY_TERMINATION.records.keys()
    assert _names("Sampling algorithms and policies") == algorithms
    assert _names("Types of nodes") == {*pipeline.NODE_TYPES, *other_dialects._OTHER_TYPES}
    assert _names("Compute types") == {*compute.RECORDS, *compute._OTHER_TYPES}
    assert _names("Datastore types") == datastores.DATASTORES.keys()


# the client


def _groups():
    client = MLClient()
    return {name: group for name, group in vars(client).items() if hasattr(group, "_workspace")}


def _public(thing):
    return {name for name, _ in inspect.getmembers(thing, callable) if not name.startswith("_")}


def _is_refusal(method):
    """Whether it is there for its message alone: its last statement, whatever it is given, is an error."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(method)))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return isinstance(function.body[-1], ast.Raise)


def test_every_member_of_the_client_has_a_row():
    rows = verdicts("MLClient")
    client = MLClient()
    there = {name for name, verdict in rows.items() if verdict != REFUSED}
    assert there == {name for name in (*vars(client), *_public(client)) if not name.startswith("_")}
    for name in rows.keys() - there:
        assert not hasattr(client, name), name


def test_every_method_of_the_groups_has_a_row():
    rows = verdicts("Methods of the groups")
    methods = {
        f"{name}.{method}": getattr(group, method)
        for name, group in _groups().items()
        for method in _public(group)
    }
    assert methods.keys() - rows.keys() == set()
    works = {name for name, method in methods.items() if not _is_refusal(method)}
    assert {name for name, verdict in rows.items() if verdict != REFUSED} == works


MODULES = {
    "`azure.ai.ml`": "drumline",
    "`azure.ai.ml.entities`": "drumline.entities",
    "`azure.ai.ml.sweep`": "drumline.sweep",
    "`azure.ai.ml.parallel`": "drumline.parallel",
    "`azure.ai.ml.constants`": "drumline.constants",
}


@pytest.mark.parametrize("heading", MODULES)
def test_every_name_of_a_module_has_a_row(heading):
    module = importlib.import_module(MODULES[heading])
    rows = verdicts(heading)
    assert {"dsl", *module.__all__} == {"dsl", *(name for name in rows if _is_there(module, name))}
    for name, verdict in rows.items():
        assert _is_there(module, name) == (verdict != REFUSED), name


def test_the_exceptions_that_scripts_import_are_there():
    names = "MlException ValidationException JobException UserErrorException ResourceNotFoundError"
    assert {*names.split()} <= {*importlib.import_module("drumline.exceptions").__all__}


def _is_there(module, name):
    is_module = name == "dsl" and importlib.util.find_spec(f"{module.__name__}.{name}") is not None
    # A name that Azure alone has stands for a refusal.
    return is_module or (hasattr(module, name) and not isinstance(getattr(module, name), Refused))


# the command line


NOUNS = {noun: importlib.import_module(find_module(noun)) for noun in nouns()}


def _parser(noun, verb):
    """None: the verb is there for its message."""
    from drumline.cli.arguments import Parser

    parser = Parser(prog=verb)
    try:
        NOUNS[noun].VERBS[verb][1](parser)
    except DrumlineError:
        return None
    return parser


def test_every_noun_has_a_row(capsys):
    from drumline.cli.main import COMMANDS, main

    rows = {
        row.names[index]: row.verdict
        for row in PAGES["`az ml`"]
        if "noun" in row.cells
        for index in range(len(row.names))
    }
    assert {name for name, verdict in rows.items() if verdict != REFUSED} == COMMANDS.keys()
    for name, verdict in rows.items():
        if verdict == REFUSED:
            assert main([name, "list"]) == 2
            assert name in capsys.readouterr().err
    assert {noun for noun, module in NOUNS.items() if hasattr(module, "VERBS")} == NOUNS.keys()


@pytest.mark.parametrize("noun", NOUNS)
def test_every_verb_has_a_row(noun):
    rows = {
        name: row.verdict for row in PAGES[f"`az ml {noun}`"] if "verb" in row.cells for name in row.names
    }
    works = {verb for verb in NOUNS[noun].VERBS if _parser(noun, verb) is not None}
    assert {name for name, verdict in rows.items() if verdict != REFUSED} == works
    assert NOUNS[noun].VERBS.keys() - rows.keys() == set()


@pytest.mark.parametrize("noun", NOUNS)
def test_every_flag_has_a_row(noun):
    rows = flags_of(noun)
    everywhere = {name for row in PAGES["`az ml`"] if "flag" in row.cells for name in row.names}
    taken = {
        (flag, verb)
        for verb in NOUNS[noun].VERBS
        if (parser := _parser(noun, verb)) is not None
        for action in parser._actions
        for flag in action.option_strings
        if flag not in everywhere
    }
    assert taken - rows.keys() == set()
    assert {known for known, verdict in rows.items() if verdict != REFUSED} - taken == set()
