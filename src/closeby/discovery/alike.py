"""Switches that stand side by side over (nearly) the same things, taken together as one domain."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import combinations
from typing import NamedTuple

#: What lies below a switch: names of hosts, or domains of the next lower level.
Below = Set[str]


class Alike(NamedTuple):
    """The domains of one level."""

    #: Per switch the domain it belongs to, named by the lowest GUID in it.
    domain: Mapping[str, str]
    #: Domains that lie over several others which have nothing in common: not their like, but a wider network.
    wide: Set[str]


def alike(below: Mapping[str, Below], may_span: Callable[[str, str], bool]) -> Alike:
    """Two switches are one when more than half of what lies below the smaller one lies below the larger.

    So the rails of a rack are one, and so are spines over the same leaves, also when a cable is down. A
    switch over all of several that share nothing would make those one too. Where ``may_span(it, other)``
    allows it to be of another kind than they are, it stands alone instead.
    """
    sets: dict[frozenset[str], list[str]] = {}
    for guid in sorted(below):
        sets.setdefault(frozenset(below[guid]) or frozenset((f"only {guid}",)), []).append(guid)
    first = {members[0]: content for content, members in sets.items()}
    pairs = list(_overlapping(first))
    peers: dict[str, list[str]] = {}
    for one, other in pairs:
        peers.setdefault(one, []).append(other)
        peers.setdefault(other, []).append(one)
    wide = {guid for guid in peers if _spans(guid, first, peers[guid], may_span)}
    parents = {guid: guid for guid in first}
    for one, other in pairs:
        if one not in wide and other not in wide:
            a, b = _root(parents, one), _root(parents, other)
            parents[max(a, b)] = min(a, b)
    domain = {guid: _root(parents, members[0]) for members in sets.values() for guid in members}
    return Alike(domain, frozenset(wide))


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


def _spans(
    guid: str, sets: Mapping[str, Below], peers: Iterable[str], may_span: Callable[[str, str], bool]
) -> bool:
    inside = sorted(peer for peer in peers if may_span(guid, peer) and sets[peer] < sets[guid])
    # All that overlap are rails of one rack; so it is enough to compare with one.
    return any(not sets[inside[0]] & sets[other] for other in inside[1:])


def _root(parents: dict[str, str], guid: str) -> str:
    while parents[guid] != guid:
        parents[guid] = parents[parents[guid]]
        guid = parents[guid]
    return guid
