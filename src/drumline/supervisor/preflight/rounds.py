"""The pairs of nodes whose links are tried: each with each where there are few nodes, some of them where many."""

from __future__ import annotations

MOST_ROUNDS = 6
"""Of links that are measured: each takes a pair 150 ms."""

MOST_PEERS = 31
"""That one node connects to."""


def plan_rounds(count: int, most: int = MOST_ROUNDS) -> list[list[int]]:
    """
    Return for each node its partner in each round, -1 for none. In a round each node has one partner at most, and no
    pair meets twice.

    >>> plan_rounds(3)
    [[1, -1, 2], [0, 2, -1], [-1, 1, 0]]
    """
    slots = count + count % 2
    # The circle method: one slot stays, the others go round. Of many rounds those are taken that lie far apart.
    step = max(1, (slots - 1) // most)
    chosen = [_pair(slots, number) for number in range(0, slots - 1, step)[:most]]
    return [
        [partner if (partner := pairs[node]) < count else -1 for pairs in chosen] for node in range(count)
    ]


def _pair(slots: int, number: int) -> list[int]:
    circle = [slots - 1, *((number + place) % (slots - 1) for place in range(slots - 1))]
    partners = [0] * slots
    for place in range(slots // 2):
        one, other = circle[place], circle[slots - 1 - place]
        partners[one], partners[other] = other, one
    return partners


def plan_peers(count: int, most: int = MOST_PEERS) -> list[list[int]]:
    """
    Return the nodes that each node connects to: all others, or those at distances of powers of two, so that each is
    tried from several and tries several.
    """
    if count - 1 <= most:
        return [[other for other in range(count) if other != node] for node in range(count)]
    distances = [1 << power for power in range(count.bit_length()) if 1 << power < count]
    return [list(dict.fromkeys((node + distance) % count for distance in distances)) for node in range(count)]
