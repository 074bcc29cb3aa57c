"""The plugins that come with closeby, and those that take part unless a configuration says otherwise."""

from collections.abc import Mapping

from closeby.plugins.check_risk_node_bandwidth import CheckRiskNodeBandwidth
from closeby.plugins.default_preemption import DefaultPreemption
from closeby.plugins.domain_binpack import DomainBinpack
from closeby.plugins.image_locality import ImageLocality
from closeby.plugins.inter_pod_affinity import InterPodAffinity
from closeby.plugins.network_min_cost import NetworkMinCost, NetworkMinCostArguments
from closeby.plugins.network_topology import NetworkTopology
from closeby.plugins.node_affinity import NodeAffinity
from closeby.plugins.node_name import NodeName
from closeby.plugins.node_ports import NodePorts
from closeby.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from closeby.plugins.node_resources_fit import NodeResourcesFit
from closeby.plugins.node_unschedulable import NodeUnschedulable
from closeby.plugins.node_volume_limits import NodeVolumeLimits
from closeby.plugins.pod_topology_spread import PodTopologySpread
from closeby.plugins.queue_sorts import PrioritySort, QOSSort, TopologicalSort
from closeby.plugins.scarce_resource_avoidance import ScarceResourceAvoidance
from closeby.plugins.scheduling_gates import SchedulingGates
from closeby.plugins.taint_toleration import TaintToleration
from closeby.plugins.task_topology import TaskTopology
from closeby.plugins.topology import TopologyPlacement
from closeby.plugins.volume_binding import VolumeBinding
from closeby.plugins.volume_restrictions import VolumeRestrictions
from closeby.plugins.volume_zone import VolumeZone
from closeby.reading.configuration import Configuration
from closeby.scheduling.extension import Handle, NoArguments, Plugin
from closeby.scheduling.profile import Profile, build_profile
from closeby.scheduling.services import DependencyCost

#: Taking part by default, in the order in which they are asked: cheap filters first.
DEFAULT_PLUGINS: tuple[type[Plugin], ...] = (
    SchedulingGates,
    PrioritySort,
    NodeName,
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodeResourcesFit,
    NodeResourcesBalancedAllocation,
    ScarceResourceAvoidance,
    NodePorts,
    VolumeRestrictions,
    NodeVolumeLimits,
    VolumeBinding,
    VolumeZone,
    ImageLocality,
    PodTopologySpread,
    InterPodAffinity,
    CheckRiskNodeBandwidth,
    NetworkTopology,
    TaskTopology,
    NetworkMinCost,
    TopologyPlacement,
    DomainBinpack,
    DefaultPreemption,
)

#: Taking part where a configuration names them. The laboratory offers its baselines by entry points.
OTHER_PLUGINS: tuple[type[Plugin], ...] = (QOSSort, TopologicalSort)

#: All built-in plugins by name, and by the other name that a design gives one.
BUILT_IN: Mapping[str, type[Plugin]] = {
    **{plugin.name: plugin for plugin in (*DEFAULT_PLUGINS, *OTHER_PLUGINS)},
    "CheckRiskNodebandwidth": CheckRiskNodeBandwidth,
}


def profile_for(configuration: Configuration, handle: Handle) -> Profile:
    """The profile of a configuration, with the built-in plugins at hand.

    Raises:
        ConfigurationError: with every mistake found.
    """
    handle.required_affinity = NodeAffinity(NoArguments(), handle).asked
    return build_profile(configuration, BUILT_IN, handle, [plugin.name for plugin in DEFAULT_PLUGINS])


def dependency_cost(profile: Profile) -> DependencyCost:
    """What judges the traffic of applications: the first plugin of the profile that offers its cost.

    Where none does, traffic has its cost all the same: that of NetworkMinCost with its default arguments.
    That plugin takes no part in decisions, and has noted no pod.
    """
    offered = profile.dependency_costs
    return offered[0] if offered else NetworkMinCost(NetworkMinCostArguments(), profile.queue_sort.handle)
