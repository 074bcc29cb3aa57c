"""topology: gangs go to the tightest domain that holds them (KAI topology-aware scheduling design).

Required: one domain of that level or the gang waits. Preferred: one domain of that level, else of each
coarser level up to the required one or the whole cluster, using there the fewest domains of the preferred
level.
Candidates are tried one after another with every filter applied (the design's stage 2).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Ints, Scores
from closeby.objects.groups import Strategy
from closeby.objects.pods import Pod
from closeby.scheduling.extension import (
    Candidate,
    Handle,
    PartView,
    PlacementGenerate,
    PreScore,
    Scope,
    Score,
)
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.repeats import Repeats
from closeby.topology.constraints import Levels
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree
from closeby.topology.uplinks import greatest_distance, link_distances


class TopologyArguments(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``close_by_default``: gangs without a constraint prefer the tightest domain of the only topology.

    ``pod_by_pod``: inside a domain each member goes to the node that scores best, whatever the levels below.
    """

    close_by_default: bool = True
    pod_by_pod: bool = False


class TopologyPlacement(PlacementGenerate, PreScore, Score):
    """Proposes domains in the gang's strategy order, and scores nodes by distance to the members placed."""

    name: ClassVar[str] = "topology"
    Arguments = TopologyArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    honoured_by_descent: ClassVar[bool] = True

    def __init__(self, arguments: TopologyArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self.close_by_default = arguments.close_by_default
        self.pod_by_pod = arguments.pod_by_pod

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Domains of the levels asked for, finest first; None when the part asks for none."""
        if part.levels is None:
            return None
        return _candidates(part, part.levels)

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        """Only members of a gang with a constraint have other pods to be close to."""
        return state.tree is not None and bool(state.placed or state.anchors)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """100 beside the first placed member, less with every edge between (0 across the root)."""
        tree = state.tree
        if tree is None:
            return np.zeros(len(nodes))
        return closeness(tree, state.anchors[0] if state.anchors else state.placed[0][1], nodes.slots)

    def repeats(self, state: CycleState, pod: Pod, nodes: Nodes) -> Repeats:
        """The first member that is placed decides for all."""
        if self.pre_score(state, pod) or state.tree is None:
            return Repeats(self.score(state, pod, nodes))
        return _FirstMember(state.tree, nodes.slots)


class _FirstMember(Repeats):
    """No node is better than another one until the first member is placed."""

    __slots__ = ("_slots", "_tree")

    def __init__(self, tree: Tree, slots: Ints) -> None:
        super().__init__(np.zeros(len(slots)))
        self._tree: Tree | None = tree
        self._slots = slots

    def place(self, at: int) -> bool:
        if self._tree is None:
            return False
        self.values = closeness(self._tree, int(self._slots[at]), self._slots)
        self._tree = None
        return True

    def keep(self, kept: Ints) -> None:
        super().keep(kept)
        self._slots = self._slots[kept]


def closeness(tree: Tree, slot: int, slots: Ints) -> Scores:
    """100 x (1 - edges / greatest possible edges) from one node to others; degraded links count as more."""
    origin = tree.node_domain(slot)
    if origin is None:
        return np.zeros(len(slots))
    most = greatest_distance(tree)
    edges = np.append(link_distances(tree, origin), most)
    return 100.0 - 100.0 * edges[tree.position_of[slots]] / most


def _candidates(part: PartView, levels: Levels) -> Iterator[Candidate]:
    tree = levels.tree
    bound = ROOT_LEVEL if levels.required is None else levels.required
    finest = bound if levels.preferred is None else levels.preferred
    confines = part.domain_in(tree)
    anchors = _anchor_positions(tree, part.anchors)
    for level in range(finest, max(bound, confines.level + 1) - 1, -1):
        for domain in _in_order(part, levels, level, confines, anchors):
            yield _candidate(levels, domain, anchors)
    if bound > confines.level or not tree.is_labelled(tree.ancestor(confines, bound)):
        return
    if len(anchors) and bound > ROOT_LEVEL:
        # The gang as a whole may be confined by members of other parts.
        here = tree.ancestor(confines, bound).index
        if not (tree.owners(anchors, bound) == here).any():
            return
    # Everything the part may use is in one domain of the level it asks for.
    if int(part.room(tree, confines.level)[max(confines.index, 0)]) >= part.needed:
        yield _candidate(levels, confines, anchors)


def _candidate(levels: Levels, domain: Domain, anchors: Ints) -> Candidate:
    preferred = levels.preferred
    below = preferred is not None and preferred > domain.level and not levels.by_default
    return Candidate(
        tree=levels.tree,
        domain=domain,
        fill_level=preferred if below else None,
        outward_from=_start(levels.tree, anchors, domain, preferred),
    )


def _in_order(
    part: PartView, levels: Levels, level: int, confines: Domain, anchors: Ints
) -> Iterator[Domain]:
    """Domains of a level with room for the part: all wanted pods first, then as many as possible."""
    tree = levels.tree
    first, end = tree.within(confines, level)
    room = part.room(tree, level)[first:end]
    usable = (room >= part.needed) & tree.labelled[level][first:end]
    if levels.required is not None and not tree.labelled[levels.required].all():
        # A rack may carry its label though its nodes lack that of the required zone.
        at = np.arange(first, end) if level == tree.node_level else tree.bounds[level][first:end]
        usable &= tree.labelled[levels.required][tree.owners(at, levels.required)]
    if len(anchors):
        owners = tree.owners(anchors, level)
        inside = owners[(owners >= first) & (owners < end)]
        members = np.bincount(inside - first, minlength=end - first)
        usable &= members > 0
    else:
        members = np.zeros(end - first, dtype=np.intp)
    found = usable.nonzero()[0]
    if not len(found):
        return
    size = room[found]
    tight = part.group.strategy is Strategy.BINPACK
    holds_all = size >= part.wanted
    order_key = np.where(holds_all & tight, size, -size)
    pieces = part.pieces(tree, level)
    if pieces is not None:  # Fewer pieces come before any other room.
        order_key = order_key + pieces[first:end][found] * (2 * int(np.abs(order_key).max()) + 1)
    # Of equal domains those come first that are connected as well as their siblings, then by their scores.
    depth = tree.depths[level][first:end][found] if tree.depths and level > ROOT_LEVEL else None
    # The first candidate nearly always succeeds, so the rest is sorted only when it is asked for.
    best = _first(
        members[found],
        holds_all,
        order_key,
        depth,
        lambda at: part.mean_scores(tree, level, found[at] + first),
    )
    yield Domain(level, first + int(found[best]))
    means = part.mean_scores(tree, level, found + first)
    nothing = np.zeros(len(found))
    keys = (nothing if means is None else -means, nothing if depth is None else depth)
    order = np.lexsort((*keys, order_key, ~holds_all, -members[found]))
    for index in order[order != best].tolist():
        yield Domain(level, first + int(found[index]))


def _first(
    members: Ints,
    holds_all: NDArray[np.bool_],
    order_key: Counts,
    depth: Scores | None,
    mean_scores: Callable[[Ints], Scores | None],
) -> int:
    """Index of the best domain: most members, room for all, the strategy's order, then links and scores."""
    chosen = (members == members.max()).nonzero()[0]
    if holds_all[chosen].any():
        chosen = chosen[holds_all[chosen]]
    for key in (order_key,) if depth is None else (order_key, depth):
        chosen = chosen[key[chosen] == key[chosen].min()]
    means = mean_scores(chosen) if len(chosen) > 1 else None
    return int(chosen[0 if means is None else means.argmax()])


def _anchor_positions(tree: Tree, anchors: tuple[int, ...]) -> Ints:
    if not anchors:
        return np.zeros(0, dtype=np.intp)
    positions = tree.position_of[np.asarray(anchors, dtype=np.intp)]
    return positions[positions < tree.size]


def _start(tree: Tree, anchors: Ints, inside: Domain, preferred: int | None) -> Domain | None:
    """Where to start filling: the domain below ``inside`` with the most running members."""
    if not len(anchors):
        return None
    level = preferred if preferred is not None and preferred > inside.level else tree.node_level
    owners = tree.owners(anchors, level)
    start, end = tree.within(inside, level)
    owners = owners[(owners >= start) & (owners < end)]
    if not len(owners) or level <= inside.level:
        return None
    values, counts = np.unique(owners, return_counts=True)
    return Domain(level, int(values[np.argmax(counts)]))
