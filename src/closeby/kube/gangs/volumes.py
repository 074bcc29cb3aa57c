"""Gets the claims of a pod bound before the pod is: the step before a binding that concerns its volumes.

A volume that is there is kept for its claim, or the claim asks that one be made for the pod's node. The
controllers of the cluster do the rest, and the step waits until the claim is bound. What an earlier process
wrote is taken over. A failure, or a decision that does not hold any more, gives back what is not bound yet.
"""

import asyncio
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from closeby.cluster.claims import ClaimedVolume
from closeby.cluster.columns import Cluster
from closeby.cluster.selecting import meets
from closeby.cluster.volumes_by_class import VolumeFailure
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.client.waiting import Backoff, RequestPace
from closeby.kube.writing.volume_writes import GONE, TAKEN, ClaimReference, VolumeWriter
from closeby.objects.process import Say
from closeby.objects.reasons import Reason
from closeby.objects.volumes import PersistentVolumeClaim
from closeby.scheduling.outcomes import Binding

#: Between two attempts to write while the server has trouble (seconds).
_ATTEMPTS: Final = RequestPace(0.2, 5.0)
#: Seconds for which what was written is tried to be undone.
_UNDO_WITHIN: Final = 30.0
#: Between two looks at what the watches say, and between two questions to the server (seconds).
_LOOKS: Final = 0.05
#: Looks, at most, until the watches have said that what was written is undone.
_LOOKS_AFTER: Final = 100
_QUESTIONS: Final = RequestPace(1.0, 10.0)
#: Seconds after which it is reported that a pod waits for its volumes: most are made within.
_REPORTED_AFTER: Final = 20.0


class VolumeTrouble(StrEnum):
    """Why the volumes of a pod can't be had as it was decided, as metrics tell it."""

    #: Not bound in time.
    LATE = "not_bound_in_time"
    #: The provisioner makes none for the node.
    REFUSED = "refused_by_provisioner"
    #: The volume went to another claim, or is gone.
    TAKEN = "volume_taken"
    #: The claim was bound to a volume that the node does not reach.
    OUT_OF_REACH = "out_of_reach"
    #: The claim, the pod or the node is gone.
    GONE = "gone"
    #: The API server refuses the write, or does not answer.
    SERVER = "server"
    #: Another member of the gang failed, or its decision does not hold any more.
    GIVEN_UP = "given_up"


#: What cures it, or shows more; ``{}`` is the claim.
_REMEDIES: Final = {
    VolumeTrouble.LATE: "kubectl describe pvc {} shows what it waits for",
    VolumeTrouble.REFUSED: "kubectl describe pvc {} shows what the provisioner says",
    VolumeTrouble.SERVER: "the scheduler's role must allow get and patch of claims and volumes",
}


class VolumeProblem(Struct, frozen=True, kw_only=True):
    """The volumes of a pod can't be had as it was decided."""

    binding: Binding
    trouble: VolumeTrouble
    #: Which claim, and why.
    why: str
    #: What shows more, or cures it; may be empty.
    remedy: str = ""
    #: What is to be remembered of it; None where it says nothing of the node.
    failure: VolumeFailure | None = None

    def sentence(self) -> str:
        """For the pod and its gang."""
        return f"{self.why}; {self.remedy}" if self.remedy else self.why


class VolumeContext(Protocol):
    """What the step needs of its scheduler."""

    def wanted(self, binding: Binding) -> bool:
        """Whether the pod is still to be bound as this says."""

    def write_refused(self, bindings: Sequence[Binding], error: ApiError | None, times: int = 1) -> None:
        """The server did not do, so many times in a row, what must be written before these take effect."""

    def volumes_awaited(self, binding: Binding, why: str) -> None:
        """The volumes of a pod are not bound yet, for longer than most take."""

    def volumes_failed(self, problem: VolumeProblem) -> None:
        """The volumes of a pod can't be had as it was decided."""

    def volumes_ended(self, seconds: float, trouble: VolumeTrouble | None) -> None:
        """All volumes of a pod are bound after so many seconds, or (``trouble``) are not."""


class _Wanted(Struct, frozen=True):
    """A claim of a binding that has no volume yet, and what was chosen for it."""

    claim: ClaimReference
    node: str
    #: None: it is to be made for the node.
    volume: str | None


class _Failed(Struct, frozen=True):
    """Why a claim is not bound."""

    trouble: VolumeTrouble
    why: str
    claim: str


