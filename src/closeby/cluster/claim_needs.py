"""What one claim of a pod amounts to, be it one that is still to come with its pod."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.attachments import Attachments, VolumeUse
from closeby.cluster.claims import ClaimNeed, ClaimState, zones_of
from closeby.cluster.selecting import NodesByName
from closeby.cluster.storage import Storage
from closeby.cluster.volumes_by_class import Provisioning, RefusedVolumes
from closeby.objects.pods import ClaimName, ClaimRequest, Pod, PodClaim
from closeby.objects.volumes import (
    READ_WRITE_ONCE_POD,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    default_class,
    with_class,
)


class Facts(Struct, frozen=True, eq=False):
    """All that it depends on."""

    nodes: NodesByName
    storage: Storage
    use: Callable[[], VolumeUse]
    attachments: Attachments
    provisioning: Provisioning
    refused: RefusedVolumes


def need_of(key: str, one: PodClaim, uid: str, facts: Facts) -> ClaimNeed:
    """What a claim of a pod with this uid amounts to."""
    shared = key if one.naming is ClaimName.GIVEN else ""
    claim = facts.storage.claims.get(key)
    if claim is None:
        return ClaimNeed(ClaimState.NOT_FOUND, shared)
    if claim.terminating:
        return ClaimNeed(ClaimState.TERMINATING, shared)
    # What a manifest says of a claim that is still to be created has neither an owner nor a uid.
    made = bool(claim.uid or claim.controller)
    if one.naming is ClaimName.AFTER_POD and made and claim.controller != uid:
        return ClaimNeed(ClaimState.FOREIGN, shared)
    if claim.lost:
        return ClaimNeed(ClaimState.LOST, shared)
    exclusive = READ_WRITE_ONCE_POD in claim.request.access_modes
    used = key in facts.use()
    need = ClaimNeed(shared=shared, exclusive=exclusive, in_use=exclusive and used)
    if claim.bound:
        volume = facts.storage.volumes.get(claim.volume)
        if volume is None:
            return ClaimNeed(ClaimState.NO_VOLUME, shared)
        known = shared or used or any(facts.storage.attachments_of(volume.name))
        return _with_volume(replace(need, known=claim.key if known else ""), volume)
    found = facts.storage.classes.get(claim.request.storage_class or "")
    if one.naming is ClaimName.TO_COME and (found is None or not found.waits):
        return _to_come(facts, claim, found, need)
    if claim.volume or found is None or not found.waits:
        return ClaimNeed(ClaimState.NOT_BOUND, shared)
    known = claim.key if shared or used else ""
    return _open(facts, claim, found, replace(need, known=known, refused=facts.refused.of(key)))


def _with_volume(need: ClaimNeed, volume: PersistentVolume) -> ClaimNeed:
    return replace(need, reach=volume.node_affinity, zones=zones_of(volume), driver=volume.driver)


def _to_come(
    facts: Facts, claim: PersistentVolumeClaim, made: StorageClass | None, need: ClaimNeed
) -> ClaimNeed:
    """Of a claim that is still to be made, in a class that does not wait for the node.

    It gets its volume as soon as it is there, wherever that is, and its pod must then follow. Until then it
    keeps the pod from no node. Without the class it can only get a volume that was made by hand.
    """
    if made is None and not any(facts.storage.volumes_of(claim.request.storage_class or "")):
        return ClaimNeed(ClaimState.NOT_BOUND, need.shared)
    return replace(need, driver="" if made is None else made.driver)


def _open(facts: Facts, claim: PersistentVolumeClaim, made: StorageClass, need: ClaimNeed) -> ClaimNeed:
    """Of a claim without a volume, in a class that waits for the node."""
    chosen = facts.use().chosen.get(claim.key)
    volume = facts.storage.kept_for(claim)
    if chosen is not None and chosen.volume is not None:
        volume = facts.storage.volumes.get(chosen.volume)
    if volume is not None:
        return _with_volume(need, volume)
    need = replace(need, driver=made.driver)
    if chosen is not None:
        node = facts.nodes.nodes[chosen.slot]
        name = "" if node is None else node.name
        return replace(need, node=name, same=facts.attachments.topology_keys(need.driver, name))
    name = claim.selected_node or ""
    same = facts.attachments.topology_keys(need.driver, name) if need.shared else ()
    epoch = facts.provisioning.epoch(made.name)
    return replace(need, node=name, same=same, request=claim.request, epoch=epoch)


class ClaimsToCome:
    """The claims for ephemeral volumes of pods that are still to come: as they will be made with the pods.

    They stand among the claims of the cluster, so that each gets its volume, and counts, as it will then.
    Their names are such that no object has them.
    """

    def __init__(
        self,
        storage: Storage,
        put: Callable[[PersistentVolumeClaim], object],
        remove: Callable[[str], object],
    ) -> None:
        """``put`` and ``remove`` (by key) take in a claim that comes or changes, and one that goes."""
        self._storage = storage
        self._put = put
        self._remove = remove
        #: By key, as their templates have them.
        self._expected: dict[str, PersistentVolumeClaim] = {}

    def __contains__(self, key: str) -> bool:
        """Whether this is the key of such a claim."""
        return key in self._expected

    def expect(self, pod: Pod) -> None:
        """A pod is to come, or is to come as it is now."""
        default = self._default() if pod.spec.claims else None
        for one in pod.spec.claims:
            if one.naming is ClaimName.TO_COME:
                claim = claim_made(pod, one)
                self._expected[claim.key] = claim
                self._put(with_class(claim, default))

    def forget(self, pod: Pod) -> None:
        """A pod is to come no more."""
        for one in pod.spec.claims:
            key = f"{pod.namespace}/{one.of(pod.name)}"
            if self._expected.pop(key, None) is not None:
                self._remove(key)

    def classes_changed(self) -> tuple[str, ...]:
        """Gives the claims that name no class the default as it is now; returns those that had another."""
        changed = []
        default = self._default()
        for key, claim in self._expected.items():
            now = with_class(claim, default)
            if now != self._storage.claims.get(key):
                self._put(now)
                changed.append(key)
        return tuple(changed)

    def bound_at_once(self, pod: Pod) -> tuple[str, ...]:
        """The ephemeral volumes of a pod to come whose class is there, and does not wait for its node."""
        default = self._default()
        found = []
        for one in pod.spec.claims:
            if one.naming is ClaimName.TO_COME and one.request is not None:
                claim = with_class(claim_made(pod, one), default)
                made = self._storage.classes.get(claim.request.storage_class or "")
                if made is not None and not made.waits:
                    found.append(one.volume)
        return tuple(found)

    def _default(self) -> str | None:
        return default_class(self._storage.classes.values())


def claim_made(pod: Pod, one: PodClaim) -> PersistentVolumeClaim:
    """The claim as it will be made, as the template of the pod has it."""
    name = one.of(pod.name)
    return PersistentVolumeClaim(
        namespace=pod.namespace,
        name=name,
        uid=f"{pod.namespace}/{name}",
        request=one.request or ClaimRequest(),
        controller=pod.uid if one.naming is ClaimName.AFTER_POD else "",
    )
