"""A gang as the search sees it: a tree of parts with pods, minimum and constraint, and their order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.arrays import Bools, Counts, Ints, Scores
from closeby.objects.groups import Exclusive, PodGroup
from closeby.objects.pods import Pod
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.segments import Layering, SegmentNumbers
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import DomainCounts, MeanScores
from closeby.scheduling.judging.pod_classes import PodClass, Share
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.constraints import Levels
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree

#: Of parts without layers.
NO_NUMBERS: Final = np.zeros(0, dtype=np.intp)


class Part(Struct, frozen=True, kw_only=True, eq=False):
    """A whole gang, a subgroup with children, or a leaf that holds pods."""

    #: Empty for the whole gang.
    name: str
    levels: Levels | None = None
    children: tuple["Part", ...] = ()
    #: How many children must find a place.
    min_children: int = 0
    #: Leaf: pods that must find a place, in the order of their index.
    core: tuple[Pod, ...] = ()
    #: Leaf: pods beyond the minimum.
    extra: tuple[Pod, ...] = ()
    #: Leaf: slots of members that already run.
    anchors: tuple[int, ...] = ()
    #: Leaf with layers: the numbers of core and extra, which tell the segments, and of the anchors.
    segments: SegmentNumbers | None = None
    numbers: Ints = NO_NUMBERS
    #: Leaf with layers: members whose segment lacks others.
    short: tuple[Pod, ...] = ()
    #: Set when too few members have appeared: none of them is placed now, for this reason.
    lack: str | None = None
    #: Whether no other member of the leaf may be in the domain that it requires: a segment that has it for
    #: itself. Then the slots of all members of the leaf that already run.
    alone: bool = False
    beside: tuple[int, ...] = ()

    @property
    def layering(self) -> Layering | None:
        """Its layers, if it has any."""
        return None if self.segments is None else self.segments.layering

    @property
    def may_leave_out(self) -> bool:
        """Whether some part of it may stay without a place."""
        return self.min_children < len(self.children) or any(child.may_leave_out for child in self.children)

    def leaves(self) -> Iterator["Part"]:
        """All leaves, in declared order."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    @property
    def fewest(self) -> int:
        """How many pods at least are placed with this part: fewer than ``needed`` where some may stay out."""
        if not self.children:
            return len(self.core)
        return sum(sorted(child.fewest for child in self.children)[: self.min_children])

    def needed(self) -> tuple[Pod, ...]:
        """All pods below this part that must find a place, with those of the parts that may stay out."""
        leaves = tuple(self.leaves())
        # Of a single leaf the very tuple, which is then known to hold equal pods.
        return leaves[0].core if len(leaves) == 1 else tuple(pod for leaf in leaves for pod in leaf.core)

    def all_anchors(self) -> tuple[int, ...]:
        """Slots of all members below this part that already run."""
        return tuple(slot for leaf in self.leaves() for slot in leaf.anchors)


def segments_below(part: Part) -> int:
    """Segments of all layers below a part of which some member waits."""
    return sum(
        leaf.layering.segments_of(leaf.numbers[: len(leaf.core)])
        for leaf in part.leaves()
        if leaf.layering is not None
    )


class NodeSet(Struct, frozen=True, eq=False):
    """The nodes a part may go to: a domain of one tree, minus what other trees or plain slots exclude."""

    tree: Tree | None = None
    domain: Domain = ROOT
    #: (slots,) or None when nothing else is excluded.
    mask: Bools | None = None

    def narrowed(self, candidate: Candidate, capacity: int) -> "NodeSet":
        """Those of them that a candidate offers."""
        if candidate.tree is not None and candidate.domain is not None:
            if self.tree is candidate.tree and candidate.domain.level < self.domain.level:
                around = candidate.tree.ancestor(self.domain, candidate.domain.level) == candidate.domain
                none = None if around else np.zeros(capacity, dtype=np.bool_)
                return NodeSet(self.tree, self.domain, self.mask if around else none)
            if self.tree is None or self.tree is candidate.tree:
                return NodeSet(candidate.tree, candidate.domain, self.mask)
            return NodeSet(candidate.tree, candidate.domain, self.allowed(capacity))
        mask = np.zeros(capacity, dtype=np.bool_)
        if candidate.slots is not None:
            mask[candidate.slots] = True
        if self.mask is not None:
            mask &= self.mask
        return NodeSet(self.tree, self.domain, mask)

    def allowed(self, capacity: int) -> Bools | None:
        """(slots,) True where the part may go; None when that is everywhere."""
        if self.tree is None or self.domain == ROOT:
            return self.mask
        allowed = np.zeros(capacity, dtype=np.bool_)
        allowed[self.tree.slots_in(self.domain)] = True
        return allowed if self.mask is None else allowed & self.mask

    def domain_in(self, tree: Tree) -> Domain:
        """The domain of ``tree`` that holds all of them."""
        return self.domain if self.tree is tree else ROOT

    def mask_for(self, tree: Tree, capacity: int) -> Bools | None:
        """What must be masked besides ``domain_in(tree)``."""
        return self.mask if self.tree is None or self.tree is tree else self.allowed(capacity)


