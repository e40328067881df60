"""How long an attempt waits, by a clock that goes on only when a test says so."""

import time

import pytest

from drumline.supervisor.attempt.loop import Timers


class Part:
    """Something else that is due at ``times``."""

    def __init__(self, *times):
        self.times = list(times)

    def list_times(self):
        return self.times

    def leave_out(self, passed_s):
        self.times = [at + passed_s for at in self.times]


class Clock:
    def __init__(self):
        self.now = 100.0
        self.asked_s = []
        self.lasts_s = None

    def wait(self, patience_s):
        self.asked_s.append(patience_s)
        self.now += patience_s if self.lasts_s is None else self.lasts_s
        return [7]


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


def test_a_wait_ends_when_the_first_of_all_is_due(clock):
    timers = Timers(clock.wait, [Part()], [Part(100.75)])
    timers.set("grace", 0.5)
    assert timers.wait() == [7]
    assert list(timers.take_due()) == ["grace"]
    timers.wait()
    timers.wait()
    assert clock.asked_s == [0.5, 0.25, 0.0]


def test_a_wait_ends_soon_where_nothing_is_due(clock):
    Timers(clock.wait, [], []).wait()
    assert clock.asked_s == [1.0]


def test_time_in_which_the_job_was_suspended_does_not_count(clock):
    postponed, other = Part(130.0), Part(140.0)
    timers = Timers(clock.wait, [postponed], [other])
    timers.set("grace", 30.0)
    clock.lasts_s = 3601.0
    timers.wait()
    assert list(timers.take_due()) == []
    assert (postponed.times, other.times) == ([3730.0], [140.0])
    clock.now += 30.0
    assert list(timers.take_due()) == ["grace"]


def test_a_busy_machine_is_no_suspended_job(clock):
    timers = Timers(clock.wait, [], [])
    timers.set("grace", 3.0)
    clock.lasts_s = 4.0
    timers.wait()
    assert list(timers.take_due()) == ["grace"]
