"""What a courier makes of the cluster's answers; the cluster is one of this test."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import processes_with
from waiting import wait_until

from drumline.contract import events as e
from drumline.contract.errors import EngineError
from drumline.engines.kubernetes import cluster_view, courier, frames, manifests
from drumline.engines.kubernetes.engine import ENGINE

END = e.to_line(e.JobEnded(2.0, "Completed", 0, "done", None, None, None))


class Cluster:
    """``pods`` by name; ``logs``: the lines of each, then the end of the log."""

    def __init__(self):
        self.has_job = True
        self.pods = {}
        self.logs = {}
        self.patched = []

    def add(self, name, role, phase="Running"):
        labels = {manifests.ROLE_LABEL: role}
        self.pods[name] = {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}
        self.logs[name] = []

    def say(self, name, *said):
        self.logs[name] += [frames.encode(one) for one in said]

    def get(self, kind, name):
        return {} if self.has_job else None

    def list(self, kind, labels):
        return list(self.pods.values())

    def patch(self, kind, name, change):
        self.patched.append((kind, name, change["metadata"]["annotations"][manifests.REQUESTS]))

    def delete_job(self, name):
        self.has_job = False

    def follow_log(self, pod, since_s=None):
        yield from self.logs[pod]


@pytest.fixture
def cluster():
    return Cluster()


def read(path):
    return Path(path).read_text()


def look_until(looks, cluster, is_so, what):
    def there():
        over = looks._look(cluster)
        looks._logs.release_end(late=False)
        return is_so(over)

    wait_until(there, 20.0, what)


def test_a_job_has_ended_when_the_outputs_of_all_pods_are_here(cluster, folder):
    looks = courier.Courier(folder)
    begun = len(e.to_line(e.JobSubmitted(1.0, "ann", "kubernetes")))
    cluster.add("s", "supervisor")
    cluster.add("n", "node")
    cluster.say("s", frames.Frame("events.jsonl", begun, END), frames.Frame("", end=True))
    look_until(looks, cluster, lambda _: looks._logs.has_said_all("s"), "the supervisor's pod to be read")
    assert END.decode() not in read(folder.events)
    assert cluster.has_job
    cluster.say("n", frames.Frame("outputs/a", 0, b"x"), frames.Frame("", end=True))
    look_until(looks, cluster, lambda _: END.decode() in read(folder.events), "the end to be here")
    assert read(f"{folder.outputs}/a") == "x"
    cluster.pods["s"]["status"]["phase"] = "Succeeded"
    look_until(looks, cluster, lambda over: over, "the courier to be done")
    assert not cluster.has_job
    assert cluster_view.read(folder).state == "gone"


def test_a_job_that_runs_waits_for_nothing(folder):
    assert cluster_view.read(folder).reason == "its pods are being made"
    cluster_view.write(folder, "runs", "")
    assert cluster_view.read(folder)[:2] == ("runs", "")


def test_the_loss_of_the_supervisors_pod_is_told(cluster, folder):
    looks = courier.Courier(folder)
    cluster.add("s", "supervisor", "Failed")
    cluster.pods["s"]["status"]["reason"] = "Evicted"
    cluster.say("s", frames.Frame("", end=True))
    look_until(looks, cluster, lambda over: over, "the courier to be done")
    known = cluster_view.read(folder)
    assert (known.state, known.status) == ("gone", "Failed")
    assert known.reason.startswith("the pod of its supervisor was lost: Evicted; ")
    assert not cluster.has_job


def test_the_reason_of_a_supervisor_that_did_not_start_has_the_end_of_its_log(cluster, folder):
    looks = courier.Courier(folder)
    cluster.add("s", "supervisor", "Failed")
    ended = {"exitCode": 127, "reason": "Error"}
    cluster.pods["s"]["status"]["containerStatuses"] = [{"state": {"terminated": ended}}]
    cluster.logs["s"].append("sh: 1: exec: python3: not found")
    look_until(looks, cluster, lambda over: over, "the courier to be done")
    reason = (
        "the pod of its supervisor did not start: Error with exit code 127; its log ends with: sh: 1: exec: "
    )
    assert cluster_view.read(folder).reason.startswith(reason + "python3: not found; ")


def test_the_reason_why_an_image_is_not_had_stays_between_two_tries(cluster, folder):
    looks = courier.Courier(folder)
    for reason, message in (
        ("ErrImagePull", "manifest for train:9 not found"),
        ("ImagePullBackOff", 'Back-off pulling image "train:9"'),
    ):
        cluster.add("s", "supervisor", "Pending")
        waiting = {"reason": reason, "message": message}
        cluster.pods["s"]["status"]["containerStatuses"] = [{"state": {"waiting": waiting}}]
        looks._look(cluster)
        assert (
            "ErrImagePull: manifest for train:9 not found; check the name" in cluster_view.read(folder).reason
        )


def test_a_node_that_the_cluster_has_ended_is_told_once(cluster, folder):
    cluster.add("s", "supervisor")
    cluster.add("n", "node", "Failed")
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    cluster.pods["n"]["status"]["containerStatuses"] = [{"state": {"terminated": ended}}]
    cluster.pods["n"]["spec"] = {"nodeName": "e2"}
    for _ in range(2):
        looks = courier.Courier(folder)
        looks._look(cluster)
        looks._look(cluster)
    (warning,) = [event for event in folder.read_events() if isinstance(event, e.JobWarned)]
    assert warning.text.startswith(
        "the pod of a node, on e2, was ended by Kubernetes: OOMKilled with exit code 137; give its nodes more memory"
    )


def test_nothing_is_told_of_the_end_of_other_pods(cluster, folder):
    """The supervisor's is told as the end of the job, and what a node's own program did by its supervisor."""
    cluster.add("s", "supervisor", "Failed")
    cluster.add("n", "node", "Failed")
    for name, code, reason in (("s", 137, "OOMKilled"), ("n", 1, "Error")):
        ended = {"exitCode": code, "reason": reason}
        cluster.pods[name]["status"]["containerStatuses"] = [{"state": {"terminated": ended}}]
    courier.Courier(folder)._look(cluster)
    assert not any(isinstance(event, e.JobWarned) for event in folder.read_events())


def test_missing_nodes_are_asked_for_as_long_as_the_supervisor_goes_on(cluster, folder):
    looks, asked = courier.Courier(folder), []

    def ask(api, found, count, *, is_held):
        asked.append((len(found), count, is_held))
        return "another is asked for"

    looks._replacements = SimpleNamespace(ask=ask)
    cluster.add("n", "node")
    cluster.add("s", "supervisor", "Pending")
    looks._look(cluster)
    assert asked == []
    cluster.pods["s"]["status"]["phase"] = "Running"
    looks._look(cluster)
    assert asked == [(2, 2, False)]
    assert cluster_view.read(folder)[:2] == ("waits", "1 of 2 pods run; another is asked for")
    looks._warnings = SimpleNamespace(
        ask=lambda *_: [{"reason": "FailedCreate", "message": "exceeded quota"}]
    )
    looks._look(cluster)
    assert asked[1:] == [(2, 2, True)]
    assert cluster_view.read(folder)[:2] == ("waits", "1 of 2 pods run; no pod is made: exceeded quota")
    begun = len(e.to_line(e.JobSubmitted(1.0, "ann", "kubernetes")))
    cluster.say("s", frames.Frame("events.jsonl", begun, END))
    look_until(looks, cluster, lambda _: looks._logs.has_end(), "the end to be heard")
    asked.clear()
    looks._look(cluster)
    assert asked == []


def test_a_job_that_is_canceled_before_it_starts_is_removed(cluster, folder):
    cluster.add("s", "supervisor", "Pending")
    folder.write(folder.cancel, "{}")
    assert courier.Courier(folder)._look(cluster)
    assert not cluster.has_job
    assert cluster_view.read(folder).status == "Canceled"


def test_requests_reach_the_supervisors_pod_once(cluster, folder):
    looks = courier.Courier(folder)
    cluster.add("s", "supervisor")
    cluster.add("n", "node")
    folder.write(folder.cancel, '{"by": "ann"}')
    for _ in range(3):
        assert not looks._look(cluster)
    ((kind, name, text),) = cluster.patched
    assert (kind, name, json.loads(text)) == ("Pod", "s", {"cancel": '{"by": "ann"}'})


def look_at_nothing(looks, cluster):
    """Look as often, over so long a time, as a courier wants before it believes that there is nothing."""
    for _ in range(courier._MISSING_LOOKS - 1):
        looks._missing.append(courier.time.monotonic() - courier._MISSING_S)
    return looks._look(cluster)


def test_objects_that_somebody_removed_are_told(cluster, folder):
    looks = courier.Courier(folder)
    cluster.has_job = False
    assert not look_at_nothing(looks, cluster)
    assert cluster_view.read(folder).state == "waits"
    looks._began -= 61.0
    assert look_at_nothing(looks, cluster)
    assert cluster_view.read(folder).reason == "its objects are gone from Kubernetes"


def test_objects_are_gone_when_look_after_look_finds_none(cluster, folder):
    looks = courier.Courier(folder)
    looks._began -= 600.0
    cluster.has_job = False
    for _ in range(courier._MISSING_LOOKS + 1):
        assert not looks._look(cluster)
    cluster.has_job = True
    assert not looks._look(cluster)
    cluster.has_job = False
    looks._missing[:] = [at - courier._MISSING_S for at in looks._missing]
    for _ in range(courier._MISSING_LOOKS):
        assert not looks._look(cluster)
    assert cluster_view.read(folder).state != "gone"
    looks._missing[:] = [at - courier._MISSING_S for at in looks._missing]
    assert looks._look(cluster)
    assert cluster_view.read(folder).state == "gone"


def hold_end(cluster, folder):
    """A courier that has heard the end of the job, and waits for what the node's pod has to say."""
    begun = os.path.getsize(folder.events)
    cluster.add("s", "supervisor")
    cluster.add("n", "node")
    cluster.say("s", frames.Frame("events.jsonl", begun, END), frames.Frame("", end=True))
    looks = courier.Courier(folder)
    look_until(looks, cluster, lambda _: looks._logs.has_said_all("s"), "the supervisor's pod to be read")
    return looks


