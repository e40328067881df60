import importlib
import re

import house
import pytest

from drumline.contract import record

USERS = sorted(
    name
    for name, module in house.read_modules(house.PACKAGE).items()
    if "compile_late(" in module.path.read_text() and name != record.__name__
)


def test_a_pattern_is_compiled_when_it_is_first_used(monkeypatch):
    compiled = []
    real = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given) or real(*given))
    late = record.compile_late(r"^b(.)", re.MULTILINE)
    assert compiled == []
    assert late.search("a\nbc")[1] == "c"
    assert late.search("bd")[1] == "d"
    assert compiled == [(r"^b(.)", re.MULTILINE)]


@pytest.mark.parametrize("name", USERS)
def test_every_late_pattern_can_be_compiled(name):
    module = importlib.import_module(name)
    late = [one for one in vars(module).values() if isinstance(one, record._LatePattern)]
    assert late
    assert all(isinstance(one.pattern, str | bytes) for one in late)
