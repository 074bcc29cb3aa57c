"""The planes of a fabric: parts that no cables join, with a tree each, and which of these nodes are by.

Planes that group their hosts alike are rails of one tree. Where two hold the same hosts and group them
differently no tree holds both: nodes get the places of one, and the other is reported.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from closeby.discovery.device_names import DeviceNames
from closeby.discovery.fabric import Fabric
from closeby.discovery.findings import Plane
from closeby.discovery.irregularities import uneven, unknown
from closeby.discovery.labelling import Place
from closeby.discovery.ranks import Neighbours, rank_switches
from closeby.discovery.trees import DiscoveredTree, Level, grow_tree
from closeby.objects.reasons import Condition, Reason
from closeby.topology.families import and_more

#: Planes that have no more of their hosts in common, as managers of both, say nothing of each other.
_STRANGERS: Final = 0.25
#: A domain is torn by another plane when more than this part of it is apart from the rest there.
_TORN: Final = 0.25
#: Planes with this part of the most hosts have as good as as many: one adapter that is out decides nothing.
_AS_MANY: Final = 0.9
#: Trees that contradict each other; what would be more goes to the last.
_MOST_TREES: Final = 16


class Trees(Struct, frozen=True, kw_only=True):
    """Where all hosts are."""

    ranks: Mapping[str, int]
    #: Of all planes. Closest to the hosts first.
    levels: tuple[Level, ...]
    #: By name of the host, with the names of switches.
    places: Mapping[str, Place]
    #: Those that labels come from first. Empty where the fabric is one.
    planes: tuple[Plane, ...] = ()
    warnings: tuple[Condition, ...] = ()


def grow_trees(fabric: Fabric, links: Neighbours, names: DeviceNames, plane: str | None = None) -> Trees:
    """The trees of a fabric.

    Where planes contradict each other the one with ``plane``, the GUID of a switch, counts. Else that with
    most hosts; with as many (nine tenths) that with more domains; then that of the lowest GUID. Hosts that it
    does not know are where another plane says.
    """
    ranks, spines = rank_switches(fabric, links, names.hosts.keys() | names.unnamed | names.others)
    parts = _components(ranks, links)
    if len(parts) < 2:
        parts = [ranks]
    own = [grow_tree(part, links, names) for part in parts]
    joined = _joined(own, _preferred(own, parts, plane))
    trees = [
        own[several[0]]
        if len(several) == 1
        else grow_tree({guid: ranks[guid] for one in several for guid in parts[one]}, links, names)
        for several in joined
    ]
    levels = _together(trees)
    wide = frozenset[str]().union(*(tree.wide for tree in trees))
    planes = tuple(_planes(parts, own, joined, names)) if len(parts) > 1 else ()
    places: dict[str, Place] = {}
    for tree in trees:
        for host, place in tree.places.items():
            places[host] = places.get(host) or place
    warnings = (
        *(warning for tree in trees for warning in tree.warnings),
        *_contradictions(planes, trees, joined),
        *uneven(ranks, spines, levels, wide, links, names),
        *unknown(fabric, ranks, links, names),
    )
    return Trees(ranks=ranks, levels=levels, places=places, planes=planes, warnings=warnings)


def _components(ranks: Mapping[str, int], links: Neighbours) -> list[dict[str, int]]:
    """The ranks of switches that cables join, without regard to hosts; by the lowest GUID."""
    found = []
    seen: set[str] = set()
    for guid in sorted(ranks):
        if guid in seen:
            continue
        seen.add(guid)
        part = [guid]
        for one in part:
            more = [peer for peer in links[one] if peer in ranks and peer not in seen]
            seen.update(more)
            part.extend(more)
        found.append({one: ranks[one] for one in sorted(part)})
    return found


def _preferred(
    trees: Sequence[DiscoveredTree], parts: Sequence[Mapping[str, int]], plane: str | None
) -> list[int]:
    """Planes in the order in which they count."""
    hosts = [sum(map(bool, tree.places.values())) for tree in trees]
    most = max(hosts, default=0)
    domains = [[len(set(level.domain.values())) for level in tree.levels] for tree in trees]
    return sorted(
        range(len(trees)),
        key=lambda one: (
            plane not in parts[one],
            0 if hosts[one] >= _AS_MANY * most else most - hosts[one],
            [-number for number in domains[one]],
            min(parts[one], default=""),
        ),
    )


def _joined(trees: Sequence[DiscoveredTree], order: Sequence[int]) -> list[list[int]]:
    """Planes that are of one tree; each joins the first one that it does not contradict."""
    joined: list[list[int]] = []
    known: list[dict[str, Place]] = []
    for one in order:
        places = {host: place for host, place in trees[one].places.items() if place}
        fits = (at for at, others in enumerate(known) if not _contradict(places, others))
        at = next(fits, min(len(known), _MOST_TREES - 1))
        if at == len(known):
            joined.append([])
            known.append({})
        joined[at].append(one)
        known[at] = {**places, **known[at]}
    return joined


def _contradict(one: Mapping[str, Place], other: Mapping[str, Place]) -> bool:
    """Whether at some level the hosts of both are not grouped alike."""
    common = one.keys() & other.keys()
    if len(common) <= _STRANGERS * min(len(one), len(other)):
        return False
    depth = min(max(len(places[host]) for host in common) for places in (one, other))
    for level in range(depth):
        pairs = [
            (a, b)
            for host in common
            if (a := _domain(one[host], level)) is not None and (b := _domain(other[host], level)) is not None
        ]
        torn = [_tears(pairs), _tears([(b, a) for a, b in pairs])]
        # Wider racks are a network for storage, which joins none of the finer ones; wider pods would do so.
        if any(torn) if level else all(torn):
            return True
    return False


def _domain(place: Place, level: int) -> str | None:
    return place[level] if level < len(place) else None


def _tears(pairs: Sequence[tuple[str, str]]) -> bool:
    """Whether hosts that share the first of the two are apart by the second: two hosts at least, or half."""
    groups: dict[str, Counter[str]] = {}
    for one, other in pairs:
        groups.setdefault(one, Counter())[other] += 1
    for counts in groups.values():
        most = max(counts.values())
        apart = counts.total() - most
        if apart > _TORN * counts.total() and (apart > 1 or most == 1):
            return True
    return False


def _together(trees: Sequence[DiscoveredTree]) -> tuple[Level, ...]:
    """The levels of all trees; no two have a switch in common."""
    return tuple(
        Level(
            {guid: one for tree in trees for guid, one in _level(tree, number).domain.items()},
            {one: parent for tree in trees for one, parent in _level(tree, number).parent.items()},
        )
        for number in range(max(len(tree.levels) for tree in trees))
    )


def _level(tree: DiscoveredTree, number: int) -> Level:
    return tree.levels[number] if number < len(tree.levels) else Level({}, {})


def _planes(
    parts: Sequence[Mapping[str, int]],
    own: Sequence[DiscoveredTree],
    joined: Sequence[Sequence[int]],
    names: DeviceNames,
) -> Iterator[Plane]:
    for at, several in enumerate(joined):
        for one in several:
            top = min(own[one].levels[-1].domain.values(), default=min(parts[one]))
            places = {host: place for host, place in own[one].places.items() if place}
            yield Plane(
                name=names.switches[top],
                switches=len(parts[one]),
                nodes=len(places),
                labels=at == 0,
                paths={} if at == 0 else places,
            )


def _contradictions(
    planes: Sequence[Plane], trees: Sequence[DiscoveredTree], joined: Sequence[Sequence[int]]
) -> Iterator[Condition]:
    """One for each tree that does not count."""
    first = len(joined[0])
    known = {host for host, place in trees[0].places.items() if place}
    for tree, several in zip(trees[1:], joined[1:], strict=True):
        others = [plane.name for plane in planes[first : first + len(several)]]
        first += len(several)
        hosts = {host for host, place in tree.places.items() if place}
        alone = sorted(hosts - known)
        known |= hosts
        message = (
            f"the {'plane' if len(others) == 1 else 'planes'} of {and_more(others)} and the plane of "
            f"{planes[0].name} hold {len(hosts) - len(alone)} common nodes and group them differently; nodes "
            f"are where that of {planes[0].name} says"
        )
        if alone:
            message += f", but {and_more(alone)}, which it does not know"
        yield Condition(
            reason=Reason.INVALID_SPEC,
            object=f"Switch/{others[0]}",
            message=message,
            remedy=f"choose with --plane {others[0]} or --plane {planes[0].name}",
        )
