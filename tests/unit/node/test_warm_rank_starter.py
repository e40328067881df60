"""An agent whose warm pool says nothing, or nonsense."""

import json
import os
import select
import socket
import struct
import sys

import pytest

from drumline.contract import events as e
from drumline.contract import messages as m
from drumline.node.hook_folder import HOOK
from drumline.node.warm import fork_server, pool_folder
from drumline.node.warm.rank_starter import WarmRankStarter
from drumline.node.warm.ranks import Task


@pytest.fixture
def asked(tmp_path):
    """An agent that has asked; its ranks, the warm pool's end, and what it told."""
    folder = tmp_path / "keeper"
    pool_folder.make_pool_folder(str(folder))
    (tmp_path / "train.py").write_text("import json\n")
    told = []
    env = {"PYTHONPATH": HOOK, "PATH": os.environ["PATH"]}
    tasks = [Task(0, (sys.executable, "train.py"), env, str(tmp_path), str(tmp_path / "log"), ())]
    with socket.socket(socket.AF_UNIX) as listener, select.epoll() as poller:
        with pool_folder.shorten_socket_path(str(folder)) as address:
            listener.bind(address)
        listener.listen()
        warm = WarmRankStarter(poller, "", told.append)
        settings = m.WarmSettings("on", str(folder))
        assert warm.begin(m.LaunchRanks([], "", [], [], {}, warm=settings), tasks), told
        peer, _ = listener.accept()
        with peer:
            yield warm, tasks, peer, told
        warm.end()


def test_one_that_never_answers_is_not_waited_for_for_ever(asked, monkeypatch):
    warm, tasks, _, told = asked
    assert not warm.has_answer([])
    monkeypatch.setattr(fork_server, "_MAX_WAIT_S", 0.0)
    assert warm.has_answer([])
    assert warm.go_on() == (tasks, [])
    assert "has not answered" in told[-1].reason


@pytest.mark.parametrize("answer", [{}, {"fork_server": "?"}, {"fork_server": -1}])
def test_an_answer_that_is_none_costs_no_rank(asked, answer):
    warm, tasks, peer, told = asked
    body = json.dumps(answer).encode()
    peer.sendall(struct.pack("!I", len(body)) + body)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(peer, [b"!"], [theirs.fileno()])
    assert warm.go_on() == (tasks, [])
    assert [type(one) for one in told] == [e.WarmAsked, e.WarmDeclined]
