"""ResourceClaims of a cluster, and the pods that name them: claims may be allocated long after.

A claim serves a limited number of pods. The first that name it have the places that are left; the API server
and a controller reserve it for each of them later.
"""

from collections.abc import Iterator

from closeby.objects.pods import Pod
from closeby.objects.resource_claims import MOST_CONSUMERS, ResourceClaim
from closeby.reading.resolving import claim_keys, with_claims


class ClaimsOfPods:
    """All claims, and the pods that name any, as they were read."""

    def __init__(self) -> None:
        self._claims: dict[str, ResourceClaim] = {}
        #: uid -> pod, of those that name a claim; and of those that wait for a node.
        self._users: dict[str, Pod] = {}
        self._waiting: dict[str, Pod] = {}
        #: Claim -> uids of the pods that name it, as they came.
        self._named: dict[str, dict[str, None]] = {}

    def put(self, claim: ResourceClaim) -> None:
        """A claim as it is now."""
        self._claims[claim.key] = claim

    def drop(self, key: str) -> None:
        """A claim is gone."""
        self._claims.pop(key, None)

    def resolved(self, pod: Pod) -> Pod:
        """A pod that waits, by what its claims say now; it is kept."""
        self._use(pod)
        if not pod.resource_claims:
            return pod
        self._waiting[pod.uid] = pod
        return with_claims(pod, self._claims, lambda claim: self._ahead(claim, pod.uid))

    def placed(self, pod: Pod) -> None:
        """A pod has its node: it uses its claims, also those that are not reserved for it yet."""
        self._waiting.pop(pod.uid, None)
        self._use(pod)

    def waiting_for(self, key: str) -> list[Pod]:
        """The pods that wait and name a claim, as they were read; oldest uid first."""
        return [self._waiting[uid] for uid in sorted(self._named.get(key, ())) if uid in self._waiting]

    def forget(self, uid: str) -> tuple[str, ...]:
        """A pod is gone, or waits for another scheduler; returns the claims that may serve others for it."""
        self._waiting.pop(uid, None)
        pod = self._users.pop(uid, None)
        if pod is None:
            return ()
        crowded = []
        for key in sorted(claim_keys(pod)):
            if len(self._named[key]) > MOST_CONSUMERS - self._reserved(key):
                crowded.append(key)
            self._leave(key, uid)
        return tuple(crowded)

    def _use(self, pod: Pod) -> None:
        before = self._users.get(pod.uid)
        if before is None and not pod.resource_claims:
            return
        keys = claim_keys(pod)
        for key in keys:
            self._named.setdefault(key, {}).setdefault(pod.uid)
        if before is not None:
            for key in claim_keys(before) - keys:
                self._leave(key, pod.uid)
        self._users[pod.uid] = pod

    def _leave(self, key: str, uid: str) -> None:
        del self._named[key][uid]
        if not self._named[key]:
            del self._named[key]

    def _reserved(self, key: str) -> int:
        claim = self._claims.get(key)
        return 0 if claim is None else len(claim.reserved_for) + len(claim.reserved_for_groups)

    def _ahead(self, claim: ResourceClaim, uid: str) -> int:
        """How many pods come first for which a claim is not reserved, or more than it can serve."""
        count = 0
        for one in self._before(claim.key, uid):
            count += not claim.reserves(self._users[one])
            if count >= MOST_CONSUMERS:
                break
        return count

    def _before(self, key: str, uid: str) -> Iterator[str]:
        for one in self._named[key]:
            if one == uid:
                return
            yield one
