"""What differs between two findings: nodes that came, went or moved, links that were lost or slowed down."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from closeby.discovery.findings import FoundNode, Link, ScanFindings
from closeby.discovery.labelling import Place
from closeby.objects.words import natural_key


class Moved(Struct, frozen=True, kw_only=True):
    """A node that is elsewhere; paths closest first."""

    node: str
    before: Place
    after: Place


class Seen(Struct, frozen=True, kw_only=True):
    """A node that only one of the two knows."""

    node: str
    path: Place


class CapacityDiff(Struct, frozen=True, kw_only=True):
    """All cables between two things."""

    cables: int
    #: Bits per second of all cables; None when it is not known of each.
    bandwidth: int | None


class LinkChange(Struct, frozen=True, kw_only=True):
    """Two things between which cables changed; None: no cable."""

    a: str
    b: str
    before: CapacityDiff | None
    after: CapacityDiff | None


class LevelsDiff(Struct, frozen=True, kw_only=True):
    """Names of levels, closest first."""

    before: tuple[str, ...]
    after: tuple[str, ...]


class SwitchChange(Struct, frozen=True, kw_only=True):
    """A switch, by its level counted from 0, under which all nodes are those of another one before."""

    level: int
    before: str
    after: str


class Difference(Struct, frozen=True, kw_only=True):
    """What is true of the second findings and was not of the first."""

    #: None when they are the same.
    levels: LevelsDiff | None = None
    appeared: tuple[Seen, ...] = ()
    vanished: tuple[Seen, ...] = ()
    moved: tuple[Moved, ...] = ()
    #: Switches that have exactly the nodes which another one had before; their nodes are among the moved.
    renamed: tuple[SwitchChange, ...] = ()
    lost: tuple[LinkChange, ...] = ()
    gained: tuple[LinkChange, ...] = ()
    #: Fewer cables, or less bandwidth.
    slower: tuple[LinkChange, ...] = ()
    faster: tuple[LinkChange, ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is any difference."""
        return self != Difference()


def diff(before: ScanFindings, after: ScanFindings) -> Difference:
    """Compare two findings; unknown levels at the far end do not count. Lists are in natural order.

    Links are compared where both know of some: most sources say nothing of cables.
    """
    old, new = _paths(before.nodes), _paths(after.nodes)
    same_levels = before.levels == after.levels
    lost, gained, slower, faster = _links(before, after)
    return Difference(
        levels=None if same_levels else LevelsDiff(before=before.levels, after=after.levels),
        appeared=tuple(Seen(node=name, path=new[name]) for name in _sorted(new.keys() - old.keys())),
        vanished=tuple(Seen(node=name, path=old[name]) for name in _sorted(old.keys() - new.keys())),
        moved=tuple(
            Moved(node=name, before=old[name], after=new[name])
            for name in _sorted(old.keys() & new.keys())
            if old[name] != new[name]
        ),
        renamed=_renamed(old, new),
        lost=lost,
        gained=gained,
        slower=slower,
        faster=faster,
    )


def _paths(nodes: Mapping[str, FoundNode]) -> dict[str, Place]:
    paths = {}
    for name, node in nodes.items():
        path = node.path
        while path and path[-1] is None:
            path = path[:-1]
        paths[name] = tuple(path)
    return paths


def _sorted(names: set[str]) -> list[str]:
    return sorted(names, key=natural_key)


def _members(paths: Mapping[str, Place]) -> dict[tuple[int, str], frozenset[str]]:
    members: dict[tuple[int, str], list[str]] = {}
    for node, path in paths.items():
        for level, switch in enumerate(path):
            if switch is not None:
                members.setdefault((level, switch), []).append(node)
    return {switch: frozenset(nodes) for switch, nodes in members.items()}


def _renamed(old: Mapping[str, Place], new: Mapping[str, Place]) -> tuple[SwitchChange, ...]:
    before, after = _members(old), _members(new)
    gone = {(level, before[level, name]): name for level, name in before if (level, name) not in after}
    found = []
    for (level, name), nodes in after.items():
        former = gone.get((level, nodes))
        if (level, name) not in before and former is not None:
            found.append(SwitchChange(level=level, before=former, after=name))
    return tuple(sorted(found, key=lambda one: (one.level, natural_key(one.after))))


class _Links(NamedTuple):
    lost: tuple[LinkChange, ...]
    gained: tuple[LinkChange, ...]
    slower: tuple[LinkChange, ...]
    faster: tuple[LinkChange, ...]


def _links(before: ScanFindings, after: ScanFindings) -> _Links:
    if not before.links or not after.links:
        return _Links((), (), (), ())
    old, new = _capacities(before.links), _capacities(after.links)
    lists: dict[str, list[LinkChange]] = {"lost": [], "gained": [], "slower": [], "faster": []}
    for a, b in sorted(
        old.keys() | new.keys(), key=lambda pair: (natural_key(pair[0]), natural_key(pair[1]))
    ):
        was, now = old.get((a, b)), new.get((a, b))
        kind = _change(was, now)
        if kind is not None:
            lists[kind].append(LinkChange(a=a, b=b, before=was, after=now))
    return _Links(**{kind: tuple(changes) for kind, changes in lists.items()})


def _change(was: CapacityDiff | None, now: CapacityDiff | None) -> str | None:
    if was is None or now is None:
        return "gained" if was is None else "lost"
    if was.bandwidth is not None and now.bandwidth is not None and was.bandwidth != now.bandwidth:
        return "slower" if now.bandwidth < was.bandwidth else "faster"
    if was.cables != now.cables:
        return "slower" if now.cables < was.cables else "faster"
    return None


def _capacities(links: tuple[Link, ...]) -> dict[tuple[str, str], CapacityDiff]:
    """Cables of all kinds by the two things they join; a pair has one order, that of its names."""
    found: dict[tuple[str, str], CapacityDiff] = {}
    for link in links:
        a, b = sorted((link.a, link.b), key=natural_key)
        known = found.get((a, b), CapacityDiff(cables=0, bandwidth=0))
        bandwidth = (
            None if known.bandwidth is None or link.bandwidth is None else known.bandwidth + link.bandwidth
        )
        found[a, b] = CapacityDiff(cables=known.cables + link.cables, bandwidth=bandwidth)
    return found
