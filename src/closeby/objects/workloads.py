"""A workload object (Job, Deployment, JobSet, ...): the pods its controller would make, and its gang.

And which pods belong to which workload object, and which of them end, as far as their owners tell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from closeby.objects.groups import Layer, PodGroup, SizeField
from closeby.objects.labels import TASK_SPEC
from closeby.objects.pods import Pod
from closeby.objects.selectors import LabelSelector, Named

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


class Workload(Named, frozen=True, kw_only=True):
    """The top owner of some pods."""

    kind: str
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


#: Labels that say which part of its workload a pod is: a JobSet's job, a training or Volcano job's role,
#: a Ray cluster's group.
_ROLE_LABELS: Final = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "training.kubeflow.org/replica-type",
    TASK_SPEC,
    "ray.io/group",
)
#: Where the object between is not in the input: its kind, the label that names the top owner, and its kind.
_NAMED_BY_LABEL: Final = (
    ("Job", "jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("StatefulSet", "leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("Job", "training.kubeflow.org/job-name", "MPIJob"),
)
#: The clique of a pod of Grove, whose name begins those of its pods.
_PODCLIQUE: Final = "grove.io/podclique"
#: The label by which it names its set.
_PART_OF: Final = "app.kubernetes.io/part-of"
_TEMPLATE_HASH: Final = "pod-template-hash"


#: Owners that replace a pod on the same node at once; ``Node`` owns static pods.
_PINNED: Final = frozenset({"DaemonSet", "Node"})
#: Owners whose pods run until they are removed.
_LONG_RUNNING: Final = _PINNED | {"ReplicaSet", "ReplicationController", "StatefulSet", "Deployment"}


#: Kinds of which a job or replica may have a domain that no other one of the kind enters, by a label that
#: their controllers write.
_EXCLUSIVE_KINDS: Final = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/name": "LeaderWorkerSet",
}


def exclusive_kind(pod: Pod) -> str:
    """``JobSet`` or ``LeaderWorkerSet``, if the pod is of one; else empty."""
    kind = pod.owner.partition("/")[0]
    if kind in _EXCLUSIVE_KINDS.values():
        return kind
    return next((kind for label, kind in _EXCLUSIVE_KINDS.items() if label in pod.labels), "")


class Family(Struct, frozen=True):
    """A top owner, its pods that exist, in the order of their names, and the owners between them."""

    owner: Workload
    pods: tuple[Pod, ...]
    between: tuple[Workload, ...] = ()


class Families(Struct, frozen=True):
    """All top owners, in a fixed order, and the pods that have none in the input."""

    families: tuple[Family, ...]
    loose: tuple[Pod, ...]


def families_of(workloads: Iterable[Workload], pods: Iterable[Pod]) -> Families:
    """Sorts out who belongs to whom.

    Owners whose pods have names of their own (numbered ones) come first, so that these get their names.
    """
    ordered = sorted(workloads, key=_order)
    known: dict[tuple[str, str], Workload] = {}
    for workload in ordered:
        known.setdefault((workload.namespace, f"{workload.kind}/{workload.name}"), workload)
    for workload in ordered:
        for made in workload.made:
            known.setdefault((workload.namespace, made), workload)
    members: dict[int, list[Pod]] = {}
    loose = []
    for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
        owner = _owner(pod, known)
        if owner is None:
            loose.append(pod)
        else:
            members.setdefault(id(owner), []).append(pod)
    below: dict[int, list[Workload]] = {}
    for workload in ordered:
        below.setdefault(id(_top(workload, known)), []).append(workload)
    tops = [one for one in ordered if id(one) in below]
    families = [Family(one, tuple(members.get(id(one), ())), tuple(below[id(one)])) for one in tops]
    return Families(tuple(families), tuple(loose))


def set_of(pod: Pod, workload: Workload, by_name: Mapping[str, int]) -> int | None:
    """The position of the pod set a pod belongs to; ``by_name`` maps the names of all sets' pods to it."""
    sets = workload.pod_sets
    if len(sets) == 1:
        return 0
    if pod.name in by_name:
        return by_name[pod.name]
    if _PODCLIQUE in pod.labels:
        return by_name.get(f"{pod.labels[_PODCLIQUE]}-0")
    roles = {pod.labels[label].lower() for label in _ROLE_LABELS if label in pod.labels}
    named = [i for i, one in enumerate(sets) if one.name.lower() in roles]
    if not named:
        named = [i for i, one in enumerate(sets) if pod.name.startswith(f"{workload.name}-{one.name}-")]
    return max(named, key=lambda i: len(sets[i].name), default=None)


