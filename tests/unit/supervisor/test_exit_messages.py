"""What is said of where it happened."""

import pytest

from drumline.supervisor.explaining import exit_messages

HOSTS = {0: "gpu-16", 1: "gpu-17", 2: ""}


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("rank 3 on node 1 failed first, 2 s in", "rank 3 on node 1 (gpu-17) failed first, 2 s in"),
        ("node 0 was preempted by Slurm", "node 0 (gpu-16) was preempted by Slurm"),
        ("the agent of node 1", "the agent of node 1 (gpu-17)"),
        (
            "rank 0 on node 0 failed first; node 1 was fine",
            "rank 0 on node 0 (gpu-16) failed first; node 1 was fine",
        ),
        ("node 2 was lost", "node 2 was lost"),
        ("node 17 was lost", "node 17 was lost"),
        ("all 4 ranks ended with exit code 0", "all 4 ranks ended with exit code 0"),
        ("nodes 1 and 0", "nodes 1 and 0"),
        ("", ""),
    ],
)
def test_the_first_node_is_told_with_the_name_of_its_machine(reason, said):
    assert exit_messages.add_host(reason, HOSTS) == said
    assert exit_messages.add_host(reason, {}) == reason
