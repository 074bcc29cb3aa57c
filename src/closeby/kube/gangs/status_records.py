"""Writes what is said of a gang on its objects.

closeby's own PodGroup has a place for all of it in its status. On a PodGroup of another dialect only
upstream's conditions are written. What must be believed later (the plan, the ranks) goes into a mirror beside
it: a PodGroup of closeby of the same name, which the other one owns. No other client may write its status.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from closeby.kube.client.errors import INVALID, ApiError
from closeby.kube.gangs.objects import GangObject, GangObjects
from closeby.kube.gangs.status import PRIORITY_LIMITED, Said
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.writer import DONE, StatusCondition, Writer, WriteResult, Written
from closeby.objects.process import Say
from closeby.objects.recorded import DecisionStatus, EvictionStatus, PreemptionStatus, ReservationStatus
from closeby.reading.common.plans import PlanWire
from closeby.reading.decoding.keys import MANAGED_BY, MIRROR_OF
from closeby.reading.registry import OWN_GROUP

#: closeby's own kind.
MIRRORS: Final = Resource(
    group=OWN_GROUP, version="v1alpha1", kind="PodGroup", plural="podgroups", namespaced=True
)
MANAGER: Final = "closeby-scheduler"
#: Fields that an older definition of the kind lacks: the server then refuses the whole status with a 500.
_NEWER: Final = ("lastDecision", "reservation", "evictions")
#: A plan of preemption is not among them: without a place for it no pod may be evicted.
_PREEMPTION: Final = "preemption"
_SERVER_ERROR: Final = 500
#: Seconds after which they are tried again: the definition may have been updated.
_TRY_NEWER_AFTER: Final = 600.0


class Record(Struct, frozen=True, kw_only=True):
    """All that is said of a gang."""

    said: tuple[Said, ...]
    #: Members that are bound, and the path of their domain.
    scheduled: int
    domain: str
    ranks: Sequence[str] = ()
    plan: PlanWire | None = None
    last_decision: DecisionStatus | None = None
    reservation: ReservationStatus | None = None
    preemption: PreemptionStatus | None = None
    evictions: tuple[EvictionStatus, ...] = ()


class GangStatusRecords:
    """Writes records, each on the newest version of the object that we know."""

    def __init__(
        self,
        writer: Writer,
        objects: GangObjects,
        condition: Callable[[str, Said, GangObject], StatusCondition],
        say: Say,
    ) -> None:
        """``condition`` says how one is written on an object of a gang."""
        self._writer = writer
        self._say = say
        #: Until when (monotonic seconds) the newer fields are left out.
        self._plain_until = 0.0
        self._objects = objects
        self._condition = condition
        #: By gang: uid and version of its object after our last write, which the watch may not have brought.
        self._versions: dict[str, tuple[str, str]] = {}
        #: The same of the mirror, and the uid of the object to which we handed it.
        self._mirrors: dict[str, tuple[str, str]] = {}
        self._handed: dict[str, str] = {}

    def forget(self, key: str, uid: str | None = None) -> None:
        """The gang's object is gone; with ``uid`` only that one is."""
        if uid is None or self._versions.get(key, ("", ""))[0] == uid:
            self._versions.pop(key, None)
        if uid is None:
            self._mirrors.pop(key, None)
            self._handed.pop(key, None)

    async def write(self, key: str, found: GangObject, record: Record, *, must_last: bool) -> Written:
        """One write, or more on kinds of others; ``must_last``: it has a plan, or one may stand there.

        CONFLICT when an object differs from what the watch reported: another writer may have written a plan.
        """
        if found.ours:
            status = self._status(key, record, found)
            return await self._apply(self._versions, key, found, status)
        written = DONE
        limited = any(one.type == PRIORITY_LIMITED for one in record.said)
        if must_last or limited or record.evictions or self._objects.mirror_of(found) is not None:
            written = await self._write_mirror(key, found, record)
        if written.ok and found.has_conditions:
            status = {"conditions": [self._condition(key, one, found) for one in record.said]}
            written = await self._apply(self._versions, key, found, status)
        return written

    def _status(self, key: str, record: Record, target: GangObject) -> dict[str, object]:
        status: dict[str, object] = {
            "conditions": [self._condition(key, one, target) for one in record.said],
            "scheduled": record.scheduled,
            "domain": record.domain,
        }
        if record.ranks:
            status["ranks"] = list(record.ranks)
        if record.plan is not None:
            status["plan"] = msgspec.to_builtins(record.plan)
        if record.last_decision is not None:
            status["lastDecision"] = msgspec.to_builtins(record.last_decision)
        if record.reservation is not None:
            status["reservation"] = msgspec.to_builtins(record.reservation)
        if record.preemption is not None:
            status[_PREEMPTION] = msgspec.to_builtins(record.preemption)
        if record.evictions:
            status["evictions"] = msgspec.to_builtins(record.evictions)
        return status

    async def _apply(
        self,
        versions: dict[str, tuple[str, str]],
        key: str,
        target: GangObject,
        status: dict[str, object],
    ) -> Written:
        # It must not undo what another leader said meanwhile, nor be said of a new object of that name.
        version = _newest(target, versions.get(key))
        resource, namespace, name, uid = target.resource, target.namespace, target.name, target.uid
        older = {field: value for field, value in status.items() if field not in _NEWER}
        if time.monotonic() < self._plain_until:
            status = older
        written = await self._writer.apply_status(resource, namespace, name, uid, status, version)
        error = written.error
        if len(older) < len(status) and _has_no_place(error, _NEWER):
            written = await self._writer.apply_status(resource, namespace, name, uid, older, version)
            if written.ok:
                self._plain_until = time.monotonic() + _TRY_NEWER_AFTER
                remedy = "update the definition podgroups.closeby.dev"
                self._say(
                    "PodGroup written without its newer fields", warning=True, error=error, remedy=remedy
                )
        if written.version:
            versions[key] = target.uid, written.version
        return _without_place(written) if _PREEMPTION in status else written

    async def _write_mirror(self, key: str, found: GangObject, record: Record) -> Written:
        target, written = await self._mirror(key, found)
        if target is not None:
            written = await self._apply(self._mirrors, key, target, self._status(key, record, target))
        if not written.ok:
            # The next attempt uses what the watch reports until then.
            self._mirrors.pop(key, None)
            self._handed.pop(key, None)
            if written.verdict is WriteResult.GONE:
                return replace(written, verdict=WriteResult.CONFLICT)
        return written

    async def _mirror(self, key: str, found: GangObject) -> tuple[GangObject | None, Written]:
        """The mirror, made or handed to its present owner if need be; None and why where that failed."""
        seen, ours = self._objects.mirror_of(found), self._mirrors.get(key)
        metadata = _metadata(found)
        if seen is None and ours is None:
            body = {
                "apiVersion": MIRRORS.api_version,
                "kind": MIRRORS.kind,
                "metadata": {"name": found.name, "namespace": found.namespace, **metadata},
                "spec": {},
            }
            made = await self._writer.create(MIRRORS, found.namespace, body)
            if not made.ok or not made.uid:
                return None, _named(made)
            ours = self._mirrors[key] = made.uid, made.version
        elif seen is not None and found.uid not in (*seen.owners, self._handed.get(key)):
            version = _newest(seen, ours)
            moved = await self._writer.set_metadata(MIRRORS, found.namespace, found.name, version, metadata)
            if not moved.ok:
                return None, moved
            self._mirrors[key], self._handed[key] = (seen.uid, moved.version), found.uid
        if seen is not None:
            return seen, DONE
        uid, version = ours or ("", "")
        return _unseen(found, uid, version), DONE


