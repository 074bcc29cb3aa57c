"""What stands in the cluster about a pod or gang: the conditions that a scheduler wrote there."""

from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.watch.resources import Resource
from closeby.objects.recorded import Recorded


class _Condition(Struct, rename="camel"):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _Status(Struct):
    conditions: list[_Condition] | None = None


class _Object(Struct):
    status: _Status | None = None


_decode: Final = msgspec.json.Decoder(_Object).decode
#: Of a pod's conditions the one that schedulers write.
_OF_SCHEDULERS: Final = "PodScheduled"
_GONE: Final = 404


async def read_recorded(
    transport: Transport, resource: Resource, key: str
) -> tuple[Recorded, ...] | ApiError:
    """The conditions of a PodGroup, or the one of a pod that says that it waits."""
    namespace, name = key.split("/", 1)
    body = await transport.get(resource.item(namespace, name))
    if isinstance(body, ApiError):
        return () if body.code == _GONE else body
    try:
        found = _decode(body)
    except msgspec.DecodeError as error:
        return ApiError(None, UNREADABLE, f"{resource.kind}/{key}: {error}")
    conditions = (found.status.conditions if found.status else None) or ()
    if resource.kind == "Pod":
        conditions = [one for one in conditions if one.type == _OF_SCHEDULERS and one.status != "True"]
    return tuple(
        Recorded(
            object=f"{resource.kind}/{key}",
            type=one.type or "",
            status=one.status or "",
            reason=one.reason or "",
            message=one.message or "",
            since=one.last_transition_time or "",
        )
        for one in conditions
    )
