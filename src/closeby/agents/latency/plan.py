"""Which peers a node asks in a round, so that the cluster is covered by few questions.

There is no coordinator: every agent works it out for itself, from the same list of peers and the same number
of the round, and all come to the same plan. A round holds

- inside each area (a zone of a region) a ring: every node asks one other, the next round the one after that,
  so that after n - 1 rounds all n (n - 1) ordered pairs of an area of n nodes were measured;
- from each area to each other one question, asked by one node after the other of the one area, and answered
  by one after the other of the other area, so that after n m rounds all pairs of nodes were measured.

So N nodes in Z areas ask at most N + Z (Z - 1) questions a round, where all pairs would be N (N - 1), and
every pair of areas is covered in every round. Where there are so many areas that a node of one of them would
have to ask more than ``most`` others, the round holds that many and the next ones the rest: no node asks more
than ``most`` + 1 questions, and all no more than N (``most`` + 1), whatever the areas.

The network-aware scheduling KEP asks all pairs of nodes one after the other, 5.5 hours for 100 nodes; later
it says that one pair of nodes for each pair of zones will do.
"""

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Final

from closeby.agents.latency.peers import Area, Peer

#: Questions to other areas that one node asks in one round.
MOST: Final = 16


def peers_to_probe(peers: Sequence[Peer], name: str, number: int, most: int = MOST) -> tuple[Peer, ...]:
    """Whom the node ``name`` asks in the round ``number`` (from 0), the ring's neighbour first.

    ``peers`` have distinct names and hold the node itself; without it no peer is probed. Their order does not
    matter.
    """
    areas = _areas(peers)
    own = next((peer for peer in peers if peer.name == name), None)
    if own is None:
        return ()
    found = []
    here = areas[own.area]
    place = here.index(own)
    if len(here) > 1:
        stride = 1 + number % (len(here) - 1)
        found.append(here[(place + stride) % len(here)])
    return (*found, *_across(areas, own.area, place, number, most))


def _areas(peers: Sequence[Peer]) -> Mapping[Area, Sequence[Peer]]:
    areas: dict[Area, list[Peer]] = {}
    for peer in sorted(peers, key=lambda one: (one.area, one.name)):
        areas.setdefault(peer.area, []).append(peer)
    return areas


def _across(
    areas: Mapping[Area, Sequence[Peer]], area: Area, place: int, number: int, most: int
) -> list[Peer]:
    """Those in other areas whom the node at ``place`` of its area asks."""
    names = list(areas)
    turn = names.index(area)
    others = [*names[turn + 1 :], *names[:turn]]
    here = len(areas[area])
    # As many areas as the nodes of this one can ask in a round; the same ones again after ``windows`` rounds.
    width = max(1, here * most)
    windows = max(1, -(-len(others) // width))
    visit, window = divmod(number, windows)
    found = []
    for position in range(window * width, min((window + 1) * width, len(others))):
        there = areas[others[position]]
        step = visit + position
        # Neighbouring areas are asked by neighbouring nodes: the questions are shared out evenly.
        if step % here == place:
            found.append(there[_answering(step, here, len(there), turn)])
    return found


def _answering(step: int, here: int, there: int, turn: int) -> int:
    """The place of who answers: ``step % here`` and it go through all pairs in ``here x there`` steps.

    Both advance with each step; when they meet again as they began, the second is shifted by one.
    """
    common = gcd(here, there)
    shift = (step * common // (here * there)) % common
    # Areas begin at different places, so that not all of them ask the same node.
    return (step + shift + turn) % there
