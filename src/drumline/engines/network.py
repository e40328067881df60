"""The choice of a network by which the ranks reach each other: pure, from what their agents have seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drumline.contract.errors import EngineError
from drumline.contract.words import format_link
from drumline.engines.base import Network

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from drumline.contract.messages import Hello

LOOPBACK = Network(
    ("lo",), ("127.0.0.1",), "one node alone needs no network", ({"ib_devices": "", "ucx_devices": ""},)
)

_MOST_TOLD = 4


def choose(hellos: Sequence[Hello], wanted: str = "") -> Network:
    """
    Choose among the addresses of node 0 that every other node has reached: the one on ``wanted``, else InfiniBand, else
    the fastest; those that may be a bridge on node 0 come last. ``hellos``: by node.

    Raises EngineError, which says what was reached from where.
    """
    if len(hellos) == 1:
        return LOOPBACK
    of_node_0 = {one["address"]: one for one in hellos[0].interfaces}
    reached = [address for address in of_node_0 if all(address in hello.reached for hello in hellos[1:])]
    if not reached:
        raise EngineError(_describe_unreached(of_node_0, hellos))
    if wanted:
        chosen = next((address for address in reached if of_node_0[address]["name"] == wanted), None)
        if chosen is None:
            there = ", ".join(of_node_0[address]["name"] for address in reached)
            raise EngineError(
                f"interface {wanted} of node 0 is not reached from every node",
                f"interface of the compute is {wanted}; these are: {there}",
            )
        why = "the compute says so"
    else:
        order = sorted(reached, key=lambda address: _rank_of(of_node_0[address]))
        chosen = order[0]
        why = _why([of_node_0[address] for address in order])
    own = [chosen, *(hello.reached[chosen] for hello in hellos[1:])]
    names = [_name_of(address, hello) for address, hello in zip(own, hellos, strict=True)]
    facts = tuple(_fabric(hello, name) for hello, name in zip(hellos, names, strict=True))
    return Network(tuple(names), tuple(own), why, facts)


def _rank_of(interface: Mapping[str, Any]) -> tuple[bool, bool, int]:
    return (interface["virtual"], not interface["infiniband"], -interface["speed_mbps"])


def _why(order: list[Mapping[str, Any]]) -> str:
    first = order[0]
    if len(order) == 1:
        return "the only one that reaches node 0 from every node"
    if first["infiniband"]:
        return "InfiniBand that reaches node 0 from every node"
    if first["speed_mbps"] > order[1]["speed_mbps"]:
        return f"with {format_link(first['speed_mbps'] * 125_000)} the fastest that reaches node 0 from every node"
    return "the first that reaches node 0 from every node"


def _name_of(address: str, hello: Hello) -> str:
    return next((str(one["name"]) for one in hello.interfaces if one["address"] == address), "")


def _fabric(hello: Hello, interface: str) -> dict[str, str]:
    """
    Return the devices that NCCL and UCX must be told to use.

    NCCL_IB_HCA only where adapters of both kinds are active, since NCCL takes all that it finds. UCX_NET_DEVICES: the
    InfiniBand ports, or the interface where there is no adapter; with RoCE alone UCX is left to choose.
    """
    infiniband = [one for one in hello.infiniband if one["link"] == "InfiniBand"]
    is_mixed = infiniband and len(infiniband) < len(hello.infiniband)
    ib_devices = ",".join(f"{one['device']}:{one['port']}" for one in infiniband) if is_mixed else ""
    ucx_devices = ",".join(f"{one['device']}:{one['port']}" for one in infiniband)
    if not hello.infiniband:
        ucx_devices = interface
    return {"ib_devices": f"={ib_devices}" if ib_devices else "", "ucx_devices": ucx_devices}


def _describe_unreached(of_node_0: Mapping[str, Mapping[str, Any]], hellos: Sequence[Hello]) -> str:
    if not of_node_0:
        return "node 0 has no network interface with an IPv4 address"
    told = []
    for node, hello in enumerate(hellos[1:], 1):
        names = [str(one["name"]) for address, one in of_node_0.items() if address in hello.reached]
        if len(names) < len(of_node_0):
            told.append(f"node {node} ({hello.host}) reaches it by {', '.join(names) or 'none'}")
    # Those that reach least say most.
    told.sort(key=lambda words: not words.endswith(" by none"))
    more = f"; so do {len(told) - _MOST_TOLD} more" if len(told) > _MOST_TOLD else ""
    return f"no address of node 0 is reached from every node: {'; '.join(told[:_MOST_TOLD])}{more}"
