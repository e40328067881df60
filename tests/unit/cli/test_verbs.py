"""Verbs name their functions, which are imported when they run."""

import importlib
import inspect

import pytest

from drumline.cli.arguments import find_function
from drumline.cli.main import COMMANDS, find_module

VERBS = {
    f"{noun} {verb}": function
    for noun in COMMANDS
    for verb, (_, _, function) in getattr(importlib.import_module(find_module(noun)), "VERBS", {}).items()
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_a_function_of_its_arguments(verb):
    (parameter,) = inspect.signature(find_function(VERBS[verb])).parameters
    assert parameter
