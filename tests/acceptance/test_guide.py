"""The pages of docs that can be followed on one machine, block by block, each in a folder of its own."""

from pathlib import Path

import guides
import pytest
from cli_jobs import job_names, wait_for_status

from drumline.contract.status import TERMINAL

TESTS = Path(guides.__file__).parent


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", guides.HERE)
def test_every_block_of_the_page_runs(tmp_path, drumline_home, page):
    guides.follow(page, tmp_path)
    for name in job_names(drumline_home):
        wait_for_status(name, *TERMINAL)


def test_every_block_of_commands_is_run_or_has_a_reason():
    found = guides.count()
    assert not [reason for reason in found if reason.startswith("no reason")], (
        "tests/guides.py: PLACES, NOT_RUN"
    )
    assert set(guides.NOT_RUN.values()) <= set(found)
    assert not guides.GIVEN.keys() & guides.NOT_RUN.keys()
    assert found["run"] > sum(found.values()) * 2 / 3


@pytest.mark.parametrize("place", guides.PLACES)
def test_what_counts_as_run_is_run_by_a_test(place):
    _, test = guides.PLACES[place]
    text = (TESTS / test).read_text()
    assert f'@pytest.mark.parametrize("page", guides.{place})\n' in text
    assert "guides.follow(page, " in text


def test_every_page_has_one_place():
    assert len(guides.GIVEN) == sum(len(pages) for pages, _ in guides.PLACES.values())
