"""Requests to end a job whose supervisor is a batch step: the engine says what its signals mean."""

import os
import signal

import planning
import pytest

from drumline.contract.folder import RunFolder
from drumline.engines.base import TIME_LIMIT, SignalMeaning
from drumline.supervisor.deciding.happenings import Canceled
from drumline.supervisor.helpers.preparation import HelperProcesses
from drumline.supervisor.supervised_folder import EndRequests, SupervisedFolder

CANCELED = Canceled("scancel", at_once=False, grace_s=26.0)


class Engine:
    """Explains signals; ``asked``: what it was given."""

    def __init__(self):
        self.asked = []

    def explain_signal(self, node, by):
        self.asked.append((node, by))
        if by == TIME_LIMIT:
            return SignalMeaning("preemption", "the limit")
        return SignalMeaning("cancel", "scancel", 26.0)


@pytest.fixture
def requests(tmp_path):
    """Of a batch step, which this process is for the moment."""
    folder = RunFolder(str(tmp_path / "jobs" / "job"))
    folder.create()
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP)
    before = [(number, signal.getsignal(number)) for number in numbers]
    made = EndRequests(SupervisedFolder(folder.path), batch=True)
    yield made
    signal.set_wakeup_fd(-1)
    for number, handler in before:
        signal.signal(number, handler)
    os.close(made.wake)
    os.close(made._writer)


def test_a_cancel_that_a_signal_means_stays(requests):
    """Whoever looks first may be busy with the end of an attempt, or with the preparation of one."""
    engine = Engine()
    requests.explain_by(engine)
    assert not requests.is_there()
    os.kill(os.getpid(), signal.SIGTERM)
    assert requests.is_there()
    assert [requests.read(), requests.read()] == [CANCELED, CANCELED]
    assert engine.asked == [(None, "a SIGTERM to its supervisor")]
    assert [one.kind for one in requests.meanings] == ["cancel"]


def test_a_cancel_that_a_signal_to_an_agent_means_stays(requests):
    requests.explain_by(Engine())
    requests.explain(1, "slurmstepd")
    assert requests.read() == CANCELED


def test_a_preemption_is_no_request_and_the_next_attempt_is_told(requests):
    requests.explain_by(Engine())
    os.kill(os.getpid(), signal.SIGUSR2)
    assert not requests.is_there()
    assert requests.meanings == [SignalMeaning("preemption", "the limit")]


def test_a_signal_that_came_before_the_engine_was_known_is_not_lost(requests):
    os.kill(os.getpid(), signal.SIGTERM)
    assert not requests.is_there()
    requests.explain_by(Engine())
    assert requests.is_there()


def test_the_preparation_of_a_job_heeds_it(requests, tmp_path, monkeypatch):
    (tmp_path / "fetching.py").write_text(
        "import os, signal\nos.kill(os.getppid(), signal.SIGTERM)\nsignal.pause()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    requests.explain_by(Engine())
    helpers = HelperProcesses(RunFolder(str(tmp_path / "jobs" / "job")), planning.plan())
    try:
        helpers.start("a test", "fetching")
        assert not helpers.wait(requests.is_there, requests.wake)
    finally:
        helpers.end()
