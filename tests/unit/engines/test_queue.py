"""The queue before the machine, with identities that are not processes; who lives is what the test says."""

import fcntl
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.contract import process_identity
from drumline.engines.local.queue import JobQueue, QueueEntry


def who(number):
    return {"pid": number, "started": 1, "boot": "b"}


@pytest.fixture(autouse=True)
def nobody_is_woken(monkeypatch):
    """The numbers are those of other people's processes."""
    monkeypatch.setattr(process_identity, "open_pidfd", lambda _: None)


@pytest.fixture
def living(monkeypatch):
    """The numbers of the supervisors that live."""
    numbers = set(range(1, 100))
    monkeypatch.setattr(process_identity, "is_alive", lambda someone: someone["pid"] in numbers)
    return numbers


@pytest.fixture
def queue(tmp_path, living):
    return JobQueue(str(tmp_path / "queue"), 4, ("0", "1", "2", "3"))


def entry(number, cores=1, gpus=0):
    return QueueEntry(f"job{number}", who(number), cores, gpus)


def starts(queue, *entries):
    """Whether each may start, asked in this order."""
    return [queue.advance(one) is None for one in entries]


def test_jobs_that_fit_run_side_by_side(queue):
    assert starts(queue, entry(1, 2), entry(2, 1), entry(3, 1)) == [True, True, True]


def test_a_job_that_does_not_fit_says_who_holds_what_it_wants(queue):
    starts(queue, entry(1, 2), entry(2, 1))
    blocked = queue.advance(entry(3, 3))
    assert blocked.reason == "waiting for 2 of 3 cores held by job job1 and job job2"
    assert (who(1), who(2)) == blocked.holders


def test_a_job_of_a_sweep_is_named_with_its_sweep(queue):
    first = entry(1, 4)
    first.top = "calm_drum"
    assert starts(queue, first) == [True]
    assert queue.advance(entry(2)).reason == "waiting for 1 of 1 cores held by job job1 of job calm_drum"
    assert queue.advance(entry(3)).reason.endswith("; 1 ahead in the queue")


def test_asking_again_changes_nothing(queue):
    first, second = entry(1, 4), entry(2, 4)
    assert starts(queue, first, first, second, second) == [True, True, False, False]


def test_who_came_first_goes_first(queue):
    starts(queue, entry(1, 4))
    second, third = entry(2, 4), entry(3, 1)
    assert starts(queue, second, third) == [False, False]
    queue.leave(who(1))
    assert starts(queue, third, second, third) == [False, True, False]


def test_a_job_behind_another_says_so_and_waits_for_that_one(queue):
    starts(queue, entry(1, 3), entry(2, 2))
    blocked = queue.advance(entry(3, 1))
    assert blocked.reason == "waiting behind job job2 in the queue"
    assert (who(2),) == blocked.holders


def test_how_many_are_ahead_is_said(queue):
    starts(queue, entry(1, 4), entry(2, 4), entry(3, 4))
    assert queue.advance(entry(4, 4)).reason.endswith("; 2 ahead in the queue")


def test_the_dead_hold_nothing_and_wait_for_nothing(queue, living):
    starts(queue, entry(1, 4), entry(2, 4))
    third = entry(3, 4)
    assert starts(queue, third) == [False]
    living -= {1, 2}
    assert starts(queue, third) == [True]


def test_who_leaves_the_queue_holds_up_nobody(queue):
    starts(queue, entry(1, 4), entry(2, 4))
    queue.leave(who(2))
    queue.leave(who(2))
    queue.leave(who(1))
    assert starts(queue, entry(3, 4)) == [True]


def test_gpus_are_named_and_never_shared(queue):
    first, second, third = entry(1, 1, 2), entry(2, 1, 2), entry(3, 1, 1)
    assert starts(queue, first, second, third) == [True, True, False]
    assert (first.gpus, second.gpus) == (("0", "1"), ("2", "3"))
    queue.leave(who(1))
    assert starts(queue, third) == [True]
    assert third.gpus == ("0",)


