"""Configurations that have a name: the default one, kube-scheduler's scores, and one for each baseline.

Baselines differ from the default in the plugin that places gangs. The queue, the filters, all-or-nothing and
reservations are the same, and so is the place of a single pod that asks for accelerators wherever the
baseline has nothing to say about it: on the fullest node, so that whole nodes stay free for gangs. Of equally
full nodes the default takes the one in the domain that is fullest, which no baseline minds.

None of the baselines knows what traffic between pods costs: NetworkMinCost takes no part in them, so that the
pods of an application are single pods to them.
"""

from collections.abc import Mapping
from typing import Final

from closeby.reading.configuration import Configuration, PluginEntry

#: What runs without a configuration, in files, over time and on a cluster.
DEFAULT: Final = "default"
#: Another name of the default, from a time when runs over time had one of their own.
CLOSEBY: Final = "closeby"
#: Pods go where the scores of kube-scheduler's default profile send them.
KUBE_SCHEDULER: Final = "kube-scheduler"

_FULLEST_NODE: Final = PluginEntry(
    name="NodeResourcesFit",
    arguments={
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [{"name": "nvidia.com/gpu"}, {"name": "cpu"}, {"name": "memory"}],
        }
    },
)
_EMPTIEST_NODE: Final = PluginEntry(
    name="NodeResourcesFit",
    arguments={
        "scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "cpu"}, {"name": "memory"}]}
    },
)
_BALANCED: Final = PluginEntry(
    name="NodeResourcesBalancedAllocation",
    arguments={"resources": [{"name": "cpu"}, {"name": "memory"}]},
)
_NEAR_IMAGES: Final = PluginEntry(name="ImageLocality", arguments={"scoreAccelerators": True})
_SPREAD_ALL: Final = PluginEntry(name="PodTopologySpread", arguments={"defaultsForGangs": True})
_ONLY_A_FILTER: Final = PluginEntry(name="NodeResourcesFit", weight=0.0)
_AS_SCORES_SAY: Final = PluginEntry(
    name="topology", weight=0.0, arguments={"closeByDefault": False, "podByPod": True}
)
_WITHOUT_TOPOLOGY: Final = PluginEntry(name="topology", enabled=False)
_WITHOUT_NETWORK: Final = PluginEntry(name="NetworkMinCost", enabled=False)
_WITHOUT_AVOIDANCE: Final = PluginEntry(name="ScarceResourceAvoidance", enabled=False)
_WITHOUT_BINPACK: Final = PluginEntry(name="domain-binpack", enabled=False)
_WITHOUT_BALANCE: Final = PluginEntry(name="NodeResourcesBalancedAllocation", enabled=False)
_WITHOUT_PREEMPTION: Final = PluginEntry(name="DefaultPreemption", enabled=False)
_WITHOUT_IMAGES: Final = PluginEntry(name="ImageLocality", enabled=False)


def _baseline(plugin: str, fit: PluginEntry) -> Configuration:
    left_out = (
        _WITHOUT_AVOIDANCE,
        _WITHOUT_TOPOLOGY,
        _WITHOUT_NETWORK,
        _WITHOUT_BINPACK,
        _WITHOUT_BALANCE,
        _WITHOUT_IMAGES,
    )
    return Configuration(plugins=(fit, PluginEntry(name=plugin), *left_out), source=plugin)


def _choosing(plugin: str, name: str) -> Configuration:
    return Configuration(plugins=(PluginEntry(name=plugin), _WITHOUT_PREEMPTION), source=name)


#: By name; closeby's own first, then the baselines, those that know less of the topology first.
NAMED: Final[Mapping[str, Configuration]] = {
    DEFAULT: Configuration(source=DEFAULT),
    KUBE_SCHEDULER: Configuration(
        plugins=(
            _EMPTIEST_NODE,
            _BALANCED,
            _WITHOUT_AVOIDANCE,
            _NEAR_IMAGES,
            _SPREAD_ALL,
            _AS_SCORES_SAY,
            _WITHOUT_BINPACK,
        ),
        source=KUBE_SCHEDULER,
    ),
    "random": _baseline("random", _ONLY_A_FILTER),
    "least-allocated": _baseline("least-allocated", _ONLY_A_FILTER),
    "most-allocated": _baseline("most-allocated", _ONLY_A_FILTER),
    "first-task-labels": _baseline("first-task-labels", _FULLEST_NODE),
    "single-level-required": _baseline("single-level-required", _FULLEST_NODE),
    "slurm-tree": _baseline("slurm-tree", _FULLEST_NODE),
    "kueue-best-fit": _baseline("kueue-best-fit", _FULLEST_NODE),
    CLOSEBY: Configuration(source=CLOSEBY),
    # They differ from the default in how they choose victims alone.
    "no-preemption": Configuration(plugins=(_WITHOUT_PREEMPTION,), source="no-preemption"),
    "preempt-by-node": _choosing("closeby.lab.baselines.preempt_by_node:PreemptByNode", "preempt-by-node"),
    "preempt-newest": _choosing("closeby.lab.baselines.preempt_newest:PreemptNewest", "preempt-newest"),
}

#: Baselines that say something about gangs only: pods of applications go to the fullest node in all of them.
FOR_GANGS_ONLY: Final = frozenset(
    {"first-task-labels", "single-level-required", "slurm-tree", "kueue-best-fit"}
)
