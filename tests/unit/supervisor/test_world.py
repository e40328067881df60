"""The guard of a job's world: when it asks, and what it says of the connections that it is told of."""

import pytest
from planning import plan

from drumline.supervisor.watching import world
from drumline.supervisor.watching.world import WorldGuard, describe_worlds, find_worlds

PYTORCH = {"type": "pytorch", "process_count_per_instance": 2}
STORE = "10.0.0.4:29500"


def guard(monkeypatch, distribution=PYTORCH, after="0.001", **job):
    monkeypatch.setattr(world.time, "monotonic", lambda: 100.0)
    made = plan(distribution=distribution, environment_variables={world.SWITCH: after}, **job)
    return WorldGuard(made)


def asked(monkeypatch, **settings):
    """A guard of four ranks that has asked for their connections."""
    one = guard(monkeypatch, **settings)
    for rank in range(4):
        one.note_training(rank)
    monkeypatch.setattr(world.time, "monotonic", lambda: 200.0)
    assert one.is_due()
    return one


def connect(rank, other=STORE):
    return [f"10.0.0.5:{4000 + rank}", other]


def test_it_asks_once_when_all_ranks_have_trained_for_a_while(monkeypatch):
    one = guard(monkeypatch, after="60")
    for rank in range(3):
        one.note_training(rank)
    assert one.list_times() == []
    one.note_training(3)
    assert one.list_times() == [160.0]
    assert not one.is_due()
    monkeypatch.setattr(world.time, "monotonic", lambda: 160.0)
    assert one.is_due()
    assert not one.is_due()
    one.note_training(3)
    assert one.list_times() == []


@pytest.mark.parametrize("settings", [{"distribution": None}, {"after": "0"}])
def test_it_never_asks_of_ranks_that_were_not_to_be_one_world(monkeypatch, settings):
    one = guard(monkeypatch, **settings)
    for rank in range(4):
        one.note_training(rank)
    assert one.list_times() == []


def test_it_does_not_ask_once_a_rank_has_ended(monkeypatch):
    one = guard(monkeypatch)
    one.end()
    for rank in range(4):
        one.note_training(rank)
    assert one.list_times() == []


def test_ranks_without_any_connection_train_alone(monkeypatch):
    one = asked(monkeypatch)
    assert one.take_in({0: [], 1: [["127.0.0.1:1", "127.0.0.1:2"], ["127.0.0.1:2", "127.0.0.1:1"]]}) == ""
    said = one.take_in({2: [["10.0.0.5:7", "192.0.2.1:443"]], 3: []})
    assert said == "these 4 processes train 4 separate models: WORLD_SIZE was 4, no rank connected to another"


def test_ranks_that_meet_at_a_store_are_one_world(monkeypatch):
    one = asked(monkeypatch)
    assert one.take_in({0: [[STORE, connect(rank)[0]] for rank in (1, 2, 3)], 1: [connect(1)]}) == ""
    assert one.take_in({2: [connect(2)], 3: [connect(3)]}) == ""
    assert one.take_in({rank: [] for rank in range(4)}) == ""


def test_a_rank_whose_connections_are_not_known_leaves_all_open(monkeypatch):
    one = asked(monkeypatch)
    assert one.take_in({0: [], 1: None}) == ""
    assert one.take_in({2: [], 3: []}) == ""


def test_two_worlds_are_told_apart():
    ends = {0: [["a:1", "a:2"]], 1: [["a:2", "a:1"]], 2: [["b:1", "b:2"]], 3: [["b:2", "b:1"]]}
    worlds = find_worlds(ends)
    assert worlds == [[0, 1], [2, 3]]
    assert describe_worlds(worlds, {rank: str(rank) for rank in range(4)}) == (
        "these 4 processes train 2 separate models: WORLD_SIZE was 4, ranks 0-1 connected to none of ranks 2-3"
    )