def test_the_end_that_was_held_back_is_not_lost_with_the_objects(cluster, folder):
    looks = hold_end(cluster, folder)
    assert END.decode() not in read(folder.events)
    cluster.has_job = False
    assert look_at_nothing(looks, cluster)
    assert END.decode() in read(folder.events)
    assert (cluster_view.read(folder).reason, cluster_view.read(folder).status) == ("it has ended", "")


def test_a_job_whose_end_is_here_is_left_at_once(cluster, folder):
    folder.append(e.JobEnded(2.0, "Completed", 0, "done", None, None, None))
    cluster.has_job = False
    assert courier.Courier(folder)._look(cluster)
    assert cluster_view.read(folder).reason == "it has ended"


def test_the_end_that_was_held_back_is_not_lost_with_a_cancel(cluster, folder):
    looks = hold_end(cluster, folder)
    folder.write(folder.cancel, "{}")
    del cluster.pods["s"]
    assert looks._look(cluster)
    assert END.decode() in read(folder.events)
    assert (cluster_view.read(folder).reason, cluster.has_job) == ("it has ended", False)


def test_a_submission_that_was_interrupted_before_anything_was_made_is_canceled_soon(cluster, folder):
    cluster_view.write_place(folder, {"name": "dl-a"})
    folder.write(folder.cancel, "{}")
    cluster.has_job = False
    looks = courier.Courier(folder)
    assert not look_at_nothing(looks, cluster)
    looks._began -= 31.0
    assert look_at_nothing(looks, cluster)
    assert (cluster_view.read(folder).reason, cluster_view.read(folder).status) == (
        "it was canceled",
        "Canceled",
    )


