"""Writes for volumes: for which claim a volume is kept, and for which node the volume of a claim is made.

Each write is made to what was read just before, and repeated when that has changed meanwhile.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, ApiError, decoded
from closeby.kube.client.transport import MERGE_PATCH, Request, Transport
from closeby.kube.watch.resources import Resource
from closeby.objects.volumes import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE

CLAIMS: Final = Resource(
    version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims", namespaced=True
)
VOLUMES: Final = Resource(version="v1", kind="PersistentVolume", plural="persistentvolumes", namespaced=False)
#: The claim or volume is another one than was meant, or is not there.
GONE: Final = "VolumeGone"
#: Another node, or another claim, was first.
TAKEN: Final = "VolumeTaken"


class ClaimReference(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A claim as ``claimRef`` of a volume names it."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    kind: str | None = None
    api_version: str | None = None

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class _Meta(Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] | None = None
    deletion_timestamp: str | None = None


class _ClaimSpec(Struct, frozen=True, rename="camel"):
    volume_name: str = ""


class ClaimNow(Struct, frozen=True):
    """A claim as the server has it."""

    metadata: _Meta = _Meta()
    spec: _ClaimSpec = _ClaimSpec()

    @property
    def node(self) -> str:
        """The node for which its volume is to be made; empty without."""
        return (self.metadata.annotations or {}).get(SELECTED_NODE, "")

    @property
    def volume(self) -> str:
        """The volume that it names; empty without."""
        return self.spec.volume_name

    @property
    def bound(self) -> bool:
        """Whether it is bound from both sides."""
        return bool(self.volume) and BIND_COMPLETED in (self.metadata.annotations or {})

    @property
    def ends(self) -> bool:
        """Whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None


class _VolumeSpec(Struct, frozen=True, rename="camel"):
    claim_ref: ClaimReference | None = None


class _VolumeStatus(Struct, frozen=True):
    phase: str = ""


