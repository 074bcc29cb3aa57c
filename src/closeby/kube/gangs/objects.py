"""The PodGroup objects themselves: which one stands behind a gang, and what was written on it earlier."""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.watch.changes import Change, Deleted, Upserted
from closeby.kube.watch.resources import Resource
from closeby.kube.writing.writer import Reference, StatusCondition
from closeby.objects.groups import PodGroup
from closeby.objects.recorded import DecisionStatus, EvictionStatus, PreemptionStatus
from closeby.reading.decoding.keys import MIRROR_OF
from closeby.reading.registry import OWN_GROUP

UPSTREAM_GROUP: Final = "scheduling.k8s.io"


class GangObject(Struct, frozen=True, kw_only=True):
    """One PodGroup, as the watch reported it last."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    #: Its ``resourceVersion``.
    version: str
    generation: int
    #: By type; of dialects whose conditions are Kubernetes' own.
    conditions: dict[str, StatusCondition]
    #: When the plan that stands in its status was made (RFC 3339); empty without one.
    plan_made: str = ""
    #: Whether it is no gang: it keeps what we say of another dialect's PodGroup of the same name.
    mirror: bool = False
    #: uids of its owners.
    owners: tuple[str, ...] = ()
    #: The domain that its status names; empty without one.
    domain: str = ""
    #: The decision that its status tells.
    last_decision: DecisionStatus | None = None
    #: The plan by which pods are evicted for it.
    preemption: PreemptionStatus | None = None
    #: When the gang was evicted for others, the oldest first.
    evictions: tuple[EvictionStatus, ...] = ()

    @property
    def reference(self) -> Reference:
        """As Events name it."""
        return Reference(
            api_version=self.resource.api_version,
            kind=self.resource.kind,
            name=self.name,
            namespace=self.namespace,
            uid=self.uid,
        )

    @property
    def ours(self) -> bool:
        """Whether its status has a place for all that we say."""
        return self.resource.group == OWN_GROUP

    @property
    def has_conditions(self) -> bool:
        """Whether its status has a list of conditions as Kubernetes' own kinds have."""
        return self.resource.group in (OWN_GROUP, UPSTREAM_GROUP)


class _Condition(Struct, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class _Plan(Struct):
    made: str | None = None


class _Status(Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    plan: _Plan | None = None
    domain: str | None = None
    last_decision: DecisionStatus | None = None
    preemption: PreemptionStatus | None = None
    evictions: tuple[EvictionStatus, ...] | None = None


class _Owner(Struct):
    uid: str = ""


class _Meta(Struct, rename="camel"):
    name: str
    labels: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0


class _Standing(Struct):
    metadata: _Meta
    status: msgspec.Raw = msgspec.Raw()


_read: Final = msgspec.json.Decoder(_Standing).decode
_read_status: Final = msgspec.json.Decoder(_Status).decode


class GangObjects:
    """All PodGroups of all dialects, by gang."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, GangObject]] = {}

    def take(self, changes: Iterable[tuple[Resource, Change]]) -> set[str]:
        """What the watches brought; other kinds are passed over.

        Returns the gangs whose object is a new one, or says something new: what was said of them before may
        be missing there, or true no more.
        """
        renewed: set[str] = set()
        for resource, change in changes:
            if resource.kind != "PodGroup":
                continue
            match change:
                case Upserted(key=key, raw=raw):
                    objects = self._objects.setdefault(key, {})
                    found, before = _object(resource, raw), objects.get(resource.api_version)
                    objects[resource.api_version] = found
                    new = before is None or (before.uid, before.generation) != (found.uid, found.generation)
                    # We make mirrors ourselves; only what others did to them is news.
                    if new and not (found.mirror and before is None):
                        renewed.add(key)
                case Deleted(key=key):
                    objects = self._objects.get(key, {})
                    gone = objects.pop(resource.api_version, None)
                    if gone is not None and gone.mirror:
                        renewed.add(key)
                    if not objects:
                        self._objects.pop(key, None)
        return renewed

    def __iter__(self) -> Iterator[GangObject]:
        return (one for objects in self._objects.values() for one in objects.values())

    def of(self, group: PodGroup) -> GangObject | None:
        """The object that the gang was read from; None if it is gone."""
        return self._objects.get(group.key, {}).get(group.source)

    def asking(self, key: str) -> GangObject | None:
        """The PodGroup of ours that asks for places; None if it is gone."""
        found = self._objects.get(key, {}).values()
        return next((one for one in found if one.ours), None)

    def mirror_of(self, found: GangObject) -> GangObject | None:
        """The PodGroup of ours that keeps what we say of another dialect's; None where there is none yet."""
        others = self._objects.get(f"{found.namespace}/{found.name}", {}).values()
        return None if found.ours else next((one for one in others if one.mirror), None)

    def record_of(self, group: PodGroup) -> GangObject | None:
        """The object in whose status the gang's plan stands, or would stand; None where there is none yet."""
        found = self.of(group)
        return found if found is None or found.ours else self.mirror_of(found)


def _object(resource: Resource, raw: bytes) -> GangObject:
    found = _read(raw)
    try:
        status = _read_status(found.status) if found.status else _Status()
    except msgspec.DecodeError:  # Another dialect's status, of which nothing is needed.
        status = _Status()
    meta = found.metadata
    return GangObject(
        resource=resource,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        generation=meta.generation,
        conditions={
            one.type: StatusCondition(
                type=one.type,
                status=one.status,
                reason=one.reason,
                message=one.message,
                last_transition_time=one.last_transition_time or "",
                observed_generation=one.observed_generation,
            )
            for one in status.conditions or ()
        },
        plan_made=(status.plan and status.plan.made) or "",
        mirror=resource.group == OWN_GROUP and MIRROR_OF in (meta.labels or {}),
        owners=tuple(one.uid for one in meta.owner_references or ()),
        domain=status.domain or "",
        last_decision=status.last_decision,
        preemption=status.preemption,
        evictions=status.evictions or (),
    )