def test_a_submission_that_is_completed_begins_without_the_end_of_what_was_cut_off(folder, monkeypatch):
    def send(*_):
        assert cluster_view.read(folder).state == "waits"
        assert not os.path.exists(f"{folder.path}/courier.json")
        return "0f1e"

    monkeypatch.setattr("drumline.engines.kubernetes.submission.send_patiently", send)
    monkeypatch.setattr("drumline.engines.kubernetes.bundle.make_bundle", lambda *_: [{}])
    monkeypatch.setattr("drumline.engines.kubernetes.client.find_place", lambda _: {})
    monkeypatch.setattr(courier, "ensure", lambda _: None)
    cluster_view.write(folder, "gone", "its submission was cut off", "Failed", 1)
    folder.write(f"{folder.path}/courier.json", json.dumps({"supervisor": "s", "pods": {"n": 3}}))
    ENGINE.submit(folder, None)
    assert cluster_view.was_sent(folder)


def test_what_is_known_of_a_job_that_is_there_outlives_its_submitter(folder):
    cluster_view.write(folder, "runs", "")
    folder.write(f"{folder.path}/courier.json", json.dumps({"supervisor": "s"}))
    courier.forget_end(folder)
    assert courier._read_known(folder)["supervisor"] == "s"


def test_a_view_is_written_when_it_is_news(cluster, folder):
    cluster.add("s", "supervisor", "Pending")
    courier.Courier(folder)._look(cluster)
    known = cluster_view.read(folder)
    assert (known.state, known.reason) == ("starts", "0 of 2 pods run")


