"""A stand-in for an external provisioner: it makes volumes for the nodes that claims name, or refuses to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.control_plane.api import Api, ApiError, Object
from tests.kube.live import unique

SELECTED = "volume.kubernetes.io/selected-node"
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_VOLUMES = "/api/v1/persistentvolumes"
_SIZE = {"storage": "1Gi"}


class Provisioner:
    """Serves one StorageClass in one namespace. Nodes are reached by a label (``key``) of theirs."""

    def __init__(self, api: Api, namespace: str, key: str) -> None:
        self.api = api
        self.key = key
        self.storage_class = unique("class")
        self.by_hand = unique("by-hand")
        self.claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        #: Claims whose volume it does not make, and how often; claims and all for which it does not answer.
        self.refuses: dict[str, int] = {}
        self.silent: set[str] = set()
        #: Nodes for which it makes none.
        self.full: set[str] = set()
        self.asked: list[tuple[str, str]] = []
        self._made: list[str] = []

    async def claim(self, name: str, storage_class: str = "") -> None:
        """A claim that waits for its pod."""
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": _SIZE}}
        spec["storageClassName"] = storage_class or self.storage_class
        await self.api.create(self.claims, {"metadata": {"name": name}, "spec": spec})

    async def volume(self, zone: str) -> str:
        """A volume that is there, which the nodes of a zone reach."""
        name = unique("pv")
        await self._volume(name, self.by_hand, zone, {})
        return name

    async def volumes(self) -> dict[str, Object]:
        """The volumes of these classes."""
        found = (await self.api.get(_VOLUMES))["items"]
        return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"] in self._made}

    async def selected(self) -> dict[str, str]:
        """The node of each claim that names one."""
        found = (await self.api.get(self.claims))["items"]
        nodes = {one["metadata"]["name"]: one["metadata"].get("annotations", {}) for one in found}
        return {name: annotations[SELECTED] for name, annotations in nodes.items() if SELECTED in annotations}

    async def bound(self) -> dict[str, str]:
        """The volume of each claim that is bound."""
        found = (await self.api.get(self.claims))["items"]
        return {
            one["metadata"]["name"]: one["spec"]["volumeName"]
            for one in found
            if one["status"].get("phase") == "Bound"
        }

    async def _volume(self, name: str, storage_class: str, zone: str, more: dict[str, Any]) -> None:
        term = {"matchExpressions": [{"key": self.key, "operator": "In", "values": [zone]}]}
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "capacity": _SIZE,
            "storageClassName": storage_class,
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "disk.example.com", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **more,
        }
        self._made.append(name)
        await self.api.create(_VOLUMES, {"metadata": {"name": name}, "spec": spec})

    async def _serve(self) -> None:
        served = set[str]()
        while True:
            for one in (await self.api.get(self.claims))["items"]:
                meta = one["metadata"]
                name, node = meta["name"], meta.get("annotations", {}).get(SELECTED)
                mine = one["spec"].get("storageClassName") == self.storage_class
                if not mine or node is None or name in self.silent or name in served:
                    continue
                # The list may be of before the claim was given back.
                if (await self.selected()).get(name) != node:
                    continue
                self.asked.append((name, node))
                if self.refuses.get(name) or node in self.full:
                    self.refuses[name] = max(0, self.refuses.get(name, 0) - 1)
                    change = {"metadata": {"annotations": {SELECTED: None}}}
                    await self.api.patch(f"{self.claims}/{name}", change)
                    continue
                served.add(name)
                zone = (await self.api.get(f"/api/v1/nodes/{node}"))["metadata"]["labels"][self.key]
                ref = {"namespace": meta["namespace"], "name": name, "uid": meta["uid"]}
                ref |= {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
                await self._volume(f"pvc-{meta['uid']}", self.storage_class, zone, {"claimRef": ref})
            await asyncio.sleep(0.05)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Provisioner"]:
        """Its class, and one of volumes that are made by hand, are there inside the context."""
        for name, provisioner in (
            (self.storage_class, "disk.example.com"),
            (self.by_hand, "kubernetes.io/no-provisioner"),
        ):
            made = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            await self.api.create(_CLASSES, {"metadata": {"name": name}, **made})
        task = asyncio.create_task(self._serve())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for name in (self.storage_class, self.by_hand):
                await self.api.delete(f"{_CLASSES}/{name}")
            for name in self._made:
                try:
                    await self.api.patch(f"{_VOLUMES}/{name}", {"metadata": {"finalizers": None}})
                    await self.api.delete(f"{_VOLUMES}/{name}")
                except ApiError:
                    continue
