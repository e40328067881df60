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
        (
            [pod("supervisor", "Pending"), NODE, NODE],
            ("starts", "2 of 2 pods run, and not that of the supervisor"),
        ),
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


def event(reason, message, when):
    return {"reason": reason, "message": message, "lastTimestamp": when}


@pytest.mark.parametrize(
    ("found", "warnings", "said"),
    [
        (
            [SUPERVISOR],
            [
                event("FailedCreate", "Error creating: an older one", "2026-01-01T00:00:00Z"),
                event(
                    "FailedCreate",
                    'Error creating: pods "dl-a-nodes-x7" is forbidden: exceeded quota: team, requested: cpu=4',
                    "2026-01-01T00:00:09Z",
                ),
            ],
            "0 of 2 pods run; no pod is made: exceeded quota: team, requested: cpu=4",
        ),
        (
            [SUPERVISOR, waiting("ContainerCreating")],
            [event("FailedMount", 'persistentvolumeclaim\n "data" not found', None)],
            '0 of 2 pods run; FailedMount: persistentvolumeclaim "data" not found',
        ),
    ],
)
def test_warnings_tell_what_no_pod_tells(found, warnings, said):
    assert pods.describe(found, 2, warnings) == ("waits", said)


def test_a_pod_that_waits_for_nodes_tells_it_itself():
    found = [SUPERVISOR, NODE, unschedulable("0/5 nodes are available")]
    assert pods.describe(found, 2, [event("FailedScheduling", "other words", None)])[1].endswith(
        "are available"
    )


def test_pods_that_end_before_the_job_begins_are_told():
    ended = {"exitCode": 127, "reason": "Error"}
    failed = pod("node", "Failed", containerStatuses=[{"state": {"terminated": ended}}])
    assert pods.describe([SUPERVISOR, NODE, failed, failed], 2) == (
        "waits",
        "1 of 2 pods run; 2 ended before the job began, the last one: Error with exit code 127",
    )
    assert pods.describe([SUPERVISOR, NODE, failed, pod("node", "Pending")], 2) == ("runs", "1 of 2 pods run")


def test_events_are_asked_of_what_is_late_alone():
    def named(name, *arguments, **more):
        made = pod(*arguments, **more)
        return {**made, "metadata": {**made["metadata"], "name": name}}

    supervisor, node = named("s", "supervisor", "Running"), named("n", "node", "Running")
    assert pods.find_suspects([], 2, "dl-a") == ["dl-a", "dl-a-nodes"]
    assert pods.find_suspects([supervisor, node], 2, "dl-a") == ["dl-a-nodes"]
    assert pods.find_suspects([supervisor, node, named("p", "node", "Pending")], 2, "dl-a") == ["p"]
    assert pods.find_suspects([supervisor, node, node], 2, "dl-a") == []