class VolumeStep:
    """Binds volumes for one scheduler."""

    def __init__(
        self, transport: Transport, cluster: Cluster, say: Say, within: float, context: VolumeContext
    ) -> None:
        """``within``: seconds until a claim must be bound."""
        self._writer = VolumeWriter(transport)
        self._cluster = cluster
        self._say = say
        self._within = within
        self._context = context
        #: Claim -> uids of the pods for which it was written, and may have to be undone.
        self._users: dict[str, set[str]] = {}
        #: By uid of the pod.
        self._wanted: dict[str, tuple[_Wanted, ...]] = {}

    def needed(self, binding: Binding) -> bool:
        """Whether one of the pod's claims had no volume when it was decided."""
        return any(not one.bound for one in binding.volumes)

    async def run(self, binding: Binding) -> str | None:
        """Writes for all claims, then waits for all."""
        began = time.monotonic()
        failed = await self._bind(binding, began + self._within)
        took = time.monotonic() - began
        self._context.volumes_ended(took, None if failed is None else failed.trouble)
        if failed is None:
            return None
        if failed.trouble is not VolumeTrouble.GIVEN_UP:
            self._context.volumes_failed(_problem(binding, failed, took))
        return f"{Reason.VOLUME_NOT_BINDABLE}: {failed.why}"

    async def _bind(self, binding: Binding, ends: float) -> _Failed | None:
        found = [self._wanted_of(binding, one) for one in binding.volumes if not one.bound]
        wanted = tuple(one for one in found if isinstance(one, _Wanted))
        gone = next((one for one in found if isinstance(one, _Failed)), None)
        if gone is not None:
            return gone
        uid = binding.pod.uid
        self._wanted[uid] = wanted
        for one in wanted:
            self._users.setdefault(one.claim.key, set()).add(uid)
        for one in wanted:
            failed = await self._write(one, binding, ends)
            if failed is not None:
                return failed
        for one in wanted:
            failed = await self._bound(one, binding, ends)
            if failed is not None:
                return failed
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

    def _wanted_of(self, binding: Binding, one: ClaimedVolume) -> _Wanted | _Failed:
        claim = self._claim(one.claim)
        if claim is None:
            return _Failed(VolumeTrouble.GONE, f"claim {one.claim} is not there any more", one.claim)
        reference = ClaimReference(claim.namespace, claim.name, claim.uid)
        return _Wanted(reference, binding.node, one.volume)

    def _claim(self, key: str) -> PersistentVolumeClaim | None:
        return self._cluster.volumes.storage.claims.get(key)

    async def _write(self, one: _Wanted, binding: Binding, ends: float) -> _Failed | None:
        attempts = Backoff(_ATTEMPTS)
        while self._context.wanted(binding):
            if one.volume is None:
                error = await self._writer.select(one.node, one.claim)
            else:
                error = await self._writer.keep(one.volume, one.claim)
            if error is None:
                return None
            wait = attempts.next(error.retry_after)
            if not _may_pass(error) or time.monotonic() + wait > ends:
                return _refusal(one, error)
            self._context.write_refused((binding,), error, attempts.failures)
            await asyncio.sleep(wait)
        return _given_up(one)

    async def _undo(self, one: _Wanted, ends: float) -> None:
        attempts = Backoff(_ATTEMPTS)
        while True:
            if one.volume is None:
                error = await self._writer.unselect(one.node, one.claim)
            else:
                error = await self._writer.let_go(one.volume, one.claim)
            if error is None:
                break
            wait = attempts.next(error.retry_after)
            if not _may_pass(error) or time.monotonic() + wait > ends:
                self._say("volume not given back", warning=True, claim=one.claim.key, error=error)
                return
            await asyncio.sleep(wait)

        # What is decided next goes by what the watches have brought.
        for _ in range(_LOOKS_AFTER):
            if self._is_free(one):
                return
            await asyncio.sleep(_LOOKS)

    def _is_free(self, one: _Wanted) -> bool:
        """Whether nothing that is known says that the claim is still to be bound as it was decided."""
        claim = self._claim(one.claim.key)
        if claim is None or claim.uid != one.claim.uid or claim.volume:
            return True
        if one.volume is None:
            return claim.selected_node != one.node
        volume = self._cluster.volumes.storage.volumes.get(one.volume)
        return volume is None or (volume.claim, volume.claim_uid) != (claim.key, claim.uid)

    # Waiting

    async def _bound(self, one: _Wanted, binding: Binding, ends: float) -> _Failed | None:
        """Waits until the watches say that the claim is bound to a volume that the node reaches.

        That it will not be the server says, which is asked now and then: a watch may lag behind a write.
        """
        questions = Backoff(_QUESTIONS)
        ask_at = time.monotonic() + questions.next()
        tell_at = ends - self._within + min(_REPORTED_AFTER, self._within / 2)
        selected = False
        while True:
            claim = self._claim(one.claim.key)
            if claim is not None and claim.bound and claim.uid == one.claim.uid:
                volume = self._cluster.volumes.storage.volumes.get(claim.volume)
                if volume is not None:
                    return self._reached(one, claim.volume)
            now, wanted = time.monotonic(), self._context.wanted(binding)
            if now >= ends:
                return _failed(one, VolumeTrouble.LATE, f"it was not bound within {self._within:g} s")
            if wanted and self._cluster.slot(one.node) is None:
                return _failed(one, VolumeTrouble.GONE, f"node {one.node} is gone")
            before, selected = selected, claim is not None and claim.selected_node == one.node
            # What another member will not get either is known before the gang is placed again.
            last_word = not wanted and one.volume is None
            if now >= ask_at or last_word or (before and not selected):
                ask_at = now + questions.next()
                failed = await self._without_hope(one)
                if failed is not None:
                    return failed
            if not wanted:
                return _given_up(one)
            if now >= tell_at:
                tell_at = ends
                why = f"claim {one.claim.key} has no volume for node {one.node} yet"
                remedy = _remedy(VolumeTrouble.LATE, one.claim.key)
                self._context.volumes_awaited(binding, f"{why}; {remedy}")
            await asyncio.sleep(min(_LOOKS, max(0.0, ends - time.monotonic())))

    def _reached(self, one: _Wanted, name: str) -> _Failed | None:
        slot = self._cluster.slot(one.node)
        if slot is None:
            return _failed(one, VolumeTrouble.GONE, f"node {one.node} is gone")
        terms = self._cluster.volumes.storage.volumes[name].node_affinity
        if terms is not None and not meets(terms, self._cluster.node_at(slot)):
            why = f"it was bound to volume {name}, which node {one.node} does not reach"
            return _failed(one, VolumeTrouble.OUT_OF_REACH, why)
        return None

    async def _without_hope(self, one: _Wanted) -> _Failed | None:
        """Why the claim will not be bound as it was decided; None while it may be."""
        found = await self._writer.claim(one.claim)
        if isinstance(found, ApiError):
            return None if _may_pass(found) else _refusal(one, found)
        if found.bound:
            return None
        if found.ends:
            return _failed(one, VolumeTrouble.GONE, "it is being deleted")
        if one.volume is not None:
            # Kept again where its owner has freed it; taken by another claim it is not to be had.
            error = await self._writer.keep(one.volume, one.claim)
            return None if error is None or _may_pass(error) else _refusal(one, error)
        if found.node != one.node and not found.volume:
            return _failed(one, VolumeTrouble.REFUSED, f"its provisioner makes no volume for node {one.node}")
        return None