def test_a_job_that_lacks_gpus_says_so(queue):
    starts(queue, entry(1, 1, 3))
    assert queue.advance(entry(2, 1, 2)).reason == "waiting for 1 of 2 GPUs held by job job1"


@pytest.mark.parametrize("text", ["", "[", "{}", "null", '[{"job": 1}]', "[1]", '[{"unknown": 1}]'])
def test_a_damaged_file_is_an_empty_queue(queue, tmp_path, text):
    (tmp_path / "queue" / "line.json").write_text(text)
    assert starts(queue, entry(1, 4)) == [True]


def edited(tmp_path, change):
    """The file as another version, or somebody's editor, left it."""
    path = tmp_path / "queue" / "line.json"
    path.write_text(change(path.read_text()))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"job": "job2"', '"job": "job2", "of_tomorrow": {"a": 1}'),
        lambda text: text.replace('"cores": 1, "gpu_count": 1', '"cores": null, "gpu_count": 1'),
        lambda text: text.replace('"gpus": ["2"]', '"gpus": 7'),
        lambda text: text.replace('"gpus": ["2"]', '"gpus": [["2"]]'),
        lambda text: text.replace('"gpus": ["2"], ', ""),
        lambda text: text.replace('"pid": 2', '"pid": 2 2'),
        lambda text: text[: text.index('"job": "job2"')],
        lambda text: text.replace('"who": {"pid": 2', '"whom": {"pid": 2'),
    ],
)
def test_a_damaged_entry_frees_nothing_that_others_hold(queue, tmp_path, change):
    """One entry that could not be parsed emptied the queue, and GPUs in use were granted again."""
    assert starts(queue, entry(1, 1, 2), entry(2, 1, 1)) == [True, True]
    edited(tmp_path, change)
    third = entry(3, 1, 2)
    queue.advance(third)
    assert not {"0", "1"} & set(third.gpus)
    queue.leave(who(3))
    assert starts(queue, entry(4, 4)) == [False]


@pytest.mark.parametrize("of", ['"gpus": ["2"]', '"cores": 1', '"running": true'])
def test_who_lives_and_does_not_say_what_it_holds_holds_everything(queue, living, tmp_path, of):
    starts(queue, entry(1, 1, 2), entry(2, 1, 1))
    edited(
        tmp_path,
        lambda text: of.split(":")[0].join(
            [text[: text.rindex(of)], ": {}" + text[text.rindex(of) + len(of) :]]
        ),
    )
    assert queue.advance(entry(3, 1)).reason == "waiting for 1 of 1 cores held by job job1 and job job2"
    living.discard(2)
    assert starts(queue, entry(3, 1, 2)) == [True]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"cores": 1', '"cores": -5'),
        lambda text: text.replace('"cores": 1', '"cores": -1e9'),
        lambda text: text.replace('"gpu_count": 1', '"gpu_count": -1'),
        lambda text: text.replace('"gpus": ["0"]', '"gpus": []'),
        lambda text: text[:-2] + "\0]",
        lambda text: text.replace('"gpus": ["0"]', '"gpus": ["0\n'),
        lambda text: text[: text.index('"cores"')],
        lambda text: text.replace('"job"', "\0" * 5),
        lambda text: text.replace('"pid": 1', '"pid": 1 7'),
    ],
)
def test_a_live_job_whose_entry_is_impossible_or_illegible_holds_everything(queue, tmp_path, change):
    """With fewer than no cores, or in a line that cannot be parsed, it held nothing, and others ran beside it."""
    starts(queue, entry(1, 1, 1))
    edited(tmp_path, change)
    blocked = queue.advance(entry(2, 1))
    assert blocked.reason.startswith("waiting for 1 of 1 cores held by job ")
    assert blocked.holders[0]["pid"] == 1
    assert starts(queue, entry(1, 1, 1)) == [True]
    queue.leave(who(1))
    assert starts(queue, entry(2, 1, 1)) == [True]


