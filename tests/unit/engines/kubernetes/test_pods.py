"""The state of a job from its pods, and the cluster's own reasons."""

import pytest

from drumline.engines.kubernetes import objects, pods


def pod(role, phase, **status):
    return {"metadata": {"labels": {objects.ROLE_LABEL: role}}, "status": {"phase": phase, **status}}


def unschedulable(message):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod("node", "Pending", conditions=[condition])


def waiting(reason, message=""):
    return pod(
        "node", "Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": message}}}]
    )


SUPERVISOR = pod("supervisor", "Running")
NODE = pod("node", "Running")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], ("waits", "its pods are not made yet: a queue, a quota or an admission may hold them back")),
        ([SUPERVISOR, NODE, NODE], ("runs", "")),
        ([pod("supervisor", "Succeeded"), NODE, NODE], ("runs", "")),
        ([SUPERVISOR, NODE, pod("node", "Pending")], ("runs", "1 of 2 pods run")),
        ([pod("supervisor", "Pending"), NODE, NODE], ("starts", "2 of 2 pods run")),
        (
            [SUPERVISOR, NODE, unschedulable("0/5 nodes are available: 5 Insufficient nvidia.com/gpu.")],
            ("waits", "1 of 2 pods run; 0/5 nodes are available: 5 Insufficient nvidia.com/gpu."),
        ),
        ([SUPERVISOR, waiting("ImagePullBackOff")], ("waits", "0 of 2 pods run; ImagePullBackOff")),
        (
            [SUPERVISOR, waiting("ErrImagePull", "not found")],
            ("waits", "0 of 2 pods run; ErrImagePull: not found"),
        ),
        ([SUPERVISOR, waiting("ContainerCreating")], ("runs", "0 of 2 pods run")),
    ],
)
def test_state_and_reason(found, expected):
    assert pods.describe(found, 2) == expected


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"reason": "Evicted", "message": "low on memory"}, "Evicted: low on memory"),
        ({"reason": "NodeLost"}, "NodeLost"),
        (
            {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            "OOMKilled with exit code 137",
        ),
        ({}, "nothing more is known"),
    ],
)
def test_why_a_pod_ended(status, why):
    assert pods.why_ended(pod("supervisor", "Failed", **status)) == why
