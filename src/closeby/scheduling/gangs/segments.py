"""The layers of a gang in terms of one tree, and which member belongs to which segment.

Members are numbered in the order of their index; a segment holds consecutive numbers. The nodes of members
that run already limit which numbers these may have.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Ints
from closeby.objects.bounds import quoted
from closeby.objects.groups import (
    MOST_PODS,
    Arrangement,
    ConstraintSource,
    Exclusive,
    Layer,
    LayerMode,
    Remainder,
    TopologyConstraint,
)
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, invalid
from closeby.topology.constraints import resolve
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree

#: Members in the order of their index.
Order = Callable[[Pod], Any]


class TreeLayer(Struct, frozen=True, kw_only=True):
    """A layer with its level in the tree."""

    level: int
    #: Pods of a segment; 0 where ``counts`` are given.
    size: int
    counts: tuple[int, ...] = ()
    required: bool = True
    remainder: bool = False
    min_segments: int | None = None
    spread: bool = False
    exclusive: Exclusive = Exclusive.NONE
    #: Of the coarsest layer: in so many domains all segments are.
    max_domains: int | None = None


class Layering(Struct, frozen=True, kw_only=True, eq=False):
    """The layers of one leaf, coarse to fine."""

    tree: Tree
    layers: tuple[TreeLayer, ...]

    @property
    def prefers(self) -> bool:
        """Whether some layer need not be followed."""
        return not all(layer.required for layer in self.layers)

    @property
    def binds(self) -> bool:
        """Whether some layer keeps members from nodes; else all of them are only preferred."""
        return any(
            layer.required or layer.exclusive is not Exclusive.NONE or layer.max_domains is not None
            for layer in self.layers
        )

    @property
    def uneven(self) -> bool:
        """Whether segments of one layer differ in what they consist of, so that they can't be counted."""
        return any(layer.counts for layer in self.layers[1:])

    def segments_of(self, numbers: Ints) -> int:
        """Segments of all layers together that hold some of the numbers."""
        return sum(len(np.unique(ids)) for ids in self.ids(numbers))

    def ids(self, numbers: Ints, depth: int | None = None) -> list[Ints]:
        """Per layer: in which segment each number is, counted through all of its layer; -1: in none.

        ``depth``: of so many layers, the coarsest first; None: of all.
        """
        found: list[Ints] = []
        local, outer, most = numbers, np.zeros(len(numbers), dtype=np.intp), 0
        for at, layer in enumerate(self.layers[:depth]):
            if at and layer.counts and layer.counts == self.layers[at - 1].counts:
                found.append(found[-1])
                continue
            if layer.counts:
                ends = np.cumsum(layer.counts)
                own = np.searchsorted(ends, local, side="right")
                begins = np.append(ends - layer.counts, ends[-1])
                local, each, size = local - begins[own], len(ends), max(layer.counts)
            else:
                own, local = np.divmod(local, layer.size)
                each, size = -(-most // layer.size), layer.size
            ids = outer * each + own
            if not found and layer.counts:
                ids[own == len(layer.counts)] = -1
            elif found:
                ids[found[-1] < 0] = -1
            found.append(ids)
            outer, most = ids, size
        return found

    def sizes(self, count: int) -> Ints:
        """Pods of each of the first so many segments of the coarsest layer."""
        first = self.layers[0]
        if first.counts:
            return np.asarray(first.counts[:count], dtype=np.intp)
        return np.full(count, first.size, dtype=np.intp)

    def segments_for(self, minimum: int) -> int:
        """Segments of the coarsest layer that must be placed where so many members must be."""
        first = self.layers[0]
        if first.counts:
            least = int(np.searchsorted(np.cumsum(first.counts), minimum)) + 1 if minimum > 0 else 0
            least = min(least, len(first.counts))
        else:
            least = -(-max(minimum, 0) // first.size)
        return max(least, first.min_segments or 0)


class SegmentNumbers(Struct, frozen=True, kw_only=True, eq=False):
    """The numbers of a leaf's members, in the order of those that wait and of those that run."""

    layering: Layering
    waiting: Ints
    running: Ints
    done: int = 0
    #: Whether the numbers of those that run follow from their nodes alone.
    inferred: bool = False

    def broken(self, waiting: Ints, slots: Ints) -> bool:
        """Whether a segment is not in one domain as required.

        ``slots``: of the members that run, then of those with the numbers ``waiting``. More segments than all
        members need are too many; those that still wait may complete segments of which some run.
        """
        numbers = np.concatenate([self.running, waiting])
        first = self.layering.layers[0]
        if self.inferred and first.required and first.size and len(numbers):
            most = -(-(len(self.waiting) + len(self.running) + self.done) // first.size)
            if int(numbers.max()) >= most * first.size:
                return True
        return apart(self.layering, numbers, slots)

    def ready(self) -> tuple[list[int], list[int], int]:
        """Segments of the coarsest layer: those of which some wait and all may start, those that wait for
        members, and how many run or have done their work.
        """
        numbers = np.concatenate([self.waiting, self.running]) if len(self.running) else self.waiting
        ids = self.layering.ids(numbers, 1)[0]
        waits, runs = ids[: len(self.waiting)], ids[len(self.waiting) :]
        count = int(ids.max(initial=-1)) + 1
        wait_count = np.bincount(waits[waits >= 0], minlength=count)
        run_count = np.bincount(runs[runs >= 0], minlength=count)
        whole = wait_count + run_count >= self.layering.sizes(count)
        whole |= run_count > 0
        if count and (self.layering.layers[0].remainder or self.done):
            whole[-1] = True
        if self.done:
            whole |= wait_count > 0
        waiting = np.flatnonzero((wait_count > 0) & whole)
        # What a segment lost comes before segments that have not begun.
        waiting = waiting[np.argsort(run_count[waiting] == 0, kind="stable")]
        short = np.flatnonzero((wait_count > 0) & ~whole)
        size = max(self.layering.layers[0].size, 1)
        complete = int(((run_count > 0) & (wait_count == 0)).sum()) + self.done // size
        return waiting.tolist(), short.tolist(), complete


def layering_of(
    layers: Sequence[Layer],
    constraints: Sequence[TopologyConstraint | None],
    topologies: Topologies,
    owner: str,
    field: str,
) -> tuple[Layering | None, tuple[Condition, ...]]:
    """Find the tree and the levels that layers name; ``constraints`` may name the topology."""
    named = [layer.topology for layer in layers] + [one.topology for one in constraints if one is not None]
    topology = next((name for name in named if name), None)
    if topology is None:
        having = [set(topologies.having_level(layer.level)) for layer in layers]
        shared = sorted(set.intersection(*having))
        topology = shared[0] if len(shared) == 1 else None
    conditions: list[Condition] = []
    found: list[TreeLayer] = []
    trees: dict[str, Tree] = {}
    for i, layer in enumerate(layers):
        required = layer.mode is LayerMode.REQUIRED
        written = layer.written
        at = ConstraintSource(
            owner=written.owner,
            required=written.required or f"{field}[{i}].level",
            preferred=written.required or f"{field}[{i}].level",
            topology=written.topology or f"{field}[{i}].topology",
        )
        constraint = TopologyConstraint(
            topology=layer.topology or topology,
            required=layer.level if required else None,
            preferred=None if required else layer.level,
            written=at,
        )
        resolution = resolve(constraint, topologies, owner, field)
        conditions += resolution.conditions
        levels = resolution.levels
        level = None if levels is None else levels.required if required else levels.preferred
        if levels is None or level is None or levels.by_default:
            continue
        trees[levels.tree.name] = levels.tree
        if found and level <= found[-1].level:
            source, place = written.owner or owner, at.required
            message = f"level {quoted(layer.level)} is not finer than that of the layer above"
            conditions.append(invalid(source, place, message, "write layers coarse to fine", blocking=True))
        found.append(_in_tree(layer, level))
    if len(trees) > 1:
        message = "layers are levels of several topologies"
        conditions.append(invalid(owner, field, message, "take all from one topology", blocking=True))
    if not found or any(one.blocking for one in conditions):
        return None, tuple(conditions)
    return Layering(tree=next(iter(trees.values())), layers=tuple(found)), tuple(conditions)


def _in_tree(layer: Layer, level: int) -> TreeLayer:
    return TreeLayer(
        level=level,
        size=layer.size,
        counts=layer.counts,
        required=layer.mode is LayerMode.REQUIRED,
        remainder=layer.remainder is Remainder.ALLOW,
        min_segments=layer.min_segments,
        spread=layer.arrangement is Arrangement.SPREAD,
        exclusive=layer.exclusive,
        max_domains=layer.max_domains,
    )


def numbered(
    layering: Layering,
    waiting: Sequence[Pod],
    running: Sequence[tuple[Pod, int]],
    done: int,
    order: Order,
    ranks: Mapping[str, int] = {},
    first: int = 0,
) -> SegmentNumbers:
    """Which number each member has: by its index where the nodes of those that run agree with that.

    ``ranks``: by uid, of the members that have one already, where ranks run through this leaf alone.
    ``first``: the lowest index of the leaf's members.
    """
    if not running and not done and not ranks:
        numbers = np.arange(len(waiting), dtype=np.intp)
        return SegmentNumbers(layering=layering, waiting=numbers, running=numbers[:0])
    slots = np.asarray([slot for _, slot in running], dtype=np.intp)
    pods = [*waiting, *(pod for pod, _ in running)]
    for numbers in _numberings(pods, len(waiting), order, layering.layers[0].size, ranks, first):
        found = SegmentNumbers(
            layering=layering, waiting=numbers[: len(waiting)], running=numbers[len(waiting) :], done=done
        )
        if not apart(layering, found.running, slots):
            return found
    inferred = _by_domains(layering, slots)
    free = np.setdiff1d(np.arange(len(pods), dtype=np.intp), inferred)[: len(waiting)]
    return SegmentNumbers(layering=layering, waiting=free, running=inferred, done=done, inferred=True)


def first_index(own: Sequence[Pod], others: Sequence[Pod]) -> int:
    """Where the indices of a leaf's members begin: behind those of other leaves that are counted with them,
    as the workers of a LeaderWorkerSet are with their leader.
    """
    counted = {(pod.part, pod.job, pod.role) for pod in own}
    before = {pod.index for pod in others if (pod.part, pod.job, pod.role) in counted}
    behind = all(pod.index is not None and pod.index >= len(before) for pod in own)
    return len(before) if len(counted) == 1 and behind and before == set(range(len(before))) else 0


def _numberings(
    pods: Sequence[Pod], waiting: int, order: Order, size: int, ranks: Mapping[str, int], first: int
) -> Iterator[Ints]:
    """The members' own index (of several jobs, each a segment) where that tells them all apart; then their
    ranks, where each has one that runs; then their place among all. An index that no gang reaches says
    nothing. The first so many ``pods`` wait.
    """
    if len({pod.part for pod in pods}) == 1:
        each = size if len({pod.job for pod in pods}) > 1 else 0
        own = [(pod.job, pod.index) for pod in pods if pod.index is not None and pod.index >= 0]
        whole = not each or all(index < each for _, index in own)
        numbers = [job * each + index - first for job, index in own]
        if len(set(own)) == len(pods) and whole and min(numbers) >= 0 and max(numbers) < MOST_PODS:
            yield np.asarray(numbers, dtype=np.intp)
    given = np.asarray([ranks.get(pod.uid, -1) for pod in pods] if ranks else [], dtype=np.intp)
    if len(given) and (given[waiting:] >= 0).all() and given.max() < MOST_PODS:
        free = np.setdiff1d(np.arange(len(pods), dtype=np.intp), given)
        given[given < 0] = free[: np.count_nonzero(given < 0)]
        yield given
    keys = [order(pod) for pod in pods]
    places = np.empty(len(pods), dtype=np.intp)
    places[sorted(range(len(pods)), key=keys.__getitem__)] = np.arange(len(pods))
    yield places


def _by_domains(layering: Layering, slots: Ints) -> Ints:
    """Numbers for members that run, by where they are: what is in one domain fills whole segments."""
    owners = [layering.tree.owners_of_slots(slots, layer.level) for layer in layering.layers]
    sizes = [layer.size or max(layer.counts) for layer in layering.layers]
    numbers = np.zeros(len(slots), dtype=np.intp)

    def number(members: Ints, depth: int, base: int) -> int:
        if depth == len(sizes):
            numbers[members] = base + np.arange(len(members))
            return base + len(members)
        size = sizes[depth]
        at, counts = np.unique(owners[depth][members], return_counts=True)
        # The fullest of those that lack members come first: they are the first to get some.
        for index in np.lexsort((at, -counts % size)).tolist():
            end = number(members[owners[depth][members] == at[index]], depth + 1, base)
            base += -(-(end - base) // size) * size
        return base

    number(np.arange(len(slots), dtype=np.intp), 0, 0)
    return numbers


def apart(layering: Layering, numbers: Ints, slots: Ints) -> bool:
    """Whether members of some segment are not in one domain as required."""
    tree = layering.tree
    for layer, ids in zip(layering.layers, layering.ids(numbers), strict=True):
        if not layer.required or not len(ids):
            continue
        owners = tree.owners_of_slots(slots, layer.level)
        if (owners < 0).any() or not tree.labelled[layer.level][owners].all():
            return True
        order = np.lexsort((owners, ids))
        same = (np.diff(ids[order]) == 0) & (ids[order][1:] >= 0)
        if (same & (np.diff(owners[order]) != 0)).any():
            return True
    return False
