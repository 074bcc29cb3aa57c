"""Which reader reads which kind, and what is reported about the kinds that have none."""

import difflib
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec import Struct

from closeby.objects.applications import AppGroup, NetworkTopology
from closeby.objects.groups import GangTemplates, PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodDisruptionBudget, PriorityClass, ResourceClaim, RuntimeClass
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import ClusterQueue, HyperNode, LocalQueue, ResourceFlavor, Topology
from closeby.objects.volumes import StorageObject
from closeby.objects.workloads import TrainingRuntime, TrainJob, Workload
from closeby.reading.decoding import volumes
from closeby.reading.decoding.disruption import read_budget
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.nodes import read_node
from closeby.reading.decoding.pods import read_pod, read_priority_class, read_runtime_class
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.resource_claims import read_resource_claim
from closeby.reading.decoding.topologies import read_own_topology, read_topology
from closeby.reading.decoding.workloads import (
    read_job,
    read_namespace,
    read_replicated,
    read_service,
    read_stateful_set,
)
from closeby.reading.dialects import (
    app_groups,
    closeby,
    coscheduling,
    hypernodes,
    kai,
    kueue,
    network_topologies,
    upstream,
    volcano,
)
from closeby.reading.dialects.grove import read_pod_clique_set, read_topology_binding
from closeby.reading.dialects.jobset import read_job_set
from closeby.reading.dialects.kubeflow import KINDS as TRAINING_KINDS
from closeby.reading.dialects.kubeflow import read_training_job
from closeby.reading.dialects.leaderworkerset import read_leader_worker_set
from closeby.reading.dialects.ray import read_ray_cluster, read_ray_job
from closeby.reading.dialects.trainer import read_runtime, read_train_job
from closeby.reading.dialects.volcano_jobs import read_volcano_job

Record = (
    Node
    | Pod
    | PodGroup
    | GangTemplates
    | Topology
    | HyperNode
    | PriorityClass
    | ResourceFlavor
    | ClusterQueue
    | LocalQueue
    | Workload
    | TrainJob
    | TrainingRuntime
    | AppGroup
    | NetworkTopology
    | ResourceClaim
    | RuntimeClass
    | Namespace
    | PodOwner
    | StorageObject
    | PodDisruptionBudget
)

#: closeby's own API group, whose schema is strict.
OWN_GROUP: Final = "closeby.dev"


class Entry(Struct, frozen=True):
    """``versions`` empty means that all of them say the same about what is read."""

    read: Callable[[Document, DocumentReading], Record | None]
    versions: tuple[str, ...] = ()


_KUEUE_VERSIONS: Final = ("v1alpha1", "v1beta1", "v1beta2")
_UPSTREAM_VERSIONS: Final = ("v1alpha2", "v1alpha3", "v1beta1")

#: API group and kind to reader.
READERS: Final[dict[tuple[str, str], Entry]] = {
    ("", "Node"): Entry(read_node),
    ("", "Pod"): Entry(read_pod),
    ("", "Namespace"): Entry(read_namespace),
    ("", "Service"): Entry(read_service),
    ("", "ReplicationController"): Entry(read_replicated),
    ("apps", "Deployment"): Entry(read_replicated),
    ("apps", "ReplicaSet"): Entry(read_replicated),
    ("apps", "StatefulSet"): Entry(read_stateful_set),
    ("batch", "Job"): Entry(read_job),
    ("batch.volcano.sh", "Job"): Entry(read_volcano_job),
    ("jobset.x-k8s.io", "JobSet"): Entry(read_job_set),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Entry(read_leader_worker_set),
    ("grove.io", "PodCliqueSet"): Entry(read_pod_clique_set, ("v1alpha1",)),
    ("trainer.kubeflow.org", "TrainJob"): Entry(read_train_job, ("v1alpha1",)),
    ("trainer.kubeflow.org", "TrainingRuntime"): Entry(read_runtime, ("v1alpha1",)),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): Entry(read_runtime, ("v1alpha1",)),
    ("ray.io", "RayCluster"): Entry(read_ray_cluster),
    ("ray.io", "RayJob"): Entry(read_ray_job),
    **{("kubeflow.org", kind): Entry(read_training_job) for kind in TRAINING_KINDS},
    ("policy", "PodDisruptionBudget"): Entry(read_budget),
    ("scheduling.k8s.io", "PriorityClass"): Entry(read_priority_class),
    ("node.k8s.io", "RuntimeClass"): Entry(read_runtime_class),
    ("resource.k8s.io", "ResourceClaim"): Entry(read_resource_claim, ("v1", "v1beta2", "v1beta1")),
    ("", "PersistentVolumeClaim"): Entry(volumes.read_claim),
    ("", "PersistentVolume"): Entry(volumes.read_volume),
    ("storage.k8s.io", "StorageClass"): Entry(volumes.read_storage_class),
    ("storage.k8s.io", "CSINode"): Entry(volumes.read_csi_node),
    ("storage.k8s.io", "CSIDriver"): Entry(volumes.read_csi_driver),
    ("storage.k8s.io", "CSIStorageCapacity"): Entry(volumes.read_storage_capacity),
    ("storage.k8s.io", "VolumeAttachment"): Entry(volumes.read_attachment),
    (OWN_GROUP, "PodGroup"): Entry(closeby.read_pod_group, ("v1alpha1",)),
    ("scheduling.run.ai", "PodGroup"): Entry(kai.read_pod_group, ("v2alpha2",)),
    ("scheduling.x-k8s.io", "PodGroup"): Entry(coscheduling.read_pod_group, ("v1alpha1",)),
    ("scheduling.volcano.sh", "PodGroup"): Entry(volcano.read_pod_group, ("v1beta1",)),
    ("scheduling.k8s.io", "PodGroup"): Entry(upstream.read_pod_group, _UPSTREAM_VERSIONS),
    ("scheduling.k8s.io", "Workload"): Entry(upstream.read_workload),
    ("scheduling.k8s.io", "CompositePodGroup"): Entry(upstream.read_composite),
    (OWN_GROUP, "Topology"): Entry(read_own_topology, ("v1alpha1",)),
    ("kai.scheduler", "Topology"): Entry(read_topology, ("v1alpha1",)),
    ("kueue.x-k8s.io", "Topology"): Entry(read_topology, _KUEUE_VERSIONS),
    ("kueue.x-k8s.io", "ResourceFlavor"): Entry(kueue.read_flavor, _KUEUE_VERSIONS),
    ("kueue.x-k8s.io", "ClusterQueue"): Entry(kueue.read_cluster_queue, _KUEUE_VERSIONS),
    ("kueue.x-k8s.io", "LocalQueue"): Entry(kueue.read_local_queue, _KUEUE_VERSIONS),
    ("grove.io", "ClusterTopologyBinding"): Entry(read_topology_binding, ("v1alpha1",)),
    ("topology.volcano.sh", "HyperNode"): Entry(hypernodes.read_hypernode),
    ("scheduling.sigs.k8s.io", "AppGroup"): Entry(app_groups.read_kep, ("v1alpha1",)),
    ("appgroup.diktyo.x-k8s.io", "AppGroup"): Entry(app_groups.read_published, ("v1alpha1",)),
    ("scheduling.sigs.k8s.io", "NetworkTopology"): Entry(network_topologies.read_kep, ("v1alpha1",)),
    ("networktopology.diktyo.x-k8s.io", "NetworkTopology"): Entry(
        network_topologies.read_published, ("v1alpha1",)
    ),
}

