"""Successive halving on recorded figures: what is measured next, and which setting wins."""

import random

import pytest

from drumline.plan.search.halving import (
    MAXIMIZE,
    MINIMIZE,
    Measurement,
    Rung,
    Standing,
    find_standing,
    is_decided,
    is_worse,
    plan_rungs,
)

RECORDED = {
    # processes, threads: samples per second, of a small convolution on a machine of two cores.
    (1, 1): 412.0,
    (1, 2): 498.0,
    (2, 1): 731.0,
    (2, 2): 655.0,
    (4, 1): 702.0,
    (4, 2): 388.0,
}


def measure_with(values, rungs, goal=MAXIMIZE, noise=0.02, seed=0, failing=()):
    """Play a tuning whose settings have these values; the winner, and the settings of each rung."""
    draw = random.Random(seed)
    known, rows = [], []
    while True:
        standing = find_standing(rungs, len(values), goal, known)
        if standing.is_over:
            return standing.winner, rows
        assert standing.waiting
        rows.append(standing.waiting)
        for setting in standing.waiting:
            if (setting, standing.rung) in failing:
                known.append(Measurement(setting, standing.rung))
                continue
            value = values[setting] * (1 + draw.uniform(-noise, noise))
            known.append(Measurement(setting, standing.rung, value, 0.9 * value, 1.1 * value))


def test_the_best_recorded_setting_wins_with_few_steps():
    values = list(RECORDED.values())
    rungs = plan_rungs(len(values), 60)
    assert rungs == (Rung(6, 20), Rung(2, 60))
    for seed in range(20):
        winner, rows = measure_with(values, rungs, seed=seed, noise=0.01)
        assert list(RECORDED)[winner] == (2, 1)
        assert rows == [(0, 1, 2, 3, 4, 5), (2, 4)]


def test_a_setting_that_is_clearly_the_best_wins_once_the_next_rung_has_confirmed_it():
    winner, rows = measure_with([100.0, 20.0, 300.0, 50.0], plan_rungs(4, 60))
    assert (winner, rows) == (2, [(0, 1, 2, 3), (2,)])
    winner, rows = measure_with([100.0, 300.0, *[50.0] * 10], plan_rungs(12, 60))
    assert (winner, rows) == (1, [tuple(range(12)), (1,)])


@pytest.mark.parametrize(("goal", "first", "later"), [(MAXIMIZE, 300.0, 90.0), (MINIMIZE, 30.0, 110.0)])
def test_a_winner_that_is_not_confirmed_makes_room_for_those_that_it_had_surpassed(goal, first, later):
    rungs = plan_rungs(12, 60)
    known = [measured(0, 0, first), *(measured(number, 0, 100.0) for number in range(1, 12))]
    assert find_standing(rungs, 12, goal, known) == Standing(1, (0,))
    assert find_standing(rungs, 12, goal, [*known, measured(0, 1, first)]) == Standing(1, (), 0, is_over=True)
    known.append(measured(0, 1, later))
    assert find_standing(rungs, 12, goal, known) == Standing(1, (1, 2, 3, 4))


def test_one_that_may_be_the_best_goes_on_before_one_that_is_surer():
    doubtful = Measurement(3, 0, 90.0, 50.0, 130.0, spread=0.4)
    known = [*(measured(number, 0, 100.0 + number) for number in range(3)), doubtful]
    assert find_standing(plan_rungs(4, 60), 4, MAXIMIZE, known) == Standing(1, (2, 3))


def test_the_shortest_step_wins_where_less_is_better():
    winner, rows = measure_with([0.2, 0.101, 0.1, 0.3], plan_rungs(4, 60), MINIMIZE, noise=0.001)
    assert (winner, rows) == (2, [(0, 1, 2, 3), (2, 1)])


def test_of_equal_settings_the_first_wins_and_each_rung_has_a_third():
    winner, rows = measure_with([1.0] * 12, plan_rungs(12, 60), noise=0.0)
    assert (winner, [len(row) for row in rows]) == (0, [12, 4, 2])


def test_a_rung_that_would_drop_none_is_skipped():
    winner, rows = measure_with([1.0] * 10 + [8.0, 8.1], plan_rungs(12, 60), noise=0.0)
    assert (winner, rows) == (11, [tuple(range(12)), (11, 10)])


def test_a_setting_that_fails_later_makes_room_for_the_next_best():
    winner, rows = measure_with([1.0, 1.01, 1.02, 1.03], plan_rungs(4, 60), noise=0.0, failing=[(3, 1)])
    assert (winner, rows) == (2, [(0, 1, 2, 3), (3, 2), (1,)])


def measured(setting, rung, value, spread: float | None = 0.01):
    return Measurement(setting, rung, value, 0.9 * value, 1.1 * value, spread=spread)


def find_after(*of_last_rung, first=(100.0, 100.0, 100.0, 100.0), spread: float | None = 0.01):
    """Where a tuning of twelve stands when four settings were measured on two rungs of three."""
    slow = [measured(number, 0, 10.0, spread) for number in range(len(first), 12)]
    rows = [
        *(measured(number, 0, value, spread) for number, value in enumerate(first)),
        *(measured(number, 1, value, spread) for number, value in enumerate(of_last_rung)),
    ]
    return find_standing(plan_rungs(12, 60), 12, MAXIMIZE, rows + slow)


