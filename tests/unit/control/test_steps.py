"""What a job's steps add up to."""

import json
import os
import time

import pytest
from planning import plan

from drumline.contract import steps as contract
from drumline.contract.folder import RunFolder
from drumline.contract.plan import NodeTask, Plan, RankTask
from drumline.contract.steps import Spread, Total, Window
from drumline.contract.words import round_rate
from drumline.control.facts import steps
from drumline.control.facts.steps import read_last_attempt, read_steps


def same(value):
    return Spread(value, value, value)


def add_to_plan(folder, node, ranks):
    """Have the job's plan place these ranks on the node, beside others."""
    made = Plan.read(folder.plan) if os.path.exists(folder.plan) else plan()._replace(nodes=())
    places = {one.node: {task.rank for task in one.ranks} for one in made.nodes}
    places.setdefault(node, set()).update(ranks)
    nodes = tuple(
        NodeTask(
            one, (), 0, {}, tuple(RankTask(rank, 0, str(rank), f"user_logs/{rank}", {}) for rank in known)
        )
        for one, known in sorted(places.items())
    )
    folder.write(folder.plan, made._replace(nodes=nodes).to_json())


def write(folder, attempt, node, windows, *, is_planned=True):
    path = RunFolder(str(folder)).steps_path(attempt, node)
    if is_planned:
        add_to_plan(RunFolder(str(folder)), node, {one.rank for one in windows})
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab") as file:
        for window in windows:
            file.write(contract.to_line([window]))


def window(rank, at, done, late=0.0, **more):
    seconds = {
        "step": 0.1,
        "input": 0.004,
        "forward": 0.03,
        "backward": 0.051,
        "comm": 0.025,
        "overlap": 0.01,
    }
    entries = tuple((number, 1000.0 + 0.1 * number + late) for number in range(done - 9, done + 1))
    spreads = {name: same(value) for name, value in seconds.items()}
    return Window(at, at, rank, 1, done, 10, spreads, (512,), entries, ("optimizer", "ddp"), **more)


@pytest.fixture
def folder(tmp_path):
    for node, ranks in enumerate(((0, 1), (2, 3))):
        for rank in ranks:
            late = 0.014 if rank == 2 else 0.001 * rank
            total = Total(110, 20, "a test")
            windows = [
                window(rank, 1000.0 + second, 10 * second, late, total=total) for second in range(1, 7)
            ]
            write(tmp_path, 1, node, windows)
    return tmp_path


def test_a_summary_says_how_far_how_fast_and_where_the_time_goes(folder):
    summary = read_steps(str(folder), 1).summarize()
    assert (summary.done, summary.total, summary.total_source) == (80, 110, "a test")
    assert summary.rate == pytest.approx(10.0)
    assert summary.step_s == pytest.approx(0.1)
    assert summary.latest == (2, pytest.approx(13.0, abs=0.1), 1.0, None, None)
    assert summary.sources == ["ddp", "optimizer"]
    # The others wait 14, 13 and 11 ms for rank 2.
    assert summary.phases == pytest.approx(
        {
            "input": 0.04,
            "forward": 0.3,
            "backward": 0.51,
            "waiting": 0.095,
            "exchange": 0.055,
            "other": 0.0,
        },
        abs=0.001,
    )


def test_lateness_compares_the_same_collective_of_all_ranks(folder):
    late = read_steps(str(folder), 1).find_lateness()
    assert sorted(late) == list(range(1, 61))
    assert late[7] == pytest.approx({0: 0.0, 1: 0.001, 2: 0.014, 3: 0.003}, abs=1e-6)
    write(folder, 1, 1, [window(3, 1007.0, 80)])
    assert sorted(read_steps(str(folder), 1).find_lateness()) == list(range(1, 61))


def test_the_last_attempt_that_made_steps_counts(folder):
    assert read_last_attempt(str(folder), range(4)).nodes == {0: 0, 1: 0, 2: 1, 3: 1}
    assert read_steps(str(folder), 0).summarize() is None
    assert read_last_attempt(str(folder / "none"), range(4)).ranks == {}


def test_only_ranks_of_the_plan_count_each_on_its_node(folder):
    before = read_steps(str(folder), 1)
    write(folder, 1, 0, [window(rank, 1009.0, 900) for rank in (2, 70)], is_planned=False)
    write(folder, 1, 7, [window(3, 1009.0, 900)], is_planned=False)
    assert read_steps(str(folder), 1) == before
    os.unlink(RunFolder(str(folder)).plan)
    assert read_steps(str(folder), 1).ranks == {}


def test_the_files_of_all_nodes_together_have_one_limit(folder, monkeypatch):
    sizes = []
    monkeypatch.setattr(
        steps, "read_plain", lambda path, most, *, from_end: sizes.append((path, most)) or b""
    )
    for node in range(64):
        add_to_plan(RunFolder(str(folder)), node, {100 + node})
    for is_recent in (False, True):
        read_steps(str(folder), 1, is_recent=is_recent)
    assert len({path for path, _ in sizes}) == 64
    assert {most for _, most in sizes} == {4 << 20, 64 << 10}


