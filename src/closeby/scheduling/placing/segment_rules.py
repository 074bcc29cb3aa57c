"""What layers demand of the domains of segments: which are open, and whether segments keep to them."""

import numpy as np
from msgspec import Struct

from closeby.objects.arrays import Bools, Ints
from closeby.objects.groups import Exclusive, PodGroup
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NO_NUMBERS, NodeSet, Part
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.placing.fill import Filler
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.steps import Budget

#: The candidate that holds a placed leaf, with the scope it was found in, by the name of the leaf.
Chosen = dict[str, tuple[Candidate | None, NodeSet]]


class SegmentAttempt(Struct, frozen=True, kw_only=True, eq=False):
    """What segments of one gang are placed with."""

    tools: Tools
    group: PodGroup
    #: The leaf of which they are.
    leaf: str
    statement: Statement
    filler: Filler
    budget: Budget
    chosen: Chosen


class SegmentRules:
    """Judges the segments of a gang on one statement."""

    def __init__(self, attempt: SegmentAttempt) -> None:
        self._capacity = attempt.tools.cluster.capacity
        self._exclusives = attempt.tools.exclusives
        self._group = attempt.group
        self._leaf = attempt.leaf
        self._statement = attempt.statement

    def open(self, part: Part, layering: Layering, scope: NodeSet) -> NodeSet:
        """The scope without the domains that the gang may not have for itself, where it is not there yet."""
        held = np.asarray(part.anchors, dtype=np.intp)
        for layer, mask in zip(layering.layers, self.barred(layering), strict=True):
            if mask is None:
                continue
            owners = layering.tree.owners_of_slots(held, layer.level)
            mask[owners[owners >= 0]] = False  # Members that are lost come back to their segment.
            if mask.any():
                slots = layering.tree.slots_of(layer.level, np.flatnonzero(~mask))[0]
                scope = scope.narrowed(Candidate(slots=slots), self._capacity)
        return scope

    def barred(self, layering: Layering) -> list[Bools | None]:
        """Per layer the domains that take no segment which begins now, as others or its own are there."""
        barred: list[Bools | None] = [None] * len(layering.layers)
        if self._exclusives is None or all(layer.exclusive is Exclusive.NONE for layer in layering.layers):
            return barred
        barred = self._exclusives.taken(self._group, layering)
        own = self._own()
        for layer, mask in zip(layering.layers, barred, strict=True):
            if layer.exclusive is Exclusive.KIND and mask is not None:
                owners = layering.tree.owners_of_slots(own, layer.level)
                mask[owners[owners >= 0]] = True
        return barred

    def _own(self) -> Ints:
        """Slots off which segments that begin now keep, as others of their kind and gang are there."""
        state = self._statement.state
        if self._leaf and self._exclusives is not None:
            return self._exclusives.taken_by_own(self._group, self._leaf, state.placed)
        return np.asarray([*state.anchors, *(slot for _, slot in state.placed)], dtype=np.intp)

    def alone(self, part: Part, layering: Layering) -> bool:
        """Whether segments that need a domain each have one."""
        where = {pod.uid: slot for pod, slot in self._statement.state.placed}
        placed = [at for at, pod in enumerate(part.core) if pod.uid in where]
        slots = np.asarray([*(where[part.core[at].uid] for at in placed), *part.anchors], dtype=np.intp)
        ids = layering.ids(np.concatenate([part.numbers[placed], running(part)]))
        for layer, own in zip(layering.layers, ids, strict=True):
            if layer.exclusive is Exclusive.KIND:
                owners = layering.tree.owners_of_slots(slots, layer.level)
                pairs = np.unique(np.stack([owners, own]), axis=1)
                if len(np.unique(pairs[0])) < pairs.shape[1]:
                    return False
        return True

    def in_few(self, part: Part, layering: Layering) -> bool:
        """Whether all segments are in as few domains as their layer allows."""
        most, used = layering.layers[0].max_domains, self.used(part, layering)
        return most is None or used is None or len(used) <= most

    def used(self, part: Part, layering: Layering) -> Ints | None:
        """The domains of the coarsest layer that hold members of the part; None where any number may."""
        if layering.layers[0].max_domains is None:
            return None
        where = {pod.uid: slot for pod, slot in self._statement.state.placed}
        placed = [where[pod.uid] for pod in (*part.core, *part.extra) if pod.uid in where]
        slots = np.asarray([*placed, *part.anchors], dtype=np.intp)
        owners = np.unique(layering.tree.owners_of_slots(slots, layering.layers[0].level))
        return owners[owners >= 0]


class SegmentPlacer:
    """What places segments on one statement."""

    def __init__(self, attempt: SegmentAttempt, rules: SegmentRules) -> None:
        self._cluster = attempt.tools.cluster
        self._table = attempt.tools.table
        self._group = attempt.group
        self._statement = attempt.statement
        self._filler = attempt.filler
        self._budget = attempt.budget
        self._chosen = attempt.chosen
        self._rules = rules

    def _within(
        self, scope: NodeSet, candidate: Candidate | None, layering: Layering
    ) -> tuple[NodeSet, bool]:
        """The nodes that a candidate offers of a scope, and whether figures of the scope hold for them."""
        inside = scope if candidate is None else scope.narrowed(candidate, self._cluster.capacity)
        return inside, inside.mask is scope.mask and (inside.tree is None or inside.tree is layering.tree)


def running(part: Part) -> Ints:
    """The numbers of members of a leaf that run already."""
    return NO_NUMBERS if part.segments is None else part.segments.running
