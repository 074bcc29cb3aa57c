"""ResourceClaims of a cluster, and the pods that wait for them: claims may be allocated long after."""

from collections import defaultdict

from closeby.objects.pods import Pod
from closeby.objects.resource_claims import ResourceClaim
from closeby.reading.resolving import with_claims


class ClaimsOfPods:
    """All claims, and the waiting pods that name any, as they were read."""

    def __init__(self) -> None:
        self._claims: dict[str, ResourceClaim] = {}
        #: uid -> pod.
        self._pods: dict[str, Pod] = {}
        #: Claim -> uids of the pods that name it.
        self._named: defaultdict[str, set[str]] = defaultdict(set)

    def put(self, claim: ResourceClaim) -> None:
        """A claim as it is now."""
        self._claims[claim.key] = claim

    def drop(self, key: str) -> None:
        """A claim is gone."""
        self._claims.pop(key, None)

    def resolved(self, pod: Pod) -> Pod:
        """A pod that waits, by what its claims say now; it is kept."""
        if pod.resource_claims or pod.uid in self._pods:
            self.forget(pod.uid)
        if not pod.resource_claims:
            return pod
        self._pods[pod.uid] = pod
        for key in _keys(pod):
            self._named[key].add(pod.uid)
        return with_claims(pod, self._claims)

    def waiting_for(self, key: str) -> list[Pod]:
        """The pods that name a claim, as they were read; oldest uid first."""
        return [self._pods[uid] for uid in sorted(self._named.get(key, ()))]

    def forget(self, uid: str) -> None:
        """A pod is gone, or waits no more."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        for key in _keys(pod):
            self._named[key].discard(uid)
            if not self._named[key]:
                del self._named[key]


def _keys(pod: Pod) -> set[str]:
    return {f"{pod.namespace}/{one.claim}" for one in pod.resource_claims}
