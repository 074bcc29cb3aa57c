"""VolumeBinding: a node must reach the volumes of a pod's claims, or let them be found or made there."""

from collections.abc import Hashable, Mapping
from typing import Final

import numpy as np
from msgspec import Struct, field

from closeby.cluster.claims import ClaimNeed, ClaimState
from closeby.cluster.volumes_by_class import serves
from closeby.objects.arrays import Counts
from closeby.objects.bounds import quoted, some
from closeby.objects.pods import ClaimName, ClaimRequest, Pod
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Condition, Reason, Rejection
from closeby.objects.volumes import PersistentVolumeClaim
from closeby.objects.words import guess, plural
from closeby.scheduling.extension import Capacity, Handle, PreFilter
from closeby.scheduling.plugin_view import CycleState, Nodes

#: How much a name of a claim is like one that may have been meant (0 to 1).
_ALIKE: Final = 0.75
_ADD: Final = "add to the input what kubectl get pvc,pv,storageclasses -A -o yaml prints"
_REMEDIES: Final[Mapping[ClaimState, str]] = {
    ClaimState.TERMINATING: "let its pods end, and create it again",
    ClaimState.LOST: "restore its volume: a new claim would be empty",
    ClaimState.FOREIGN: "give it, or the pod, another name",
}


class VolumeBindingArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Name and default as upstream's."""

    #: Seconds within which the claims of a pod must be bound, on a cluster, once it was decided.
    bind_timeout: float = field(default=600, name="bindTimeoutSeconds")

    def __post_init__(self) -> None:
        """Checks the time."""
        if not self.bind_timeout >= 0:
            raise ValueError("bindTimeoutSeconds is a number of seconds, at least 0")