def test_a_window_of_the_first_step_alone_says_that_it_was_made_and_nothing_else(tmp_path):
    only = window(0, 1001.0, 1)._replace(made=1, entries=(), seconds={})
    write(tmp_path, 0, 0, [only])
    summary = read_steps(str(tmp_path), 0).summarize()
    assert (summary.done, summary.rate, summary.step_s, summary.phases) == (1, None, None, {})
    assert steps.list_parts(summary) == ["step 1"]
    write(tmp_path, 0, 0, [only._replace(time=1002.0, done=11, made=10, seconds={"step": same(0.1)})])
    summary = read_steps(str(tmp_path), 0).summarize()
    assert (summary.rate, summary.step_s, summary.phases) == (10.0, 0.1, {"other": 1.0})


def test_where_collectives_are_noted_seldom_those_of_ten_minutes_say_who_is_late(tmp_path):
    for rank in (0, 1):
        for second in range(0, 900, 100):
            entry = (second, 1000.0 + second + 0.02 * rank)
            write(tmp_path, 0, 0, [window(rank, 1000.0 + second, second)._replace(entries=(entry,))])
    latest = read_steps(str(tmp_path), 0).summarize().latest
    assert (latest.rank, latest.late_ms, latest.share) == (1, 20.0, 1.0)


def test_one_rank_alone_waits_for_nobody(tmp_path):
    only = window(0, 1001.0, 10)._replace(entries=(), seconds={"step": same(0.5), "forward": same(0.2)})
    write(tmp_path, 0, 0, [only])
    summary = read_steps(str(tmp_path), 0).summarize()
    assert (summary.latest, summary.total, summary.rate) == (None, None, 2.0)
    assert summary.phases == {"forward": 0.4, "other": 0.6}


def test_parts_that_add_up_to_more_than_a_step_are_shares_all_the_same(tmp_path):
    seconds = {"step": same(0.1), "forward": same(0.09), "backward": same(0.06)}
    write(tmp_path, 0, 0, [window(0, 1001.0, 10)._replace(entries=(), seconds=seconds)])
    phases = read_steps(str(tmp_path), 0).find_shares()
    assert phases == pytest.approx({"forward": 0.6, "backward": 0.4, "other": 0.0})


def test_the_sentence_names_a_rank_only_if_it_stands_out(folder):
    summary = read_steps(str(folder), 1).summarize()
    assert steps.list_parts(summary) == [
        "step 80 of 110 (a test), 10 steps/s, 3s left",
        "input 4 %, forward 30 %, backward 51 %, all-reduce 6 %, waiting for others 10 %",
        "latest rank: 2, by 13 ms in 100 % of steps",
    ]
    assert steps.list_parts(summary, is_over=True)[0] == "step 80 of 110 (a test), 10 steps/s"
    for late in ({"share": 0.4}, {"late_ms": 1.5}):
        assert len(steps.list_parts(summary._replace(latest=summary.latest._replace(**late)))) == 2
    why = summary.latest._replace(phase="forward", more_ms=12.5)
    said = "latest rank: 2, by 13 ms in 100 % of steps; its forward takes 12.5 ms longer"
    assert steps.list_parts(summary._replace(latest=why))[2] == said
    slow = summary._replace(rate=0.05, total=None)
    assert steps.list_parts(slow)[0] == "step 80, 20 s/step"


@pytest.mark.parametrize(
    ("inputs", "found"),
    [
        ({"lr": 0.1, "steps": 50}, ("steps", 50)),
        ({"steps": 50, "max_steps": {"type": "integer", "value": 70}}, ("max_steps", 70)),
        ({"steps": "many", "max_steps": -1}, ("", 0)),
        ({"steps": {"type": "uri_file", "path": "x"}}, ("", 0)),
        ({"max_steps": "²", "steps": 50}, ("steps", 50)),
        ({"max_steps": "9" * 5000, "steps": 10**5000, "epochs": True}, ("", 0)),
        ({"epochs": 8, "lr": 0.1}, ("epochs", 88)),
        ({"epochs": 8, "steps": 70}, ("steps", 70)),
        (None, ("", 0)),
    ],
)
def test_an_input_may_say_how_many_steps_there_are(inputs, found):
    assert steps.find_total(inputs, 11) == found


def test_a_pass_counts_where_all_ranks_make_as_many_steps(tmp_path):
    for rank in (0, 1):
        write(tmp_path, 0, 0, [window(rank, 1001.0, 10), window(rank, 1002.0, 20, pass_steps=11)])
    assert read_steps(str(tmp_path), 0).count_pass() == 11
    write(tmp_path, 0, 0, [window(1, 1003.0, 30, pass_steps=12)])
    assert read_steps(str(tmp_path), 0).count_pass() == 0
    assert steps.find_total({"epochs": 8}, 0) == ("", 0)


