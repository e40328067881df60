"""How far a job scales: the model on figures that were measured, and the refusals."""

import random

import pytest

from drumline.cli.measuring.scale import format_report
from drumline.control.facts.steps import LatestRank
from drumline.control.measure import scale_run
from drumline.control.measure.measured_sizes import NodePair, RankSteps, SizeRun, reduce_run
from drumline.control.measure.refusals import Emulation
from drumline.control.measure.scale_prediction import RingLink, find_exposed_s, find_span_s, fit_model
from drumline.control.measure.scale_report import build_report
from drumline.control.measure.scale_values import list_sentences, to_values

MIB = 1 << 20
BUCKETS = (MIB, MIB, MIB, MIB)

FIELD = {
    # nodes: step, all-reduce; ms. Measured on isolated nodes: 4 MiB in 4 buckets, computing of 131.8 ms a step.
    "200 Mbit/s": {2: (246.0, 176.5), 4: (335.8, 264.8)},
    "50 Mbit/s": {2: (791.4, 706.6), 8: (1316.0, 1257.2)},
}
SATURATED = (8, 484.0, 464.9)
"""Eight nodes of 200 Mbit/s on a machine of two processors."""


def make_rank(
    rank, step_ms, reduce_ms=None, *, count=60, input_ms=5.0, more_ms=0.0, noise_ms=0.2, overlap_ms=61.5
):
    """A rank whose steps take that long, and of which ``more_ms`` are spent before the others."""
    draw = random.Random(rank)
    extra = [draw.gauss(0, noise_ms) for _ in range(count)]
    known = reduce_ms is not None
    return RankSteps(
        rank,
        rank,
        tuple((step_ms + one) / 1e3 for one in extra),
        (input_ms / 1e3,) * count,
        ((42.8 + more_ms) / 1e3,) * count,
        (85.9 / 1e3,) * count,
        ((reduce_ms - more_ms) / 1e3,) * count if known else (),
        (overlap_ms / 1e3,) * count if known else (),
    )


def make_run(nodes, step_ms, reduce_ms=None, **given):
    ranks = tuple(make_rank(rank, step_ms, reduce_ms, **given) for rank in range(nodes))
    return SizeRun(nodes, nodes, f"job-{nodes}", ranks, BUCKETS if nodes > 1 else (), source="ddp")


def make_runs(figures, *nodes):
    return [make_run(1, 131.8), *(make_run(one, *figures[one]) for one in nodes)]


@pytest.mark.parametrize(("rate", "nodes"), [("200 Mbit/s", 4), ("50 Mbit/s", 8)])
def test_a_larger_size_is_predicted_from_one_and_two_nodes(rate, nodes):
    figures = FIELD[rate]
    report = build_report("field", make_runs(figures, 2), to=nodes)
    predicted = next(one for one in report.predicted if one.nodes == nodes)
    measured_s = figures[nodes][0] / 1e3
    assert predicted.step_s == pytest.approx(measured_s, rel=0.05)
    assert predicted.low_s < measured_s < predicted.high_s
    assert report.refused == ()


def test_the_rate_of_a_link_follows_from_the_all_reduce():
    runs = make_runs(FIELD["200 Mbit/s"], 2, 4)
    model = fit_model([reduce_run(one) for one in runs], strong=False, latency_s=1e-4)
    assert model.link.bytes_per_s == pytest.approx(23.8e6, rel=0.01)
    assert [1e3 * model.predict_s(one) for one in (1, 2, 4)] == pytest.approx([131.8, 246.0, 335.8], rel=0.02)


def test_a_fast_link_waits_only_for_the_last_bucket():
    # Each bucket takes 10 ms, and is full 20 ms after the one before.
    link = RingLink(0.0, MIB / 0.010)
    assert find_span_s(2, BUCKETS, 0.060, link) == pytest.approx(0.070)
    # The same all-reduce, taken for one of the whole, would be 60 ms at two nodes, 90 at four: 30 ms too many.
    runs = [make_run(1, 131.8), make_run(2, 141.8, 70.0, overlap_ms=60.0)]
    report = build_report("fast", runs, to=4)
    assert 1e3 * report.predicted[-1].step_s == pytest.approx(131.8 + 15, rel=0.01)