def test_a_job_whose_run_folder_was_removed_is_removed_from_the_cluster(cluster, folder, monkeypatch):
    monkeypatch.setattr(courier, "open_api", lambda compute: cluster)
    carries = courier.Courier(folder)
    shutil.rmtree(folder.path)
    carries.run()
    assert not cluster.has_job
    assert not os.path.exists(folder.path)


def test_a_server_that_refuses_is_asked_ever_more_rarely(cluster, folder, monkeypatch):
    answers = iter([EngineError("no"), EngineError("no"), EngineError("no"), EngineError("no")])
    pauses = []

    def look(_):
        error = next(answers, None)
        if error is None:
            return True
        raise error

    monkeypatch.setattr(courier, "open_api", lambda compute: cluster)
    carries = courier.Courier(folder)
    monkeypatch.setattr(carries, "_look", look)
    monkeypatch.setattr(carries._news, "wait", pauses.append)
    carries.run()
    assert pauses == [0.6, 1.2, 2.4, 4.8]
    assert cluster_view.read(folder).reason == "no"


@pytest.mark.skipif(os.getpid() == 1, reason="process 1 gets all that lose their parent")
def test_whoever_looks_there_is_one_courier_and_no_child_of_theirs(folder, monkeypatch):
    monkeypatch.setenv("COURIER_OF", folder.path)
    monkeypatch.setenv("KUBECONFIG", os.path.join(folder.path, "none"))
    marker = os.fsencode(f"COURIER_OF={folder.path}") + b"\0"

    def has_looked():
        courier.ensure(folder)
        # There is no such kubeconfig: it says so, and asks again.
        return cluster_view.read(folder).state == "unknown"

    for _ in range(2):
        wait_until(has_looked, what="the courier to have looked")
        found = processes_with(marker)
        assert len(found) == 1
        (pid,) = found
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not processes_with(marker), what="its end")
        cluster_view.write(folder, "waits", "")


def piece(number, path="user_logs/a", at=0, data=b"x", **more):
    return frames.Frame(path, at, data, number=number, **more)


def test_a_log_that_is_read_again_is_written_once(cluster, folder):
    cluster.add("n", "node")
    cluster.say("n", piece(1, begins=True), piece(2, at=1))
    looks = courier.Courier(folder)
    log = f"{folder.path}/user_logs/a"
    look_until(looks, cluster, lambda _: os.path.exists(log) and read(log) == "xx", "the log")
    with open(log) as file:
        # A server has closed the log; then another courier begins.
        looks._look(cluster)
        looks._write_known()
        cluster.say("n", piece(3, at=2))
        another = courier.Courier(folder)
        look_until(another, cluster, lambda _: read(log) == "xxx", "the rest")
        assert file.read() == "xxx"


def test_a_piece_that_cannot_be_written_costs_itself_alone(cluster, folder, capfd):
    cluster.add("n", "node")
    cluster.say("n", piece(1, "outputs/model"), piece(2, "outputs/model/x"), piece(3, "outputs/b"))
    looks = courier.Courier(folder)
    look_until(looks, cluster, lambda _: os.path.exists(f"{folder.outputs}/b"), "what follows")
    assert capfd.readouterr().err == "n: outputs/model/x is left out: Not a directory\n"