def _failed(one: _Wanted, trouble: VolumeTrouble, why: str) -> _Failed:
    return _Failed(trouble, f"claim {one.claim.key}: {why}", one.claim.key)


def _given_up(one: _Wanted) -> _Failed:
    return _failed(one, VolumeTrouble.GIVEN_UP, "what was decided about its pod does not hold any more")


def _refusal(one: _Wanted, error: ApiError) -> _Failed:
    """What the server says, or what was found there."""
    if error.code is not None:
        return _failed(one, VolumeTrouble.SERVER, str(error))
    known = {
        TAKEN: VolumeTrouble.TAKEN,
        GONE: VolumeTrouble.GONE if one.volume is None else VolumeTrouble.TAKEN,
    }
    return _failed(one, known.get(error.reason, VolumeTrouble.SERVER), error.message)


def _problem(binding: Binding, failed: _Failed, took: float) -> VolumeProblem:
    trouble, key = failed.trouble, failed.claim
    volume = next((one.volume for one in binding.volumes if one.claim == key), None)
    failure: VolumeFailure | None = None
    why = failed.why.removeprefix(f"claim {key}: ")
    if trouble in (VolumeTrouble.LATE, VolumeTrouble.REFUSED) or (trouble is VolumeTrouble.TAKEN and volume):
        failure = VolumeFailure(
            claim=key,
            node=binding.node,
            why=f"{why} for node {binding.node}" if trouble is VolumeTrouble.LATE else why,
            volume=volume or "",
            near=trouble is VolumeTrouble.REFUSED,
            took=took,
        )
    remedy = _remedy(trouble, key)
    return VolumeProblem(binding=binding, trouble=trouble, why=failed.why, remedy=remedy, failure=failure)


def _remedy(trouble: VolumeTrouble, claim: str) -> str:
    namespace, _, name = claim.partition("/")
    return _REMEDIES.get(trouble, "").format(f"{name} -n {namespace}")


def _may_pass(error: ApiError) -> bool:
    return (not error.unsent and error.passing) or error.code in (409, 410, 429)
