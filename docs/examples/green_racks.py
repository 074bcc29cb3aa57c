"""Puts a gang that asks for no level into one rack: the one where its nodes draw least power."""

from collections.abc import Iterable

import numpy as np

from closeby.plugin import (
    Candidate,
    CycleState,
    Domain,
    PartView,
    Placement,
    PlacementGenerate,
    PlacementScore,
)


class GreenRacks(PlacementGenerate, PlacementScore):
    name = "green-racks"
    placements_to_compare = 16

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        tree = self.handle.topologies.only_tree()
        if tree is None or (part.levels is not None and not part.levels.by_default):
            return None
        rack, inside = tree.node_level - 1, part.domain_in(tree)
        if rack <= inside.level:
            return None
        first, end = tree.within(inside, rack)
        room = part.room(tree, rack)[first:end]
        holds = first + np.flatnonzero((room >= part.needed) & tree.labelled[rack][first:end])
        domains = [*(Domain(rack, index) for index in holds.tolist()), inside]
        return [Candidate(tree=tree, domain=domain) for domain in domains]

    def placement_cost(self, state: CycleState, placement: Placement) -> float:
        nodes = map(self.handle.cluster.node_at, np.unique(placement.slots).tolist())
        return sum(float(node.annotations.get("power-draw", "1000")) for node in nodes)
