"""What is written for volumes is undone exactly, on a real API server with its volume binder."""

import asyncio
from typing import Any

import pytest

from closeby.kube.writing.volume_writes import TAKEN, ClaimReference, VolumeWriter
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import World
from tests.kube.provisioner import Provisioner
from tests.kube.test_live_volume_binding import hosts, storing

VOLUMES = "/api/v1/persistentvolumes"
BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


async def large_claim(it: World, made: Provisioner, name: str) -> ClaimReference:
    """A claim for which the volumes are too small, so that the binder leaves it alone."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    spec["storageClassName"] = made.by_hand
    claim = await it.api.create(made.claims, {"metadata": {"name": name}, "spec": spec})
    return ClaimReference(it.namespace, name, claim["metadata"]["uid"])


@pytest.mark.parametrize("owners", [False, True], ids=["free", "kept by its owner"])
def test_a_volume_that_was_kept_is_as_it_was(
    control_plane: ControlPlane, namespace: str, owners: bool
) -> None:
    async def run() -> None:
        async with storing(control_plane, namespace, *hosts(1)) as (it, _, made):
            writer, volume = VolumeWriter(it.transport), await made.volume("z0")
            mine, other = await large_claim(it, made, "mine"), await large_claim(it, made, "other")
            if owners:
                ref = {"namespace": namespace, "name": "mine"}
                await it.api.patch(f"{VOLUMES}/{volume}", {"spec": {"claimRef": ref}})

            async def stands() -> tuple[Any, bool]:
                found = (await made.volumes())[volume]
                ref = found["spec"].get("claimRef")
                known = None if ref is None else (ref["name"], ref.get("uid"))
                return known, BY_CONTROLLER in found["metadata"].get("annotations", {})

            before = await stands()
            assert await writer.keep(volume, mine) is None
            assert await stands() == (("mine", mine.uid), not owners)
            refused = await writer.keep(volume, other)
            assert refused is not None and refused.reason == TAKEN
            assert await writer.let_go(volume, other) is None
            assert await stands() == (("mine", mine.uid), not owners)
            assert await writer.let_go(volume, mine) is None
            assert await stands() == before

    asyncio.run(run())
