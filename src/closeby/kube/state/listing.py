"""Names of what a user may ask about, listed quickly for a shell that completes a word."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Retry, Transport
from closeby.kube.watch.resources import NAMESPACES, PODS, WATCHED, Discovery, Resource, is_name
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.workloads import owners_of
from closeby.reading.decoding.wire import ObjectWire

#: Objects of one kind that are offered; more would help no user.
_MOST: Final = 500
#: As a command names these kinds.
_GROUPS: Final = {"PodGroup": "podgroup", "AppGroup": "appgroup"}
#: Names and labels are all that is needed.
_ACCEPT: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_NO_SPEC: Final = PodSpec()


class _List(Struct):
    items: list[ObjectWire] | None = None


_decode: Final = msgspec.json.Decoder(_List).decode


async def names_in(transport: Transport, namespace: str) -> list[str]:
    """``kind/name`` of the gangs, AppGroups, workloads and pods of a namespace; of workloads those that own
    pods. What can't be read is left out.
    """
    if not is_name(namespace):
        return []
    listing = asyncio.create_task(_list(transport, PODS, namespace))
    served = await Discovery(transport, [one for one in WATCHED if one.kind in _GROUPS]).served()
    kinds = () if isinstance(served, ApiError) else served
    lists = await asyncio.gather(*(_list(transport, kind, namespace) for kind in kinds))
    pods = [_pod(namespace, one) for one in await listing]
    groups = [
        f"{_GROUPS[kind.kind]}/{one.meta.name}"
        for kind, found in zip(kinds, lists, strict=True)
        for one in found
    ]
    return list(
        dict.fromkeys((*sorted(groups, reverse=True), *_owners(pods), *(f"pod/{one.name}" for one in pods)))
    )


async def namespaces(transport: Transport) -> list[str]:
    """All namespaces; none where they may not be listed."""
    return [one.meta.name for one in await _list(transport, NAMESPACES, "") if one.meta.name]


def _owners(pods: Iterable[Pod]) -> Iterable[str]:
    for pod in pods:
        for owner in owners_of(pod, {}):
            kind, _, name = owner.partition("/")
            yield f"{kind.lower()}/{name}"


def _pod(namespace: str, wire: ObjectWire) -> Pod:
    meta = wire.meta
    return Pod(
        namespace=namespace,
        name=meta.name or "",
        uid=meta.uid or "",
        spec=_NO_SPEC,
        labels=meta.label_map,
        owner=meta.controller,
    )


async def _list(transport: Transport, resource: Resource, namespace: str) -> list[ObjectWire]:
    request = Request(
        path=resource.collection(namespace),
        query={"limit": str(_MOST)},
        headers={"Accept": _ACCEPT},
        retry=Retry.NEVER,
        longest=None,
    )
    answer = await transport.send(request)
    if isinstance(answer, ApiError):
        return []
    try:
        return _decode(answer).items or []
    except msgspec.DecodeError:
        return []
