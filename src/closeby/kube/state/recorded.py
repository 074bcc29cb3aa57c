"""What schedulers wrote about a pod or gang in the cluster: conditions, the last decision, a reservation."""

from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, ApiError, decoded
from closeby.kube.client.transport import Transport
from closeby.kube.watch.resources import PODS, Resource
from closeby.objects.recorded import (
    DecisionStatus,
    PodCondition,
    Recorded,
    ReservationStatus,
    SchedulerStatus,
)
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


class _Meta(Struct, frozen=True):
    name: str = ""


class _Object(Struct):
    metadata: _Meta = _Meta()
    status: _Status | None = None


class _List(Struct):
    items: list[_Object] = []


T = TypeVar("T")

_decode: Final = msgspec.json.Decoder(_Object).decode
_decode_list: Final = msgspec.json.Decoder(_List).decode
#: Of a pod's conditions the one that schedulers write.
_OF_SCHEDULERS: Final = "PodScheduled"
_GONE: Final = 404


async def read_recorded(transport: Transport, resource: Resource, key: str) -> SchedulerStatus | ApiError:
    """What stands in the status of a PodGroup, or of a pod: its condition ``PodScheduled``.

    The decision and the reservation are read from closeby's own kind alone: only closeby may write there.
    """
    namespace, name = key.split("/", 1)
    body = await transport.get(resource.item(namespace, name))
    if isinstance(body, ApiError):
        return SchedulerStatus() if body.code == _GONE else body
    try:
        found = decoded(_decode, body)
    except msgspec.DecodeError as error:
        return ApiError(None, UNREADABLE, f"{resource.kind}/{key}: {error}")
    status = found.status or _Status()
    conditions = status.conditions or []
    if resource.kind == "Pod":
        waits = [one for one in conditions if one.type == _OF_SCHEDULERS and one.status != "True"]
        one = _of_pod(conditions)
        return SchedulerStatus(
            conditions=tuple(_recorded(f"{resource.kind}/{key}", one) for one in waits),
            pods={} if one is None else {name: one},
        )
    ours = resource.group == OWN_GROUP
    return SchedulerStatus(
        conditions=tuple(_recorded(f"{resource.kind}/{key}", one) for one in conditions),
        last_decision=_read(status.last_decision, DecisionStatus) if ours else None,
        reservation=_read(status.reservation, ReservationStatus) if ours else None,
    )


async def read_pods_of(
    transport: Transport, namespace: str, label: str, value: str
) -> SchedulerStatus | ApiError:
    """The condition ``PodScheduled`` of all pods of a namespace that have this label."""
    body = await transport.list(PODS.collection(namespace), {"labelSelector": f"{label}={value}"})
    if isinstance(body, ApiError):
        return body
    try:
        found = decoded(_decode_list, body)
    except msgspec.DecodeError as error:
        return ApiError(None, UNREADABLE, f"pods of {namespace}: {error}")
    return SchedulerStatus(
        pods={
            one.metadata.name: condition
            for one in found.items
            if (condition := _of_pod((one.status or _Status()).conditions or ())) is not None
        }
    )


def _of_pod(conditions: Iterable[_Condition]) -> PodCondition | None:
    one = next((one for one in conditions if one.type == _OF_SCHEDULERS), None)
    if one is None:
        return None
    return PodCondition(
        bound=one.status == "True",
        reason=one.reason or "",
        message=one.message or "",
        since=one.last_transition_time or "",
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
        return decoded(msgspec.json.Decoder(as_type).decode, bytes(raw)) if raw else None
    except msgspec.DecodeError:
        return None