#: All nodes.
EVERYWHERE: Final = NodeSet()


class SearchedPart:
    """A part with its demand inside a scope; what plugins see as ``PartView``."""

    def __init__(
        self,
        group: PodGroup,
        part: Part,
        scope: NodeSet,
        demand: Sequence[Share],
        table: ClassTable,
        state: CycleState,
        most: Callable[[Tree, int], Counts | None] | None = None,
    ) -> None:
        """``demand``: the pods that must find a place; those that may where none must.

        ``most``: how many of them each domain of a level takes at the most beside each other, where known.
        """
        self.group = group
        self.name = part.name
        self.levels = part.levels
        self.scope = scope
        #: Pods that must find a place; how many there are in all, with those beyond the minimum.
        self.needed = part.fewest
        self.wanted = sum(len(leaf.core) + len(leaf.extra) for leaf in part.leaves())
        #: Slots of members that already run.
        self.anchors = part.all_anchors()
        self._demand = demand
        self._asked = sum(len(share.pods) for share in demand)
        self._table = table
        self._capacity = table.capacity
        self._state = state
        self._counts: dict[tuple[str, int], DomainCounts] = {}
        self._most = most
        self._may_leave_out = part.may_leave_out

    def domain_in(self, tree: Tree) -> Domain:
        """The domain of ``tree`` inside which the part must stay."""
        return self.scope.domain_in(tree)

    def room(self, tree: Tree, level: int) -> Counts:
        """How many pods of the part fit each domain of a level, up to rounding for unequal pods.

        At least ``needed`` exactly where every class of pods fits on its own, and 0 where fewer of them are
        let in beside each other than must be; shape (tree.count(level),). Where parts of it may stay out, it
        is also at least ``needed`` where so many pods fit, whichever they are.
        """
        if self._may_leave_out:
            return self._of_any_class(tree, level)
        most = None if self._most is None else self._most(tree, level)
        room = self._by_class(tree, level)
        return room if most is None else np.where(most >= self.needed, room, 0)

    def _by_class(self, tree: Tree, level: int) -> Counts:
        if len(self._demand) == 1:
            return self._level(tree, 0, level)
        least: Counts | None = None
        for index, share in enumerate(self._demand):
            scaled = self._level(tree, index, level) * self._asked // len(share.pods)
            least = scaled if least is None else np.minimum(least, scaled)
        return np.zeros(tree.count(level), dtype=np.int64) if least is None else least

    def _of_any_class(self, tree: Tree, level: int) -> Counts:
        """Fewer than all pods wherever one class of them does not fit as a whole."""
        everyone = self._by_class(tree, level)
        found = np.zeros(tree.count(level), dtype=np.int64)
        for index, share in enumerate(self._demand):
            found += np.minimum(self._level(tree, index, level), len(share.pods))
        return np.where(everyone >= self._asked, everyone, np.minimum(found, self._asked - 1))

    def pieces(self, tree: Tree, level: int) -> Counts | None:
        """How many domains of its coarsest layer the part needs in each domain; None: it has no layers."""
        return None

    def mean_scores(self, tree: Tree, level: int, domains: Ints) -> Scores | None:
        """The mean score of the pods in some domains of a level; None where nothing tells nodes apart."""
        demand = [(share, self._counts_of(tree, index)) for index, share in enumerate(self._demand)]
        return mean_scores(self._table, self._state, demand)(level, domains)

    def _level(self, tree: Tree, index: int, level: int) -> Counts:
        return self._counts_of(tree, index).of(level)

    def _counts_of(self, tree: Tree, index: int) -> DomainCounts:
        # Asked again each time: what was tried meanwhile is undone, but the class has not seen that yet.
        counts = self._counts.get((tree.name, index))
        if counts is None:
            pod_class = self._demand[index].pod_class
            counts = scoped_counts(self._table, pod_class, tree, self.scope, self._capacity)
            if self.scope.mask_for(tree, self._capacity) is not None:
                self._counts[tree.name, index] = counts  # A copy that nothing changes.
        return counts


