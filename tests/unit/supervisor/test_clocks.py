"""Agents' clocks against ours."""

import time

import pytest

from drumline.supervisor.clocks import AGAIN_S, SAMPLES, Clocks


def ask(clocks, node, ahead, late_s=0.0):
    """One question, whose answer takes ``late_s`` on its way back."""
    clocks.ask(node)
    at = time.monotonic() + ahead
    time.sleep(late_s)
    return clocks.answered(node, at)


def test_a_clock_that_is_ahead_is_set_right_by_the_quickest_answer():
    clocks = Clocks()
    late = [0.05, 0.03, 0.0, 0.02, 0.04]
    again = [ask(clocks, 1, 1000.0, late_s) for late_s in late]
    assert again == [True] * (SAMPLES - 1) + [False]
    assert clocks.wall(1, time.monotonic() + 1000.0) == pytest.approx(time.time(), abs=0.01)


def test_a_clock_that_was_never_asked_is_taken_for_ours():
    assert Clocks().wall(0, time.monotonic()) == pytest.approx(time.time(), abs=0.01)


def test_an_answer_that_nobody_asked_for_is_passed_over():
    clocks = Clocks()
    assert not clocks.answered(0, 5.0)
    assert clocks.wall(0, time.monotonic()) == pytest.approx(time.time(), abs=0.01)


def test_only_the_last_answers_count_for_clocks_drift():
    clocks = Clocks()
    for _ in range(SAMPLES):
        ask(clocks, 0, 1000.0)
    for _ in range(SAMPLES):
        ask(clocks, 0, 1000.5, late_s=0.002)
    assert clocks.wall(0, time.monotonic() + 1000.5) == pytest.approx(time.time(), abs=0.01)


def test_all_are_asked_again_now_and_then(monkeypatch):
    clocks = Clocks()
    assert not clocks.is_due()
    later = time.monotonic() + AGAIN_S + 1
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert clocks.is_due()
    assert not clocks.is_due()
