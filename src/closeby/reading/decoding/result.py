"""Everything that was read from some manifests."""

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.applications import AppGroup, NetworkTopology
from closeby.objects.groups import GangTemplates, PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodDisruptionBudget, PriorityClass, ResourceClaim
from closeby.objects.reasons import Condition, Problem
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import ClusterQueue, LocalQueue, ResourceFlavor, Topology
from closeby.objects.volumes import StorageObject
from closeby.objects.workloads import Workload


class SharedNotice(Struct, frozen=True):
    """A notice that several objects share; the condition names one of them."""

    condition: Condition
    objects: frozenset[str]


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
    namespaces: tuple[Namespace, ...] = ()
    #: By which default spread goes, beside the workloads.
    services: tuple[PodOwner, ...] = ()
    #: Claims, volumes, storage classes, and what nodes and drivers say of them.
    storage: tuple[StorageObject, ...] = ()
    #: Their places are given to the pods; those that are made of workloads come after these.
    resource_claims: tuple[ResourceClaim, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    #: How many objects there were of each known kind that is not used.
    others: Mapping[str, int] = {}
    #: What was left out or read in part, and why.
    notices: tuple[Condition, ...] = ()
    #: Of those in ``notices`` that several objects share: all of these objects.
    shared: tuple[SharedNotice, ...] = ()
    errors: tuple[Problem, ...] = ()
    #: Whether they are a whole cluster with its controllers at work: then no pods and gangs are to be made of
    #: what workloads and annotations ask for.
    whole: bool = False

    def notices_about(self, objects: Collection[str]) -> tuple[Condition, ...]:
        """The notices about some objects (``Kind/namespace/name``), also those that name another one."""
        sharing = {one.condition.object for one in self.shared}
        named = [
            one
            for one in self.notices
            if one.object in objects
            and (one.object not in sharing or not any(_same(one, other.condition) for other in self.shared))
        ]
        for one in self.shared:
            here = sorted(one.objects.intersection(objects))
            if here:
                count = f" ({len(here)} objects)" if len(here) > 1 else ""
                condition = one.condition
                named.append(replace(condition, object=here[0], message=f"{condition.message}{count}"))
        return tuple(sorted(named, key=lambda one: (one.object, one.field, one.message)))


def _same(counted: Condition, shared: Condition) -> bool:
    """Whether a notice is a shared one, whose message says besides how many objects share it."""
    same = (counted.object, counted.field) == (shared.object, shared.field)
    return same and counted.message.startswith(shared.message)