def test_the_band_grows_with_the_distance_and_far_sizes_are_guesses():
    report = build_report("far", make_runs(FIELD["200 Mbit/s"], 2), to=64)
    widths = [(one.high_s - one.low_s) / one.step_s for one in report.predicted]
    assert widths == sorted(widths)
    assert widths[-1] > 1.5 * widths[0]
    assert {one.nodes: one.is_guess for one in report.predicted} == {
        4: False, 8: False, 16: False, 32: False, 64: True,
    }  # fmt: skip
    said = [one for one in list_sentences(report) if "64 nodes" in one]
    assert said
    assert all("guess" in one for one in said)


def test_strong_scaling_divides_the_computing():
    def run(nodes, own_ms, reduce_ms=None):
        wait = 0.0 if reduce_ms is None else reduce_ms - 10.0
        return make_run(nodes, own_ms + wait, reduce_ms, overlap_ms=10.0, input_ms=0.0)

    # 20 ms that every size has, and 400 ms that are divided; 40 ms of all-reduce at two nodes are 60 at four.
    report = build_report("strong", [run(1, 420.0), run(2, 220.0, 40.0)], to=4, strong=True)
    four = report.predicted[-1]
    assert 1e3 * four.step_s == pytest.approx(20 + 100 + 60 - 5, rel=0.05)
    assert four.speed_up == pytest.approx(420 / (1e3 * four.step_s), rel=1e-3)
    assert four.efficiency == pytest.approx(four.speed_up / 4)


def test_sentences_say_where_a_step_goes_and_what_would_help():
    runs = make_runs(FIELD["200 Mbit/s"], 2, 4)
    pairs = (NodePair(0, 1, 24e6, 2e-4), NodePair(2, 3, 23e6, 2e-4))
    report = build_report("field", [*runs[:-1], runs[-1]._replace(pairs=pairs)], to=16)
    said = "\n".join(list_sentences(report))
    assert "2 nodes: 1.07 times as fast as 1 node, 54 % efficiency" in said
    assert "4 nodes: 1.57 times as fast as 1 node, 39 % efficiency" in said
    assert "a step at 4 nodes takes 336 ms: waiting for input 5 ms (1 %), forward 42.8 ms (13 %)" in said
    assert "waiting for the all-reduce 203 ms" in said
    assert "each step reduces 4 MiB in 4 buckets" in said
    assert "the slowest link, from node 2 to node 3, carried 184 Mbit/s before the job" in said
    assert "backward hides 61.5 ms of the 265 ms" in said
    assert "no size above 1 node reaches 80 % efficiency on this link" in said
    assert "4 nodes would reach 80 % with a link of 5" in said  # about 550 Mbit/s
    values = to_values(report)
    assert [one["nodes"] for one in values["measured"]] == [1, 2, 4]
    assert [one["nodes"] for one in values["predicted"]] == [8, 16]
    assert set(values["measured"][0]) >= {"nodes", "ranks", "step_s", "efficiency"}


def test_where_bytes_are_not_known_longer_steps_are_all_there_is():
    runs = [make_run(1, 131.8), make_run(2, 246.0), make_run(4, 335.8)]
    runs = [one._replace(bucket_bytes=()) for one in runs]
    report = build_report("unknown", runs, to=8)
    assert report.is_assumed
    assert 1e3 * report.predicted[0].step_s == pytest.approx(131.8 + 204 * 7 / 6, rel=0.1)
    assert not any("link" in one and "Mbit" in one for one in list_sentences(report))
    assert to_values(report)["limit"]["rate"] is None