def test_the_events_of_a_job_are_those_of_its_supervisor(cluster, folder):
    before = read(folder.events)
    cluster.add("n", "node")
    cluster.say("n", piece(1, "events.jsonl", len(before), END), piece(2), frames.Frame("", end=True))
    looks = courier.Courier(folder)
    look_until(looks, cluster, lambda _: looks._logs.has_said_all("n"), "the log")
    assert (read(folder.events), read(f"{folder.path}/user_logs/a")) == (before, "x")


def test_the_end_that_was_held_back_is_not_lost_with_its_courier(cluster, folder):
    begun = os.path.getsize(folder.events)
    cluster.add("s", "supervisor")
    cluster.add("n", "node")
    cluster.say("s", piece(1), piece(2, "events.jsonl", begun, END), piece(3, at=1))
    looks = courier.Courier(folder)
    log = f"{folder.path}/user_logs/a"
    look_until(looks, cluster, lambda _: os.path.exists(log) and read(log) == "xx", "the log")
    looks._write_known()
    cluster.say("s", frames.Frame("", end=True))
    cluster.say("n", frames.Frame("", end=True))
    another = courier.Courier(folder)
    look_until(another, cluster, lambda _: END.decode() in read(folder.events), "the end")


def test_the_words_of_a_pod_that_ended_without_a_last_one_are_all_that_there_is(cluster, folder):
    cluster.add("s", "supervisor", "Failed")
    cluster.add("n", "node", "Failed")
    cluster.say("n", piece(1))
    looks = courier.Courier(folder)
    look_until(looks, cluster, lambda over: over, "the courier to be done at once")
    assert read(f"{folder.path}/user_logs/a") == "x"


def test_the_time_for_last_words_begins_anew_when_the_server_was_away(cluster, folder, monkeypatch):
    monkeypatch.setattr(courier, "open_api", lambda compute: cluster)
    looks = courier.Courier(folder)
    looked = []

    def look(_):
        looked.append(looks._ended_at)
        looks._ended_at = 1.0
        if len(looked) == 1:
            raise EngineError("away")
        return True

    monkeypatch.setattr(looks, "_look", look)
    monkeypatch.setattr(looks._news, "wait", lambda _: None)
    looks.run()
    assert looked == [None, None]


def test_another_supervisor_that_an_old_server_makes_is_not_heard(cluster, folder):
    cluster.add("s", "supervisor")
    looks = courier.Courier(folder)
    assert not looks._look(cluster)
    del cluster.pods["s"]
    cluster.add("t", "supervisor")
    cluster.say("t", piece(1, "user_logs/t"))
    assert courier.Courier(folder)._look(cluster)
    assert cluster_view.read(folder).reason == "the pod of its supervisor was lost: it was deleted"
    assert not os.path.exists(f"{folder.path}/user_logs/t")
    assert not cluster.has_job


def test_a_submission_that_was_cut_off_is_removed(cluster, folder, monkeypatch):
    held = {"spec": {"parallelism": 0}}
    monkeypatch.setattr(cluster, "get", lambda kind, name: held if cluster.has_job else None)
    looks = courier.Courier(folder)
    assert not looks._look(cluster)
    looks._began -= 121.0
    assert looks._look(cluster)
    assert (cluster.has_job, cluster_view.read(folder).reason) == (False, "its submission was cut off")


def test_what_a_failed_submission_has_left_is_removed(cluster, folder, monkeypatch):
    monkeypatch.setattr(courier, "open_api", lambda compute: cluster)
    cluster_view.write_place(folder, {"name": "dl-a"}, withdrawn="yes")
    courier.Courier(folder).run()
    assert not cluster.has_job


def test_a_submission_may_take_its_time(cluster, folder):
    cluster_view.write_place(folder, {"name": "dl-a"})
    cluster.has_job = False
    looks = courier.Courier(folder)
    looks._began -= 300.0
    assert not look_at_nothing(looks, cluster)
    cluster_view.write_place(folder, {"name": "dl-a"}, sent="yes")
    assert look_at_nothing(looks, cluster)


def test_a_pod_loads_the_engine_without_the_library_of_the_api():
    modules = "drumline.engines.kubernetes.engine, drumline.supervisor.main"
    program = f"import sys; sys.modules['httpx2'] = None; import {modules}"
    subprocess.run([sys.executable, "-c", program], check=True)
