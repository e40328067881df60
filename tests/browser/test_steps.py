"""Steps of a training, drills and reports of scaling, as a person sees them."""

import re

import pytest
from seeing import count, see

from drumline.control.measure.measured_sizes import RankSteps, SizeRun
from drumline.control.measure.rehearsal import keep_table
from drumline.control.measure.scale_report import build_report
from drumline.control.measure.scale_values import keep_report, to_values


@pytest.fixture
def trained(jobs):
    if not jobs.has_torch:
        pytest.skip("there is no torch here: scripts/setup torch")
    return "late"


def test_a_training_says_how_far_it_is_where_a_step_goes_and_who_is_late(visit, trained, picture):
    guest = visit(color_scheme="light")
    guest.open(f"/jobs/{trained}")
    see(guest.find("progress"), re.compile(r"step \d+ of \d+ \(input max_steps\), "))
    see(
        guest.find("latest"),
        re.compile(r"The others wait for rank 2: it is the latest in \d+ % of steps, by "),
    )
    see(guest.find("latest"), "its forward takes")
    see(guest.find("card-steps"), "all-reduce")
    see(guest.find("card-heat"), "Lateness of each rank over time")
    see(guest.find("stands-out"), "Rank 2 stands out: Lateness")
    guest.page.wait_for_selector('[data-test="rank-grid"] [data-rank="2"][aria-label*="lateness"]')
    picture(guest, "studio-steps")
    guest.find("measure").select_option("step")
    see(guest.find("card-heat"), "Step time of each rank over time")
    guest.page.locator('[data-rank="2"]').click()
    see(guest.find("rank-facts"), "later than the others")


def make_report(job):
    def ranks(number, step_ms, reduce_ms=()):
        own = (0.004,) * 60, (0.04,) * 60, (0.08,) * 60
        reduced = tuple(one / 1e3 for one in reduce_ms) * 60
        overlap = (0.06,) * 60 if reduced else ()
        return tuple(
            RankSteps(rank, rank, (step_ms / 1e3,) * 60, *own, reduced, overlap) for rank in range(number)
        )

    runs = [
        SizeRun(1, 1, job, ranks(1, 131.8)),
        SizeRun(2, 2, job, ranks(2, 246.0, (176.5,)), (1 << 20,) * 4),
        SizeRun(4, 4, job, ranks(4, 335.8, (264.8,)), (1 << 20,) * 4),
    ]
    values = to_values(build_report("digits-ddp", runs, to=128))
    return {**values, "sentences": [*values["sentences"], "<img src=x onerror=\"document.title='taken'\">"]}


def test_a_report_of_scaling_is_reached_from_its_job(visit, jobs, monkeypatch, picture):
    monkeypatch.setenv("DRUMLINE_HOME", str(jobs.home))
    keep_report(make_report("good"))
    guest = visit(color_scheme="light")
    guest.open("/jobs/good")
    guest.find("tab-scale").click()
    see(guest.find("scale-sentences"), "How far digits-ddp scales")
    see(guest.find("scale-sentences"), "<img src=x onerror=")
    see(guest.find("scale-sentences"), "4 nodes: 1.57 times as fast as 1 node, 39 % efficiency")
    see(guest.find("scale-sizes"), "a guess")
    see(guest.find("scale-steps"), "waiting for the all-reduce")
    count(guest.find("scale-curve").locator("circle"), 3 + 5)
    assert guest.page.locator('[data-test="scale"] img').count() == 0
    picture(guest, "studio-scale")
    guest.open("/jobs/bad")
    guest.find("tab-plan").wait_for()
    assert guest.find("tab-scale").count() == 0


def test_a_drill_is_marked_with_its_end_and_who_asked(visit):
    guest = visit()
    guest.open("/jobs/waiting/timeline")
    see(guest.find("marks"), re.compile(r"the drill 'wedge' on node 1 began, for \S+"))
    see(guest.find("marks"), "the drill 'wedge' on node 1 ended")
    guest.page.wait_for_selector('[data-test="timeline-mark"].drill')


def test_a_band_says_over_how_many_ranks_it_goes(visit):
    guest = visit()
    guest.open("/jobs/good/metrics")
    see(guest.find("chart").first, "band: least and most of 4 ranks")


def make_table(job, other):
    """A table of a rehearsal of which one drill ran as ``other``."""
    killed = "rank 1 on node 1 failed first, 0.71 s in: killed by signal 9 (SIGKILL)"
    failed = "rank 2 on node 1 failed first: exit code 1: ValueError: loss is nan at step 20"
    rows = (
        ("preempt", "all nodes", "silver_fern", True, 0.4, 0, "preempted by a drill of ada"),
        ("kill-rank", "rank 1 of node 1", "quiet_harbor", True, 0.6, 6, killed),
        ("kill-agent", "node 1", "amber_lake", True, 0.6, 5, "the agent of node 1 was killed by SIGKILL"),
        ("wedge", "node 0", other, False, 12.5, 3, failed),
    )
    drills = [
        {
            "drill": drill,
            "what": what,
            "job": name,
            "result": "survived" if is_ok else "failed",
            "is_ok": is_ok,
            "lost_s": lost_s,
            "repeated": repeated,
            "same_metric": is_ok or None,
            "left_behind": [],
            "sentences": [sentence],
        }
        for drill, what, name, is_ok, lost_s, repeated, sentence in rows
    ]
    calm = {
        "job": job,
        "status": "Completed",
        "seconds": 4.0,
        "metric": "loss",
        "final": 0.25,
        "sentences": [],
    }
    return {"ok": False, "undisturbed": calm, "drills": drills, "left_out": []}


def test_a_rehearsal_is_reached_from_the_list_of_reports(visit, jobs, monkeypatch, picture):
    monkeypatch.setenv("DRUMLINE_HOME", str(jobs.home))
    table = make_table("good", "bad")
    keep_table("digits-ddp", table)
    keep_report(make_report("good"))
    guest = visit(height=480, color_scheme="light")
    guest.open("/jobs")
    guest.find("navigation").get_by_text("Reports").click()
    see(guest.find("reports-scaling"), "39 %")
    see(guest.find("reports-rehearsals"), "3 of 4 drills")
    picture(guest, "studio-reports")
    guest.page.set_viewport_size({"width": 1280, "height": 680})
    guest.find("reports-rehearsals").get_by_text("digits-ddp").click()
    see(guest.find("rehearsal-drills"), "What digits-ddp survives")
    see(guest.find("rehearsal-drills"), "rank 1 of node 1")
    see(guest.find("rehearsal-sentences"), "kill-rank: rank 1 on node 1 failed first")
    picture(guest, "studio-rehearsal")


def test_a_rehearsal_with_hostile_sentences_stays_text(visit, jobs, monkeypatch):
    monkeypatch.setenv("DRUMLINE_HOME", str(jobs.home))
    hostile = "<img src=x onerror=\"document.title='taken'\">"
    keep_table("digits-ddp", {**make_table("good", "bad"), "left_out": [hostile]})
    guest = visit()
    guest.open("/jobs/good/rehearsal")
    see(guest.find("rehearsal-sentences"), "<img src=x onerror=")
    assert guest.page.locator('[data-test="rehearsal"] img').count() == 0
    guest.open("/jobs/waiting")
    guest.find("tab-plan").wait_for()
    assert guest.find("tab-rehearsal").count() == 0
