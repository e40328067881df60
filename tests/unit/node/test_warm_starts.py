"""An agent whose keeper says nothing, or nonsense."""

import json
import os
import select
import socket
import struct
import sys

import pytest

from drumline.node.failures import HOOK
from drumline.node.warm import nursery, place
from drumline.node.warm.starts import WarmStarts
from drumline.node.warm.tasks import Task


@pytest.fixture
def asked(tmp_path):
    """An agent that has asked; its ranks, the keeper's end, and what it told."""
    folder = tmp_path / "keeper"
    place.make(str(folder))
    (tmp_path / "train.py").write_text("import json\n")
    told = []
    env = {"PYTHONPATH": HOOK, "PATH": os.environ["PATH"]}
    tasks = [Task(0, (sys.executable, "train.py"), env, str(tmp_path), str(tmp_path / "log"), ())]
    with socket.socket(socket.AF_UNIX) as listener, select.epoll() as poller:
        with place.short(str(folder)) as address:
            listener.bind(address)
        listener.listen()
        warm = WarmStarts(poller, "", lambda kind, **content: told.append((kind, content)))
        assert warm.begin({"warm": {"mode": "on", "keeper": str(folder)}, "by_launcher": False}, tasks), told
        peer, _ = listener.accept()
        with peer:
            yield warm, tasks, peer, told
        warm.end()


def test_one_that_never_answers_is_not_waited_for_for_ever(asked, monkeypatch):
    warm, tasks, _, told = asked
    assert not warm.has_answer([])
    monkeypatch.setattr(nursery, "_MOST_WAIT_S", 0.0)
    assert warm.has_answer([])
    assert warm.go_on() == (tasks, [])
    assert "has not answered" in told[-1][1]["reason"]


@pytest.mark.parametrize("answer", [{}, {"nursery": "?"}, {"nursery": -1}])
def test_an_answer_that_is_none_costs_no_rank(asked, answer):
    warm, tasks, peer, told = asked
    body = json.dumps(answer).encode()
    peer.sendall(struct.pack("!I", len(body)) + body)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        socket.send_fds(peer, [b"!"], [theirs.fileno()])
    assert warm.go_on() == (tasks, [])
    assert [kind for kind, _ in told] == ["asked", "declined"]