def test_who_waits_takes_its_place_again_where_its_entry_was_damaged(queue, tmp_path):
    starts(queue, entry(1, 4), entry(2, 4), entry(3, 1))
    edited(tmp_path, lambda text: text.replace('"job": "job2"', '"job": 2'))
    assert starts(queue, entry(2, 4), entry(3, 1)) == [False, False]
    queue.leave(who(1))
    assert starts(queue, entry(3, 1), entry(2, 4), entry(3, 1)) == [False, True, False]


def test_what_another_version_says_of_its_entry_is_kept(queue, tmp_path):
    starts(queue, entry(1))
    edited(tmp_path, lambda text: text.replace('"job": "job1"', '"job": "job1", "of_tomorrow": {"a": 1}'))
    starts(queue, entry(2))
    assert '"of_tomorrow": {"a": 1}' in (tmp_path / "queue" / "line.json").read_text()


def test_another_process_sees_the_same_queue(queue, tmp_path):
    starts(queue, entry(1, 4))
    assert starts(JobQueue(str(tmp_path / "queue"), 4, ()), entry(2, 1)) == [False]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(["ask", "leave"]), st.integers(1, 6), st.integers(1, 4)), max_size=25)
)
def test_whatever_happens_nobody_gets_what_another_has_and_order_is_kept(tmp_path_factory, steps):
    queue = JobQueue(str(tmp_path_factory.mktemp("queue")), 4, ())
    wanted, running, waiting = {}, set(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_identity, "is_alive", lambda _: True)
        for what, number, cores in steps:
            if what == "leave":
                queue.leave(who(number))
                running.discard(number)
                waiting = [other for other in waiting if other != number]
                continue
            if number not in running and number not in waiting:
                wanted[number] = cores
                waiting.append(number)
            started = queue.advance(entry(number, wanted[number])) is None
            if started and number not in running:
                assert number == waiting.pop(0)
                running.add(number)
            assert started == (number in running)
            assert sum(wanted[other] for other in running) <= 4


@pytest.mark.parametrize(
    "content",
    ["{", "[1]", '[{"job": "x"}]', '[{"job": "a", "who": "b", "cores": 1, "gpu_count": 0}]', "[" * 5000],
)
def test_a_damaged_file_holds_up_nobody(queue, tmp_path, content):
    starts(queue, entry(1, 1))
    (tmp_path / "queue" / "line.json").write_text(content)
    assert starts(queue, entry(2, 4)) == [True]


def test_a_lock_that_is_held_is_a_reason_to_wait_and_not_a_hang(queue, tmp_path, monkeypatch):
    import fcntl

    from drumline.engines.local import queue as module

    monkeypatch.setattr(module, "_LOCK_TIMEOUT_S", 0.05)
    with (tmp_path / "queue" / "line.lock").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert queue.advance(entry(1)).reason == "waiting for the queue lock"
        queue.leave(who(1))
    assert starts(queue, entry(1)) == [True]


def test_entries_of_killed_supervisors_are_handed_to_the_finder(queue, living):
    starts(queue, entry(1, 4))
    living.remove(1)
    assert starts(queue, entry(2, 4)) == [True]
    assert [one.job for one in queue.dropped] == ["job1"]


def test_a_place_is_given_up_although_the_file_is_held_for_a_while(queue, tmp_path):
    """Of a job that goes back to the queue: its process lives on, and with it a place that was not given up."""
    assert starts(queue, entry(1, 4)) == [True]
    with (tmp_path / "queue" / "line.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = threading.Timer(1.3, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        release.start()
        queue.leave(who(1))
        release.join()
    assert starts(queue, entry(2, 4), entry(1, 4)) == [True, False]


def test_two_jobs_of_one_name_in_two_workspaces_are_two(queue):
    a, b, c = (
        QueueEntry("same", who(number), 2, 0, folder=f"/home/workspaces/{name}/jobs/same")
        for number, name in enumerate("abc", 1)
    )
    assert starts(queue, a, b, c) == [True, True, False]
    assert queue.advance(c).reason.startswith("waiting for 2 of 2 cores held by job same of ")
