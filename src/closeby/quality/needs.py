"""How few domains could hold a gang on an empty cluster, whatever resources its pods ask for."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from closeby.cluster.columns import EVERYTHING, Cluster, Demand
from closeby.objects.arrays import Counts, Floats
from closeby.objects.nodes import is_gpu
from closeby.objects.pods import Pod, PodSpec
from closeby.quality.spans import domains_needed, most_held
from closeby.topology.tree import Tree

_REMEMBERED: Final = 256


class EmptyCluster:
    """A cluster as if no pod were on it. Keeps what it worked out until a Node changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen = -1
        #: (tree, demand) -> the most pods that a domain of each level holds.
        self._most: dict[tuple[int, Demand], tuple[Tree, Floats]] = {}

    def fewest(self, tree: Tree, pods: Sequence[Pod]) -> Floats:
        """Fewest domains of each level that could hold these pods; shape (K,); nan where one fits nowhere.

        For equal pods that is ceil(pods / most pods that one domain holds). For others it is the greatest of
        what each kind of pods needs for itself and what each resource needs in sum: a lower bound. Only
        amounts of resources count, not what else may keep a pod from a node.
        """
        kinds: Counter[Demand] = Counter()
        for spec, count in _by_spec(pods):
            kinds[self._cluster.demand(spec)] += count
        needs = [
            domains_needed(np.asarray(float(count)), self._held(tree, kind)) for kind, count in kinds.items()
        ]
        if len(kinds) > 1:
            totals: Counter[int] = Counter()
            for kind, count in kinds.items():
                for row, amount in zip(kind.rows, kind.amounts, strict=True):
                    totals[row] += amount * count
            needs += [
                domains_needed(np.asarray(float(total)), self._held(tree, Demand((row,), (1,), ())))
                for row, total in totals.items()
            ]
        least: Floats = np.maximum.reduce(needs)
        return least

    def _held(self, tree: Tree, wanted: Demand) -> Floats:
        """The most pods of a demand that one domain of each level holds; shape (K,)."""
        if self._seen != self._cluster.node_changes.cursor:
            self._most.clear()
            self._seen = self._cluster.node_changes.cursor
        known = self._most.get((id(tree), wanted))
        if known is not None and known[0] is tree:
            return known[1]
        if len(self._most) >= _REMEMBERED:
            self._most.clear()
        most = most_held(tree, self._cluster.room(wanted, without=EVERYTHING))
        self._most[id(tree), wanted] = tree, most
        return most


def gpus_of(spec: PodSpec) -> int:
    """GPUs that a pod asks for."""
    return sum(amount for resource, amount in spec.requests if is_gpu(resource))


def node_gpus(cluster: Cluster) -> Counts:
    """GPUs of each slot; shape (slots,)."""
    rows = [row for resource, row in cluster.row_of.items() if is_gpu(resource)]
    found: Counts = cluster.allocatable[rows].sum(axis=0)
    return found


def _by_spec(pods: Sequence[Pod]) -> list[tuple[PodSpec, int]]:
    """Pods counted by spec; those of one gang mostly share the very object."""
    specs = {id(pod.spec): pod.spec for pod in pods}
    counts = Counter(id(pod.spec) for pod in pods)
    return [(specs[key], count) for key, count in counts.items()]
