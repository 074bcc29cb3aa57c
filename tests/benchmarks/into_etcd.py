"""Objects written straight into etcd, as the API server stores them: many thousands in a second.

No admission checks or completes them; what they leave out gets its default where the server reads it.
"""

import asyncio
import base64
import uuid
from collections.abc import Iterable
from itertools import islice
from typing import Final

import aiohttp
import msgspec

from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane

#: What the API server calls them in its paths -> version, kind and name in etcd.
_KINDS: Final = {
    "nodes": ("v1", "Node", "minions"),
    "pods": ("v1", "Pod", "pods"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    "persistentvolumes": ("v1", "PersistentVolume", "persistentvolumes"),
    "storageclasses": ("storage.k8s.io/v1", "StorageClass", "storageclasses"),
    "csinodes": ("storage.k8s.io/v1", "CSINode", "csinodes"),
    "volumeattachments": ("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments"),
}
#: Objects in a transaction (etcd takes 128), and transactions at once.
_TOGETHER: Final = 100
_AT_ONCE: Final = 4


async def put_all(plane: ControlPlane, objects: Iterable[tuple[str, Object]]) -> None:
    """Stores new objects of a control plane of ours, each under the API's path of its collection."""
    url = plane.processes["etcd"].address + "/v3/kv/txn"
    left = iter(objects)
    async with aiohttp.ClientSession() as session:

        async def work() -> None:
            while some := [_put(path, one) for path, one in islice(left, _TOGETHER)]:
                body = msgspec.json.encode({"success": some})
                async with session.post(url, data=body) as answer:
                    assert answer.status == 200, await answer.text()

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))


def _put(path: str, one: Object) -> Object:
    key, value = stored(path, one)
    return {"requestPut": {"key": _encoded(key.encode()), "value": _encoded(value)}}


def stored(path: str, one: Object) -> tuple[str, bytes]:
    """Key and value in etcd."""
    parts = path.split("/")
    version, kind, folder = _KINDS[parts[-1]]
    namespace = parts[-2] if parts[-3] == "namespaces" else None
    meta = {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z", **one["metadata"]}
    if namespace is not None:
        meta["namespace"] = namespace
    key = "/".join(["/registry", folder, *([] if namespace is None else [namespace]), meta["name"]])
    return key, msgspec.json.encode({**one, "apiVersion": version, "kind": kind, "metadata": meta})


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()
