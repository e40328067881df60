"""Shims of ranks: real shells, in a loop like the agent's."""

import contextlib
import itertools
import os
import select
import signal
import subprocess

import pytest
from waiting import wait_until

from drumline.node.launcher.rank_shims import RankShims


class Agent:
    def __init__(self, folder):
        self.requests = {}
        self.gone = []
        self._poller = select.epoll()
        self.shims = RankShims(
            str(folder),
            [0, 1],
            self._poller,
            itertools.count(1),
            lambda caller, variables: self.requests.update({caller: variables}),
            self.gone.append,
        )
        self._program = folder / "program"
        self._program.write_text(self.shims.program())
        self._started = []

    def start(self, **variables):
        """As a launcher's daemon does: the shell that is there reads the program."""
        argv = ["/bin/sh", "-c", '. "$0"', str(self._program)]
        process = subprocess.Popen(argv, env={"PATH": "/bin", **variables})
        self._started.append(process)
        return process

    def turn(self):
        self.shims.hear({descriptor for descriptor, _ in self._poller.poll(0.05)})

    def wait(self, until):
        def look():
            self.turn()
            return until()

        wait_until(look, 20)

    def close(self):
        for process in self._started:
            process.kill()
            process.wait()
        self._poller.close()


@pytest.fixture
def agent(tmp_path):
    with contextlib.closing(Agent(tmp_path / "it's here")) as agent:
        yield agent
        agent.shims.close()


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_ID"])
def test_one_hands_over_its_variables_and_ends_as_it_is_told(agent, name):
    process = agent.start(**{name: "1", "LINES": "two\nlines", "EMPTY": ""})
    agent.wait(lambda: agent.requests)
    ((caller, variables),) = agent.requests.items()
    assert {b"LINES=two\nlines", b"EMPTY=", name.encode() + b"=1"} <= set(variables)
    assert process.poll() is None
    # The shell itself, since one of it starts for every rank.
    assert os.readlink(f"/proc/{process.pid}/exe") == os.path.realpath("/bin/sh")
    agent.shims.answer(caller, 3)
    assert process.wait(20) == 3
    agent.turn()
    assert agent.gone == []


def test_one_that_is_killed_is_told(agent):
    process = agent.start(PMI_RANK="0")
    agent.wait(lambda: agent.requests)
    process.send_signal(signal.SIGTERM)
    agent.wait(lambda: agent.gone)
    assert agent.gone == list(agent.requests)
    agent.shims.answer(agent.gone[0], 0)


def test_a_second_one_of_a_rank_does_not_take_the_answer_of_the_first(agent):
    first = agent.start(PMI_RANK="0")
    agent.wait(lambda: agent.requests)
    second = agent.start(PMI_RANK="0")
    agent.wait(lambda: len(agent.requests) == 2)
    agent.shims.answer(next(iter(agent.requests)), 0)
    assert first.wait(20) == 0
    assert second.poll() is None


@pytest.mark.parametrize("rank", ["7", "", "../asking", "asking"])
def test_one_of_no_rank_here_waits_to_be_judged(agent, rank):
    process = agent.start(PMI_RANK=rank)
    agent.wait(lambda: agent.requests)
    assert process.poll() is None


def test_the_end_of_an_agent_ends_who_waits(tmp_path):
    agent = Agent(tmp_path / "here")
    with contextlib.closing(agent):
        process = agent.start(PMI_RANK="0")
        agent.wait(lambda: agent.requests)
        agent.shims.close()
        assert process.wait(20) == 255
