"""The room for segments without which a gang with layers can't be placed, whatever else changes.

A change of a node cures such a gang only if the domains then hold its segments. Counting them takes some ten
microseconds, where an attempt takes a hundred times as long.
"""

from collections.abc import Hashable

from msgspec import Struct

from closeby.objects.pods import Pod
from closeby.scheduling.gangs.parts import Part
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.topology.registry import Topologies
from closeby.topology.tree import ROOT_LEVEL


class SegmentNeed(Struct, frozen=True, kw_only=True, eq=False):
    """So many equal pods find room in segments, in one domain of a level (or of the whole cluster)."""

    pod: Pod
    #: Needs with equal keys are met by the same room.
    key: Hashable
    layering: Layering
    level: int
    pods: int

    def short(self, table: ClassTable, topologies: Topologies) -> bool:
        """Whether there is certainly too little room now; domains that others have for themselves count."""
        tree = topologies.tree(self.layering.tree.name)
        if tree is None or tree.levels != self.layering.tree.levels:
            return False
        layering = Layering(tree=tree, layers=self.layering.layers)
        counts = table.counts(table.of(self.pod), tree)
        room = SegmentRoom(layering, counts, [None] * len(layering.layers), strict=False)
        return int(room.room(self.level, self.pods).max(initial=0)) < self.pods


def segment_needs(table: ClassTable, whole: Part) -> tuple[SegmentNeed, ...]:
    """What the leaves with layers need, of which no member runs and whose pods are equal."""
    found = []
    for part in whole.leaves():
        layering = part.layering
        if layering is None or part.anchors or not part.core or len(table.shares(part.core)) > 1:
            continue
        followed = [layer for layer in layering.layers if layer.required]
        if not followed or any(layer.counts for layer in layering.layers):
            continue
        levels, level, pods = part.levels or whole.levels, ROOT_LEVEL, len(part.core)
        if levels is not None and levels.required is not None and levels.tree is layering.tree:
            level = levels.required
        if len(followed) > 1 or followed[0].max_domains is not None:
            # Only of one layer it is known exactly where a smaller last segment goes.
            pods -= pods % followed[-1].size
        if not pods:
            continue
        key = table.waiting_key(part.core[0]), layering.tree.name, layering.layers, level, pods
        found.append(
            SegmentNeed(pod=part.core[0], key=key, layering=layering, level=level, pods=pods),
        )
    return tuple(found)