def test_clocks_of_several_machines_are_set_right(tmp_path):
    # Node 1 is 7 s ahead of the other; the monotonic clocks of both began at 900, by the supervisor's.
    for rank, late, ahead in ((0, 0.0, 0.0), (1, 0.014, 7.0)):
        shifted = window(rank, 1001.0, 10, late + ahead)
        write(tmp_path, 1, rank, [shifted._replace(time=1001.0 + ahead, monotonic=101.0)])
    wrong = read_steps(str(tmp_path), 1).find_latest_rank()
    assert wrong is not None
    assert wrong.late_s > 6.0
    folder = RunFolder(str(tmp_path))
    folder.write(
        folder.clocks,
        json.dumps({"attempt": 1, "nodes": {"0": 900.0, "1": 900.0, "x": 3, "²": 900.0, "2": "no"}}),
    )
    history = read_steps(str(tmp_path), 1)
    latest = history.find_latest_rank()
    assert latest is not None
    assert (latest.rank, latest.late_s) == (1, pytest.approx(0.014, abs=1e-5))
    assert {window.time for windows in history.ranks.values() for window in windows} == {1001.0}
    folder.write(folder.clocks, json.dumps({"attempt": 0, "nodes": {"1": 900.0}}))
    assert read_steps(str(tmp_path), 1).find_latest_rank() == wrong


def test_without_ddp_the_collective_counts_at_which_ranks_were_furthest_apart(tmp_path):
    for rank, late_s in ((0, 0.0), (1, 0.015), (2, 0.002)):
        for second in range(1, 7):
            begin = 1000.0 + second
            # Right after another all ranks are on time, and rank 1 waits in the last for rank 2.
            times = (begin, begin + 0.01 + late_s, begin + 0.03 + (0.005 if rank == 2 else 0.0))
            calls = (contract.StepCalls(8 * second, times),)
            made = window(rank, begin, 10 * second)._replace(entries=(), calls=calls)
            write(tmp_path, 0, 0, [made])
    history = read_steps(str(tmp_path), 0)
    assert sorted(history.list_entries()) == [8, 16, 24, 32, 40, 48]
    latest = history.find_latest_rank()
    assert latest is not None
    assert (latest.rank, latest.share, round(latest.late_s, 4)) == (1, 1.0, 0.014)


def test_steps_in_which_ranks_entered_other_collectives_are_not_compared(tmp_path):
    for rank, times in ((0, (1.0, 2.0)), (1, (1.5,))):
        calls = (contract.StepCalls(8, times),)
        write(tmp_path, 0, 0, [window(rank, 1001.0, 10)._replace(entries=(), calls=calls)])
    assert read_steps(str(tmp_path), 0).list_entries() == {}


@pytest.mark.parametrize(("more_ms", "phase"), [(14.0, "input"), (5.0, None)])
def test_the_latest_rank_comes_with_what_takes_it_longer(tmp_path, more_ms, phase):
    for rank in (0, 1, 2):
        made = window(rank, 1001.0, 10, 0.014 if rank == 1 else 0.0)
        input_s = 0.004 + (more_ms / 1000 if rank == 1 else 0.0)
        write(tmp_path, 0, 0, [made._replace(seconds={**made.seconds, "input": same(input_s)})])
    latest = read_steps(str(tmp_path), 0).summarize().latest
    assert (latest.rank, latest.phase) == (1, phase)
    assert latest.more_ms == (pytest.approx(more_ms) if phase else None)


def test_a_job_that_makes_no_steps_any_more_has_no_rate(tmp_path):
    now = time.time()
    write(tmp_path, 0, 0, [window(0, now - 300 + second, 10 * second) for second in range(1, 7)])
    folder, history = RunFolder(str(tmp_path)), read_steps(str(tmp_path), 0)
    assert steps.summarize_steps(folder, history, is_first=False, is_over=False).rate is None
    assert steps.summarize_steps(folder, history, is_first=False, is_over=True).rate == 10.0


def test_steps_that_took_no_time_are_no_error(tmp_path):
    def made(at, step_s, **more):
        return window(0, at, 10)._replace(seconds={"step": same(step_s), **more})

    exposed = {"comm": same(1.0), "overlap": same(0.0), "exposed": same(1.0)}
    write(tmp_path, 0, 0, [made(1000.0, 0.0), made(1001.0, 0.0), made(1002.0, 1.0, **exposed)])
    assert read_steps(str(tmp_path), 0).summarize().phases["waiting"] == 0.0


def test_the_rate_of_steps_that_take_hours_is_exact(tmp_path):
    write(tmp_path, 0, 0, [window(0, 1000.0, 10), window(0, 16000.0, 11)])
    assert read_steps(str(tmp_path), 0).find_rate() == 1 / 15000
    assert round_rate(1 / 15000) == pytest.approx(1 / 15000, rel=1e-3)


def test_a_total_that_was_surpassed_is_not_shown(tmp_path):
    write(tmp_path, 0, 0, [window(0, 1000.0, 50, total=Total(40, 7, "a test"))])
    summary = read_steps(str(tmp_path), 0).summarize()
    assert (summary.done, summary.total, summary.total_source) == (57, None, None)
