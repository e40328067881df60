"""Full disks, locked files, odd bytes, crowds, clocks that jump: each with the outcome that its function names."""

import pytest
from chaos_faults import FAULTS, CannotTryError


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_fault(tmp_path, drumline_home, fault):
    try:
        fault(tmp_path)
    except CannotTryError as reason:
        pytest.skip(str(reason))
