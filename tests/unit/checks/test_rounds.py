"""Which nodes try their links with each other, and what a check's end does to a start."""

import itertools

import pytest

from drumline.checks.links import MOST_PEERS, MOST_ROUNDS, plan_peers, plan_rounds
from drumline.contract import status
from drumline.supervisor.deciding import happenings as h
from drumline.supervisor.deciding.policy import Policy


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8, 33, 100])
def test_rounds_are_pairs_and_no_pair_meets_twice(count):
    rounds = plan_rounds(count)
    assert len({len(one) for one in rounds}) == 1
    assert len(rounds[0]) <= MOST_ROUNDS
    pairs = []
    for node, number in itertools.product(range(count), range(len(rounds[0]))):
        partner = rounds[node][number]
        if partner >= 0:
            assert rounds[partner][number] == node != partner
            pairs.append((node, partner))
    assert len(pairs) == len(set(pairs))
    if count <= MOST_ROUNDS:
        assert len(pairs) == count * (count - 1)


@pytest.mark.parametrize("count", [2, 32, 33, 1000])
def test_every_node_is_tried_by_others(count):
    peers = plan_peers(count)
    assert all(node not in others and len(others) <= MOST_PEERS for node, others in enumerate(peers))
    assert {other for others in peers for other in others} == set(range(count))


def begin(*, awaits_checks=True):
    policy = Policy({0: h.Member(0, "0"), 1: h.Member(1, "1")}, 2, grace_s=5)
    policy.begin(awaits_checks=awaits_checks)
    for happening in (h.Joined(0), h.Joined(1), h.Prepared(0), h.Prepared(1)):
        policy.handle(happening)
    return policy


def test_ranks_start_when_nodes_are_reached_and_checked_in_either_order():
    policy = begin()
    assert policy.handle(h.Reached(1, "")) == []
    assert h.StartRanks() in policy.handle(h.Checked())
    policy = begin()
    assert policy.handle(h.Checked()) == []
    assert h.StartRanks() in policy.handle(h.Reached(1, ""))
    assert h.StartRanks() in begin(awaits_checks=False).handle(h.Reached(1, ""))


@pytest.mark.parametrize("is_reached", [True, False])
def test_an_error_ends_the_attempt_before_a_rank(is_reached):
    policy = begin()
    if is_reached:
        policy.handle(h.Reached(1, ""))
    instructions = policy.handle(h.Checked("not started: node 1: /x is not there; share it", 1))
    assert [type(one) for one in instructions] == [h.Empty, h.SetTimer]
    policy.handle(h.Emptied(0, ()))
    (end,) = policy.handle(h.Emptied(1, ()))
    assert (end.status, end.node, end.reason) == (
        status.FAILED,
        1,
        "not started: node 1: /x is not there; share it",
    )


def test_a_cancel_while_nodes_are_checked_is_heeded():
    policy = begin()
    policy.handle(h.Reached(1, ""))
    assert [type(one) for one in policy.handle(h.Canceled("ann", at_once=False))] == [h.Empty, h.SetTimer]
    assert policy.handle(h.Checked()) == []