class _VolumeNow(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _VolumeSpec = _VolumeSpec()
    status: _VolumeStatus = _VolumeStatus()


_read_claim: Final = msgspec.json.Decoder(ClaimNow).decode
_read_volume: Final = msgspec.json.Decoder(_VolumeNow).decode
_encode: Final = msgspec.json.Encoder().encode
_CONFLICT: Final = 409
#: Times that a write is repeated at once after a conflict.
_CONFLICTS: Final = 10


class VolumeWriter:
    """Each method returns None once what it says is so, else why it is not."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def claim(self, one: ClaimReference) -> ClaimNow | ApiError:
        """The claim as the server has it; GONE where there is another one of that name, or none."""
        body = await self._transport.get(CLAIMS.item(one.namespace, one.name))
        if isinstance(body, ApiError):
            return _gone(f"claim {one.key} is not there") if body.code == 404 else body
        try:
            found = decoded(_read_claim, body)
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, f"claim {one.key}: {error}")
        if found.metadata.uid != one.uid:
            return _gone(f"claim {one.key} is another one than before")
        return found

    async def keep(self, volume: str, one: ClaimReference) -> ApiError | None:
        """Keeps a volume for a claim, as the volume binder expects it of a scheduler."""
        return await _without_conflict(partial(self._keep, volume, one))

    async def let_go(self, volume: str, one: ClaimReference) -> ApiError | None:
        """Undoes ``keep``, unless the two are being bound."""
        return await _without_conflict(partial(self._let_go, volume, one))

    async def select(self, node: str, one: ClaimReference) -> ApiError | None:
        """Asks that a claim's volume be made for a node."""
        return await _without_conflict(partial(self._select, node, one))

    async def unselect(self, node: str, one: ClaimReference) -> ApiError | None:
        """Undoes ``select``, unless the claim has its volume."""
        return await _without_conflict(partial(self._unselect, node, one))

    async def _keep(self, volume: str, one: ClaimReference) -> ApiError | None:
        found = await self._volume(volume)
        if isinstance(found, ApiError):
            return found
        ref = found.spec.claim_ref
        if ref is not None and (ref.key != one.key or ref.uid not in ("", one.uid)):
            return ApiError(None, TAKEN, f"volume {volume} went to claim {ref.key}", unsent=True)
        if ref is not None and ref.uid:
            return None
        if found.metadata.deletion_timestamp is not None:
            return _gone(f"volume {volume} is being deleted")
        # Where its owner has kept it for the claim, that is to last.
        added = {} if ref is not None else {BOUND_BY_CONTROLLER: "yes"}
        whole = ClaimReference(one.namespace, one.name, one.uid, "PersistentVolumeClaim", "v1")
        return await self._patch(VOLUMES.item("", volume), found.metadata, added, {"claimRef": whole})

    async def _let_go(self, volume: str, one: ClaimReference) -> ApiError | None:
        found = await self._volume(volume)
        if isinstance(found, ApiError):
            return None if found.reason == GONE else found
        ref = found.spec.claim_ref
        if ref is None or ref.key != one.key or ref.uid != one.uid or found.status.phase == "Bound":
            return None
        claim = await self.claim(one)
        if isinstance(claim, ApiError):
            if claim.reason != GONE:
                return claim
        elif claim.volume == volume:
            return None
        ours = BOUND_BY_CONTROLLER in (found.metadata.annotations or {})
        removed = {BOUND_BY_CONTROLLER: None} if ours else {}
        left = None if ours else {"uid": None}
        return await self._patch(VOLUMES.item("", volume), found.metadata, removed, {"claimRef": left})

    async def _select(self, node: str, one: ClaimReference) -> ApiError | None:
        found = await self.claim(one)
        if isinstance(found, ApiError):
            return found
        if found.volume or found.node == node:
            return None
        if found.ends:
            return _gone(f"claim {one.key} is being deleted")
        if found.node:
            message = f"the volume of claim {one.key} is to be made for node {found.node}"
            return ApiError(None, TAKEN, message, unsent=True)
        return await self._annotate(one, found, node)

    async def _unselect(self, node: str, one: ClaimReference) -> ApiError | None:
        found = await self.claim(one)
        if isinstance(found, ApiError):
            return None if found.reason == GONE else found
        if found.volume or found.node != node:
            return None
        return await self._annotate(one, found, None)

    async def _annotate(self, one: ClaimReference, found: ClaimNow, node: str | None) -> ApiError | None:
        path = CLAIMS.item(one.namespace, one.name)
        return await self._patch(path, found.metadata, {SELECTED_NODE: node}, None)

    async def _volume(self, name: str) -> _VolumeNow | ApiError:
        body = await self._transport.get(VOLUMES.item("", name))
        if isinstance(body, ApiError):
            return _gone(f"volume {name} is not there") if body.code == 404 else body
        try:
            return decoded(_read_volume, body)
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, f"volume {name}: {error}")

    async def _patch(
        self,
        path: str,
        meta: _Meta,
        annotations: Mapping[str, str | None],
        spec: Mapping[str, object] | None,
    ) -> ApiError | None:
        body: dict[str, object] = {
            "metadata": {
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                **({"annotations": annotations} if annotations else {}),
            }
        }
        if spec is not None:
            body["spec"] = spec
        answer = await self._transport.send(
            Request(method="PATCH", path=path, body=_encode(body), content_type=MERGE_PATCH)
        )
        return answer if isinstance(answer, ApiError) else None


async def _without_conflict(attempt: Callable[[], Awaitable[ApiError | None]]) -> ApiError | None:
    """What becomes of a read and write of an object, repeated while another write comes between."""
    for _ in range(_CONFLICTS):
        error = await attempt()
        if error is None or error.code != _CONFLICT:
            break
    return error


def _gone(message: str) -> ApiError:
    return ApiError(None, GONE, message, unsent=True)
