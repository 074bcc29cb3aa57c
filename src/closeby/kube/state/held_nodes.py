"""Nodes that carry this scheduler's own taint: held against other schedulers while a preemptor gets its room.

closeby does not heed its own taint, so that no decision depends on when it comes or goes.
"""

import hashlib
from typing import Final

from msgspec.structs import replace

from closeby.objects.labels import is_label
from closeby.objects.nodes import NO_SCHEDULE, Node, Taint

#: Its value is the scheduler, so that two of them heed each other's.
KEY: Final = "closeby.dev/held-by"
_DIGITS: Final = 16


def taint_of(scheduler_name: str) -> Taint:
    """The taint with which this scheduler holds nodes; a name that is no label value is hashed."""
    value = scheduler_name
    if not is_label(KEY, value):
        value = hashlib.sha256(value.encode()).hexdigest()[:_DIGITS]
    return Taint(KEY, value, NO_SCHEDULE)


class HeldNodes:
    """The names of the nodes that carry the taint, as the watch reported them last."""

    def __init__(self, scheduler_name: str) -> None:
        self.taint = taint_of(scheduler_name)
        self.names: set[str] = set()

    def without(self, node: Node) -> Node:
        """The node as the engine is to know it."""
        if self.taint not in node.taints:
            self.names.discard(node.name)
            return node
        self.names.add(node.name)
        return replace(node, taints=tuple(one for one in node.taints if one != self.taint))

    def forget(self, name: str) -> None:
        """The node is gone."""
        self.names.discard(name)
