"""Configurations that have a name: closeby's own for clusters of GPUs, and one for each baseline.

They differ in the plugin that places gangs. The queue, the filters, all-or-nothing and reservations are the
same, and so is the place of a single pod wherever the baseline has nothing to say about it: on the fullest
node, so that whole nodes stay free for gangs. Of equally full nodes closeby takes the one in the domain that
is fullest, which no baseline minds.

None of the baselines knows what traffic between pods costs: NetworkMinCost takes no part in them, so that the
pods of an application are single pods to them.
"""

from collections.abc import Mapping
from typing import Final

from closeby.reading.configuration import Configuration, PluginEntry

#: What closeby's own is called; comparisons take it as the reference by default.
CLOSEBY: Final = "closeby"
#: The default configuration of the scheduler: single pods go to the emptiest node.
DEFAULT: Final = "default"

_FULLEST_NODE: Final = PluginEntry(
    name="NodeResourcesFit",
    arguments={
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [{"name": "nvidia.com/gpu"}, {"name": "cpu"}, {"name": "memory"}],
        }
    },
)
_ONLY_A_FILTER: Final = PluginEntry(name="NodeResourcesFit", weight=0.0)
_WITHOUT_TOPOLOGY: Final = PluginEntry(name="topology", enabled=False)
_WITHOUT_NETWORK: Final = PluginEntry(name="NetworkMinCost", enabled=False)


def _baseline(plugin: str, fit: PluginEntry) -> Configuration:
    return Configuration(
        plugins=(fit, PluginEntry(name=plugin), _WITHOUT_TOPOLOGY, _WITHOUT_NETWORK), source=plugin
    )


#: By name; ``closeby`` first, then the baselines, those that know less of the topology first.
NAMED: Final[Mapping[str, Configuration]] = {
    CLOSEBY: Configuration(plugins=(_FULLEST_NODE, PluginEntry(name="domain-binpack")), source=CLOSEBY),
    "random": _baseline("random", _ONLY_A_FILTER),
    "least-allocated": _baseline("least-allocated", _ONLY_A_FILTER),
    "most-allocated": _baseline("most-allocated", _ONLY_A_FILTER),
    "first-task-labels": _baseline("first-task-labels", _FULLEST_NODE),
    "single-level-required": _baseline("single-level-required", _FULLEST_NODE),
    "slurm-tree": _baseline("slurm-tree", _FULLEST_NODE),
    "kueue-best-fit": _baseline("kueue-best-fit", _FULLEST_NODE),
    DEFAULT: Configuration(source=DEFAULT),
}

#: Baselines that say something about gangs only: pods of applications go to the fullest node in all of them.
FOR_GANGS_ONLY: Final = frozenset(
    {"first-task-labels", "single-level-required", "slurm-tree", "kueue-best-fit"}
)
