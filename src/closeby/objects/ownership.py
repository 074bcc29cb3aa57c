"""Which pods belong to which workload object, and which of them end, as far as their owners tell."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from closeby.objects.labels import TASK_SPEC
from closeby.objects.pods import Pod
from closeby.objects.workloads import PodSet, Workload

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
