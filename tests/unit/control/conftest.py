"""A job for tests of what is shown of one."""

import pytest
from made_jobs import MadeJob


@pytest.fixture
def job(drumline_home):
    """A job whose ranks all run, with a run of MLflow's for metrics."""
    made = MadeJob()
    made.track()
    made.start()
    return made
