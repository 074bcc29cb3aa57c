"""The pods that the pod-grouper is to speak about, by who owns them and by the group that they name."""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from closeby.controllers.grouping.owners import Ref, owner_of
from closeby.kube.watch.resources import PODS
from closeby.objects.pods import Pod
from closeby.reading.decoding.keys import POD_GROUP
from closeby.reading.dialects.grouping import NO_GROUP, is_gated, undecided
from closeby.reading.dialects.kueue import POD_GROUP_NAME
from closeby.reading.dialects.upstream import WORKLOAD_VERSION

_NOBODY: Final[frozenset[str]] = frozenset()


class _Member(Struct, frozen=True):
    pod: Pod
    #: Whom its ``ownerReferences`` name.
    owner: Ref


class Pods:
    """Unfinished pods of one scheduler that have an owner, or that ask for placement."""

    def __init__(self, scheduler_name: str | None, excluded_namespaces: Collection[str] = ()) -> None:
        """``scheduler_name`` None: the pods with our gate, whatever scheduler they name."""
        self._scheduler_name = scheduler_name
        self._excluded = frozenset(excluded_namespaces)
        self._pods: dict[str, _Member] = {}
        self._owned: dict[Ref, set[str]] = {}
        #: By namespace and name of a PodGroup.
        self._naming: dict[tuple[str, str], set[str]] = {}

    def put(self, pod: Pod, raw: bytes) -> Ref | None:
        """A pod as it is now; returns its owner if something is to be said about the pod."""
        before = self._pods.get(pod.uid)
        if pod.group is None and not undecided(pod):
            self.drop(pod.uid)
            return None
        owner = _owner(pod, raw) if before is None else before.owner
        if before is not None and before.pod.group != pod.group:
            self._forget_name(before.pod)
        self._pods[pod.uid] = _Member(pod, owner)
        self._owned.setdefault(owner, set()).add(pod.uid)
        if pod.group is not None:
            self._naming.setdefault((pod.namespace, pod.group), set()).add(pod.uid)
        return owner if undecided(pod) else None

    def concerns(self, pod: Pod) -> bool:
        """Whether a pod is the scheduler's, in a namespace that is not excluded, and not on its way out."""
        if pod.finished or pod.terminating or pod.namespace in self._excluded:
            return False
        if self._scheduler_name is None:
            return is_gated(pod)
        return pod.spec.scheduler_name == self._scheduler_name

    def drop(self, uid: str) -> Ref | None:
        """A pod is over or gone, or wants nothing; returns its owner if it was known."""
        member = self._pods.pop(uid, None)
        if member is None:
            return None
        left = self._owned[member.owner]
        left.discard(uid)
        if not left:
            del self._owned[member.owner]
        self._forget_name(member.pod)
        return member.owner

    def of(self, owner: Ref) -> Iterator[Pod]:
        """The pods that name this owner, but for those that want to be left alone."""
        for uid in self._owned.get(owner, _NOBODY):
            pod = self._pods[uid].pod
            if pod.annotations.get(POD_GROUP) != NO_GROUP:
                yield pod

    def owns(self, owner: Ref) -> bool:
        """Whether any pod names this owner."""
        return owner in self._owned

    def owner(self, uid: str) -> Ref | None:
        """Whom a pod names as its owner."""
        member = self._pods.get(uid)
        return None if member is None else member.owner

    def naming(self, namespace: str, group: str) -> bool:
        """Whether any pod names this PodGroup."""
        return (namespace, group) in self._naming

    def _forget_name(self, pod: Pod) -> None:
        if pod.group is None:
            return
        key = pod.namespace, pod.group
        left = self._naming.get(key, set())
        left.discard(pod.uid)
        if not left:
            self._naming.pop(key, None)


def pod_ref(pod: Pod) -> Ref:
    """The pod itself as an owner."""
    return Ref(pod.namespace, PODS.api_version, PODS.kind, pod.name, pod.uid)


def _owner(pod: Pod, raw: bytes) -> Ref:
    """The owner of the pod; for a pod without one its group for Kueue, or the pod itself.

    Of pods that refer to a Workload it is that, whatever created them.
    """
    if pod.workload_ref is not None:
        return Ref(pod.namespace, WORKLOAD_VERSION, "Workload", pod.workload_ref.name, "")
    owner = owner_of(raw)
    if owner is not None:
        return owner
    name = pod.labels.get(POD_GROUP_NAME)
    if name:
        return Ref(pod.namespace, "", PODS.kind, name, "")
    return msgspec.structs.replace(pod_ref(pod), uid="")
