"""Gangs with a domain for themselves, whose pods must go for nodes that these pods are not on."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from closeby.objects.arrays import Ints
from closeby.scheduling.placing.exclusive import OwnedDomain
from closeby.scheduling.preempting.running_pods import RunningPods
from closeby.topology.tree import Tree


def owners_in(
    running: RunningPods, may: Ints, tree: Tree, level: int, owned: Sequence[OwnedDomain]
) -> Mapping[int, Mapping[int, Iterable[int]]]:
    """By domain of a level: the holders of the domains around it, and their pods there outside of it.

    ``may``: indices of the pods that may go.
    """
    found: dict[int, dict[int, dict[int, None]]] = {}
    for one in owned:
        number = running.gangs.get(one.owner)
        if number is None:
            continue
        mine = may[running.holder_of[may] == number]
        pods = mine[np.isin(running.slots[mine], one.slots)]
        at = tree.owners_of_slots(running.slots[pods], level)
        domains = np.unique(tree.owners_of_slots(one.slots, level))
        if not len(pods) or len(domains) == 1:
            continue
        for domain in domains[domains >= 0].tolist():
            others = found.setdefault(domain, {}).setdefault(number, {})
            others |= dict.fromkeys(pods[at != domain].tolist())
    return found