#: How alike a kind and the one that was meant are.
_ALIKE: Final = 0.8
#: The same of groups, which are long names with common parts.
_GROUP_ALIKE: Final = 0.7
_LATER: Final = "is not used yet"
#: Kinds that bear on placement or make pods, and are known but not used: what is said about them.
NOTED: Final[dict[tuple[str, str], str]] = {
    ("apps", "DaemonSet"): "creates one pod per node; only its existing pods count",
    ("batch", "CronJob"): "is a template; only jobs of it that exist are placed",
    ("resource.k8s.io", "ResourceClaimTemplate"): _LATER,
}

#: Kinds that bear on placement and are not used: pods that depend on such an object wait.
NOT_YET: Final = frozenset(
    {
        "CompositePodGroup",
        "ResourceClaimTemplate",
        "ResourceSlice",
    }
)
#: Core kinds that have no bearing on placement.
_CORE: Final = frozenset(
    {
        "Binding",
        "ComponentStatus",
        "ConfigMap",
        "Endpoints",
        "Event",
        "LimitRange",
        "PodTemplate",
        "ResourceQuota",
        "Secret",
        "ServiceAccount",
    }
)
#: Groups of which nothing else has a bearing on placement.
_GROUPS: Final = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "gateway.networking.k8s.io",
        "kueue.x-k8s.io",
        "metrics.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)
#: Queues of batch schedulers: quota, not placement.
_QUEUES: Final = frozenset({"scheduling.run.ai", "scheduling.volcano.sh"})


def irrelevant(group: str, kind: str) -> bool:
    """Whether a kind without a reader is known to have no bearing on placement."""
    if not group:
        return kind in _CORE
    return group in _GROUPS or (group in _QUEUES and kind == "Queue")


@lru_cache(maxsize=4096)
def meant(group: str, kind: str) -> str | None:
    """The kind of the same group that was meant by one that no reader knows; None when none is alike."""
    if (group, kind) in NOTED or kind in NOT_YET or (not group and kind in _CORE):
        return None
    known = [one for of, one in (*READERS, *NOTED) if of == group]
    same = {one.casefold(): one for one in known}
    close = difflib.get_close_matches(kind.casefold(), same, n=1, cutoff=_ALIKE)
    return same[close[0]] if close else None


@lru_cache(maxsize=4096)
def groups_meant(group: str, kind: str) -> tuple[str, ...]:
    """The groups with a kind that were probably meant by one in which nothing is known.

    Of the core group, which has no name that could be misspelt, all groups with that very kind.
    """
    groups = dict.fromkeys(of for of, one in (*READERS, *NOTED) if one.casefold() == kind.casefold())
    if not group:
        return () if meant(group, kind) is not None else tuple(groups)
    if group in _GROUPS or group in _QUEUES or any(of == group for of, _ in (*READERS, *NOTED)):
        return ()
    return tuple(difflib.get_close_matches(group, groups, n=1, cutoff=_GROUP_ALIKE))


def own_kinds() -> list[str]:
    """The kinds of closeby's own group."""
    return sorted(kind for group, kind in READERS if group == OWN_GROUP)
