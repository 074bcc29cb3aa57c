"""Where a pod may go that has no place, while other pods of its Workload run: in the domain that holds them.

One pod can't keep what its Workload asks for, unless the pods that are there say in which domain that is.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from closeby.objects.arrays import Bools
from closeby.objects.groups import PodGroup
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.placing.tools import Tools


class Siblings(NamedTuple):
    """The Workload of a pod, as the gang that asks for its places."""

    group: PodGroup
    #: The subgroup of the pod; None: there are none.
    subgroup: str | None
    #: Subgroup and slot of each pod that has a node, and of each place that is held.
    placed: Sequence[tuple[str | None, int]]


def domain_of(siblings: Siblings, tools: Tools) -> Bools | None:
    """The slots in the domains that the Workload requires, shape (capacity,); None where these are not known.

    Of layers it is not known to which segment the pod belongs.
    """
    group, own = siblings.group, siblings.subgroup
    subgroups = {one.name: one for one in group.subgroups}
    if group.layers or any(one.layers or one.parent for one in group.subgroups):
        return None
    levels = constraints_of(group, tools.topologies, tools.profile.close_by_default).levels
    inside: Bools | None = None
    for name in ("", own):
        asked = group.constraint if name == "" else subgroups[name].constraint if name in subgroups else None
        if asked is None or asked.required is None:
            continue
        known = levels.get(name or "")
        slots = [slot for subgroup, slot in siblings.placed if name in ("", subgroup)]
        node = known.tree.node_domain(slots[0]) if known is not None and slots else None
        if known is None or known.required is None or node is None:
            return None
        mask = np.zeros(tools.cluster.capacity, dtype=np.bool_)
        mask[known.tree.slots_in(known.tree.ancestor(node, known.required))] = True
        inside = mask if inside is None else inside & mask
    return inside
