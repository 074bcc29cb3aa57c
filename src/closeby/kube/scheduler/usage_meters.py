"""How much of the cluster is used, and how torn what is left of it is, as gauges for Prometheus."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import Metric

from closeby.cluster.columns import Cluster, main_resources, offered, taking_pods
from closeby.kube.metrics.meters import gauge
from closeby.quality.moments import largest_shares
from closeby.quality.placements import level_names
from closeby.scheduling.engine import Engine

_RATIO: Final = "closeby_resource_utilisation_ratio"
_LARGEST: Final = "closeby_largest_gang_ratio"


class UsageMeters:
    """Looks up the use of an engine's cluster; nodes that take no pods count as full."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cursor = -1
        self._usable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def gauges(self) -> Iterator[Metric]:
        """Utilisation by resource, and the largest gang by topology, level and main resource."""
        cluster = self._engine.cluster
        usable = self._nodes_in_use(cluster)
        yield gauge(
            _RATIO,
            "What pods asked for over what nodes offer, by resource.",
            ("resource",),
            {(resource,): _utilisation(cluster, resource) for resource in offered(cluster)},
        )
        yield gauge(
            "closeby_overcommitted_nodes",
            "Nodes whose pods ask for more of a resource than the node offers, by resource.",
            ("resource",),
            {(resource,): _overcommitted(cluster, resource) for resource in offered(cluster)},
        )
        found: dict[tuple[str, ...], float] = {}
        ignored: dict[tuple[str, ...], float] = {}
        for name in self._engine.topologies.usable():
            tree = self._engine.topologies.tree(name)
            if tree is None or not tree.size:
                continue
            numbers = self._engine.topologies.ignored(name)
            ignored |= {(name, level): n for level, n in zip(tree.level_names, numbers, strict=False)}
            for resource in main_resources(cluster):
                free = np.where(usable, cluster.free(cluster.row_of[resource], slice(None)), 0)
                shares = largest_shares(tree, free).tolist()
                for level, share in zip(level_names(tree), shares, strict=True):
                    if not np.isnan(share):
                        found[name, level, resource] = share
        yield gauge(
            _LARGEST,
            "The most that is free in one domain of a level over all that is free: the largest gang of small "
            "pods that fits in one domain.",
            ("topology", "level", "resource"),
            found,
        )
        yield gauge(
            "closeby_nodes_without_level",
            "Nodes whose label of a level does not count: it contradicts those of others, or is illegal.",
            ("topology", "level"),
            ignored,
        )

    def _nodes_in_use(self, cluster: Cluster) -> NDArray[np.bool_]:
        """Nodes that take pods; shape (slots,)."""
        if self._cursor != cluster.node_changes.cursor:
            self._cursor = cluster.node_changes.cursor
            self._usable = taking_pods(cluster)
        return self._usable


def _overcommitted(cluster: Cluster, resource: str) -> float:
    row = cluster.row_of[resource]
    return float(((cluster.requested[row] > cluster.allocatable[row]) & cluster.alive).sum())


def _utilisation(cluster: Cluster, resource: str) -> float:
    row = cluster.row_of[resource]
    return float(cluster.requested[row].sum()) / float(cluster.allocatable[row].sum())
