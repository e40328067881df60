"""The document of the studio's interface says what its routes do."""

import ast
import inspect
import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from drumline.studio import answers
from drumline.studio.app import NOUNS, load_noun
from drumline.studio.openapi import read_document

FOLDER = Path(inspect.getfile(read_document)).parent
READERS = {"text", "number", "flag", "words", "choice", "mapping", "jobs"}
METHODS = {"get", "post"}


def part_of(noun):
    return json.loads((FOLDER / f"{noun}.json").read_text())


@pytest.mark.parametrize("noun", NOUNS)
def test_each_route_is_documented_and_nothing_else(noun):
    routes = {
        (route.path, method.lower()) for route in load_noun(noun) for method in route.methods - {"HEAD"}
    }
    told = {(path, method) for path, item in part_of(noun)["paths"].items() for method in METHODS & set(item)}
    assert told == routes


@pytest.mark.parametrize("noun", NOUNS)
def test_each_parameter_that_a_handler_reads_is_documented_and_no_other(noun):
    module = import_module(f"drumline.studio.routes.{noun}")
    read = {
        node.args[0].value
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in READERS
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    told = set()
    for item in part_of(noun)["paths"].values():
        for operation in (item[method] for method in METHODS & set(item)):
            told |= {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
            for content in operation.get("requestBody", {}).get("content", {}).values():
                told |= set(content["schema"]["properties"])
    assert told == read


def test_the_document_has_each_route_and_method_of_all_nouns():
    """Two nouns may share a path."""
    routes = {
        (route.path, method.lower())
        for noun in NOUNS
        for route in load_noun(noun)
        for method in route.methods - {"HEAD"}
    }
    paths = read_document()["paths"]
    assert {(path, method) for path, item in paths.items() for method in METHODS & set(item)} == routes


def test_each_operation_describes_its_errors():
    document = read_document()
    responses = document["components"]["responses"]
    for path, item in document["paths"].items():
        for method in METHODS & set(item):
            told = item[method]["responses"]
            wanted = {"400", "401", "403", "404", "409", "429", "500", "503"}
            assert set(told) >= wanted | ({"408", "413", "415"} if method == "post" else set()), (
                f"{method} {path}"
            )
            for code in wanted:
                assert told[code]["$ref"] == f"#/components/responses/{code}"
    for response in responses.values():
        assert response["description"]
        assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Error"}
    statuses = {str(status) for _, status in answers._STATUSES}
    assert statuses <= set(responses)


def test_each_path_names_its_parameters():
    for path, item in read_document()["paths"].items():
        named = {one["name"] for one in item.get("parameters", ()) if one["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)(?::\w+)?\}", path)), path


def test_each_operation_says_what_it_does_and_each_reference_leads_somewhere():
    document = read_document()
    for path, item in document["paths"].items():
        for method in METHODS & set(item):
            assert item[method]["summary"], f"{method} {path}"
            assert item[method]["responses"], f"{method} {path}"
    for target in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)):
        assert target in document["components"]["schemas"]


def test_every_file_is_of_a_noun():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NOUNS)