def test_a_job_that_scales_well_is_predicted_though_its_exchange_is_not_known():
    """Eight ranks a node: the messages of a ring would take longer than the steps have grown."""

    def run(nodes, step_ms):
        ranks = tuple(make_rank(rank, step_ms) for rank in range(8 * nodes))
        return SizeRun(nodes, 8 * nodes, f"job-{nodes}", ranks, source="optimizer")

    report = build_report("gpu", [run(1, 99.8), run(2, 100.7), run(4, 101.0)], to=16)
    assert report.refused == ()
    assert [one.nodes for one in report.predicted] == [8, 16]
    assert 0.9 < report.predicted[-1].efficiency < 1.0
    report = build_report("alone", [run(1, 100.0), run(2, 99.9)], to=4)
    assert report.refused == ()
    assert report.predicted[-1].efficiency == pytest.approx(1.0, abs=0.02)


def test_a_minority_of_fast_steps_makes_means_of_all_figures():
    def run(nodes, exchange_ms):
        steps = tuple((100.0 if step % 20 < 11 else 30.0) + exchange_ms for step in range(60))
        reduces = ((exchange_ms + 0.1) / 1e3,) * 60 if nodes > 1 else ()
        overlaps = (1e-4,) * 60 if nodes > 1 else ()
        ranks = tuple(
            RankSteps(rank, rank, tuple(one / 1e3 for one in steps), reduce_s=reduces, overlap_s=overlaps)
            for rank in range(nodes)
        )
        return SizeRun(nodes, nodes, f"job-{nodes}", ranks, (4 * MIB,), source="ddp")

    report = build_report("batches that differ", [run(1, 0.0), run(2, 50.0)], to=2)
    assert report.by_mean
    assert report.measured[-1].efficiency == pytest.approx(68.5 / 118.5, rel=0.02)
    assert any("batches that differ" in one for one in list_sentences(report))


def test_no_size_that_was_measured_below_80_percent_is_said_to_reach_it():
    def run(nodes, wait_ms):
        reduce_ms = wait_ms + 0.1 if nodes > 1 else None
        return make_run(nodes, 100.0 + wait_ms, reduce_ms, overlap_ms=0.1, input_ms=0.0)

    report = build_report("flat", [run(1, 0.0), run(2, 30.0), run(4, 31.0)], to=8)
    assert report.measured[1].efficiency < 0.8
    assert report.limit.nodes == 1
    assert "no size above 1 node reaches 80 % efficiency on this link" in list_sentences(report)


def test_too_few_steps_are_refused():
    report = build_report("short", [make_run(1, 131.8), make_run(2, 246.0, 176.5, count=29)], to=4)
    assert report.predicted == ()
    assert "2 nodes: too few steps were measured, 29 of at least 30" in report.refused
    assert any(one.startswith("nothing is predicted") for one in report.refused)


def test_a_busy_machine_is_refused_and_no_other_size():
    runs = make_runs(FIELD["200 Mbit/s"], 2, 4)
    report = build_report("busy", [*runs[:2], runs[2]._replace(cpu_share=0.97)], to=8)
    assert report.refused == (
        "4 nodes: the processors of this machine were 97 % busy, by this job and all other programs, so they are the "
        "limit; run it when less else runs, or with fewer ranks",
    )
    assert [one.nodes for one in report.predicted] == [4, 8]
    # One rank that computes all the time is no machine that is too small.
    alone = build_report("alone", [runs[0]._replace(cpu_share=1.0), *runs[1:]], to=8)
    assert alone.refused == ()


def test_emulated_links_beyond_the_machine_are_refused():
    runs = make_runs(FIELD["200 Mbit/s"], 2)
    nodes, step_ms, reduce_ms = SATURATED
    runs.append(make_run(nodes, step_ms, reduce_ms))
    by_capacity = build_report("field", runs, to=16, emulation=Emulation(25e6, 3.4e9 / 8))
    assert by_capacity.refused[0].startswith("8 nodes: their emulated links carry 1.6 Gbit/s together")
    assert [one.nodes for one in by_capacity.predicted] == [4, 8, 16]
    by_rate = build_report("field", runs, to=16, emulation=Emulation(25e6, 0.0))
    assert by_rate.refused[0].startswith("8 nodes: all-reduces reach 128 Mbit/s of the emulated 200 Mbit/s")