def _metadata(found: GangObject) -> dict[str, object]:
    """The mirror ends with the PodGroup that it belongs to."""
    owner = {
        "apiVersion": found.resource.api_version,
        "kind": found.resource.kind,
        "name": found.name,
        "uid": found.uid,
    }
    labels = {MANAGED_BY: MANAGER, MIRROR_OF: found.resource.group}
    return {"labels": labels, "ownerReferences": [owner]}


def _unseen(found: GangObject, uid: str, version: str) -> GangObject:
    """A mirror which no watch has brought yet."""
    return GangObject(
        resource=MIRRORS,
        namespace=found.namespace,
        name=found.name,
        uid=uid,
        version=version,
        generation=1,
        conditions={},
        mirror=True,
        owners=(found.uid,),
    )


def _newest(found: GangObject, written: tuple[str, str] | None) -> str:
    """The newest version of this object that we know."""
    uid, version = written or ("", "")
    # Numbers of any length, as text.
    return max(found.version, version if uid == found.uid else "", key=lambda one: (len(one), one))


def _has_no_place(error: ApiError | None, fields: Sequence[str]) -> bool:
    """Whether the definition of the kind lacks one of these fields of the status, or a part, by a refusal."""
    if error is None or error.code != _SERVER_ERROR:
        return False
    return any(f".status.{field}{end}" in error.message for field in fields for end in ":.")


def _without_place(written: Written) -> Written:
    """A plan of preemption that the definition of the kind has no place for is refused for good."""
    if not _has_no_place(written.error, (_PREEMPTION,)):
        return written
    message = (
        "the definition podgroups.closeby.dev has no place for a plan of preemption: update the definition"
    )
    return Written(WriteResult.FATAL, ApiError(_SERVER_ERROR, INVALID, message))


def _named(made: Written) -> Written:
    """Why no mirror could be made, in words that name the kind."""
    if made.verdict is not WriteResult.GONE:
        return made
    message = f"there is no place for its plan: the kind PodGroup of {OWN_GROUP} is not installed"
    return Written(WriteResult.FATAL, ApiError(404, INVALID, message))