class VolumeBinding(PreFilter, Capacity):
    """Upstream's plugin of that name.

    A claim that is bound takes its pod to nodes that reach its volume. One whose class waits for its first
    consumer gets the smallest free volume that fits and that the node reaches. Where there is none, one is
    made for the node if the class allows that. All other claims keep their pod waiting.
    """

    name = "VolumeBinding"
    shares_by_spec = True
    reads = ("spec.claims",)
    judges_classes = True
    reason = Reason.VOLUME_NOT_BINDABLE
    Arguments = VolumeBindingArguments

    def __init__(self, arguments: VolumeBindingArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        #: Seconds within which claims must be bound.
        self.bind_timeout = arguments.bind_timeout

    def class_key(self, pod: Pod) -> Hashable:
        return self.handle.cluster.volumes.needs(pod) if pod.spec.claims else None

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.claims)

    def reaches_beyond(self, pod: Pod) -> bool:
        return bool(pod.spec.claims) and self.handle.cluster.volumes.depends(pod)

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        """The first claim without which too few pods are left."""
        volumes = self.handle.cluster.volumes
        first: Condition | None = None
        hindered = 0
        for pod in [pod for pod in pods if pod.spec.claims]:
            for place, need in enumerate(volumes.needs(pod)):
                if need.state is not ClaimState.READY:
                    hindered += 1
                    first = first or self._hindered(pod, place, need)
                    break
        if first is None or hindered == len(pods) or state.group is None:
            # Other pods of an application are placed without those that are hindered.
            return None if hindered < len(pods) else first
        enough = len(pods) - hindered + len(state.anchors) >= state.group.min_member
        return None if enough else first

    def capacity(self, state: CycleState, pod: Pod, nodes: Nodes) -> Counts:
        volumes = self.handle.cluster.volumes
        needs = volumes.needs(pod)
        if any(need.state is not ClaimState.READY for need in needs):
            return np.zeros(len(nodes), dtype=np.int64)
        index = nodes.index
        slots = None if isinstance(index, slice) else index
        room = volumes.room(pod, slots)
        for need in needs:
            reached = volumes.reached(need)
            if reached is not None:
                room = np.where(reached[index], room, 0)
            if need.refused:
                room = np.where(volumes.refused.mask(need.refused)[index], 0, room)
        return room

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        volumes = self.handle.cluster.volumes
        for place, need in enumerate(volumes.needs(pod)):
            claim = self._called(pod, place)
            if need.state is not ClaimState.READY:
                found = self._hindered(pod, place, need)
                return Rejection(found.reason, found.message)
            reached = volumes.reached(need)
            if reached is not None and not reached[slot]:
                return Rejection(Reason.VOLUME_NOT_BINDABLE, self._out_of_reach(pod, place, need))
            if need.request is not None and not volumes.room_for(need, slot):
                return Rejection(Reason.VOLUME_NOT_BINDABLE, self._none_free(claim, need.request, slot))
            for one in need.refused:
                if volumes.refused.mask((one,))[slot]:
                    return Rejection(Reason.VOLUME_NOT_BINDABLE, f"{claim}: {one.sentence()}")
        message = f"{plural(len(pod.spec.claims), 'claim')} together find too few free volumes on the node"
        return Rejection(Reason.VOLUME_NOT_BINDABLE, message)

    def _hindered(self, pod: Pod, place: int, need: ClaimNeed) -> Condition:
        key = self.handle.cluster.volumes.claim_key(pod, place)
        missing = need.state is ClaimState.NOT_FOUND
        message, remedy = f"claim {key} {need.state.value}", _REMEDIES.get(need.state, "")
        storage = self.handle.cluster.volumes.storage
        if need.state is ClaimState.NOT_BOUND and pod.spec.claims[place].naming is ClaimName.TO_COME:
            message, remedy = self._not_to_be_bound(self._called(pod, place), storage.claims[key])
        elif need.state is ClaimState.NOT_BOUND:
            message, remedy = self._not_bound(key)
        elif need.state is ClaimState.NO_VOLUME:
            message = f"claim {key} is bound to volume {storage.claims[key].volume}, which is not there"
            remedy = "restore the volume: a new claim would be empty" if self.handle.whole else _ADD
        elif missing:
            beside = (one.name for one in storage.claims.values() if one.namespace == pod.namespace)
            remedy = f"{guess(key.partition('/')[2], beside, _ALIKE)}{self._create()}"
        return Condition(
            reason=Reason.CLAIM_NOT_FOUND if missing else Reason.VOLUME_NOT_BINDABLE,
            object=f"Pod/{pod.key}",
            message=message,
            remedy=remedy,
            blocking=True,
        )

    def _not_bound(self, key: str) -> tuple[str, str]:
        storage = self.handle.cluster.volumes.storage
        claim = storage.claims[key]
        name = claim.request.storage_class
        if claim.volume:
            return f"claim {key} is not bound yet to the volume that it names, {claim.volume}", ""
        if not name:
            return f"claim {key} is not bound yet, and names no storage class", "name one, or its volume"
        if name not in storage.classes:
            message = f"claim {key} is not bound, and its StorageClass {quoted(name)} is not there"
            return message, self._create()
        message = f"claim {key} is not bound yet: its class {name} binds at once, without the scheduler"
        return message, "wait for the controllers, or use a class with volumeBindingMode WaitForFirstConsumer"

    def _not_to_be_bound(self, called: str, claim: PersistentVolumeClaim) -> tuple[str, str]:
        name = claim.request.storage_class
        if name:
            return f"{called} can't be bound: its StorageClass {quoted(name)} is not there", self._create()
        if name is None:
            message = f"{called} can't be bound: it names no storage class, and none is the default"
            return message, "name one in the template, or mark one as the default"
        return f"{called} can't be bound: it is for a volume without a class, and there is none", ""

    def _called(self, pod: Pod, place: int) -> str:
        """A claim in words; one that is to be made with a pod to come has no name yet."""
        one = pod.spec.claims[place]
        if one.naming is ClaimName.TO_COME:
            return f"the claim of ephemeral volume {one.volume}"
        return f"claim {self.handle.cluster.volumes.claim_key(pod, place)}"

    def _create(self) -> str:
        return "create it" if self.handle.whole else f"create it, or {_ADD}"

    def _out_of_reach(self, pod: Pod, place: int, need: ClaimNeed) -> str:
        called = self._called(pod, place)
        if need.node:
            made = "whose volume is made for" if not need.same else "whose volume is made near"
            return f"the node does not reach {called}, {made} node {need.node}"
        volumes = self.handle.cluster.volumes
        found = volumes.storage.claims.get(volumes.claim_key(pod, place))
        name = found.volume if found is not None else ""
        what = f"volume {name} of {called}" if name else f"the volume that is kept for {called}"
        labels = {one for term in need.reach or () for one in (*term.expressions, *term.fields)}
        where = some(sorted(f"{one.key}={'|'.join(one.values)}" for one in labels if one.operator == "In"))
        return f"the node does not reach {what}{f', which is for {where}' if where else ''}"

    def _none_free(self, called: str, request: ClaimRequest, slot: int) -> str:
        volumes = self.handle.cluster.volumes
        name = request.storage_class or ""
        here = volumes.volumes_at(name, slot)
        fitting = sum(serves(one, request) for one in here)
        size = format_amount("storage", request.size)
        there = f"{plural(len(here), 'volume')} of class {name} on the node"
        what = f"{called} ({size}) finds no free volume: {there}"
        if here:
            what += f", {fitting} of them would do, none of them free"
        return f"{what}; {self._not_made(request, slot)}"

    def _not_made(self, request: ClaimRequest, slot: int) -> str:
        storage = self.handle.cluster.volumes.storage
        made = storage.classes.get(request.storage_class or "")
        if made is None or not made.provisions:
            return "the class makes none"
        node = self.handle.cluster.node_at(slot)
        keys = {one.key for term in made.topologies for one in term.expressions}
        labels = some(sorted(f"{key}={node.labels.get(key, '')}" for key in keys))
        if not self.handle.cluster.volumes.allowed_at(made, slot):
            return f"the class makes none where {labels}"
        return f"{made.provisioner} has no room for it there (CSIStorageCapacity)"
