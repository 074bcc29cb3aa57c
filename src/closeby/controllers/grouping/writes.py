"""What the pod-grouper writes: PodGroups, their condition, and the marks of pods.

PodGroups are applied on the server's side: fields that the pod-grouper does not set stay as they are.
"""

import asyncio
import time
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.controllers.grouping.objects import MANAGER, POD_GROUPS, Object
from closeby.kube.client.errors import UNREADABLE, ApiError
from closeby.kube.client.transport import APPLY_PATCH, MERGE_PATCH, Request, Transport
from closeby.kube.watch.resources import PODS
from closeby.kube.writing.writer import StatusCondition
from closeby.objects.pods import Pod
from closeby.objects.quantities import utc
from closeby.reading.decoding.keys import NOT_GROUPED, POD_GROUP, SUBGROUP
from closeby.reading.dialects.grouping import NO_GROUP

#: Requests in flight about pods.
_AT_ONCE: Final = 16


class _Meta(Struct, frozen=True):
    uid: str = ""


class _Applied(Struct, frozen=True):
    metadata: _Meta


_read: Final = msgspec.json.Decoder(_Applied).decode
_encode: Final = msgspec.json.Encoder().encode


class Writes:
    """One cluster; each method returns the error if it was not done."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def apply(self, group: Object, namespace: str, name: str, uid: str | None) -> str | ApiError:
        """Writes the PodGroup, and returns its uid.

        ``uid`` None makes one; 409 if another client was faster with the name. Else it must be that very one.
        """
        if uid is None:
            there = await self._transport.get(POD_GROUPS.item(namespace, name))
            if not isinstance(there, ApiError):
                return ApiError(409, "AlreadyExists", f"PodGroup {namespace}/{name} exists already")
            if there.code != 404:
                return there
        body = group
        metadata = group["metadata"]
        if uid is not None and isinstance(metadata, dict):
            body = {**group, "metadata": {**metadata, "uid": uid}}
        answer = await self._apply(POD_GROUPS.item(namespace, name), body, force=uid is not None)
        if isinstance(answer, ApiError):
            return answer
        try:
            return _read(answer).metadata.uid
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, str(error))

    async def condition(
        self, namespace: str, name: str, uid: str, condition: StatusCondition
    ) -> ApiError | None:
        """Sets one condition of a PodGroup and leaves its others alone."""
        timed = msgspec.structs.replace(condition, last_transition_time=utc(time.time()))
        body: Object = {
            "apiVersion": POD_GROUPS.api_version,
            "kind": POD_GROUPS.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": {"conditions": [timed]},
        }
        answer = await self._apply(POD_GROUPS.item(namespace, name, "status"), body, force=True)
        return answer if isinstance(answer, ApiError) else None

    async def join(self, pod: Pod, group: str, subgroup: str | None) -> ApiError | None:
        """The pod names its group."""
        labels = {POD_GROUP: group} | ({SUBGROUP: subgroup} if subgroup else {})
        return await self._metadata(pod, {"labels": labels})

    async def leave_alone(self, pod: Pod) -> ApiError | None:
        """The pod says that it belongs to no gang."""
        return await self._metadata(pod, {"annotations": {POD_GROUP: NO_GROUP}})

    async def not_grouped(self, pod: Pod, why: str | None) -> ApiError | None:
        """The pod says why it waits; None: it says nothing of it any more."""
        if pod.annotations.get(NOT_GROUPED) == why:
            return None
        return await self._metadata(pod, {"annotations": {NOT_GROUPED: why}})

    async def _metadata(self, pod: Pod, metadata: Mapping[str, Mapping[str, str | None]]) -> ApiError | None:
        if NOT_GROUPED in pod.annotations:  # Unless it is said again it is over.
            metadata = {**metadata, "annotations": {NOT_GROUPED: None, **metadata.get("annotations", {})}}
        body = {"metadata": {"uid": pod.uid, **metadata}}
        async with self._slots:
            answer = await self._transport.send(
                Request(
                    method="PATCH",
                    path=PODS.item(pod.namespace, pod.name),
                    body=_encode(body),
                    content_type=MERGE_PATCH,
                )
            )
        if not isinstance(answer, ApiError):
            return None
        # A pod that is gone, or whose name has passed on, needs no Event.
        return None if answer.code in (404, 409) else answer

    async def _apply(self, path: str, body: Object, *, force: bool) -> bytes | ApiError:
        query = {"fieldManager": MANAGER} | ({"force": "true"} if force else {})
        return await self._transport.send(
            Request(
                method="PATCH",
                path=path,
                query=query,
                body=_encode(body),
                content_type=APPLY_PATCH,
            )
        )
