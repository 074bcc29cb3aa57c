"""What is known during one attempt to place one work item."""

from collections.abc import Hashable
from typing import TYPE_CHECKING

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.scheduling.pace import UNPACED
from closeby.topology.tree import Tree

if TYPE_CHECKING:
    from closeby.scheduling.extension import Filter


class CycleState:
    """Scratch of one cycle; plugins keep what they computed in ``data`` under their own name."""

    __slots__ = ("anchors", "data", "group", "more_filters", "pace", "placed", "tree")

    def __init__(
        self, group: PodGroup | None = None, tree: Tree | None = None, anchors: tuple[int, ...] = ()
    ) -> None:
        #: The gang being placed, None for a plain pod.
        self.group = group
        #: The tree in which the gang's closeness is judged, None when there is none.
        self.tree = tree
        #: Slots of the gang's members that already run.
        self.anchors = anchors
        #: Members placed in this cycle so far, in order, with their slot; the cycle's statement keeps it.
        self.placed: list[tuple[Pod, int]] = []
        #: Counts the work done; plugins whose work grows with their input tell it so.
        self.pace = UNPACED
        self.data: dict[Hashable, object] = {}
        #: Filters of this cycle alone; they are asked after the profile's.
        self.more_filters: tuple[Filter, ...] = ()