def scoped_counts(
    table: ClassTable, pod_class: PodClass, tree: Tree, scope: NodeSet, capacity: int
) -> DomainCounts:
    """Counts of a class in a tree with everything outside the scope's mask taken as full."""
    table.refresh(pod_class)
    mask = scope.mask_for(tree, capacity)
    if mask is None:
        return table.counts(pod_class, tree)
    return DomainCounts(tree, np.where(mask, pod_class.fits, 0))


def mean_scores(
    table: ClassTable,
    state: CycleState,
    demand: Sequence[tuple[Share, DomainCounts]],
    among: Ints | None = None,
) -> MeanScores:
    """The mean over all pods that fit in a domain, of unequal pods by how many of each kind are placed.

    Each share comes with its counts, all of one tree. ``among``: slots that will be asked about in many small
    calls, so that they are scored in one.
    """
    asked = sum(len(share.pods) for share, _ in demand)
    ahead: dict[int, Scores | None] = {}

    def scored(number: int, slots: Ints) -> Scores | None:
        pod_class = demand[number][0].pod_class
        if among is None:
            return table.scores(pod_class, state, slots)
        if number not in ahead:
            fitting = among[pod_class.fits[among] > 0]
            scores = table.scores(pod_class, state, fitting)
            by_slot = np.zeros(table.capacity)
            by_slot[fitting] = 0.0 if scores is None else scores
            ahead[number] = None if scores is None else by_slot
        known = ahead[number]
        return None if known is None else known[slots]

    def means(level: int, domains: Ints, *, by_use: bool = False) -> Scores | None:
        if not by_use and not any(table.wishes(share.pod_class, state) for share, _ in demand):
            return None
        total: Scores | None = None
        for number, (share, counts) in enumerate(demand):
            tree = counts.tree
            positions, starts = tree.positions_of(level, domains)
            room = counts.of(tree.node_level)[positions]
            used = room.nonzero()[0]
            found = scored(number, tree.slot_at[positions[used]])
            if found is None:
                continue
            scores = np.zeros(len(room))
            scores[used] = found * room[used]
            if len(starts) < len(room):
                scores, room = np.add.reduceat(scores, starts), np.add.reduceat(room, starts)
            scores *= len(share.pods) / asked / np.maximum(room, 1)
            total = scores if total is None else total + scores
        return None if total is None else total.round(9)

    return means


def hardest_first(part: Part) -> list[Part]:
    """A part's children: those that have domains for themselves before all others, finer requirements before
    coarser, then more pods, then by name.

    What is placed later then only needs sums of room.
    """
    return sorted(part.children, key=_hardness)


class Distinctions(Struct, frozen=True, eq=False):
    """What tells nodes apart to the parts that are placed later."""

    trees: tuple[Tree, ...] = ()
    #: Pods of all parts, by class.
    demand: tuple[Share, ...] = ()
    #: Slots of members that run, where others must be on the same node.
    held: Ints = NO_NUMBERS


def entangled(part: Part, table: ClassTable) -> Mapping[str, Distinctions]:
    """Leaves for which it matters to a later one which nodes of their domain they take.

    For these, one way per domain is not all there is to try. Where pods are equal, in like segments or none,
    and each leaf is placed before all coarser ones, only the room that is left in the domains counts, so that
    there are none.
    Returns what distinguishes nodes, by name of the leaf.
    """
    leaves = list(_in_order(part, None))
    trees = {levels.tree.name: levels.tree for _, levels in leaves if levels is not None}
    layerings = [leaf.layering for leaf, _ in leaves]
    trees |= {one.tree.name: one.tree for one in layerings if one is not None}
    segments = {None if one is None else (one.tree.name, one.layers) for one in layerings}
    classes = {id(share.pod_class) for leaf, _ in leaves for share in table.shares(leaf.core)}
    mixed = max(len(classes), len(segments), len({tree.name for tree in _required_trees(part)})) > 1
    held = np.asarray(list(_held(leaves)), dtype=np.intp)
    distinctions = Distinctions(tuple(trees.values()), table.shares(part.needed()), held)
    found: dict[str, Distinctions] = {}
    finest_later = ROOT_LEVEL
    for index, (leaf, levels) in enumerate(reversed(leaves)):
        level = ROOT_LEVEL if levels is None or levels.required is None else levels.required
        if leaf.core and index and (mixed or level < finest_later):
            found[leaf.name] = distinctions
        finest_later = max(finest_later, level)
    return found


