"""What happened to a job, beside its curves: drills, their ends, and who asked."""

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.control.facts.charts import read_series
from drumline.control.facts.history import describe_marks, read_system
from drumline.control.facts.start import make_trace


def drill(job):
    job.add(
        e.DrillBegan(1003.5, "d1", "wedge", "ann", 1, None, 0, {}),
        e.DrillEnded(1005.5, "d1", "wedge", "its time was over", 1),
    )


def test_drills_and_their_ends_are_marks_with_who_asked(job):
    drill(job)
    job.add(e.Preempted(1006.0, "bob", 1), e.CancelRequested(1007.0, "eve"))
    told = describe_marks(job.name).marks
    assert [(one.kind, one.text) for one in told] == [
        ("running", "all ranks run"),
        ("drill", "the drill 'wedge' on node 1 began, for ann"),
        ("drill_ended", "the drill 'wedge' on node 1 ended: its time was over"),
        ("preempted", "node 1 is being taken away by bob"),
        ("cancel", "canceled by eve"),
    ]
    assert told[1].time == "1970-01-01T00:16:43.500Z"
    assert [one.text for one in read_system(job.name).marks] == [one.text for one in told]
    job.add(e.AttemptEnded(1008.0, 0, 1, "it was preempted"))
    assert describe_marks(job.name).marks[-1].text == "attempt 0 ended: it was preempted"
    instants = [one for one in make_trace(job.name, 0)["traceEvents"] if one["ph"] == "i"]
    assert [one["name"] for one in instants][1] == "the drill 'wedge' on node 1 began, for ann"


def test_a_failure_that_takes_all_ranks_along_is_a_few_marks(drumline_home):
    wide = MadeJob(nodes=4, procs=8)
    wide.start()
    wide.add(*(e.RankExited(1005.0, rank, rank // 8, 1, None) for rank in range(32)))
    wide.add(e.AttemptEnded(1006.0, 0, 1, "rank 0 failed first"))
    wide.add(e.RankExited(1007.0, 5, 0, 2, None))
    told = [one.text for one in describe_marks(wide.name).marks if one.kind == "failed"]
    assert told == [
        *(f"rank {rank} failed with exit code 1" for rank in range(3)),
        "rank 5 failed with exit code 2",
    ]


@pytest.mark.parametrize(
    ("axis", "places"), [("step", [20.0, 40.0]), ("time", [1003.5, 1005.5]), ("relative", [2.5, 4.5])]
)
def test_a_mark_has_its_place_on_every_axis_of_a_curve(job, axis, places):
    # Ten steps a second, of which the first is logged a second after the ranks began.
    job.log_metric("loss", ((1001_500 + 100 * step, 1 / (step + 1), step) for step in range(60)))
    drill(job)
    (curve,) = read_series([job.name], ["loss"], axis=axis, with_marks=True).series
    found = [one.x for one in curve.marks if one.kind.startswith("drill")]
    assert found == pytest.approx(places)
    assert read_series([job.name], ["loss"], axis=axis).series[0].marks == []


def test_a_curve_says_how_many_values_a_step_has(job):
    # Four ranks, the last of which is a step behind.
    job.log_metric(
        "loss",
        ((1001_500 + step, 0.5, max(0, step - (rank == 3))) for step in range(50) for rank in range(4)),
    )
    job.log_metric("lr", ((1001_500 + step, 0.5, step) for step in range(50)))
    curves = {one.metric: one.a_step for one in read_series([job.name]).series}
    assert curves == {"loss": 4, "lr": 1}
    assert read_series([job.name], ["lr"], axis="time").series[0].a_step is None
