"""Gets the claims of a pod bound before the pod is: the step before a binding that concerns its volumes.

A volume that is there is kept for its claim, or the claim asks that one be made for the pod's node. The
controllers of the cluster do the rest, and the step waits until the claim is bound. What an earlier process
wrote is taken over. A failure, or a decision that does not hold any more, gives back what is not bound yet.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from closeby.cluster.claims import ClaimedVolume
from closeby.cluster.columns import Cluster
from closeby.cluster.selecting import meets
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.writing.volume_writes import ClaimReference, VolumeWriter
from closeby.objects.reasons import Reason
from closeby.objects.saying import Say
from closeby.objects.volumes import PersistentVolumeClaim
from closeby.scheduling.outcomes import Binding, Leftover

#: Between two attempts to write while the server has trouble (seconds).
_ATTEMPTS: Final = RequestPace(0.2, 5.0)
#: Seconds for which what was written is tried to be undone.
_UNDO_WITHIN: Final = 30.0
#: Between two looks at what the watches say, and between two questions to the server (seconds).
_LOOKS: Final = 0.1
_QUESTIONS: Final = RequestPace(1.0, 10.0)


class _Wanted(Struct, frozen=True):
    """A claim of a binding that has no volume yet, and what was chosen for it."""

    claim: ClaimReference
    node: str
    #: None: it is to be made for the node.
    volume: str | None


class VolumeStep:
    """Binds volumes for one scheduler."""

    def __init__(
        self,
        transport: Transport,
        cluster: Cluster,
        say: Say,
        within: float,
        is_there: Callable[[str], bool],
        failed: Callable[[Leftover], None],
    ) -> None:
        """``within``: seconds until a claim must be bound; ``is_there``: whether a pod (uid) still is.

        ``failed`` gets the pods whose volumes can't be had as it was decided.
        """
        self._writer = VolumeWriter(transport)
        self._cluster = cluster
        self._say = say
        self._within = within
        self._is_there = is_there
        self._failed = failed
        #: Claim -> uids of the pods for which it was written, and may have to be undone.
        self._users: dict[str, set[str]] = {}
        #: By uid of the pod.
        self._wanted: dict[str, tuple[_Wanted, ...]] = {}

    def needed(self, binding: Binding) -> bool:
        """Whether one of the pod's claims had no volume when it was decided."""
        return any(not one.bound for one in binding.volumes)

    async def run(self, binding: Binding) -> str | None:
        """Writes for all claims, then waits for all."""
        why = await self._bind(binding)
        if why is not None and self._is_there(binding.pod.uid):
            self._failed(Leftover(binding.pod, Reason.VOLUME_NOT_BINDABLE, why))
        return None if why is None else f"{Reason.VOLUME_NOT_BINDABLE}: {why}"

    async def _bind(self, binding: Binding) -> str | None:
        uid, ends = binding.pod.uid, time.monotonic() + self._within
        found = [self._wanted_of(binding, one) for one in binding.volumes if not one.bound]
        wanted = tuple(one for one in found if isinstance(one, _Wanted))
        gone = next((one for one in found if isinstance(one, str)), None)
        if gone is not None:
            return gone
        self._wanted[uid] = wanted
        for one in wanted:
            self._users.setdefault(one.claim.key, set()).add(uid)
        for one in wanted:
            why = await self._write(one, ends)
            if why is not None:
                return why
        for one in wanted:
            why = await self._bound(one, uid, ends)
            if why is not None:
                return why
        self._forget(uid)
        return None

    async def undo(self, binding: Binding) -> None:
        """Gives back what is not bound, and what no other pod of ours waits for."""
        ends = time.monotonic() + _UNDO_WITHIN
        for one in self._forget(binding.pod.uid):
            if one.claim.key not in self._users:
                await self._undo(one, ends)

    def _forget(self, uid: str) -> tuple[_Wanted, ...]:
        wanted = self._wanted.pop(uid, ())
        for one in wanted:
            users = self._users.get(one.claim.key)
            if users is not None:
                users.discard(uid)
                if not users:
                    del self._users[one.claim.key]
        return wanted

    def _wanted_of(self, binding: Binding, one: ClaimedVolume) -> _Wanted | str:
        claim = self._claim(one.claim)
        if claim is None:
            return f"claim {one.claim} is not there any more"
        reference = ClaimReference(claim.namespace, claim.name, claim.uid)
        return _Wanted(reference, binding.node, one.volume)

    def _claim(self, key: str) -> PersistentVolumeClaim | None:
        return self._cluster.volumes.storage.claims.get(key)

    async def _write(self, one: _Wanted, ends: float) -> str | None:
        attempts = Backoff(_ATTEMPTS)
        while True:
            if one.volume is None:
                error = await self._writer.select(one.node, one.claim)
            else:
                error = await self._writer.keep(one.volume, one.claim)
            if error is None:
                return None
            wait = attempts.next(error.retry_after)
            if not _may_pass(error) or time.monotonic() + wait > ends:
                return _why(one, str(error) if error.code else error.message)
            await asyncio.sleep(wait)

    async def _undo(self, one: _Wanted, ends: float) -> None:
        attempts = Backoff(_ATTEMPTS)
        while True:
            if one.volume is None:
                error = await self._writer.unselect(one.node, one.claim)
            else:
                error = await self._writer.let_go(one.volume, one.claim)
            if error is None:
                return
            wait = attempts.next(error.retry_after)
            if not _may_pass(error) or time.monotonic() + wait > ends:
                self._say("volume not given back", warning=True, claim=one.claim.key, error=error)
                return
            await asyncio.sleep(wait)

    # Waiting

    async def _bound(self, one: _Wanted, uid: str, ends: float) -> str | None:
        """Waits until the watches say that the claim is bound to a volume that the node reaches.

        That it will not be the server says, which is asked now and then: a watch may lag behind a write.
        """
        questions = Backoff(_QUESTIONS)
        ask_at = time.monotonic() + questions.next()
        while True:
            claim = self._claim(one.claim.key)
            if claim is not None and claim.bound and claim.uid == one.claim.uid:
                volume = self._cluster.volumes.storage.volumes.get(claim.volume)
                if volume is not None:
                    return self._reached(one, claim.volume)
            now = time.monotonic()
            if now >= ends:
                return _why(one, f"it was not bound within {self._within:g} s")
            if not self._is_there(uid):
                return _why(one, "its pod is gone")
            if self._cluster.slot(one.node) is None:
                return _why(one, f"node {one.node} is gone")
            if now >= ask_at:
                ask_at = now + questions.next()
                why = await self._given_up(one)
                if why is not None:
                    return _why(one, why)
            await asyncio.sleep(min(_LOOKS, max(0.0, ends - time.monotonic())))

    def _reached(self, one: _Wanted, name: str) -> str | None:
        slot = self._cluster.slot(one.node)
        if slot is None:
            return _why(one, f"node {one.node} is gone")
        terms = self._cluster.volumes.storage.volumes[name].node_affinity
        if terms is not None and not meets(terms, self._cluster.node_at(slot)):
            return _why(one, f"it was bound to volume {name}, which node {one.node} does not reach")
        return None

    async def _given_up(self, one: _Wanted) -> str | None:
        """Why the claim will not be bound as it was decided; None while it may be."""
        found = await self._writer.claim(one.claim)
        if isinstance(found, ApiError):
            return None if _may_pass(found) else found.message
        if found.bound:
            return None
        if found.ends:
            return "it is being deleted"
        if one.volume is not None:
            # Kept again where its owner has freed it; taken by another claim it is not to be had.
            error = await self._writer.keep(one.volume, one.claim)
            return None if error is None or _may_pass(error) else error.message
        if found.node != one.node and not found.volume:
            return f"its provisioner makes no volume for node {one.node}"
        return None


def _why(one: _Wanted, why: str) -> str:
    return f"claim {one.claim.key}: {why}"


def _may_pass(error: ApiError) -> bool:
    return (not error.unsent and error.passing) or error.code in (409, 410, 429)
