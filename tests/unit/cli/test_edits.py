import pytest

from drumline.cli.entity_flags import parse_edits
from drumline.contract.errors import UsageError

JOB = {"display_name": "old", "tags": {"a": "1", "b": "2"}, "properties": {}}


@pytest.mark.parametrize(
    ("given", "removed", "changes"),
    [
        (["display_name=new"], [], {"display_name": "new"}),
        (["description=a=b"], [], {"description": "a=b"}),
        (["tags.c=3"], [], {"tags": {"a": "1", "b": "2", "c": "3"}}),
        (["tags.c=3", "tags.d=4"], [], {"tags": {"a": "1", "b": "2", "c": "3", "d": "4"}}),
        (["tags.a.b=3"], [], {"tags": {"a": "1", "b": "2", "a.b": "3"}}),
        (['tags={"x": 1, "y": "z"}'], [], {"tags": {"x": "1", "y": "z"}}),
        ([], ["tags.a"], {"tags": {"b": "2"}}),
        ([], ["tags"], {"tags": {}}),
        ([], ["description"], {"description": None}),
        (["tags.c=3"], ["tags.a"], {"tags": {"b": "2", "c": "3"}}),
        ([], ["tags.none"], {"tags": {"a": "1", "b": "2"}}),
    ],
)
def test_what_is_given_and_removed_becomes_new_values(given, removed, changes):
    assert changes == parse_edits(JOB, given, removed)


@pytest.mark.parametrize(
    "given", ["tags", "tags=x", "tags=[1]", "tags=1", "command=x", "display_name.x=1", "=x"]
)
def test_what_cannot_change_is_refused(given):
    with pytest.raises(UsageError):
        parse_edits(JOB, [given], [])


def test_the_job_that_was_given_is_left_alone():
    parse_edits(JOB, ["tags.c=3"], ["tags.a"])
    assert JOB["tags"] == {"a": "1", "b": "2"}
