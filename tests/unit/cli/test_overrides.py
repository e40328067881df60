import pytest

from drumline.cli.arguments import parse_overrides
from drumline.contract.errors import UsageError


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("a=1", {"a": "1"}),
        ("a.b.c=x=y", {"a.b.c": "x=y"}),
        ("a=", {"a": ""}),
        ('a={"b": 1}', {"a": {"b": 1}}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a=[not json", {"a": "[not json"}),
        ("a=null", {"a": None}),
        ("a=true", {"a": "true"}),
    ],
)
def test_a_value_is_text_unless_it_is_json(text, change):
    assert [change] == parse_overrides([text])


@pytest.mark.parametrize("text", ["a", "=1", ".=1", "a..b=1", 'a={"b"'])
def test_what_is_no_change_is_refused(text):
    with pytest.raises(UsageError):
        parse_overrides([text])