@pytest.mark.parametrize(("more_ms", "refused"), [(130.0, False), (30.0, True), (0.0, True)])
def test_a_slow_node_explains_an_all_reduce_that_is_as_much_slower(more_ms, refused):
    reduce_ms = 1.6 * FIELD["200 Mbit/s"][4][1]
    ranks = [
        make_rank(
            rank, 131.8 + reduce_ms + more_ms - 61.5, reduce_ms + more_ms, more_ms=more_ms * (rank == 2)
        )
        for rank in range(4)
    ]
    slow = SizeRun(4, 4, "job", tuple(ranks), BUCKETS, source="ddp")
    runs = [*make_runs(FIELD["200 Mbit/s"], 2), slow]
    report = build_report("field", runs, to=4, emulation=Emulation(25e6, 3e9))
    assert [one.kind for one in report.stragglers] == ["compute"] * bool(more_ms)
    assert report.measured[-1].refused.startswith("4 nodes: all-reduces reach ") is refused
    assert bool(report.measured[-1].refused) is refused


def test_a_model_that_does_not_fit_predicts_nothing():
    # At two nodes 40 ms are neither computing nor all-reduce.
    runs = [make_run(1, 131.8), make_run(2, 286.0, 176.5), make_run(4, 335.8, 264.8)]
    report = build_report("odd", runs, to=16)
    assert report.predicted == ()
    assert "the model does not fit" in report.refused[-1]


def test_ranks_of_a_single_node_reduce_over_no_link():
    # Two ranks on each node; those of one node take 4 ms to reduce.
    one = make_run(2, 131.8 - 61.5 + 64.5, 64.5)._replace(nodes=1)
    two = make_run(4, *FIELD["200 Mbit/s"][4])._replace(nodes=2)
    report = build_report("two ranks", [one, two], to=4)
    assert report.refused == ()
    assert report.measured[0].model_s == pytest.approx(0.1348, rel=0.05)
    assert [each.nodes for each in report.predicted] == [4]
    assert report.predicted[0].step_s > report.measured[1].facts.step_s


def test_one_size_says_nothing_of_others():
    report = build_report("one", [make_run(2, 246.0, 176.5)], to=8)
    assert report.predicted == ()
    assert "needs two sizes" in report.refused[-1]
    assert build_report("none", [SizeRun(1, 1, "job-1", why_not="job job-1 failed: boom")], to=8).refused[
        0
    ] == ("1 node: job job-1 failed: boom")


LINK = RingLink(1e-4, 200e6)


def make_uneven_run(nodes, pause, overlap=0.05, *, buckets=BUCKETS, draw=None):
    """Ranks that compute for 100 ms in each of 60 steps, and pause together for so many seconds in some of them."""
    draw = draw or random.Random(nodes)
    columns = {rank: ([], [], [], []) for rank in range(nodes)}
    for number in range(60):
        for step, waited, reduced, hidden in columns.values():
            overlap_s = max(0.0, overlap + draw.gauss(0, 0.03 * overlap))
            exposed_s = find_exposed_s(nodes, buckets, overlap_s, LINK)
            step.append(0.1 + pause(number) + exposed_s + abs(draw.gauss(0, 0.0003)))
            waited.append(pause(number))
            reduced.append(overlap_s + exposed_s)
            hidden.append(overlap_s)
    ranks = [
        RankSteps(
            rank, rank, step, waited, (0.03,) * 60, (0.07,) * 60, *((reduced, hidden) if nodes > 1 else ())
        )
        for rank, (step, waited, reduced, hidden) in columns.items()
    ]
    return SizeRun(nodes, nodes, f"job-{nodes}", tuple(ranks), buckets if nodes > 1 else ())


