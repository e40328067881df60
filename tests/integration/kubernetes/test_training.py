"""Frameworks train on the pods of a real cluster, from their examples as they are."""

import os
import re
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not os.environ.get("DRUMLINE_SLOW"),
        reason="imports that other tests do on this machine; DRUMLINE_SLOW=1 runs it",
    ),
]

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_lightning_trains_on_two_pods(kubernetes_cluster, cli, drumline_home):
    pytest.importorskip("lightning", reason="scripts/test installs it")
    words = ["--type", "kubernetes", "--name", "k8s", "--kubeconfig", str(kubernetes_cluster.kubeconfig)]
    attach = cli("compute", "attach", *words, "--image", "none", "--python", os.path.realpath(sys.executable))
    assert attach.rc == 0, attach.err
    change = "compute=azureml:k8s"
    done = cli("job", "create", "-f", EXAMPLES / "lightning" / "job.yml", "--stream", "--set", change)
    assert done.rc == 0, done.out + done.err
    assert float(re.search(r"accuracy (0\.\d+) \(4 ranks", done.out)[1]) >= 0.9
    kubernetes_cluster.wait_until_empty(30.0)
