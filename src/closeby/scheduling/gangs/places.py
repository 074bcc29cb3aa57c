"""Where a gang is placed: its domain, span and ranks, and whether it keeps required levels."""

from collections.abc import Collection, Mapping, Sequence
from itertools import count, islice
from operator import is_, itemgetter
from typing import Final

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Ints, run_ends
from closeby.objects.pods import Pod
from closeby.objects.words import path_text
from closeby.scheduling.gangs.parts import Part
from closeby.scheduling.gangs.segments import Layering, Order, SegmentNumbers, numbered
from closeby.scheduling.outcomes import Place
from closeby.topology.constraints import Levels
from closeby.topology.tree import ROOT, Domain, Tree


def place_of(tree: Tree, members: Sequence[tuple[Pod, int]]) -> Place:
    """The tightest domain and the span of members with their slots (at least one)."""
    return place_at(tree, slots_of(members))


def slots_of(members: Sequence[tuple[Pod, int]]) -> Ints:
    """The slots of members, as a column."""
    return np.fromiter(map(itemgetter(1), members), dtype=np.intp, count=len(members))


def place_at(tree: Tree, slots: Ints) -> Place:
    """The tightest domain and the span of some slots (at least one)."""
    positions = np.sort(tree.position_of[slots[run_ends(slots)]])
    positions = positions[: positions.searchsorted(tree.size)]
    domain = tree.tightest(positions[[0, -1]]) if len(positions) else ROOT
    names = tree.level_names
    # Positions ascend, and with them the domains: a new domain begins wherever the number changes.
    owners = [tree.owners(positions, level) for level in range(tree.node_level + 1)]
    used = [owner[run_ends(owner)] for owner in owners]
    outside = np.full(len(used[-1]), any(tree.carried[:-1]))
    for level in range(tree.node_level):
        outside &= ~tree.labelled[level][tree.owners(used[-1], level)]
    return Place(
        topology=tree.name,
        level=None if domain == ROOT else names[domain.level],
        path=tree.path(domain),
        span={
            name: len(domains) if level == tree.node_level else int(tree.labelled[level][domains].sum())
            for level, (name, domains, carried) in enumerate(zip(names, used, tree.carried, strict=True))
            if carried
        },
        outside=int(outside.sum()),
    )


class SegmentPlace(Struct, frozen=True, kw_only=True):
    """One segment of which some members hold a node."""

    #: Short name of the level of its layer.
    level: str
    #: Its number in the layer, from 0.
    segment: int
    #: Names of its members that hold a node, in the order of their index.
    pods: tuple[str, ...]
    #: The tightest domain that holds these, no finer than the layer's level, as a path of label values.
    domain: tuple[str | None, ...]
    #: Whether that is one domain of the level.
    together: bool
    #: Domains of the level that they are in.
    domains: int


def segment_places(
    layering: Layering,
    members: Sequence[tuple[Pod, int]],
    order: Order,
    ranks: Mapping[str, int] = {},
    first: int = 0,
) -> tuple[SegmentPlace, ...]:
    """Where the segments of some members with their slots are, layer by layer.

    ``ranks`` and ``first``: as of ``numbered``.
    """
    if not members:
        return ()
    tree, slots = layering.tree, slots_of(members)
    numbers = numbered(layering, (), members, 0, order, ranks, first).running
    in_order = np.argsort(numbers, kind="stable")
    found = []
    for layer, ids in zip(layering.layers, layering.ids(numbers), strict=True):
        for segment in np.unique(ids[ids >= 0]).tolist():
            own = in_order[ids[in_order] == segment]
            positions = np.sort(tree.position_of[slots[own]])
            known = len(positions) > 0 and int(positions[-1]) < tree.size
            domain = tree.tightest(positions) if known else ROOT
            domain = tree.ancestor(domain, min(domain.level, layer.level))
            together = domain.level == layer.level and tree.is_labelled(domain)
            found.append(
                SegmentPlace(
                    level=tree.level_names[layer.level],
                    segment=segment,
                    pods=tuple(members[at][0].name for at in own.tolist()),
                    domain=tree.path(domain),
                    together=together,
                    domains=len(np.unique(tree.owners(positions[positions < tree.size], layer.level))),
                )
            )
    return tuple(found)