def _held(leaves: Sequence[tuple[Part, Levels | None]]) -> Iterator[int]:
    """Slots of members that run, of leaves that must have a node for themselves or for their segments."""
    for leaf, levels in leaves:
        tight = levels is not None and levels.required == levels.tree.node_level
        if leaf.anchors and leaf.layering is not None:
            node_level = leaf.layering.tree.node_level
            tight = tight or any(one.required and one.level == node_level for one in leaf.layering.layers)
        if tight:
            yield from leaf.anchors


def without_layers(part: Part) -> Part:
    """The part as if its pods were in no segments."""
    children = tuple(map(without_layers, part.children))
    return replace(part, segments=None, numbers=NO_NUMBERS, children=children)


def with_preferences_required(part: Part) -> Part | None:
    """The part with every preferred level of its subgroups required; None where that changes nothing.

    What can be placed so has no subgroup in a coarser domain than it needs. Placed one after another, an
    earlier one might take the very domain that a later one prefers.
    """
    if not part.children:
        return None
    asked = preferences_required(part)
    return None if asked is part else asked


def preferences_required(part: Part) -> Part:
    """The part with every preferred level of itself and its subgroups required; the same one if none is."""
    children = tuple(preferences_required(child) for child in part.children)
    levels = part.levels
    if levels is not None and levels.preferred is not None and not levels.by_default and _nests(levels):
        levels = replace(levels, required=levels.preferred, preferred=None)
    if levels is part.levels and all(new is old for new, old in zip(children, part.children, strict=True)):
        return part
    return replace(part, levels=levels, children=children)


def _nests(levels: Levels) -> bool:
    """Whether what is in a domain of the preferred level is in one of the required level too.

    A node may carry the label of a rack and lack that of its row: it must not be taken for a required row.
    """
    tree, wished, required = levels.tree, levels.preferred, levels.required
    if wished is None or required is None or required == ROOT_LEVEL or wished <= required:
        return True
    positions = np.arange(tree.size)
    has = [tree.labelled[level][tree.owners(positions, level)] for level in (wished, required)]
    return not bool((has[0] & ~has[1]).any())


def _in_order(part: Part, inherited: Levels | None) -> Iterator[tuple[Part, Levels | None]]:
    """The leaves in the order in which they are placed, each with the finest requirement on it."""
    own = inherited if part.levels is None else _finer(part.levels, inherited)
    if not part.children:
        yield part, own
    for child in hardest_first(part):
        yield from _in_order(child, own)


def _finer(own: Levels, inherited: Levels | None) -> Levels | None:
    """Of two requirements on a part the finer one, of trees that differ its own; None without any."""
    if own.required is None:
        return inherited
    if inherited is None or inherited.required is None or inherited.tree is not own.tree:
        return own
    return own if own.required >= inherited.required else inherited


def _required_trees(part: Part) -> Iterator[Tree]:
    if part.levels is not None and part.levels.required is not None:
        yield part.levels.tree
    for child in part.children:
        yield from _required_trees(child)


def _hardness(part: Part) -> tuple[bool, int, int, str]:
    layers = () if part.layering is None else part.layering.layers
    shares = all(layer.exclusive is not Exclusive.KIND for layer in layers)
    return shares, -_finest(part), -sum(len(leaf.core) for leaf in part.leaves()), part.name


def _finest(part: Part) -> int:
    level = ROOT_LEVEL if part.levels is None or part.levels.required is None else part.levels.required
    return max([level, *(_finest(child) for child in part.children)])


def scoped_fits(table: ClassTable, pod_class: PodClass, scope: NodeSet, capacity: int) -> Counts:
    """The room of each node for pods of a class, (slots,), with all nodes outside the scope taken as full."""
    table.refresh(pod_class)
    allowed = scope.allowed(capacity)
    return pod_class.fits if allowed is None else np.where(allowed, pod_class.fits, 0)
