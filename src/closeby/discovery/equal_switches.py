"""Switches that stand side by side over (nearly) the same things, taken together as one domain."""

from collections.abc import Iterator, Mapping, Set
from itertools import combinations
from typing import Final, NamedTuple

#: What is below a switch: names of hosts, or domains of the next lower level.
Below = Set[str]
#: Two that overlap, the lower GUID first.
Pairs = Set[tuple[str, str]]

#: What is liker than this is a rail of the same rack, whatever else overlaps.
_RAIL: Final = 0.75
#: Racks have at most this part of the smaller one in common, as a manager of the fabric, or nameless hosts.
_RACKS: Final = 0.25


class EqualSwitches(NamedTuple):
    """The domains of one level."""

    #: Per switch the domain it belongs to, named by the lowest GUID in it.
    domain: Mapping[str, str]
    #: Domains that are over several others which have nothing in common: not their like, but a wider network.
    wide: Set[str]


def alike(below: Mapping[str, Below], *, racks: bool) -> EqualSwitches:
    """Two switches are one when more than half of what is below the smaller one is below the larger.

    So the rails of a rack are one, and so are spines over the same leaves, also when a cable is down. With
    ``racks`` those that share little are not made one by a third: a switch over several of them, as in a
    network for storage, is of another kind and stands alone; and one with a few of what is below each, as a
    leaf of nothing but a host that has adapters in several racks, is one with the likest of them.
    """
    sets: dict[frozenset[str], list[str]] = {}
    for guid in sorted(below):
        sets.setdefault(frozenset(below[guid]) or frozenset((f"only {guid}",)), []).append(guid)
    first = {members[0]: content for content, members in sets.items()}
    pairs: Pairs = frozenset(_overlapping(first))
    wide: Set[str] = frozenset()
    if racks:
        wide = _wide(first, pairs)
        pairs = _likest(first, frozenset(pair for pair in pairs if not wide & set(pair)))
    parents = {guid: guid for guid in first}
    for one, other in sorted(pairs):
        a, b = _root(parents, one), _root(parents, other)
        parents[max(a, b)] = min(a, b)
    domain = {guid: _root(parents, members[0]) for members in sets.values() for guid in members}
    return EqualSwitches(domain, wide)


def _overlapping(sets: Mapping[str, Below]) -> Iterator[tuple[str, str]]:
    """Pairs of which more than half of the smaller one is in the larger one."""
    holders: dict[str, list[str]] = {}
    for guid, content in sets.items():
        for one in content:
            holders.setdefault(one, []).append(guid)
    common: dict[tuple[str, str], int] = {}
    for several in holders.values():
        for pair in combinations(several, 2):
            common[pair] = common.get(pair, 0) + 1
    for pair in sorted(common):
        if 2 * common[pair] > min(len(sets[pair[0]]), len(sets[pair[1]])):
            yield pair


def _wide(sets: Mapping[str, Below], pairs: Pairs) -> frozenset[str]:
    """What is over several smaller ones that are apart, and is like none."""
    found = set()
    for guid, peers in _peers(pairs).items():
        # One host alone is not a rack.
        smaller = [sets[peer] for peer in peers if 1 < len(sets[peer]) < len(sets[guid])]
        # Rails of one rack are not apart; so it is enough to compare with one.
        several = any(_apart(smaller[0], other) for other in smaller[1:])
        if several and all(_likeness(sets[guid], sets[peer]) <= _RAIL for peer in peers):
            found.add(guid)
    return frozenset(found)


def _likest(sets: Mapping[str, Below], pairs: Pairs) -> Pairs:
    """The pairs in which each is the likest of the other, or not apart from that."""
    likest = {
        guid: min(peers, key=lambda peer: (-_likeness(sets[guid], sets[peer]), peer))
        for guid, peers in _peers(pairs).items()
    }
    return frozenset(
        (one, other)
        for one, other in pairs
        if not _apart(sets[likest[one]], sets[other]) and not _apart(sets[likest[other]], sets[one])
    )


def _peers(pairs: Pairs) -> dict[str, list[str]]:
    peers: dict[str, list[str]] = {}
    for one, other in sorted(pairs):
        peers.setdefault(one, []).append(other)
        peers.setdefault(other, []).append(one)
    return peers


def _likeness(one: Below, other: Below) -> float:
    """How much of both is common, from 0 to 1."""
    common = len(one & other)
    return common / (len(one) + len(other) - common)


def _apart(one: Below, other: Below) -> bool:
    """Whether they have no more in common than racks may have."""
    return len(one & other) <= _RACKS * min(len(one), len(other))


def _root(parents: dict[str, str], guid: str) -> str:
    while parents[guid] != guid:
        parents[guid] = parents[parents[guid]]
        guid = parents[guid]
    return guid
