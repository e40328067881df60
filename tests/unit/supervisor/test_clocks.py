"""Agents' clocks against ours, which goes on only when a test says so."""

import time

import pytest

from drumline.supervisor import clocks as clocks_module
from drumline.supervisor.clocks import AGAIN_S, SAMPLES, TOLD_EVERY_S, Clocks

EPOCH = 1_700_000_000.0


class Ours:
    def __init__(self):
        self.now = 50.0

    def passes(self, seconds):
        self.now += seconds


@pytest.fixture
def ours(monkeypatch):
    clock = Ours()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(clocks_module, "wall_time", lambda: EPOCH + clock.now)
    return clock


def ask(clocks, ours, node, ahead, there_s=0.001, back_s=0.001):
    """One question; how long it takes there and the answer back."""
    clocks.ask(node)
    ours.passes(there_s)
    at = ours.now + ahead
    ours.passes(back_s)
    return clocks.take_answer(node, at)


def test_a_clock_that_is_ahead_is_set_right_by_the_quickest_answer(ours):
    clocks = Clocks()
    again = [ask(clocks, ours, 1, 1000.0, back_s=back_s) for back_s in (0.05, 0.03, 0.001, 0.02, 0.04)]
    assert again == [True] * (SAMPLES - 1) + [False]
    assert clocks.wall(1, ours.now + 1000.0) == pytest.approx(EPOCH + ours.now, abs=1e-6)


def test_what_is_not_known_is_at_most_half_of_the_way_there_and_back(ours):
    clocks = Clocks()
    for _ in range(SAMPLES):
        ask(clocks, ours, 1, -7.0, there_s=0.0, back_s=0.010)
    assert clocks.wall(1, ours.now - 7.0) == pytest.approx(EPOCH + ours.now, abs=0.005 + 1e-6)


def test_a_clock_that_was_never_asked_is_taken_for_ours(ours):
    assert Clocks().wall(0, ours.now) == EPOCH + ours.now


def test_an_answer_that_nobody_asked_for_is_passed_over(ours):
    clocks = Clocks()
    assert not clocks.take_answer(0, 5.0)
    assert clocks.wall(0, ours.now) == EPOCH + ours.now


def test_only_the_last_answers_count_for_clocks_drift(ours):
    clocks = Clocks()
    for _ in range(SAMPLES):
        ask(clocks, ours, 0, 1000.0)
    for _ in range(SAMPLES):
        ask(clocks, ours, 0, 1000.5, there_s=0.002, back_s=0.002)
    assert clocks.wall(0, ours.now + 1000.5) == pytest.approx(EPOCH + ours.now, abs=1e-6)


def test_all_are_asked_again_now_and_then(ours):
    clocks = Clocks()
    assert not clocks.is_due()
    ours.passes(AGAIN_S + 1)
    assert clocks.is_due()
    assert not clocks.is_due()


def test_what_is_known_of_clocks_is_told_once_and_not_too_often(ours):
    clocks = Clocks()
    assert clocks.take_new() is None
    ask(clocks, ours, 0, 0.0)
    ask(clocks, ours, 3, 1000.0)
    assert clocks.take_new() == {"0": pytest.approx(EPOCH), "3": pytest.approx(EPOCH - 1000.0)}
    ask(clocks, ours, 3, 1000.0)
    assert clocks.take_new() is None
    ours.passes(TOLD_EVERY_S)
    assert clocks.take_new() is not None
    assert clocks.take_new() is None
