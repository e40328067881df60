"""The state of a job from its pods, and the cluster's own reasons."""

import pytest

from drumline.engines.kubernetes import manifests, pods


def pod(role, phase, **status):
    return {"metadata": {"labels": {manifests.ROLE_LABEL: role}}, "status": {"phase": phase, **status}}


def unschedulable(message):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod("node", "Pending", conditions=[condition])


def waiting(reason, message=""):
    return pod(
        "node", "Pending", containerStatuses=[{"state": {"waiting": {"reason": reason, "message": message}}}]
    )


def terminated(code, reason, message=""):
    ended = {"exitCode": code, "reason": reason, "message": message}
    return {"containerStatuses": [{"state": {"terminated": ended}}]}


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
        (
            [SUPERVISOR, waiting("ErrImagePull", "not found")],
            (
                "waits",
                "0 of 2 pods run; ErrImagePull: not found; check the name and the tag of its image, and "
                "image_pull_secrets: drumline compute update NAME --set image=...",
            ),
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
        (terminated(137, "OOMKilled"), "OOMKilled with exit code 137"),
        (
            {
                **terminated(143, "Error"),
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                        "message": "preempting to accommodate a higher priority pod",
                    }
                ],
            },
            "PreemptionByScheduler: preempting to accommodate a higher priority pod",
        ),
        (
            {**terminated(1, "Error"), "conditions": [{"type": "DisruptionTarget", "status": "False"}]},
            "Error with exit code 1",
        ),
        ({}, "nothing more is known"),
    ],
)
def test_why_a_pod_ended(status, why):
    assert pods.why_ended(pod("supervisor", "Failed", **status)) == why


COMPUTE = {"name": "k8s", "image": "team/train:3", "python": "python", "memory_per_node": "4G"}
UPDATE = "drumline compute update k8s --set"
NO_PYTHON = f"team/train:3 may have no python: {UPDATE} python=... names its Python, image=... another image"
NOT_FOUND = 'runc create failed: exec: "python": executable file not found in $PATH: unknown'


@pytest.mark.parametrize(
    ("status", "lines", "said"),
    [
        (
            terminated(128, "StartError", NOT_FOUND),
            [],
            f"StartError with exit code 128: {NOT_FOUND}; {NO_PYTHON}",
        ),
        (
            terminated(128, "ContainerCannotRun", NOT_FOUND),
            [],
            f"ContainerCannotRun with exit code 128: {NOT_FOUND}; {NO_PYTHON}",
        ),
        (terminated(126, "Error"), [], f"Error with exit code 126; {NO_PYTHON}"),
        (
            terminated(127, "Error"),
            ["sh: 1: exec: python: not found\n"],
            f"Error with exit code 127; its log ends with: sh: 1: exec: python: not found; {NO_PYTHON}",
        ),
        (
            terminated(2, "Error"),
            ["Unknown option: -P", "usage: python [option] ...", "Try `python -h'."],
            "Error with exit code 2; its log ends with: Unknown option: -P | usage: python [option] ... | "
            f"Try `python -h'.; the python of team/train:3 is older than Python 3.11: {UPDATE} "
            "python=... or image=...",
        ),
        (
            terminated(1, "Error"),
            [
                "0",
                "Traceback (most recent call last):",
                '  File "x"',
                "\x1b[31mOSError: no space\x07" + "x" * 500,
            ],
            "Error with exit code 1; its log ends with: Traceback (most recent call last): | "
            'File "x" | [31mOSError: no space ' + "x" * 378 + "...",
        ),
        (
            terminated(137, "OOMKilled"),
            [],
            "OOMKilled with exit code 137; give its nodes more memory (4G now): "
            f"{UPDATE} memory_per_node=...",
        ),
        (
            {"reason": "Evicted", "message": "The node was low on resource: memory. Threshold: 100Mi."},
            [],
            "Evicted: The node was low on resource: memory. Threshold: 100Mi.; give its nodes more memory "
            f"(4G now): {UPDATE} memory_per_node=...",
        ),
        (
            {"reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
            [],
            "Evicted: The node was low on resource: ephemeral-storage.; write less to the disk of its "
            "machine: a volume of the compute has room for large files",
        ),
    ],
)
def test_the_end_of_a_pod_says_what_to_do(status, lines, said):
    assert pods.explain_pod(pod("node", "Failed", **status), lines, COMPUTE) == said


@pytest.mark.parametrize(
    ("reason", "message", "said"),
    [
        (
            "ImagePullBackOff",
            'Back-off pulling image "team/train:3"',
            f"check the name and the tag of team/train:3, and image_pull_secrets: {UPDATE} image=...",
        ),
        (
            "CreateContainerConfigError",
            'secret "x" not found',
            "kubectl describe pod POD shows what it asks for and the namespace lacks",
        ),
        ("CreateContainerError", "executable file `python` not found in $PATH", NO_PYTHON),
        ("RunContainerError", "no such file or directory", NO_PYTHON),
        *(
            (
                reason,
                "odd",
                f"check the name and the tag of team/train:3, and image_pull_secrets: {UPDATE} image=...",
            )
            for reason in ("InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
        ),
    ],
)
def test_a_pod_that_cannot_start_says_what_to_do(reason, message, said):
    """Lines are of its container before: a log says nothing of one that waits."""
    assert pods.explain_pod(waiting(reason, message), ["a line"], COMPUTE) == f"{reason}: {message}; {said}"


def test_what_to_do_is_said_of_a_compute_that_sets_little():
    killed = pod("node", "Failed", **terminated(137, "OOMKilled"))
    advice = "give its nodes more memory (none now): drumline compute update NAME --set memory_per_node=..."
    assert pods.explain_pod(killed) == f"OOMKilled with exit code 137; {advice}"
    lacks = waiting("CreateContainerConfigError", "no secret")
    lacks["metadata"]["name"] = "dl-a-x7"
    assert pods.explain_pod(lacks).endswith(
        "; kubectl describe pod dl-a-x7 shows what it asks for and the namespace lacks"
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (terminated(1, "Error"), False),
        ({}, False),
        (terminated(137, "OOMKilled"), True),
        ({"reason": "Evicted"}, True),
    ],
)
def test_a_pod_that_the_cluster_has_ended_is_known(status, expected):
    assert pods.was_ended_by_cluster(pod("node", "Failed", **status)) == expected
    assert not pods.was_ended_by_cluster(pod("node", "Running", **status))


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
    failed = pod("node", "Failed", **terminated(1, "Error"))
    assert pods.describe([SUPERVISOR, NODE, failed, failed], 2) == (
        "waits",
        "1 of 2 pods run; 2 ended, the last one: Error with exit code 1",
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
