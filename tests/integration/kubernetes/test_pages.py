"""The pages of docs that can be followed on a real Kubernetes cluster, block by block."""

import guides
import pytest
from needs import need_torch

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(kubernetes_cluster, monkeypatch):
    """The shared one, as the user's kubeconfig has it; nothing of a job is left afterwards."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_cluster.kubeconfig))
    yield kubernetes_cluster
    kubernetes_cluster.wait_until_empty(60.0)


@pytest.mark.parametrize("page", guides.ON_KUBERNETES)
def test_every_block_of_the_page_runs(cluster, tmp_path, page):
    need_torch()
    (tmp_path / "examples").symlink_to(guides.ROOT / "examples")
    guides.follow(page, tmp_path)
