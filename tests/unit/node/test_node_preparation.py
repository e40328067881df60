"""The preparation of a node, over real ports of this machine."""

import select

import pytest

from drumline.contract import messages as m
from drumline.node.agent.node_preparation import Preparation


@pytest.fixture
def told():
    return []


@pytest.fixture
def preparation(told):
    with select.epoll() as poller:
        made = Preparation(0, "127.0.0.1", poller, told.append)
        yield made
        made.end()
        for lease in made._ports._leases:
            lease.close()


def test_another_node_reaches_the_probe_until_the_ranks_start(preparation, told):
    prepared = preparation.open_ports(m.PrepareNode(["a", "b"], wants_probe=True))
    assert prepared.ports.keys() == {"a", "b"}
    assert len({*prepared.ports.values(), prepared.probe_port}) == 3
    first = m.ConnectToFirst("127.0.0.1", prepared.probe_port)
    preparation.connect_to_first(first)
    assert told == [m.ConnectedToFirst("")]
    preparation.end()
    preparation.connect_to_first(first)
    assert "refused" in told[-1].error


def test_the_supervisors_address_replaces_the_agents_own(preparation):
    preparation.open_ports(m.PrepareNode([]))
    assert preparation.address == "127.0.0.1"
    preparation.open_ports(m.PrepareNode([], address="127.0.0.2"))
    assert preparation.address == "127.0.0.2"


def test_a_node_without_a_checker_answers_nothing_about_links(preparation, told):
    preparation.check_links(m.CheckLinks({}, [], [], 1.0, 1.0))
    preparation.hear([])
    assert told == []
