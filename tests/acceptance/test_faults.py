"""Full disks, locked files, odd bytes, crowds, clocks that jump: each with the outcome that its function names."""

import os

import pytest
from chaos_faults import (
    FAULTS,
    CannotTryError,
    a_full_disk_ends_no_healthy_job,
    a_hundred_in_line,
    logs_fill_the_disk,
    no_room_for_a_job,
    outputs_fill_the_disk,
    what_makes_room_needs_none,
)

ON_A_SMALL_DISK = [
    outputs_fill_the_disk,
    a_full_disk_ends_no_healthy_job,
    logs_fill_the_disk,
    no_room_for_a_job,
    what_makes_room_needs_none,
]
"""Which root alone can mount."""
SLOW = pytest.mark.skipif(
    not os.environ.get("DRUMLINE_SLOW"), reason="20 s on two cores; DRUMLINE_SLOW=1 and scripts/chaos run it"
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault,
            marks=[SLOW] * (fault is a_hundred_in_line) + [pytest.mark.root] * (fault in ON_A_SMALL_DISK),
        )
        for fault in FAULTS
    ],
    ids=lambda fault: fault.__name__,
)
def test_fault(tmp_path, drumline_home, fault):
    try:
        fault(tmp_path)
    except CannotTryError as reason:
        pytest.skip(str(reason))
