"""What schedulers wrote about a pod or gang in the cluster: conditions, the last decision, a reservation."""

from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.watch.resources import Resource
from closeby.objects.recorded import DecisionStatus, Recorded, ReservationStatus, SchedulerStatus
from closeby.reading.registry import OWN_GROUP


class _Condition(Struct, rename="camel"):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _Status(Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    last_decision: msgspec.Raw = msgspec.Raw()
    reservation: msgspec.Raw = msgspec.Raw()


class _Object(Struct):
    status: _Status | None = None


T = TypeVar("T")

_decode: Final = msgspec.json.Decoder(_Object).decode
#: Of a pod's conditions the one that schedulers write.
_OF_SCHEDULERS: Final = "PodScheduled"
_GONE: Final = 404


async def read_recorded(transport: Transport, resource: Resource, key: str) -> SchedulerStatus | ApiError:
    """What stands in the status of a PodGroup, or a pod's condition that says that it waits.

    The decision and the reservation are read from closeby's own kind alone: only closeby may write there.
    """
    namespace, name = key.split("/", 1)
    body = await transport.get(resource.item(namespace, name))
    if isinstance(body, ApiError):
        return SchedulerStatus() if body.code == _GONE else body
    try:
        found = _decode(body)
    except msgspec.DecodeError as error:
        return ApiError(None, UNREADABLE, f"{resource.kind}/{key}: {error}")
    status = found.status or _Status()
    conditions = status.conditions or []
    if resource.kind == "Pod":
        conditions = [one for one in conditions if one.type == _OF_SCHEDULERS and one.status != "True"]
    ours = resource.group == OWN_GROUP
    return SchedulerStatus(
        conditions=tuple(_recorded(f"{resource.kind}/{key}", one) for one in conditions),
        last_decision=_read(status.last_decision, DecisionStatus) if ours else None,
        reservation=_read(status.reservation, ReservationStatus) if ours else None,
    )


def _recorded(name: str, one: _Condition) -> Recorded:
    return Recorded(
        object=name,
        type=one.type or "",
        status=one.status or "",
        reason=one.reason or "",
        message=one.message or "",
        since=one.last_transition_time or "",
    )


def _read(raw: msgspec.Raw, as_type: type[T]) -> T | None:
    """What a version of closeby that writes it otherwise wrote is not known."""
    try:
        return msgspec.json.decode(raw, type=as_type) if raw else None
    except msgspec.DecodeError:
        return None