#: More segments than any gang has.
_SEGMENTS: Final = 1 << 32


class SegmentOrder(Struct, frozen=True, eq=False):
    """In which order the members of one leaf follow one another by their segments."""

    pods: tuple[Pod, ...]
    #: (len(pods),): by the first part of the workload in their leaf, then their segment.
    keys: Ints


def segment_order(part: Part) -> tuple[SegmentOrder, ...]:
    """The order of all members in segments, leaf by leaf."""
    found = []
    for leaf in part.leaves():
        if leaf.layering is not None:
            pods = (*leaf.core, *leaf.extra) if leaf.extra else leaf.core
            first = min([pod.part for pod in pods], default=0)
            found.append(SegmentOrder(pods, leaf.layering.ids(leaf.numbers)[-1] + first * _SEGMENTS))
    return tuple(found)


def _segment_keys(orders: Sequence[SegmentOrder], placed: Sequence[tuple[Pod, int]]) -> Ints:
    """The keys of the placed members, in their order; those in no segment go by their part alone."""
    if len(orders) == 1 and len(orders[0].pods) == len(placed):
        pods = [pod for pod, _ in placed]
        if all(map(is_, pods, orders[0].pods)):  # Equal pods come so.
            return orders[0].keys
    known: dict[str, int] = {}
    for one in orders:
        known.update(zip([pod.uid for pod in one.pods], one.keys.tolist(), strict=True))
    own = (known.get(pod.uid, pod.part * _SEGMENTS) for pod, _ in placed)
    return np.fromiter(own, dtype=np.int64, count=len(placed))


def ranks(
    tree: Tree,
    taken: Collection[int],
    unknown: int,
    placed: Sequence[tuple[Pod, int]],
    slots: Ints,
    segments: Sequence[SegmentOrder] = (),
    kept: Mapping[str, int] = {},
) -> list[int]:
    """Rank of each newly placed pod, in their order: the parts of the workload follow one another as in its
    spec, and within a part consecutive ranks are neighbours in topology order. With layers (``segments``, as
    of ``segment_order``) the segments follow one another, whatever parts they hold.

    Ranks that members have (``taken``) are kept; the new ones get the lowest that are free. Placed members of
    which no rank is known (so many are ``unknown``) are taken to hold the lowest. ``kept``: by uid, what was
    written into some of these pods before; it can't be changed any more.
    """
    keys = [tree.position_of[slots]]
    parts = [pod.part for pod, _ in placed]
    if parts and parts.count(parts[0]) < len(parts):
        keys.append(np.asarray(parts, dtype=np.intp))
    if segments:
        keys.append(_segment_keys(segments, placed))
    places = _places(keys)
    fixed = {at: kept[pod.uid] for at, (pod, _) in enumerate(placed) if pod.uid in kept} if kept else {}
    fixed = {at: rank for at, rank in fixed.items() if rank not in taken}
    if not taken and not unknown and not fixed:
        return places
    held = {*taken, *fixed.values()}
    free = (rank for rank in count() if rank not in held)
    numbers = iter(list(islice(free, unknown, unknown + len(placed) - len(fixed))))
    found = dict(fixed)
    for at in sorted(range(len(placed)), key=places.__getitem__):
        if at not in fixed:
            found[at] = next(numbers)
    return [found[at] for at in range(len(placed))]


def _places(keys: Sequence[Ints]) -> list[int]:
    """The place of each entry in the order of some keys, the last key first."""
    if len(keys) == 1 and bool((keys[0][1:] >= keys[0][:-1]).all()):  # Equal pods come so.
        return list(range(len(keys[0])))
    order = np.lexsort(keys)
    places = np.empty(len(order), dtype=np.intp)
    places[order] = np.arange(len(order))
    return places.tolist()


