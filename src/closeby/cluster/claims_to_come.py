"""The claims for ephemeral volumes of pods that are still to come: as they will be made with the pods.

They stand among the claims of the cluster, so that each gets its volume, and counts, as it will then. Their
names are such that no object has them.
"""

from collections.abc import Callable

from closeby.cluster.storage import Storage
from closeby.objects.pods import ClaimName, ClaimRequest, Pod, PodClaim
from closeby.objects.volumes import PersistentVolumeClaim, default_class, with_class


class ClaimsToCome:
    """Which are expected."""

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
                claim = _claim_of(pod, one)
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
                claim = with_class(_claim_of(pod, one), default)
                made = self._storage.classes.get(claim.request.storage_class or "")
                if made is not None and not made.waits:
                    found.append(one.volume)
        return tuple(found)

    def _default(self) -> str | None:
        return default_class(self._storage.classes.values())


def _claim_of(pod: Pod, one: PodClaim) -> PersistentVolumeClaim:
    """The claim as it will be made, as the template of the pod has it."""
    name = one.of(pod.name)
    return PersistentVolumeClaim(
        namespace=pod.namespace,
        name=name,
        uid=f"{pod.namespace}/{name}",
        request=one.request or ClaimRequest(),
    )
