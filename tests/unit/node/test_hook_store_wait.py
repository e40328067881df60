"""How the hook makes a rank wait for the store of its process group: a module that has PyTorch's names."""

import os
import runpy
import socket
import sys
import threading
import types
from typing import Any

import pytest
from waiting import wait_until

from drumline.node import hook_folder

GROUP = os.path.join(hook_folder.HOOK, "group.py")


@pytest.fixture
def ours():
    return runpy.run_path(GROUP)


@pytest.fixture
def rendezvous(monkeypatch):
    """As PyTorch's; ``calls``: with what its own function was called."""
    module: Any = types.ModuleType("torch.distributed.rendezvous")
    module.calls = []

    module.has_agent = False

    def _create_c10d_store(hostname, port, rank, world_size, timeout, use_libuv=True):
        module.asked = module._torchelastic_use_agent_store()
        module.calls.append((hostname, port, rank, world_size, timeout, use_libuv))
        return "store"

    module._create_c10d_store = _create_c10d_store
    module._torchelastic_use_agent_store = lambda: module.has_agent
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def listener():
    """Bound, so that nobody else has its port; it refuses until ``listen``."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one


def count_connections(ours, monkeypatch):
    tried = []
    own = socket.create_connection

    def create_connection(*arguments):
        tried.append(arguments)
        return own(*arguments)

    monkeypatch.setattr(socket, "create_connection", create_connection)
    return tried


def test_a_rank_asks_for_the_store_once_it_is_there(ours, rendezvous, listener, monkeypatch):
    port = listener.getsockname()[1]
    tried = count_connections(ours, monkeypatch)
    ours["note_group"](types.ModuleType("distributed_c10d"), pytest.fail, pytest.fail)
    asking = threading.Thread(target=rendezvous._create_c10d_store, args=("127.0.0.1", port, 1, 4, 9))
    asking.start()
    wait_until(lambda: len(tried) >= 3, 5.0, "the port to be tried")
    assert rendezvous.calls == []
    listener.listen()
    asking.join(5.0)
    assert rendezvous.calls == [("127.0.0.1", port, 1, 4, 9, True)]


def test_nobody_waits_for_ever(ours, rendezvous, listener):
    ours["note_group"](types.ModuleType("distributed_c10d"), pytest.fail, pytest.fail)
    wait = ours["_wait_for_listener"]
    wait.__globals__["_MOST_S"] = 0.05
    store = rendezvous._create_c10d_store("127.0.0.1", listener.getsockname()[1], 1, 4, 9, use_libuv=False)
    assert (store, len(rendezvous.calls)) == ("store", 1)


@pytest.mark.parametrize("case", ["rank 0", "torchrun inside", "no address"])
def test_whoever_need_not_wait_does_not(case, ours, rendezvous, listener, monkeypatch):
    tried = count_connections(ours, monkeypatch)
    ours["note_group"](types.ModuleType("distributed_c10d"), pytest.fail, pytest.fail)
    if case == "torchrun inside":
        rendezvous.has_agent = True
    host: Any = None if case == "no address" else "127.0.0.1"
    port: Any = "x" if case == "no address" else listener.getsockname()[1]
    ours["_wait_for_listener"].__globals__["_MOST_S"] = 0.0 if case == "no address" else 3.0
    assert rendezvous._create_c10d_store(host, port, 0 if case == "rank 0" else 1, 4, 9) == "store"
    assert (tried, rendezvous.asked) == ([], case == "torchrun inside")


def test_a_second_time_changes_nothing_and_another_pytorch_is_left_alone(ours, rendezvous):
    ours["note_group"](types.ModuleType("distributed_c10d"), pytest.fail, pytest.fail)
    first = rendezvous._torchelastic_use_agent_store
    runpy.run_path(GROUP)["note_group"](types.ModuleType("distributed_c10d"), pytest.fail, pytest.fail)
    assert rendezvous._torchelastic_use_agent_store is first
    del rendezvous._torchelastic_use_agent_store
    ours["note_group"](types.ModuleType("distributed_c10d"), pytest.fail, pytest.fail)
    assert not hasattr(rendezvous, "_torchelastic_use_agent_store")


@pytest.mark.parametrize(
    ("says", "own", "switch", "noted"),
    [
        ("use_libuv was requested but PyTorch was build without libuv support", None, "0", 1),
        ("Failed to open existing socket. socket: 2147483647, code: -9", None, None, 0),
        ("__init__() got an unexpected keyword argument 'use_libuv'", None, None, 0),
        ("without libuv", "1", "1", 0),
    ],
)
def test_the_older_store_is_chosen_where_pytorch_has_no_other(
    ours, rendezvous, monkeypatch, says, own, switch, noted
):
    def make(*_, **named):
        assert named["use_libuv"]
        raise RuntimeError(says)

    monkeypatch.setenv("USE_LIBUV", own or "")
    if own is None:
        monkeypatch.delenv("USE_LIBUV")
    torch: Any = types.ModuleType("torch._C")
    torch._distributed_c10d = types.SimpleNamespace(TCPStore=make)
    monkeypatch.setitem(sys.modules, torch.__name__, torch)
    calls = []
    ours["note_group"](types.ModuleType("distributed_c10d"), pytest.fail, lambda: calls.append(1))
    assert (os.environ.get("USE_LIBUV"), len(calls)) == (switch, noted)
