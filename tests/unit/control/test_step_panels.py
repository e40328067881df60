"""What a page shows of the steps of a job: lateness and step time of each rank, and where a step goes."""

import math
import os
import random

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract import steps
from drumline.control.facts.history import describe_attempt_steps, read_system
from drumline.control.facts.ranks import describe_ranks
from drumline.control.facts.steps import find_behind

LATE = 2


def spread(seconds):
    return steps.Spread(seconds, seconds, seconds)


def window(rank, second, late_s=0.0, step_s=0.1, **parts):
    """The ten steps of a rank in a second of the job's ranks, which it enters that late."""
    known = {"input": 0.004, "forward": 0.03, "backward": 0.05, "comm": 0.025, "overlap": 0.01, **parts}
    entries = tuple((10 * second + at, 1001.0 + second + 0.1 * at + late_s) for at in range(10))
    seconds = {name: spread(value) for name, value in {"step": step_s, **known}.items()}
    return steps.Window(
        1002.0 + second, 1002.0 + second, rank, 1, 10 * second + 10, 10, seconds, (512,), entries
    )


def write(job, *windows, node=0, attempt=0):
    path = job.folder.steps_path(attempt, node)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab") as file:
        file.writelines(steps.to_line([one]) for one in windows)


@pytest.fixture
def job(drumline_home):
    """Of whose four ranks one is late, because its forward takes longer."""
    made = MadeJob()
    made.start()
    for rank in range(4):
        late = {"late_s": 0.014, "forward": 0.043} if rank == LATE else {"late_s": 0.001 * rank}
        write(made, *(window(rank, second, **late) for second in range(8)), node=rank // 2)
    made.add(e.JobEnded(1011.0, "Completed", 0, "fine"))
    return made


def row(told, rank):
    values = next(one.values for one in told.rows if one.rank == rank)
    return [None if math.isnan(one) else one for one in values]


def test_by_how_much_each_is_after_the_median_of_the_others():
    draw = random.Random(4)
    for count in (2, 3, 4, 7, 8):
        times = {rank: draw.random() for rank in range(count)}
        for rank, late_s in find_behind(times).items():
            others = sorted(at for one, at in times.items() if one != rank)
            middle = (others[(count - 2) // 2] + others[(count - 1) // 2]) / 2
            assert late_s == pytest.approx(times[rank] - middle)


def test_each_rank_has_its_lateness_and_its_step_time(job):
    told = describe_ranks(job.name).ranks
    assert [one.lateness for one in told] == [
        0.0,
        0.0,
        pytest.approx(13.0, abs=0.1),
        pytest.approx(2.0, abs=0.1),
    ]
    assert {one.step for one in told} == {100.0}
    assert [one.lateness for one in describe_ranks(MadeJob("other").name).ranks] == [None] * 4


def test_lateness_and_step_time_have_rows_over_time(job):
    late = read_system(job.name, "lateness", points=10)
    assert [one.key for one in late.measures][-2:] == ["lateness", "step"]
    assert row(late, LATE)[:8] == [pytest.approx(13.0, abs=0.1)] * 8
    assert row(late, LATE)[8:] == [None, None]
    assert row(late, 0)[0] == 0.0
    # A tenth of a step is less than what is late here.
    assert late.measures[-2].most == pytest.approx(13.0, abs=0.1)
    took = read_system(job.name, "step", points=10)
    assert row(took, 1) == [100.0] * 9 + [None]
    assert took.measures[-1] == ("step", "Step time", "ms", 100.0)


def test_a_first_step_that_took_long_does_not_set_the_scale(job):
    with open(job.folder.steps_path(0, 0), "wb"), open(job.folder.steps_path(0, 1), "wb"):
        pass
    for rank in range(4):
        write(job, window(rank, 0, 2.0 if rank == 0 else 0.0), *(window(rank, at) for at in range(1, 9)))
    told = read_system(job.name, "lateness", points=10)
    assert row(told, 0)[0] == pytest.approx(2000)
    assert told.measures[-2].most == 10.0


def test_windows_that_were_dropped_leave_no_holes(drumline_home):
    made = MadeJob()
    made.start()
    write(made, window(0, 1), window(0, 6))
    made.add(e.JobEnded(1011.0, "Completed", 0, "fine"))
    assert row(read_system(made.name, "step", points=10), 0) == [None] + [100.0] * 7 + [None] * 2


def test_a_job_without_steps_says_nothing_of_them(drumline_home):
    made = MadeJob()
    made.start()
    assert "lateness" not in [one.key for one in read_system(made.name).measures]
    assert {one for rank in range(4) for one in row(read_system(made.name, "lateness"), rank)} == {None}
    told = describe_attempt_steps(made.name)
    assert (told.steps, told.progress, told.phases) == (None, "", [])


def test_ranks_that_the_plan_does_not_have_are_left_out(job):
    """A job can write the file."""
    write(job, *(window(rank, 0) for rank in range(1000, 1200)))
    told = read_system(job.name, "lateness", points=10)
    assert [one.rank for one in told.rows] == [0, 1, 2, 3]
    assert row(told, LATE)[0] == pytest.approx(13.0, abs=0.1)


def test_words_say_where_a_step_goes_and_why_a_rank_is_late(job):
    told = describe_attempt_steps(job.name)
    assert told.progress == "step 80, 10 steps/s"
    assert told.counted == 80
    parts = {one.key: one.seconds for one in told.phases}
    assert list(parts) == ["input", "forward", "backward", "exchange", "waiting"]
    assert sum(parts.values()) == pytest.approx(0.1, abs=0.002)
    assert told.sentence == (
        "the others wait for rank 2: it is the latest in 100 % of steps, by 13 ms; "
        "its forward takes 13 ms longer than that of the others"
    )


@pytest.mark.parametrize(
    ("late", "said"),
    [
        ({"late_s": 0.0005}, "no rank holds the others up"),
        ({"late_s": 0.02}, "the others wait for rank 1: it is the latest in 100 % of steps, by 20 ms"),
        (
            {"late_s": 0.02, "input": 0.03},
            "the others wait for rank 1: it is the latest in 100 % of steps, by 20 ms; "
            "it waits 26 ms longer for its input than the others",
        ),
    ],
)
def test_a_cause_is_named_only_where_it_is_most_of_it(drumline_home, late, said):
    made = MadeJob(nodes=1)
    made.start()
    write(
        made, *(window(0, second) for second in range(8)), *(window(1, second, **late) for second in range(8))
    )
    assert describe_attempt_steps(made.name).sentence == said
