"""Everything that was read from some manifests."""

from collections.abc import Mapping

from msgspec import Struct

from closeby.objects.applications import AppGroup
from closeby.objects.groups import GangTemplates, PodGroup
from closeby.objects.networks import NetworkTopology
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PriorityClass
from closeby.objects.problems import Problem
from closeby.objects.reasons import Condition
from closeby.objects.topologies import ClusterQueue, LocalQueue, ResourceFlavor, Topology
from closeby.objects.workloads import Workload


class Manifests(Struct, frozen=True, kw_only=True):
    """Records in the order in which they were read. With errors it is what could be read all the same."""

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    groups: tuple[PodGroup, ...] = ()
    topologies: tuple[Topology, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    flavors: tuple[ResourceFlavor, ...] = ()
    cluster_queues: tuple[ClusterQueue, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    workloads: tuple[Workload, ...] = ()
    gang_templates: tuple[GangTemplates, ...] = ()
    app_groups: tuple[AppGroup, ...] = ()
    network_topologies: tuple[NetworkTopology, ...] = ()
    #: How many objects there were of each known kind that is not used.
    others: Mapping[str, int] = {}
    #: What was left out or read in part, and why.
    notices: tuple[Condition, ...] = ()
    errors: tuple[Problem, ...] = ()
    #: Whether they are a whole cluster with its controllers at work: then no pods and gangs are to be made of
    #: what workloads and annotations ask for.
    whole: bool = False
