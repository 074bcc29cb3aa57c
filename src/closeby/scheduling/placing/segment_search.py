"""Places a gang, or a subgroup, that has layers: its members in segments that each have a domain.

Equal pods go by counting (``counted_segments``), which finds a way wherever there is one; unequal ones first
into the domains that hold most of them (``unlike_segments``). What that leaves undecided is searched segment
by segment, as if each were a subgroup.
"""

from collections.abc import Callable, Iterator
from enum import Enum

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.groups import Exclusive
from closeby.scheduling.by_domain import DomainMask
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import NodeSet, Part
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.pod_classes import masks_of
from closeby.scheduling.placing.counted_segments import CountedSegments, Proposes
from closeby.scheduling.placing.segment_rules import SegmentAttempt, SegmentRules, running
from closeby.scheduling.placing.unlike_segments import UnlikeSegments
from closeby.topology.constraints import Levels

#: Every way to place a part inside a scope, one after another.
Ways = Callable[[Part, NodeSet], Iterator[None]]


class Follow(Enum):
    """Which layers a search follows."""

    ALL = "all"
    #: Those that are required, and the others as far as each segment can.
    MOST = "most"
    REQUIRED = "required"


class SegmentSearch:
    """Places parts with layers on one statement."""

    def __init__(self, attempt: SegmentAttempt) -> None:
        self._attempt = attempt
        self._cluster = attempt.tools.cluster
        self._table = attempt.tools.table
        self._filler = attempt.filler
        self._budget = attempt.budget
        self._chosen = attempt.chosen
        self._rules = SegmentRules(attempt)

    def ways(
        self, part: Part, scope: NodeSet, proposes: Proposes, searched: Ways, *, every: bool
    ) -> Iterator[None]:
        """Each step places the part in another way; with all preferred layers followed, then without.

        ``every``: also in ways that use other nodes of the same domains, which may matter to other parts.
        """
        layering = part.layering
        if layering is None:
            return
        scope = self._beside_anchors(part, scope)
        demand = self._table.shares(part.core)
        exactly, certain = self._filler.counts_exactly(demand), False
        masks = self._masks(part, layering, exactly=exactly) if len(demand) == 1 else None
        if masks is not None:
            share = demand[0] if exactly else self._table.beside_each_other(part.core)[0]
            counted = CountedSegments(self._attempt, self._rules, part, layering, scope, share, masks)
            # Where limits keep pods from following a preferred layer they are searched.
            for strict in (True, False) if layering.prefers and not masks else (True,):
                certain = yield from counted.ways(proposes, strict=strict)
        elif exactly and not part.anchors:
            unlike = UnlikeSegments(self._attempt, self._rules, part, layering, scope, demand)
            certain = (yield from unlike.ways(proposes)) and not layering.prefers
        if certain and not every:
            return
        if masks is not None and exactly:
            self._budget.limit_to_segments(layering.segments_of(part.numbers[: len(part.core)]))
        inside = self._rules.open(part, layering, scope)
        ways = tuple(Follow) if layering.prefers else (Follow.ALL,)
        spent = self._budget.spent
        for follow in ways:
            self._budget.spent = spent  # What asks for less tells more.
            # A search for what is only preferred leaves steps to those that ask for less.
            aside = self._budget.set_aside() if follow is not ways[-1] else (0, 0)
            if follow is Follow.REQUIRED and not any(layer.required for layer in layering.layers):
                self._budget.divide_no_more()
            for _ in searched(segment_tree(part, layering, follow), inside):
                if self._rules.alone(part, layering) and self._rules.in_few(part, layering):
                    self._chosen[part.name] = (None, inside)
                    yield
                elif follow is Follow.REQUIRED:
                    self._budget.spent = True  # Of several ways without segments one is tried.
            self._budget.put_back(aside)
        if not exactly:
            self._budget.spent = True  # Other nodes for the first pods might have let the last ones in.

    def _masks(self, part: Part, layering: Layering, *, exactly: bool) -> list[DomainMask] | None:
        """Those by which equal pods limit how many of them domains take; None where that can't be counted."""
        if layering.uneven or exactly:
            return None if layering.uneven else []
        (share,) = self._table.beside_each_other(part.core)
        if share.reaches_beyond or share.pod_class.blind_filters:
            return None
        masks = masks_of(self._table.domain_filters, share.pods[0])
        apart = {mask.key for mask in masks if mask.apart}
        # What the terms of placed pods close is closed by the pods' own, where these are equal.
        closing = [
            mask
            for mask in masks
            if mask.closes is not False and not (mask.closes and not mask.apart and mask.key in apart)
        ]
        open_somewhere = all(mask.allowed().any() for mask in masks)
        known = open_somewhere and all(mask.limit() is not None for mask in closing)
        return closing if known and not any(layer.counts for layer in layering.layers) else None

    def _beside_anchors(self, part: Part, scope: NodeSet) -> NodeSet:
        """The scope, or the domain in it that members which run already hold the part to."""
        levels = part.levels
        if levels is None or levels.required is None or not part.anchors:
            return scope
        node = levels.tree.node_domain(part.anchors[0])
        if node is None:
            return scope
        held = Candidate(tree=levels.tree, domain=levels.tree.ancestor(node, levels.required))
        return scope.narrowed(held, self._cluster.capacity)


def segment_tree(part: Part, layering: Layering, follow: Follow = Follow.ALL) -> Part:
    """The part with a child for each segment, which has children for those of the next layer that counts."""
    members = len(part.core)
    numbers = np.concatenate([part.numbers[:members], running(part)])
    ids = layering.ids(numbers)

    def anchors(places: Ints) -> tuple[int, ...]:
        return tuple(part.anchors[at - members] for at in places.tolist())

    def build(name: str, depth: int, levels: Levels | None, own: Ints) -> Part:
        while follow is Follow.REQUIRED and depth < len(ids) and not layering.layers[depth].required:
            depth += 1
        if depth == len(ids):
            waiting = own[own < members]
            waiting = waiting[np.argsort(numbers[waiting], kind="stable")]
            return Part(
                name=name,
                levels=levels,
                core=tuple(part.core[at] for at in waiting.tolist()),
                anchors=anchors(own[own >= members]),
            )
        layer = layering.layers[depth]
        needed = layer.required or follow is Follow.ALL
        alone = needed and layer.exclusive is Exclusive.KIND
        below = Levels(
            tree=layering.tree,
            required=layer.level if needed else None,
            preferred=None if needed else layer.level,
        )
        inner = ids[depth][own]
        wanting = np.unique(inner[own < members])
        children = [
            build(f"{name}#{segment}", depth + 1, below, own[inner == segment])
            for segment in wanting.tolist()
        ]
        if alone:
            children = [replace(child, alone=True, beside=part.anchors) for child in children]
        # Segments of which no member waits still hold others to the domain of the segment around them all.
        whole = own[~np.isin(inner, wanting)]
        if depth and len(whole):
            children.append(Part(name=f"{name}#", anchors=anchors(whole)))
        return Part(name=name, levels=levels, children=tuple(children), min_children=len(children))

    return build(part.name, 0, part.levels, np.arange(len(numbers), dtype=np.intp))
