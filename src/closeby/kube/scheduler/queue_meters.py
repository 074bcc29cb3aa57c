"""The pods on their way to a node, as the queues and reasons that metrics tell."""

from collections import Counter as Tally
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from closeby.kube.metrics.meters import gauge
from closeby.objects.reasons import Reason, ReasonToken
from closeby.scheduling.engine import Engine

#: What never gets as far as an attempt: upstream keeps such pods out of its queue (PreEnqueue).
GATED: Final = frozenset(
    {
        Reason.SCHEDULING_GATED,
        Reason.NAMESPACE_EXCLUDED,
        Reason.APP_GROUP_NOT_FOUND,
        Reason.GANG_INCOMPLETE,
    }
)
#: The plugin behind a reason, where there is just one.
_PLUGINS: Final[Mapping[ReasonToken, str]] = {
    Reason.INSUFFICIENT_RESOURCES: "NodeResourcesFit",
    Reason.NODE_AFFINITY_MISMATCH: "NodeAffinity",
    Reason.TAINT_NOT_TOLERATED: "TaintToleration",
    Reason.NODE_UNSCHEDULABLE: "NodeUnschedulable",
    Reason.HOST_PORT_CONFLICT: "NodePorts",
    Reason.VOLUME_IN_USE: "VolumeRestrictions",
    Reason.VOLUME_NOT_BINDABLE: "VolumeBinding",
    Reason.CLAIM_NOT_FOUND: "VolumeBinding",
    Reason.VOLUME_ZONE_MISMATCH: "VolumeZone",
    Reason.VOLUME_LIMIT_REACHED: "NodeVolumeLimits",
    Reason.BANDWIDTH_RISK: "CheckRiskNodeBandwidth",
    Reason.NETWORK_COST_TOO_HIGH: "NetworkMinCost",
    Reason.TOPOLOGY_NOT_FOUND: "topology",
    Reason.TOPOLOGY_LEVEL_NOT_FOUND: "topology",
    Reason.TOPOLOGY_PLACEMENT_FAILED: "topology",
    Reason.SCHEDULING_GATED: "SchedulingGates",
    Reason.DOMAIN_EXCLUSIVE: "ExclusiveDomains",
}


class PodWait:
    """One pod on its way to a node; times in seconds of the meters' clock."""

    __slots__ = ("arrived", "attempts", "binding_since", "gang", "item", "over", "reason", "spent")

    def __init__(self, arrived: float) -> None:
        self.arrived = arrived
        self.attempts = 0
        #: By the decision that placed it.
        self.spent = 0.0
        self.binding_since: float | None = None
        #: Whether it has a node, or is gone, although its binding has not come to its end.
        self.over = False
        self.reason: ReasonToken | None = None
        #: Key of the engine's work item, and whether that is a gang; empty before the first decision.
        self.item = ""
        self.gang = False


def pods_by_queue(waits: Collection[PodWait], resting: Collection[str]) -> Metric:
    """``scheduler_pending_pods``; ``resting`` are the work items that are in back-off."""
    queues = Tally({"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0})
    queues.update(_queue(wait, resting) for wait in waits if wait.binding_since is None)
    return gauge(
        "scheduler_pending_pods",
        "Number of pending pods, by the queue type. 'active': looked at next; 'backoff': something may have "
        "helped them, but they were refused lately; 'unschedulable': refused, and nothing has helped; "
        "'gated': held by their scheduling gates, until their gang is complete, or in an excluded namespace.",
        ("queue",),
        {(name,): number for name, number in queues.items()},
    )


def pods_by_reason(waits: Collection[PodWait], profile: str, engine: Engine | None) -> Iterator[Metric]:
    """Why pods and gangs wait."""
    refused = [wait for wait in waits if wait.reason is not None]
    filters = () if engine is None else engine.profile.filters
    plugin_of = {one.reason: one.name for one in filters if one.reason is not None}
    plugin_of |= _PLUGINS
    plugins = Tally(plugin_of[wait.reason] for wait in refused if wait.reason in plugin_of)
    yield gauge(
        "scheduler_unschedulable_pods",
        "The number of unschedulable pods by the plugin that refuses them, where that is one alone; "
        "closeby_waiting_pods has them all.",
        ("plugin", "profile"),
        {(plugin, profile): number for plugin, number in plugins.items()},
    )
    yield gauge("closeby_waiting_pods", "Pods that wait, by reason.", ("reason",), _by_reason(refused))
    gangs = {wait.item: wait for wait in refused if wait.gang}
    yield gauge(
        "closeby_waiting_gangs",
        "Gangs of which pods wait, by reason.",
        ("reason",),
        _by_reason(gangs.values()),
    )


def sizes(in_flight: int, preparing: int, engine: Engine | None) -> Iterator[Metric]:
    """``scheduler_cache_size``, the bindings in flight, and those that wait for volumes."""
    yield GaugeMetricFamily("closeby_bindings_in_flight", "Bindings that are on the way.", in_flight)
    yield GaugeMetricFamily(
        "closeby_bindings_awaiting_volumes",
        "Bindings that are sent once the volumes of their pod, or of other members of its gang, are bound.",
        preparing,
    )
    if engine is None:
        return
    kept = engine.reservation
    yield GaugeMetricFamily(
        "closeby_reserved_nodes",
        "Nodes that are kept free for a gang that has waited long.",
        0 if kept is None else len(kept.nodes),
    )
    alone = engine.exclusive_nodes
    yield GaugeMetricFamily(
        "closeby_exclusive_nodes",
        "Nodes in domains that gangs have for themselves from all others.",
        0 if alone is None else int(alone.sum()),
    )
    yield gauge(
        "scheduler_cache_size",
        "Number of nodes, pods, and assumed pods (those on their way to a node) in the scheduler cache.",
        ("type",),
        {
            ("nodes",): sum(node is not None for node in engine.cluster.nodes),
            ("pods",): sum(1 for _ in engine.cluster.placed_pods()),
            ("assumed_pods",): in_flight + preparing,
        },
    )


def _queue(wait: PodWait, resting: Collection[str]) -> str:
    if wait.reason is None:
        return "active"
    if wait.reason in GATED:
        return "gated"
    return "backoff" if wait.item in resting else "unschedulable"


def _by_reason(refused: Collection[PodWait]) -> dict[tuple[str, ...], float]:
    return {(str(reason),): number for reason, number in Tally(wait.reason for wait in refused).items()}
