"""A Slurm cluster for all tests of this folder."""

import os
from collections.abc import Iterator

import pytest
from slurm_cluster import SlurmCluster, Unavailable


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Four nodes e1 to e4, shared: leave them idle, and no job behind."""
    try:
        cluster = SlurmCluster()
    except Unavailable as reason:
        if os.environ.get("CI"):  # where a test must not go missing
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))
    yield cluster
    cluster.down()