@pytest.mark.parametrize("pause_s", [0.05, 0.2])
def test_a_pause_of_all_ranks_is_no_longer_with_more_of_them(pause_s):
    def pause(number):
        return pause_s if number % 20 == 7 else 0.0

    even = build_report("even", [make_uneven_run(nodes, lambda _: 0.0) for nodes in (1, 2, 4)], to=16)
    report = build_report("pauses", [make_uneven_run(nodes, pause) for nodes in (1, 2, 4)], to=16)
    assert report.refused == ()
    mean_s = pause_s * 2 / 59 if report.by_mean else 0.0
    assert report.by_mean is (pause_s == 0.2)
    assert report.predicted[-1].step_s == pytest.approx(even.predicted[-1].step_s + mean_s, rel=0.02)
    assert any("steps are uneven" in one for one in list_sentences(report)) is report.by_mean


def test_uneven_steps_are_compared_by_their_means():
    def pause(number):
        return 0.3 if number % 5 < 2 else 0.0

    runs = [make_uneven_run(1, lambda _: 0.0), make_uneven_run(4, pause)]
    report = build_report("loader", runs, to=4)
    step_s = 0.1 + 0.3 * 23 / 59 + find_exposed_s(4, BUCKETS, 0.05, LINK)
    assert report.measured[1].facts.step_s == pytest.approx(step_s, rel=0.01)
    assert report.measured[1].facts.input_s == pytest.approx(0.3 * 23 / 59, rel=0.01)
    assert report.measured[1].speed_up == pytest.approx(4 * 0.1 / step_s, rel=0.01)
    # A single slow step is an accident.
    once = make_uneven_run(1, lambda number: 10.0 if number == 30 else 0.0)
    assert not build_report("once", [once], to=4).by_mean


def test_an_overlap_that_varies_does_not_make_the_link_faster():
    runs = [make_uneven_run(nodes, lambda _: 0.0, 0.08, draw=random.Random(1)) for nodes in (1, 2, 8)]
    report = build_report("hidden", runs, to=256)
    assert report.model.link.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=0.15)
    steps = [report.measured[-1].facts.step_s, *(one.step_s for one in report.predicted)]
    assert steps == sorted(steps)


def test_an_all_reduce_that_is_hidden_whole_says_nothing_of_links():
    runs = [make_run(1, 131.8), make_run(2, 131.8, 61.5), make_run(4, 131.8, 61.5)]
    report = build_report("hidden", runs, to=8)
    assert report.predicted == ()
    assert "backward hides all of the all-reduce" in report.refused[-1]
    assert not any("bit/s" in one for one in list_sentences(report))


def test_what_was_measured_counts_for_the_end_of_80_percent():
    times = {1: 0.0, 2: 0.018, 4: 0.0245}
    runs = []
    for nodes, exposed_s in times.items():
        rank = make_rank(0, 1e3 * (0.1 + exposed_s), 1e3 * (0.0615 + exposed_s), noise_ms=0.0)
        ranks = [rank._replace(rank=one, node=one) for one in range(nodes)]
        runs.append(SizeRun(nodes, nodes, "job", tuple(ranks), BUCKETS if nodes > 1 else ()))
    report = build_report("end", runs, to=16)
    assert report.measured[-1].efficiency > 0.8
    assert report.limit.nodes == 4
    assert report.limit.wanted == 8


def test_figures_that_are_not_trusted_have_no_speed_up():
    runs = make_runs(FIELD["200 Mbit/s"], 2, 4)
    report = build_report("busy", [*runs[:2], runs[2]._replace(cpu_share=0.97)], to=8)
    assert (report.measured[2].speed_up, report.measured[2].efficiency) == (None, None)
    assert report.measured[1].speed_up is not None


