"""How long what a shell has started may go on after its rank's end."""

import signal
import types

import pytest

from drumline.contract import messages as m
from drumline.linux import descendants
from drumline.node.agent.ranks import Ending


@pytest.fixture
def ending(monkeypatch):
    """That of a rank, process 7, that was told to end and has ended by that, as a shell does."""
    monkeypatch.setattr(descendants, "ask_to_end", lambda *_: {7, 8})
    monkeypatch.setattr(descendants, "is_shell", lambda pid: True)
    monkeypatch.setattr(descendants, "signal_all", lambda *_: None)
    ranks = types.SimpleNamespace(by_pid={7: 0}, start_waiting=lambda: None)
    notice = types.SimpleNamespace(reaches_ranks=False)
    place = types.SimpleNamespace(deadline="")
    found = Ending(place, ranks, types.SimpleNamespace(fork_server=None), notice)
    found.terminate(m.TerminateRanks(1000.0), [])
    found.note_end(descendants.EndedProcess(7, -signal.SIGTERM, 0, 0.0))
    return found


def find_time(ending):
    """Until when those that were told may go on; None: they may not."""
    times = []
    children = types.SimpleNamespace(end_all=lambda *given: times.append(given[2]) or ([], []))
    ending.empty(m.EmptyNode(5.0), children, lambda: False)
    return times[0]


def test_it_has_the_rest_of_the_grace(ending):
    assert find_time(ending) is not None


def test_it_has_none_once_all_were_to_be_killed(ending):
    """A process that changed its parent just then is not found; a job that is canceled at once does not wait for it."""
    ending.kill([])
    assert find_time(ending) is None
