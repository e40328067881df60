"""A process by more than its number."""

import os

import pytest

from drumline.contract import identity


@pytest.mark.parametrize("pid", [4_000_000, -1, 10**30, None])
def test_a_process_of_which_no_start_is_known_does_not_live(pid):
    """Such as that of a damaged file: it would hold up the queue for ever."""
    who = {"pid": pid, "boot": identity.read_boot_id()}
    assert not identity.is_alive(who)
    assert not identity.is_stopped(who)


def test_a_number_that_no_process_can_have_is_nobody():
    assert identity.open_pidfd({**identity.identify_process(os.getpid()), "pid": 10**30}) is None
