"""A workload object (Job, Deployment, JobSet, ...): the pods its controller would make, and its gang."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from closeby.objects.groups import Layer, PodGroup, SizeField
from closeby.objects.pods import Pod
from closeby.objects.selectors import LabelSelector

#: Kind -> path of its pod template. Volcano's Job shares its kind with Kubernetes' own.
_TEMPLATES: Final = {
    "CronJob": "spec.jobTemplate.spec.template",
    "DaemonSet": "spec.template",
    "Deployment": "spec.template",
    "Job": "spec.template",
    "JAXJob": "spec.jaxReplicaSpecs.*.template",
    "JobSet": "spec.replicatedJobs[*].template.spec.template",
    "LeaderWorkerSet": "spec.leaderWorkerTemplate.workerTemplate",
    "MPIJob": "spec.mpiReplicaSpecs.*.template",
    "PaddleJob": "spec.paddleReplicaSpecs.*.template",
    "PyTorchJob": "spec.pytorchReplicaSpecs.*.template",
    "RayCluster": "spec.workerGroupSpecs[*].template",
    "RayJob": "spec.rayClusterSpec.workerGroupSpecs[*].template",
    "ReplicaSet": "spec.template",
    "ReplicationController": "spec.template",
    "StatefulSet": "spec.template",
    "TFJob": "spec.tfReplicaSpecs.*.template",
    "XGBoostJob": "spec.xgbReplicaSpecs.*.template",
}
_OF_VOLCANO: Final = "spec.tasks[*].template"


class PodSet(Struct, frozen=True, kw_only=True):
    """``replicas`` equal pods of one template; ``template`` carries a placeholder name."""

    name: str
    replicas: int
    template: Pod
    #: Names the pods get, in order, as the controller would name them (deterministic where it is random).
    pod_names: tuple[str, ...] = ()
    #: Position of these pods among those of the workload, for ranks.
    part: int = 0
    #: True when the pods carry an index (Indexed Job, StatefulSet, JobSet).
    indexed: bool = False
    #: The index of the first pod; a LeaderWorkerSet's workers start at 1, after their leader.
    first_index: int = 0
    template_annotations: Mapping[str, str] = {}
    template_labels: Mapping[str, str] = {}
    #: Pods that must succeed in all (a Job's completions); None where their number is not given.
    completions: int | None = None
    #: How many already did, as the status says, and the indices that are not run again.
    completed: int = 0
    done: frozenset[int] = frozenset()
    #: Phases in which a pod's place is not given to another: of work that ends.
    kept: tuple[str, ...] = ()
    #: Whether a pod that is being deleted is made again at once; else when it is gone.
    replaced: bool = False
    #: Whether no pod is made any more once one has succeeded: a Job without completions.
    until_first: bool = False
    #: How many are there now, as the status says.
    active: int = 0
    #: Names of each job, where the set is several (a JobSet's replicated job); 0: it is one.
    each: int = 0
    #: Sets of the workload that must be complete (True) or ready before these pods are made.
    after: tuple[tuple[str, bool], ...] = ()
    #: Where the template stands in the object, such as ``spec.template``.
    path: str = ""
    #: Name of the gang this set belongs to, where the workload is several; empty for the workload's own.
    gang: str = ""
    #: How many of the pods there are when the workload starts; None: all. The controller creates the others
    #: after these are ready, or an autoscaler does: a gang that waited for them would wait indefinitely.
    at_start: int | None = None
    #: How many of them the controller makes only when others have a node: the gang of a cluster can't wait
    #: for them. In files all are there.
    follow: int = 0
    #: The fields from each of which alone, the others being equal, the number of its pods can be lowered;
    #: only of kinds that have several.
    sizes: tuple[SizeField, ...] = ()
    #: Where its kind asks for segments of its pods (a JobSet's exclusive topology).
    layers: tuple[Layer, ...] = ()

    @property
    def once(self) -> bool:
        """Whether each of its pods has one turn, so that one that has done its work counts as a member."""
        return bool(self.kept) and (self.completions is None or self.completions <= self.replicas)

    @property
    def starting(self) -> int:
        """How many of its pods a gang may wait for."""
        return self.replicas if self.at_start is None else min(self.at_start, self.replicas)


class Workload(Struct, frozen=True, kw_only=True):
    """The top owner of some pods."""

    kind: str
    namespace: str
    name: str
    api_version: str = ""
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: float | None = None
    pod_sets: tuple[PodSet, ...] = ()
    suspended: bool = False
    #: Whether its controller makes no more pods, because it is deleted or done.
    over: bool = False
    #: ``Kind/name`` of objects that it made, as its status says (a RayJob's RayCluster).
    made: tuple[str, ...] = ()
    #: Which pods are its own, where it says so.
    selector: LabelSelector | None = None
    #: ``Kind/name`` of the object that made this one; empty for a top owner.
    owner: str = ""
    #: The gang that an object of this kind declares itself (a Volcano Job, say).
    gang: PodGroup | None = None
    #: Where they are several, by name, as its pod sets name them.
    gangs: Mapping[str, PodGroup] = {}
    #: Where its kind asks for segments of each of its gangs as a whole (a LeaderWorkerSet).
    layers: tuple[Layer, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def id(self) -> str:
        """``Kind/namespace/name``, as conditions name it."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class TrainJob(Struct, frozen=True, kw_only=True):
    """A TrainJob of Kubeflow Trainer v2; its runtime has the templates of its pods."""

    namespace: str
    name: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    #: Kind and name.
    runtime_kind: str
    runtime: str
    nodes: int | None = None
    #: ``resources`` of the container of each node.
    resources: Mapping[str, Any] | None = None
    suspended: bool = False
    over: bool = False
    #: What its status says of the jobs of its JobSet.
    jobs: tuple[Any, ...] = ()
    #: The field by which it changes the templates of its runtime; empty where it does not.
    patched: str = ""


class TrainingRuntime(Struct, frozen=True, kw_only=True):
    """What TrainJobs refer to; ``namespace`` is empty for one of the whole cluster."""

    kind: str
    namespace: str
    name: str
    nodes: int | None = None
    #: Whether a launcher starts the nodes (MPI).
    launches: bool = False
    #: Whether that is one of the nodes.
    launcher_is_node: bool = False
    #: As in a PodGroup of Volcano.
    network_topology: Mapping[str, Any] = {}
    #: ``metadata`` and ``spec`` of a JobSet.
    template: Mapping[str, Any] = {}


def pod_field(owner: str, field: str, *, volcano: bool = False) -> str:
    """How to name a field of the pods that ``owner`` (``Kind/name``, empty for none) makes.

    With a known kind that is the field of its pod template, such as ``spec.template.spec.priorityClassName of
    Job/train``; else the field of the pods themselves.
    """
    kind = owner.partition("/")[0]
    template = _OF_VOLCANO if volcano and kind == "Job" else _TEMPLATES.get(kind)
    return f"{field} of its pods" if template is None else f"{template}.{field} of {owner}"
