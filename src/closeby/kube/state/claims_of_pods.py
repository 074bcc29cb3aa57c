"""ResourceClaims of a cluster, and the pods that name them: claims may be allocated long after.

A claim serves a limited number of pods (``ResourceClaim.places``). Those that wait stand in the order in
which they came.
"""

from itertools import chain
from typing import Final, TypeAlias

from closeby.objects.pods import NodeSelectorTerm, Pod, ResourceClaim
from closeby.reading.resolving import claim_keys, with_claims

#: From which the devices of a claim can be used, as alternatives; None: from all.
Nodes: TypeAlias = tuple[NodeSelectorTerm, ...] | None
_NO: Final = "may not use it"


class _Users:
    """uids of the pods that name one claim, as they came."""

    __slots__ = ("placed", "served", "waiting")

    def __init__(self) -> None:
        self.placed: dict[str, None] = {}
        self.waiting: dict[str, None] = {}
        #: Those of them that have the places that are left; None: it must be worked out.
        self.served: frozenset[str] | None = None


class ClaimsOfPods:
    """All claims, and the pods that name any, as they were read."""

    def __init__(self) -> None:
        self._claims: dict[str, ResourceClaim] = {}
        #: uid -> pod, of those that name a claim.
        self._pods: dict[str, Pod] = {}
        #: By claim.
        self._users: dict[str, _Users] = {}

    def put(self, claim: ResourceClaim) -> tuple[Pod, ...]:
        """A claim as it is now. Returns the pods that wait and for which it says something else than before,
        as they were read; oldest uid first.

        No others are returned: many pods may each name many claims, of which any may change often.
        """
        return self._becomes(claim.key, claim)

    def drop(self, key: str) -> tuple[Pod, ...]:
        """A claim is gone, or can't be read. Returns the pods that wait and could use it."""
        return self._becomes(key, None)

    def resolved(self, pod: Pod) -> Pod:
        """A pod that waits, by what its claims say now; it is kept."""
        self._use(pod)
        return with_claims(pod, self._claims, lambda claim: pod.uid in self._served(claim))

    def placed(self, pod: Pod) -> tuple[Pod, ...]:
        """A pod has its node: it uses its claims, also those that are not reserved for it yet.

        Returns the pods that wait and have a place no more.
        """
        before = self._served_by(pod)
        self._use(pod)
        return self._others(before)

    def forget(self, uid: str) -> tuple[Pod, ...]:
        """A pod is gone, or waits for another scheduler; returns the pods that wait and have its places now.

        No others are returned: many pods of one claim may end one after another.
        """
        pod = self._pods.get(uid)
        if pod is None:
            return ()
        before = self._served_by(pod)
        for key in claim_keys(pod):
            self._leave(key, uid)
        del self._pods[uid]
        return self._others(before)

    def _use(self, pod: Pod) -> None:
        before, keys = self._pods.get(pod.uid), claim_keys(pod)
        if before is pod:
            return
        if before is not None:
            for key in claim_keys(before) - keys:
                self._leave(key, pod.uid)
            del self._pods[pod.uid]
        if not keys:
            return
        self._pods[pod.uid] = pod
        for key in keys:
            users = self._users.setdefault(key, _Users())
            now, other = users.waiting, users.placed
            if pod.node_name is not None:
                now, other = other, now
            other.pop(pod.uid, None)
            now.setdefault(pod.uid)
            users.served = None

    def _leave(self, key: str, uid: str) -> None:
        users = self._users[key]
        users.placed.pop(uid, None)
        users.waiting.pop(uid, None)
        users.served = None
        if not users.placed and not users.waiting:
            del self._users[key]

    def _becomes(self, key: str, claim: ResourceClaim | None) -> tuple[Pod, ...]:
        before = self._claims.get(key)
        if before == claim:
            return ()
        says = self._says(before)
        if claim is None:
            del self._claims[key]
        else:
            self._claims[key] = claim
        users = self._users.get(key)
        if users is None:
            return ()
        users.served = None
        now = self._says(claim)
        if not says and not now:
            return ()
        return tuple(
            self._pods[uid] for uid in sorted(users.waiting) if says.get(uid, _NO) != now.get(uid, _NO)
        )

    def _says(self, claim: ResourceClaim | None) -> dict[str, Nodes]:
        """By uid of each pod that waits and may use a claim: the nodes of its devices."""
        users = None if claim is None or not claim.usable else self._users.get(claim.key)
        if claim is None or users is None:
            return {}
        served = self._served(claim)
        return {uid: claim.nodes for uid in users.waiting if claim.serves(self._pods[uid], served)}

    def _served_by(self, pod: Pod) -> dict[str, frozenset[str]]:
        """By claim of a pod that any may use: the pods that have the places that are left."""
        claims = (self._claims.get(key) for key in claim_keys(pod))
        return {claim.key: self._served(claim) for claim in claims if claim is not None and claim.usable}

    def _others(self, before: dict[str, frozenset[str]]) -> tuple[Pod, ...]:
        """The pods that wait and had a place before, or have one now, but not both."""
        found = set[str]()
        for key, served in before.items():
            users = self._users.get(key)
            if users is not None:
                found |= (served ^ self._served(self._claims[key])) & users.waiting.keys()
        return tuple(self._pods[uid] for uid in sorted(found))

    def _served(self, claim: ResourceClaim) -> frozenset[str]:
        """The pods that have the places that are left of a claim."""
        users = self._users.get(claim.key)
        if users is None:
            return frozenset()
        if users.served is None:
            users.served = claim.places(self._pods[uid] for uid in chain(users.placed, users.waiting))
        return users.served