def names_of(sets: Sequence[PodSet]) -> dict[str, int]:
    """The names of all pods of some sets, with the position of their set."""
    return {name: i for i, one in enumerate(sets) for name in one.pod_names}


def owners_of(pod: Pod, workloads: Mapping[tuple[str, str], Workload]) -> tuple[str, ...]:
    """All that a pod belongs to as ``Kind/name``, from its controller to the top owner.

    ``workloads`` has those that were read by namespace and ``Kind/name``; others are known by the pod alone.
    """
    if not pod.owner:
        return ()
    found = dict.fromkeys((pod.owner, *_above(pod)))
    for start in tuple(found):
        workload = workloads.get((pod.namespace, start))
        while workload is not None and workload.owner and workload.owner not in found:
            found[workload.owner] = None
            workload = workloads.get((pod.namespace, workload.owner))
    return tuple(found)


def top_of(pod: Pod) -> str:
    """The top owner as ``Kind/name``, as far as the pod names it; empty for a plain pod."""
    return next(_above(pod), pod.owner)


def _above(pod: Pod) -> Iterator[str]:
    """The owner of a pod's controller, as far as the pod names it."""
    kind, _, name = pod.owner.partition("/")
    template = pod.labels.get(_TEMPLATE_HASH)
    if kind == "ReplicaSet" and template and name.endswith(f"-{template}"):
        yield f"Deployment/{name.removesuffix(f'-{template}')}"
    if kind == "PodClique" and _PART_OF in pod.labels:
        yield f"PodCliqueSet/{pod.labels[_PART_OF]}"
        return
    if named := _named(kind, pod.labels):
        yield named


def _named(kind: str, labels: Mapping[str, str]) -> str:
    """The top owner of an object of ``kind``, or of what it controls, that a label names."""
    for between, label, top in _NAMED_BY_LABEL:
        if kind == between and label in labels:
            return f"{top}/{labels[label]}"
    return ""


def _owner(pod: Pod, known: Mapping[tuple[str, str], Workload]) -> Workload | None:
    """The top owner of a pod, or None where it is not in the input."""
    if not pod.owner:
        return None
    direct = known.get((pod.namespace, pod.owner))
    if direct is not None:
        return _top(direct, known)
    return next((known.get((pod.namespace, one)) for one in _above(pod)), None)


def _top(workload: Workload, known: Mapping[tuple[str, str], Workload]) -> Workload:
    seen = set()
    while workload.owner and id(workload) not in seen:
        seen.add(id(workload))
        # The owner of a worker's StatefulSet is its leader, a pod.
        by_label = _named(workload.kind, workload.labels)
        above = known.get((workload.namespace, workload.owner)) or known.get((workload.namespace, by_label))
        if above is None:
            break
        workload = above
    return workload


def _order(workload: Workload) -> tuple[bool, str, str, str, str]:
    unnumbered = not any(one.indexed for one in workload.pod_sets)
    return unnumbered, workload.namespace, workload.kind, workload.name, workload.api_version


def is_pinned(pod: Pod) -> bool:
    """Whether another such pod takes its place on its node at once."""
    return _kind(pod) in _PINNED


def is_long_running(pod: Pod) -> bool:
    """Whether it runs until it is removed, so that nothing waits for its end; a gang's pods are no exception.

    What is being deleted goes, unless it comes back.
    """
    # Most pods of a large gang have no owner, and each event asks.
    return pod.owner != "" and _kind(pod) in (_PINNED if pod.terminating else _LONG_RUNNING)


def _kind(pod: Pod) -> str:
    return pod.owner.partition("/")[0]
