"""Nodes that are missing are asked for, whatever the counters of their Jobs say."""

from types import SimpleNamespace

import pytest

from drumline.engines.kubernetes import manifests, submission
from drumline.engines.kubernetes.client import ApiRefusedError

SENT = {
    "metadata": {"name": "dl-a-nodes", "labels": {}},
    "spec": {"completions": 2, "parallelism": 2, "template": {}},
}


def job(name="dl-a-nodes", parallelism=2, labels=None, **status):
    spec = {"completions": parallelism, "parallelism": parallelism}
    return {"metadata": {"name": name, "uid": "0f1e", "labels": labels or {}}, "spec": spec, "status": status}


def node(phase="Running", **metadata):
    labels = {manifests.ROLE_LABEL: manifests.NODE}
    return {"metadata": {"labels": labels, **metadata}, "status": {"phase": phase}}


class Api:
    """Jobs by name."""

    def __init__(self, *jobs):
        self.jobs = {one["metadata"]["name"]: one for one in (job("dl-a"), *jobs)}
        self.patched = []

    def get(self, kind, name):
        return self.jobs.get(name)

    def patch(self, kind, name, change):
        self.patched.append((name, change["spec"]["parallelism"]))
        self.jobs[name]["spec"].update(change["spec"])

    def create(self, thing):
        self.jobs[thing["metadata"]["name"]] = thing


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(submission, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


class Asks:
    def __init__(self, clock, *jobs, found):
        self.api, self._clock, self.found = Api(*jobs), clock, found
        self._replacements = submission.Replacements("dl-a", SENT)

    def after(self, seconds, *, is_held=False):
        """What is said after so long, each second of which had a look."""
        for _ in range(seconds):
            said = self._replacements.ask(self.api, self.found, 2, is_held=is_held)
            self._clock.now += 1.0
        return said

    @property
    def made(self):
        others = [one for name, one in self.api.jobs.items() if name not in ("dl-a", "dl-a-nodes")]
        return [(one["metadata"]["name"], one["spec"]["parallelism"]) for one in others]


def test_a_job_that_has_counted_a_pod_as_succeeded_is_helped_by_another(clock):
    asks = Asks(clock, job(succeeded=1, active=1), found=[node(), node("Succeeded", deletionTimestamp="x")])
    assert asks.after(3) == ""
    assert asks.after(10) == "Kubernetes makes no other pod yet; Drumline asks for one after 30 s"
    assert asks.made == []
    asks.after(20)
    assert asks.made == [("dl-a-nodes-2", 1)]
    made = asks.api.jobs["dl-a-nodes-2"]
    assert made["spec"]["completions"] == 1
    assert made["metadata"]["ownerReferences"][0]["name"] == "dl-a"


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": kind, "status": "True"}], "failed": 9}
        for kind in ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
    ],
)
def test_a_job_that_is_over_is_helped_by_another(clock, status):
    asks = Asks(clock, job(**status), found=[])
    asks.after(32)
    assert (asks.api.patched, asks.made) == ([], [("dl-a-nodes-2", 2)])


def test_a_job_that_goes_is_helped_by_another(clock):
    going = job(active=2)
    going["metadata"]["deletionTimestamp"] = "x"
    asks = Asks(clock, going, found=[])
    asks.after(32)
    assert (asks.api.patched, asks.made) == ([], [("dl-a-nodes-2", 2)])


@pytest.mark.parametrize(
    "lost", [node(deletionTimestamp="x"), node("Succeeded"), node("Failed"), job("dl-a")]
)
def test_pods_that_go_or_have_ended_or_are_no_nodes_are_missing(clock, lost):
    """The last one stands for the pod of the supervisor, which has another role."""
    asks = Asks(clock, job(succeeded=1), found=[node(), lost])
    asks.after(32)
    assert asks.made == [("dl-a-nodes-2", 1)]


def test_what_the_cluster_has_said_of_other_pods_keeps_nobody_from_asking(clock):
    asks = Asks(clock, job(succeeded=1), found=[node()])
    asks.after(32, is_held=True)
    assert asks.made == [("dl-a-nodes-2", 1)]


def test_nothing_is_asked_for_without_the_job_of_the_nodes_or_an_owner(clock):
    asks = Asks(clock, job(succeeded=1), found=[node()])
    del asks.api.jobs["dl-a"]
    asks.after(100)
    assert asks.made == []
    of_old = submission.Replacements("dl-a", None)
    for _ in range(100):
        assert of_old.ask(asks.api, asks.found, 2, is_held=False) == ""
        clock.now += 1.0


def test_nodes_whose_job_was_deleted_come_again(clock):
    asks = Asks(clock, found=[])
    asks.after(32)
    assert asks.made == [("dl-a-nodes-2", 2)]


def test_nodes_are_asked_for_again_ever_more_rarely(clock):
    asks = Asks(clock, job(succeeded=1), found=[node()])
    asks.after(32)
    asks.api.jobs["dl-a-nodes-2"]["status"] = {"succeeded": 1}
    asks.after(50)
    assert asks.made == [("dl-a-nodes-2", 1)]
    asks.after(20)
    assert asks.made == [("dl-a-nodes-2", 1), ("dl-a-nodes-3", 1)]
    asks.found = [node(), node()]
    assert asks.after(122) == ""
    asks.found = [node()]
    asks.api.jobs["dl-a-nodes-3"]["status"] = {"succeeded": 1}
    asks.after(32)
    assert len(asks.made) == 3


def test_pods_that_fail_at_once_are_no_reason_to_ask_as_often_again(clock):
    asks = Asks(clock, job(failed=1), found=[node()])
    for _ in range(20):
        asks.found = [node()]
        asks.after(40)
        asks.found = [node(), node("Pending")]
        asks.after(5)
    assert len(asks.made) == 1


def test_a_server_that_refuses_another_job_does_not_stop_the_courier(clock, capfd):
    asks = Asks(clock, job(succeeded=1), found=[node()])

    def refuse(_):
        raise ApiRefusedError("exceeded quota: team", status=403)

    asks.api.create = refuse
    asks.after(100)
    assert capfd.readouterr().err == "no other pod can be asked for: exceeded quota: team\n" * 2


def test_a_job_that_waits_long_before_it_makes_another_pod_is_helped(clock):
    asks = Asks(clock, job(failed=7, active=1), found=[node()])
    asks.after(32)
    assert (asks.api.patched, asks.made) == ([("dl-a-nodes", 1)], [("dl-a-nodes-2", 1)])


@pytest.mark.parametrize(
    ("jobs", "found", "is_held"),
    [
        ([job(active=2)], [node(), node("Pending")], False),
        # It has as many pods as it should, one of which is about to come.
        ([job(active=2, conditions=[{"type": "Failed", "status": "False"}])], [node()], False),
        # The cluster has said why, such as a quota.
        ([job(active=1)], [node()], True),
        # A queue has it, and would take another size for another job.
        ([job(active=0, labels={manifests.QUEUE_LABEL: "a"})], [], False),
        ([{**job(active=0), "spec": {"completions": 2, "parallelism": 2, "suspend": True}}], [], False),
    ],
)
def test_a_cluster_that_is_at_it_is_left_alone(clock, jobs, found, is_held):
    asks = Asks(clock, *jobs, found=found)
    asks.after(100, is_held=is_held)
    assert (asks.api.patched, asks.made) == ([], [])
