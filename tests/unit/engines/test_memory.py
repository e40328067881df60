"""Jobs that the memory of this machine does not hold, by the estimate: nothing is started."""

import os

import pytest

from drumline import command
from drumline.contract.errors import PlanError
from drumline.control.submission.submit import submit
from drumline.engines.local import resources

GIB = 1 << 30


@pytest.fixture
def free(monkeypatch):
    def give(size_bytes):
        monkeypatch.setattr(resources, "_find_free", lambda: size_bytes)

    return give


def test_the_free_memory_of_this_machine_is_found():
    assert 0 < resources._find_free() < 1 << 50


@pytest.mark.parametrize(
    ("nodes", "ranks", "size_bytes", "is_refused", "is_warned"),
    [
        (1000, 1000, 8 * GIB, True, False),
        (1000, 1000, 12 * GIB, False, True),
        (1, 4000, 20 * GIB, True, False),
        (100, 100, 20 * GIB, False, False),
        (100, 100, 10 * GIB, False, True),
        (1000, 1000, 0, False, False),
    ],
)
def test_what_finds_no_room_is_refused_and_what_may_not_is_warned_of(
    nodes, ranks, size_bytes, is_refused, is_warned
):
    lack, warning = resources.describe_room(nodes, ranks, size_bytes)
    assert (bool(lack), bool(warning)) == (is_refused, is_warned)


def test_small_jobs_are_not_looked_at(free):
    free(1)
    assert resources.check_holds(100, 100) == []
    with pytest.raises(PlanError):
        resources.check_holds(200, 200)


def test_the_check_can_be_switched_off(free, monkeypatch):
    free(1)
    monkeypatch.setenv(resources.OVERRIDE, "0")
    assert resources.check_holds(1000, 1000) == []


def test_nothing_is_created_of_a_job_that_is_refused(free, drumline_home, monkeypatch):
    """A small one, which harms nobody if it is started after all."""
    free(1 << 20)
    monkeypatch.setattr(resources, "_MANY", 1)
    job = command(command="true", instance_count=2)
    with pytest.raises(PlanError, match="2 nodes with 2 ranks need") as caught:
        submit(job)
    assert "DRUMLINE_MEMORY_CHECK=0" in str(caught.value.hint)
    assert not os.path.isdir(f"{drumline_home}/jobs") or os.listdir(f"{drumline_home}/jobs") == []