@pytest.mark.parametrize(("slow", "rank"), [((2, 3), None), ((2,), 2)])
def test_a_node_is_named_where_all_its_ranks_are_late(slow, rank):
    ranks = [
        make_rank(one, 335.8, 264.8, more_ms=15.0 * (one in slow))._replace(node=one // 2) for one in range(8)
    ]
    run = SizeRun(4, 8, "job", tuple(ranks), BUCKETS)
    report = build_report("node", [run], to=8)
    (found,) = report.stragglers
    assert (found.kind, found.node, found.rank) == ("compute", 1, rank)
    (said,) = [one for one in list_sentences(report) if one.startswith("compute: ")]
    assert said.startswith(f"compute: without {'node 1' if rank is None else 'rank 2'} this job would be ")


@pytest.mark.parametrize(
    ("how", "share", "kind"), [("compute", 0.9, "compute"), ("input", 0.9, "input"), ("", 0.4, "")]
)
def test_a_rank_that_is_late_to_collectives_is_named_where_no_waiting_is_known(how, share, kind):
    ranks = [make_rank(one, 151.8, input_ms=20.0 if one == 3 and how == "input" else 5.0) for one in range(4)]
    run = SizeRun(4, 4, "job", tuple(ranks), latest=LatestRank(3, 0.015, share))
    found = build_report("fsdp", [run], to=8).stragglers
    assert [(one.kind, one.rank, one.node) for one in found] == ([(kind, 3, 3)] if kind else [])


def test_an_all_reduce_that_is_known_of_few_steps_is_not_taken_for_all():
    # PyTorch notes every hundredth one on a GPU.
    assert scale_run._fill((None, 0.2, None, None)) == ()
    assert scale_run._fill((None, 0.2, 0.1, 0.3)) == (0.2, 0.2, 0.1, 0.3)


def slow_rank(late, how, nodes=4):
    """A run in which one rank is late by 15 ms, which all others wait for."""
    ranks = []
    for rank in range(nodes):
        is_late = rank == late
        ranks.append(
            make_rank(
                rank,
                351.0,
                264.8 if is_late else 279.8,
                input_ms=20.0 if is_late and how == "input" else 5.0,
            )
        )
    return SizeRun(nodes, nodes, "job", tuple(ranks), BUCKETS)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("how", ["compute", "input"])
def test_a_late_rank_is_named_with_its_class(how, seed):
    late = random.Random(seed).randrange(4)
    runs = [*make_runs(FIELD["200 Mbit/s"], 2), slow_rank(late, how)]
    report = build_report("late", runs, to=8)
    (found,) = report.stragglers
    told = to_values(report)
    assert told["stragglers"] == told["measured"][-1]["stragglers"]
    assert {name: len(str(told["stragglers"][0][name])) <= 8 for name in ("late_s", "share", "gain")} == {
        "late_s": True,
        "share": True,
        "gain": True,
    }
    assert 1e3 * report.reliable[-1].facts.late_s == pytest.approx(15.0)
    assert (found.kind, found.rank, found.node) == (how, late, late)
    assert 1e3 * found.late_s == pytest.approx(15.0, rel=0.2)
    assert found.gain == pytest.approx(15 / 336, rel=0.2)


def make_run_of_slow_link(slow, draw):
    pairs = tuple(
        NodePair(one, two, (6e6 if slow in (one, two) else 24e6) * draw.uniform(0.95, 1.05))
        for one in range(4)
        for two in range(4)
        if one != two
    )
    return make_run(4, 131.8 - 61.5 + 1059, 1059)._replace(pairs=pairs)


@pytest.mark.parametrize("seed", range(20))
def test_a_slow_link_is_named_as_that(seed):
    draw = random.Random(seed)
    slow = draw.randrange(4)
    four = make_run_of_slow_link(slow, draw)
    runs = [*make_runs(FIELD["200 Mbit/s"], 2), four]
    report = build_report("link", runs, to=8, emulation=Emulation(25e6, 3e9))
    (found,) = report.stragglers
    assert not any("emulated" in one for one in report.refused)
    assert (found.kind, found.node, found.rank) == ("link", slow, None)
    assert found.gain > 1


def test_even_ranks_have_no_straggler():
    assert build_report("even", make_runs(FIELD["200 Mbit/s"], 2, 4), to=8).stragglers == []


def test_a_late_rank_is_named_where_no_size_can_be_trusted():
    report = build_report("busy", [slow_rank(2, "input")._replace(cpu_share=0.95)], to=8)
    assert report.reliable == []
    assert [(one.kind, one.rank) for one in report.stragglers] == [("input", 2)]
    (said,) = [one for one in list_sentences(report) if "rank 2" in one]
    assert said.startswith("input: without rank 2 this job would be 4 % faster at 4 nodes")


def test_a_slow_link_is_named_where_no_size_can_be_trusted():
    busy = make_run_of_slow_link(3, random.Random(0))._replace(cpu_share=0.95)
    for runs in ([busy], [make_run(1, 131.8), busy]):
        report = build_report("busy", runs, to=8)
        assert [(one.kind, one.node) for one in report.stragglers] == [("link", 3)]
        assert report.predicted == ()


def test_one_rank_is_not_said_to_reduce_over_a_link():
    alone = make_run(1, 131.8)._replace(bucket_bytes=BUCKETS)
    assert not any("reduces" in one for one in list_sentences(build_report("alone", [alone], to=8)))


def test_a_hang_is_a_class_of_its_own():
    hung = make_run(4, 335.8, 264.8)._replace(hang="rank 3 is in all_reduce, and all others wait for it")
    report = build_report("hang", [*make_runs(FIELD["200 Mbit/s"], 2), hung], to=8)
    assert [one.kind for one in report.stragglers] == ["hang"]
    assert "4 nodes: the job hung" in report.refused
    assert "hang at 4 nodes: rank 3 is in all_reduce, and all others wait for it" in list_sentences(report)


def test_nodes_of_one_machine_are_said_to_have_no_network():
    runs = [
        run._replace(cpu_share=0.3 if run.nodes > 1 else None) for run in make_runs(FIELD["200 Mbit/s"], 2, 4)
    ]
    report = build_report("laptop", runs, to=8)
    said = list_sentences(report)
    assert report.predicted
    assert any(one.startswith("all nodes share this machine, so what follows") for one in said)
    assert not any("bit/s" in one or "this link" in one for one in said)
    assert (to_values(report)["model"]["bytes_per_s"], to_values(report)["limit"]["rate"]) == (None, None)
    # Emulated links are like a network.
    emulated = build_report("laptop", runs, to=8, emulation=Emulation(25e6, 3e9))
    assert any(one.startswith("the link: 19") for one in list_sentences(emulated))


@pytest.mark.parametrize(
    ("source", "is_said"), [("optimizer", True), ("optimizer, ddp", False), ("optimizer, collectives", False)]
)
def test_ranks_that_exchange_nothing_are_told(source, is_said):
    runs = [make_run(nodes, 131.8)._replace(source=source, bucket_bytes=()) for nodes in (1, 2)]
    said = [one for one in list_sentences(build_report("alone", runs, to=2)) if "separate models" in one]
    assert bool(said) is is_said


def test_a_table_has_a_row_for_each_size():
    report = build_report("laptop", make_runs(FIELD["200 Mbit/s"], 2, 4), to=128)
    lines = format_report(report)
    assert lines[0].split()[:3] == ["NODES", "RANKS", "STEP,"]
    assert [line.split()[-1] for line in lines[1 : lines.index("")]][:3] == ["measured"] * 3
    assert lines[lines.index("") - 1].endswith("guess")
    assert lines[lines.index("") + 1 :] == list_sentences(report)
    assert to_values(report._replace(at=1e9))["at"] == "2001-09-09T01:46:40Z"


def test_reports_without_figures_say_so():
    lines = format_report(build_report("job", [SizeRun(1, 1, "job-1", why_not="failed")], to=8))
    assert lines[1].endswith("not measured")
    assert any("failed" in line for line in lines)