def test_where_runs_of_a_setting_are_alike_a_small_difference_ends_it():
    alike = (100.0, 90.0, 89.0, 88.0)
    assert find_after(*alike, first=alike) == Standing(1, (), 0, is_over=True)
    # One that changed by 6 %, or whose steps say no more than that, makes 10 % the chance of two runs.
    changed = (106.0, 90.0, 89.0, 88.0)
    assert find_after(*alike, first=changed) == Standing(2, (0, 1))
    assert find_after(*alike, first=alike, spread=0.06) == Standing(2, (0, 1))
    # What an earlier version measured has no spread.
    assert find_after(*alike, first=alike, spread=None) == Standing(2, (0, 1))


def test_settings_that_are_equal_need_no_further_rung():
    assert find_after(100.0, 100.5, 99.8, 99.6).winner == 1
    # 2 % apart is neither clear nor equal, and runs that are 2 % apart cannot tell.
    assert find_after(100.0, 100.5, 99.8, 98.0, first=(100.0, 100.0, 100.0, 98.0)) == Standing(2, (1, 0))
    assert find_after(100.0, 100.5, 99.8, 99.6, first=(102.0, 100.0, 100.0, 100.0)) == Standing(2, (1, 0))
    assert find_after(100.0, 100.5, 99.8, 99.6, spread=None) == Standing(2, (1, 0))


def test_a_run_under_way_is_stopped_by_what_repeats_of_its_rung_tell():
    rungs = plan_rungs(12, 60)
    known = [measured(number, rung, value) for rung in (0, 1) for number, value in enumerate((100.0, 99.0))]
    slow = measured(2, 1, 92.0)._replace(is_over=False)
    assert is_decided(rungs, slow, known, MAXIMIZE)
    # One repeat may be chance, and what comes later says nothing of an earlier rung.
    assert not is_decided(rungs, slow, known[:3], MAXIMIZE)
    assert not is_decided(rungs, slow._replace(rung=0), known, MAXIMIZE)
    slow = measured(2, 1, 1.08)._replace(is_over=False)
    known = [measured(number, rung, value) for rung in (0, 1) for number, value in enumerate((1.0, 1.01))]
    assert is_decided(rungs, slow, known, MINIMIZE)


def test_without_a_value_nobody_wins():
    assert measure_with([1.0, 1.0], plan_rungs(2, 9), failing=[(0, 0), (1, 0)]) == (None, [(0, 1)])
    assert measure_with([1.0, 1.0], plan_rungs(2, 9), failing=[(0, 0)]) == (1, [(0, 1)])


def test_a_rung_that_is_not_over_has_nothing_more_to_start():
    rungs = plan_rungs(2, 9)
    running = [Measurement(0, 0, is_over=False)]
    standing = find_standing(rungs, 2, MAXIMIZE, running)
    assert (standing.rung, standing.waiting, standing.is_over) == (0, (1,), False)
    running.append(Measurement(1, 0, 5.0, 4.0, 6.0))
    standing = find_standing(rungs, 2, MAXIMIZE, running)
    assert (standing.waiting, standing.is_over, standing.winner) == ((), False, None)


def test_rungs_grow_to_the_steps_that_were_asked_for():
    assert plan_rungs(12, 60) == (Rung(12, 7), Rung(4, 20), Rung(2, 60))
    assert plan_rungs(2, 60) == (Rung(2, 20), Rung(2, 60))
    assert plan_rungs(1, 60) == (Rung(1, 60),)
    assert plan_rungs(12, 60, exhaustive=True) == (Rung(12, 60),)
    assert plan_rungs(30, 5) == (Rung(30, 5), Rung(10, 5), Rung(4, 5), Rung(2, 5))


@pytest.mark.parametrize("count", [12, 50, 200])
def test_halving_takes_less_than_half_of_the_steps(count):
    rungs = plan_rungs(count, 60)
    assert sum(rung.most * (rung.steps + 5) for rung in rungs) < 0.5 * count * (60 + 5)


def test_a_setting_that_is_worse_is_stopped_unless_every_one_is_measured_whole():
    slow, known = Measurement(1, 0, 50.0, 45.0, 55.0), [Measurement(0, 0, 100.0, 90.0, 110.0)]
    assert is_decided(plan_rungs(3, 60), slow, known, MAXIMIZE)
    assert not is_decided(plan_rungs(3, 60), slow, [known[0]._replace(rung=1)], MAXIMIZE)
    assert not is_decided(plan_rungs(3, 60), slow, [known[0]._replace(is_over=False)], MAXIMIZE)
    assert not is_decided(plan_rungs(3, 60, exhaustive=True), slow, known, MAXIMIZE)


def test_worse_is_what_chance_does_not_explain():
    best, near, far = (Measurement(n, 0, v, 0.9 * v, 1.1 * v) for n, v in enumerate((100.0, 85.0, 80.0)))
    assert not is_worse(near, [best], MAXIMIZE)
    assert is_worse(far, [best], MAXIMIZE)
    assert not is_worse(best, [far, Measurement(3, 0)], MAXIMIZE)
    assert is_worse(best, [far], MINIMIZE)
