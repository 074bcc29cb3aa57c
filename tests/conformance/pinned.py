"""A plugin that lets a pod go to one node only, so that closeby is asked about single nodes.

A node affinity would do so too, but it changes which nodes count for a topology spread.
"""

from typing import ClassVar

import numpy as np

from closeby.plugin import Bools, CycleState, Filter, Nodes, Pod, Rejection

#: Annotation with the name of the node.
ON = "tests.closeby.dev/on"


class Pinned(Filter):
    """Only the node that the annotation names."""

    name: ClassVar[str] = "pinned"
    reason: ClassVar[str] = "Pinned"

    def class_key(self, pod: Pod) -> str | None:
        return pod.annotations.get(ON)

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        slot = self.handle.cluster.slot(pod.annotations.get(ON, ""))
        return np.equal(nodes.slots, -1 if slot is None else slot)

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        return Rejection("Pinned", "the test asks about another node")