class Split(Struct, frozen=True, eq=False):
    """A part of a gang that requires one domain of a level, and whose members are not in one."""

    part: str
    levels: Levels
    #: The domains of that level which hold its members, as paths such as ``zone-a/rack-1``.
    domains: tuple[str, ...]
    #: Members on nodes that carry no label of that level.
    outside: int

    def sentence(self) -> str:
        """What is broken, for people."""
        tree, level = self.levels.tree, self.levels.required
        name = "" if level is None else tree.level_names[level]
        who = f"members of subgroup {self.part!r}" if self.part else "members"
        found = []
        if self.domains:
            shown = ", ".join(self.domains[:3]) + (", …" if len(self.domains) > 3 else "")
            found.append(f"in {len(self.domains)} domains ({shown})" if self.domains[1:] else f"in {shown}")
        if self.outside:
            found.append(f"on {self.outside} nodes outside of every {name}")
        return f"one {name} of topology {tree.name} is required, and its {who} are {' and '.join(found)}"


class SplitSegments(Struct, frozen=True, eq=False):
    """A part whose segments are not in one domain each as its layers require."""

    part: str
    layering: Layering

    def sentence(self) -> str:
        """What is broken, for people."""
        names = self.layering.tree.level_names
        level = next(names[layer.level] for layer in self.layering.layers if layer.required)
        who = f" of subgroup {self.part!r}" if self.part else ""
        return (
            f"each segment{who} requires one {level} of topology {self.layering.tree.name}, and the members "
            "of one are in several or in none"
        )


def split_part(part: Part, where: Mapping[str, int]) -> Split | SplitSegments | None:
    """The first part that is not confined as it requires; None when all are.

    Members that hold a node count, and those in ``where`` (uid -> slot).
    """
    levels = part.levels
    if levels is not None and levels.required is not None:
        split = _split(part.name, levels, _slots(part, where))
        if split is not None:
            return split
    if part.segments is not None and _segments_split(part, part.segments, where):
        return SplitSegments(part.name, part.segments.layering)
    return next((found for child in part.children if (found := split_part(child, where))), None)


def _segments_split(part: Part, segments: SegmentNumbers, where: Mapping[str, int]) -> bool:
    slots = [where.get(pod.uid) for pod in (*part.core, *part.extra)] if where else []
    placed = [at for at, slot in enumerate(slots) if slot is not None]
    held = [*part.anchors, *(slot for slot in slots if slot is not None)]
    return segments.broken(part.numbers[placed], np.asarray(held, dtype=np.intp))


def _split(name: str, levels: Levels, slots: list[int]) -> Split | None:
    tree, level = levels.tree, levels.required
    if level is None or not slots:
        return None
    positions = tree.position_of[np.asarray(slots, dtype=np.intp)]
    inside = positions[positions < tree.size]
    if len(inside) == len(positions) and tree.tightest(inside).level >= level:
        return None
    owners = np.unique(tree.owners(inside, level))
    labelled = owners[tree.labelled[level][owners]]
    outside = np.isin(tree.owners(inside, level), owners[~tree.labelled[level][owners]])
    return Split(
        part=name,
        levels=levels,
        domains=tuple(path_text(tree.path(Domain(level, int(index)))) for index in labelled),
        outside=len(np.unique(inside[outside])) + len(np.unique(positions)) - len(np.unique(inside)),
    )


def _slots(part: Part, where: Mapping[str, int]) -> list[int]:
    if not where:
        return [*part.all_anchors()]
    leaves = tuple(part.leaves())
    mine = [where[pod.uid] for leaf in leaves for pod in (*leaf.core, *leaf.extra) if pod.uid in where]
    return [*part.all_anchors(), *mine]
