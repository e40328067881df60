"""What is asked of whoever holds warm interpreters, and what becomes of the answers."""

import json
import os
import socket
import threading

import pytest

from drumline.cli.main import main
from drumline.contract import process_identity
from drumline.contract.errors import NodeError, NotFoundError
from drumline.control.machine import warm

ONE = {
    "pid": 4711,
    "python": "/venv/bin/python",
    "program": "train.py",
    "modules": ["torch", "numpy", "lightning", "rich", "yaml"],
    "import_s": 1.9,
    "memory_bytes": 412_000_000,
    "age_s": 200.0,
    "idle_s": 12.0,
    "ranks": 8,
    "users": 0,
}
TWO = {**ONE, "pid": 4712, "program": "-m pkg.train", "modules": ["torch"], "idle_s": None, "users": 1}


class Keeper:
    """Speaks the protocol, and holds nothing."""

    def __init__(self, home, held, kind="0a1b2c3d", answer=None):
        self.folder = home / "warm" / process_identity.name_machine() / kind
        self.folder.mkdir(parents=True, mode=0o700)
        self.held = list(held)
        self.answer = answer
        self.asked = []
        self.listener = socket.socket(socket.AF_UNIX)
        at = os.open(self.folder, os.O_RDONLY)
        self.listener.bind(f"/proc/self/fd/{at}/socket")
        os.close(at)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            peer, _ = self.listener.accept()
            with peer, peer.makefile("rwb") as lines:
                request = json.loads(lines.readline() or "null")
                if request is None:
                    return
                self.asked.append(request)
                lines.write(self.answer or json.dumps(self.obey(request)).encode() + b"\n")

    def obey(self, request):
        if request["do"] == "list":
            return {"pid": os.getpid(), "idle_limit_s": 600.0, "warm": self.held}
        stopped = [one["pid"] for one in self.held if request["pid"] in (None, one["pid"])]
        self.held = [one for one in self.held if one["pid"] not in stopped]
        return {"stopped": stopped}

    def end(self):
        at = os.open(self.folder, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(f"/proc/self/fd/{at}/socket")
        os.close(at)
        self.thread.join()
        self.listener.close()


@pytest.fixture
def pools(drumline_home):
    """Makes one in the test's home."""
    made = []

    def make(*held, home=drumline_home, **settings):
        made.append(Keeper(home, held, **settings))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_nothing_is_warm_before_any_job(drumline_home, capsys):
    assert warm.warm_interpreters() == warm.stop() == []
    assert main(["warm", "list", "-o", "json"]) == main(["warm", "stop"]) == 0
    assert capsys.readouterr() == ("[]\n", "there are no warm interpreters\n")
    assert not drumline_home.exists()


def test_those_of_all_pools_are_listed_used_last_first(pools):
    pools(ONE, kind="00000001")
    pools(TWO, kind="00000002")
    two, one = warm.warm_interpreters()
    assert (one.pid, one.program, one.memory_bytes, one.keeper) == (
        4711,
        "train.py",
        412_000_000,
        os.getpid(),
    )
    assert (one.imported, one.memory, one.age) == (
        "torch, numpy, lightning, rich, ...",
        "393 MiB",
        "3m20s",
    )
    assert (one.idle, one.idle_s, two.idle, two.idle_s) == ("12s", 12.0, "in use", None)


def test_a_home_whose_path_is_longer_than_that_of_a_socket(pools, tmp_path, monkeypatch):
    home = tmp_path / ("x" * 120)
    pools(ONE, home=home)
    monkeypatch.setenv("DRUMLINE_HOME", str(home))
    assert len(warm.warm_interpreters()) == 1


def test_a_table_of_them(pools, capsys):
    pools(ONE, {**TWO, "program": "tr\x1b[31mäin.py", "memory_bytes": None})
    assert main(["warm", "list", "-o", "table"]) == 0
    heading, two, one = capsys.readouterr().out.splitlines()
    assert heading.split() == ["PID", "PROGRAM", "PYTHON", "IMPORTED", "MEMORY", "AGE", "IDLE", "USED"]
    assert one.split("  ")[:2] == ["4711", "train.py"]
    assert "\x1b" not in two
    assert "äin.py" in two


def test_all_are_stopped_or_one(pools, capsys):
    pool = pools(ONE, TWO)
    assert main(["warm", "stop", "--pid", "4712"]) == 0
    assert capsys.readouterr().err == "stopped warm interpreter 4712\n"
    assert [one.pid for one in warm.warm_interpreters()] == [4711]
    assert main(["warm", "stop", "--pid", "4712"]) == 3
    assert "there is no warm interpreter 4712" in capsys.readouterr().err
    pool.held.append(TWO)
    assert warm.stop() == [4711, 4712]
    assert pool.asked[-1] == {"do": "stop", "pid": None}


def test_one_that_is_gone_is_passed_over(pools, drumline_home):
    pools(ONE)
    for kind in ("00000001", "00000002", "not-a-kind"):
        (drumline_home / "warm" / process_identity.name_machine() / kind).mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        at = os.open(drumline_home / "warm" / process_identity.name_machine() / "00000001", os.O_RDONLY)
        left.bind(f"/proc/self/fd/{at}/socket")
        os.close(at)
    assert [one.pid for one in warm.warm_interpreters()] == [4711]
    with pytest.raises(NotFoundError):
        warm.stop(1)


def test_one_of_another_user_is_not_asked(pools, monkeypatch):
    pools(ONE)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert warm.warm_interpreters() == warm.stop() == []


@pytest.mark.parametrize(
    "answer", [b"[]\n", b"{}\n", b'{"warm": 1, "stopped": {"a": 1}}\n', b'{"warm": [1]}\n', b"null"]
)
def test_an_odd_answer_is_one_of_nothing(pools, answer):
    pools(ONE, answer=answer)
    assert warm.warm_interpreters() == warm.stop() == []


def test_an_answer_that_is_none_is_an_error_in_words(pools, capsys):
    pools(ONE, answer=b"hello\n")
    with pytest.raises(NodeError, match="does not answer in JSON"):
        warm.warm_interpreters()
    assert main(["warm", "list"]) == 1


def test_one_that_does_not_answer_is_not_waited_for(drumline_home, monkeypatch):
    monkeypatch.setattr(warm, "PATIENCE_S", 0.05)
    folder = drumline_home / "warm" / process_identity.name_machine() / "00000001"
    folder.mkdir(parents=True, mode=0o700)
    at = os.open(folder, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"/proc/self/fd/{at}/socket")
        os.close(at)
        silent.listen()
        with pytest.raises(NodeError, match="does not answer: timed out"):
            warm.warm_interpreters()
