"""Which waiting pods have a nominated node by their status, as the watch reported it last.

Few pods have one, and no decision depends on it, so the pods' records leave it out.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.preempting.records import PREEMPTING, PodPlan, read_message
from closeby.kube.watch.changes import Change, Deleted, Upserted
from closeby.kube.watch.resources import Resource

#: Each such pod has this in its JSON.
_MARK: Final = b'"nominatedNodeName"'
#: How the server calls those who write with our client, and the field among those that they wrote.
_MANAGER: Final = "closeby"
_FIELD: Final = b'"f:nominatedNodeName"'


class _Condition(Struct, rename="camel"):
    type: str = ""
    status: str = ""
    message: str | None = None
    last_transition_time: str | None = None


class _Status(Struct, rename="camel"):
    nominated_node_name: str | None = None
    conditions: list[_Condition] | None = None


class _Managed(Struct, rename="camel"):
    manager: str = ""
    fields_v1: msgspec.Raw = msgspec.field(name="fieldsV1", default_factory=msgspec.Raw)


class _Meta(Struct, rename="camel"):
    managed_fields: list[_Managed] | None = None


class _Spec(Struct, rename="camel"):
    node_name: str | None = None


class _Pod(Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_read: Final = msgspec.json.Decoder(_Pod).decode


class NominatedPods:
    """Pods that wait and have a nominated node, by uid."""

    def __init__(self) -> None:
        self._plans: dict[str, PodPlan] = {}

    @property
    def plans(self) -> Mapping[str, PodPlan]:
        """What their statuses say."""
        return self._plans

    def take(self, changes: Iterable[tuple[Resource, Change]]) -> None:
        """What the watches brought; other kinds are passed over."""
        for resource, change in changes:
            if resource.kind != "Pod":
                continue
            match change:
                case Upserted(uid=uid, raw=raw) if _MARK in raw:
                    self._see(uid, raw)
                case Upserted(uid=uid) | Deleted(uid=uid):
                    self._plans.pop(uid, None)

    def _see(self, uid: str, raw: bytes) -> None:
        self._plans.pop(uid, None)
        try:
            pod = _read(raw)
        except msgspec.DecodeError:  # It only holds the words.
            return
        node = pod.status.nominated_node_name
        if not node or pod.spec.node_name:
            return
        ours = any(
            one.manager == _MANAGER and _FIELD in bytes(one.fields_v1)
            for one in pod.metadata.managed_fields or ()
        )
        self._plans[uid] = PodPlan(node=node, ours=ours)
        for one in pod.status.conditions or ():
            said = (
                read_message(one.message or "") if one.type == PREEMPTING and one.status == "True" else None
            )
            if said is not None:
                made = one.last_transition_time or ""
                self._plans[uid] = PodPlan(node=node, id=said[0], made=made, victims=said[1], ours=ours)
