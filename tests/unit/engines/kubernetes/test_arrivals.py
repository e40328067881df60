"""What pods have printed, in the run folder here: logs of lost pods, and outputs that did not come."""

import os
import threading
from pathlib import Path

import pytest

from drumline.contract import events as e
from drumline.contract.outcome import fold
from drumline.engines.kubernetes import frames, manifests
from drumline.engines.kubernetes import receiver as receiving
from drumline.engines.kubernetes.receiver import PodLogs

LOG = "user_logs/std_log_process_01.txt"
NODE_LOG = "system_logs/node-1.log"
END = e.to_line(e.JobEnded(5.0, "Completed", 0, "done"))


class Pods:
    """The pods of a job, and who reads them; ``again`` begins with another reader, as after a kill."""

    def __init__(self, folder):
        self.folder = folder
        self._said = {}
        self._events = os.path.getsize(folder.events)
        self.again()

    def again(self, written=None):
        self.logs = PodLogs(self.folder, threading.Event(), written or {})

    def say(self, pod, path, data, at=0, *, begins=True):
        said = self._said.setdefault(pod, [])
        said.append(frames.Frame(path, at, data, begins, number=len(said) + 1))
        self.take(pod, said[-1])

    def take(self, pod, frame):
        role = manifests.SUPERVISOR if pod == "s" else manifests.NODE
        self.logs._take(pod, role, frame)

    def tell(self, event):
        line = e.to_line(event)
        self.say("s", "events.jsonl", line, self._events, begins=False)
        self._events += len(line)

    def repeat(self):
        for pod, said in self._said.items():
            for frame in said:
                self.take(pod, frame)


@pytest.fixture
def pods(folder):
    return Pods(folder)


def read(folder, path):
    return (Path(folder.path) / path).read_text()


def test_the_logs_of_a_lost_pod_stay_when_another_takes_its_place(pods, folder):
    for path in (LOG, NODE_LOG):
        pods.say("a", path, b"of a")
    with open(f"{folder.path}/{LOG}") as reads:
        pods.tell(e.AttemptEnded(2.0, 0, 1, "its node was lost"))
        pods.again(pods.logs.list_written())
        for path in (LOG, NODE_LOG):
            pods.say("b", path, b"of b")
        assert reads.read() == "of a"
    assert read(folder, LOG) == read(folder, NODE_LOG) == "of b"
    assert read(folder, "user_logs/attempt-0/std_log_process_01.txt") == "of a"
    assert read(folder, "system_logs/attempt-0/node-1.log") == "of a"
    # The next one that is lost.
    pods.tell(e.AttemptEnded(3.0, 1, 1, "its node was lost"))
    pods.say("c", LOG, b"of c")
    assert read(folder, "user_logs/attempt-0/std_log_process_01.txt") == "of a"
    assert read(folder, "user_logs/attempt-1/std_log_process_01.txt") == "of b"
    assert read(folder, LOG) == "of c"


def test_a_pod_that_goes_on_has_moved_its_own_log(pods, folder):
    pods.say("a", LOG, b"first")
    pods.tell(e.AttemptEnded(2.0, 0, 1, "rank 0 failed"))
    pods.say("a", LOG, b"second")
    assert not os.path.exists(f"{folder.user_logs}/attempt-0")
    pods.say("a", "user_logs/attempt-0/std_log_process_01.txt", b"first")
    assert read(folder, LOG) == "second"
    assert read(folder, "user_logs/attempt-0/std_log_process_01.txt") == "first"


def test_the_events_may_come_later_than_the_logs_of_an_attempt(pods, folder):
    pods.say("a", LOG, b"of a")
    pods.say("b", LOG, b"of b")
    pods.tell(e.AttemptEnded(2.0, 0, 1, "its node was lost"))
    pods.say("d", NODE_LOG, b"of d")
    pods.say("b", LOG, b"again of b")
    pods.say("c", LOG, b"of c")
    assert read(folder, "user_logs/attempt-0/std_log_process_01.txt") == "of a"
    assert read(folder, "user_logs/attempt-1/std_log_process_01.txt") == "again of b"
    assert read(folder, LOG) == "of c"


@pytest.mark.parametrize("dies_at", ["rename", "pwrite"])
def test_a_courier_that_is_killed_meanwhile_keeps_both_logs(pods, folder, monkeypatch, dies_at):
    pods.say("a", LOG, b"of a")
    pods.tell(e.AttemptEnded(2.0, 0, 1, "its node was lost"))
    real = getattr(os, dies_at)

    def does_and_dies(*words, **more):
        monkeypatch.setattr(receiving.os, dies_at, real)
        real(*words, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(receiving.os, dies_at, does_and_dies)
    with pytest.raises(KeyboardInterrupt):
        pods.say("b", LOG, b"of b")
    # Nothing was written down of how far it was.
    pods.again({"a": 1})
    pods.repeat()
    assert read(folder, "user_logs/attempt-0/std_log_process_01.txt") == "of a"
    assert read(folder, LOG) == "of b"
    assert sorted(os.listdir(folder.user_logs)) == ["attempt-0", "std_log_process_01.txt"]


def test_half_an_event_is_not_lost_with_its_courier(pods, folder):
    line = e.to_line(e.JobStarting(2.0))
    begin = os.path.getsize(folder.events)
    pods.say("s", "events.jsonl", line[:9], begin, begins=False)
    pods.again(pods.logs.list_written())
    pods.repeat()
    folder.append(e.JobArchived(3.0))
    pods.say("s", "events.jsonl", line[9:], begin + 9, begins=False)
    assert [type(one) for one in folder.read_events()] == [e.JobSubmitted, e.JobArchived, e.JobStarting]


def test_the_job_is_warned_once_of_outputs_that_stay_in_pods(pods, folder, tmp_path):
    there = tmp_path / "there"
    (there / "outputs").mkdir(parents=True)
    for number in range(5):
        (there / "outputs" / f"{number}.ckpt").symlink_to("/etc/passwd")
    sender = frames.Sender(str(there), 100)
    assert list(sender.find_news(with_results=True)) == []
    (frame,) = sender.list_left_out("a")
    pods.say("a", frame.path, frame.data)
    pods.say(
        "b", "system_logs/outputs-left-out-b.jsonl", b'7\n[]\n{"more": 1e999}\nx\n{"path": 1}\n{"more": 2}'
    )
    pods.tell(e.JobEnded(5.0, "Completed", 0, "done"))
    assert END.decode() not in read(folder, "events.jsonl")
    pods.logs.release_end(late=True)
    for _ in range(2):
        pods.again()
        pods.repeat()
        pods.logs.release_end(late=True)
    outcome = fold(folder.read_events())
    assert outcome.status == "Completed"
    (warning,) = outcome.warnings
    which = ", ".join(f"outputs/{number}.ckpt (a link out of its output)" for number in range(3))
    assert warning.text == (
        f"7 outputs were not brought from the pods: {which} and 4 more; "
        "system_logs/outputs-left-out-*.jsonl has the list. A volume of the compute has room for such files: "
        "write below its path, or give the output a path there"
    )
    *_, last = folder.read_events()
    assert isinstance(last, e.JobEnded), "the warning comes before the end, for whoever waits for that"


def test_nothing_is_told_where_all_outputs_came(pods, folder):
    pods.say("a", "outputs/a", b"x")
    pods.tell(e.JobEnded(5.0, "Completed", 0, "done"))
    pods.logs.release_end(late=True)
    assert fold(folder.read_events()).warnings == []
