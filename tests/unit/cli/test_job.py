"""What ``job list`` leaves out, and what it says of that."""

from argparse import Namespace

import pytest

from drumline.cli.job import _first

FOUND = [f"job_{number}" for number in range(69)]


@pytest.mark.parametrize(
    ("options", "count", "said"),
    [
        ({}, 50, "showing 50 of 69 jobs; --all-results shows all\n"),
        ({"all_results": "true"}, 69, ""),
        ({"max_results": 3}, 3, ""),
        ({"max_results": 0}, 0, ""),
        ({"max_results": 100}, 69, ""),
    ],
)
def test_a_list_says_what_it_leaves_out_where_nobody_asked_for_less(capsys, options, count, said):
    arguments = Namespace(**{"all_results": None, "max_results": None, **options})
    assert _first(FOUND, arguments) == FOUND[:count]
    assert capsys.readouterr().err == said
