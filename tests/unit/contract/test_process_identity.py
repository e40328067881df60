"""A process by more than its number."""

import os

import pytest

from drumline.contract import process_identity


@pytest.mark.parametrize("pid", [4_000_000, -1, 10**30, None])
def test_a_process_of_which_no_start_is_known_does_not_live(pid):
    """Such as that of a damaged file: it would hold up the queue for ever."""
    who = {"pid": pid, "boot": process_identity.read_boot_id()}
    assert not process_identity.is_alive(who)
    assert not process_identity.is_stopped(who)


def test_a_number_that_no_process_can_have_is_nobody():
    assert (
        process_identity.open_pidfd({**process_identity.identify_process(os.getpid()), "pid": 10**30}) is None
    )
