"""Attack: the API server refuses, fails or is cut off at each write by which a gang's volumes are given back,
or the scheduler is killed (SIGKILL) between two of them.

No volume binder runs: what is kept for a claim stays so, until the scheduler gives it back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.attacks.test_killed_midway import kept, scheduler
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Cut, Fault, Proxy, Refuse
from tests.kube.live_world import ZONE, World, until, until_said
from tests.kube.provisioner import Provisioner
from tests.kube.test_live_default_spread import served
from tests.kube.test_live_volume_binding import SHORT, claiming, hosts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]
VOLUMES = "/api/v1/persistentvolumes"
ONE = "/persistentvolumes/"
FAULTS: tuple[Fault, ...] = (
    Refuse(409, reason="Conflict"),
    Refuse(410, reason="Expired"),
    Refuse(500),
    Cut(),
    Cut(carried_out=True),
)


@asynccontextmanager
async def stocked(
    control_plane: ControlPlane, *nodes: Object
) -> AsyncIterator[tuple[World, Proxy, Provisioner]]:
    async with (
        served(control_plane, *nodes) as (it, proxy),
        Provisioner(it.api, it.namespace, ZONE).serving() as made,
    ):
        yield it, proxy, made


async def volumes(it: World, made: Provisioner) -> set[str]:
    """A volume that is free in each of two zones."""
    there = {await made.volume(f"z{i}") for i in range(2)}
    for volume in there:
        await it.api.patch(f"{VOLUMES}/{volume}/status", {"status": {"phase": "Available"}})
    return there


async def gang_with_claims(it: World, made: Provisioner, name: str) -> None:
    """Two members, each with a claim."""
    await it.create_group(name, 2)
    for i in range(2):
        await made.claim(f"{name}-{i}", made.by_hand)
    await it.create(*(claiming(it, f"{name}-{i}", f"{name}-{i}", name) for i in range(2)))


async def kept_for(made: Provisioner, there: set[str]) -> dict[str, str]:
    """The claim of each of these volumes that is kept for one."""
    found = await made.volumes()
    refs = {name: found[name]["spec"].get("claimRef") for name in there}
    return {name: ref["name"] for name, ref in refs.items() if ref is not None}


async def until_kept(made: Provisioner, there: set[str]) -> dict[str, str]:
    async def all_are() -> bool:
        return len(await kept_for(made, there)) == len(there)

    await until(all_are)
    return await kept_for(made, there)


async def until_free(made: Provisioner, there: set[str]) -> None:
    async def all_are() -> bool:
        return not await kept_for(made, there)

    await until(all_are)
    for name in there:
        annotations = (await made.volumes())[name]["metadata"].get("annotations", {})
        assert "pv.kubernetes.io/bound-by-controller" not in annotations


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_faults_while_volumes_are_given_back(bare_control_plane: ControlPlane, method: str) -> None:
    """The members are deleted as they wait for their volumes: these are as they were, whatever goes wrong."""

    async def run() -> None:
        async with stocked(bare_control_plane, *hosts(2)) as (it, proxy, made), it.scheduling():
            there = await volumes(it, made)
            for number, fault in enumerate(FAULTS):
                name = f"g{number}"
                await gang_with_claims(it, made, name)
                await until_kept(made, there)
                proxy.inject(method, ONE, fault, times=4)
                await it.delete(f"{name}-0", f"{name}-1")
                await until_free(made, there)
                assert proxy.count("POST", "/binding") == 0
                proxy.forgive()

    asyncio.run(run())


@pytest.mark.parametrize("fault", [Refuse(500), Cut(carried_out=True)], ids=str)
def test_faults_after_the_time_for_volumes_is_over(bare_control_plane: ControlPlane, fault: Fault) -> None:
    """The gang is placed again once all is given back, and not before."""

    async def run() -> None:
        async with stocked(bare_control_plane, *hosts(2)) as (it, proxy, made), it.scheduling(SHORT):
            there = await volumes(it, made)
            await gang_with_claims(it, made, "g")
            await until_kept(made, there)
            proxy.inject("PATCH", ONE, fault, times=4)
            await until_said(it, "g", "VolumeNotBindable", "VolumesBound")
            proxy.forgive()
            await it.delete("g-0", "g-1")
            await until_free(made, there)
            assert proxy.count("POST", "/binding") == 0

    asyncio.run(run())


async def bind(it: World, made: Provisioner, kept: dict[str, str]) -> None:
    """As the volume binder does it."""
    for volume, claim in kept.items():
        done = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        await it.api.patch(f"{made.claims}/{claim}", {"metadata": done, "spec": {"volumeName": volume}})
        await it.api.patch(f"{made.claims}/{claim}/status", {"status": {"phase": "Bound"}})
        await it.api.patch(f"{VOLUMES}/{volume}/status", {"status": {"phase": "Bound"}})


@pytest.mark.parametrize("write", [1, 2])
def test_killed_while_volumes_are_given_back(
    write: int, bare_control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The next process takes over what is still kept, keeps the rest again, and binds the whole gang."""
    file = tmp_path / "closeby.yaml"
    short = {"name": "VolumeBinding", "arguments": {"bindTimeoutSeconds": 5}}
    file.write_text(yaml.safe_dump({"plugins": [short]}))

    async def run() -> None:
        async with stocked(bare_control_plane, *hosts(2)) as (it, proxy, made):
            async with kept(it, proxy, tmp_path, "--config", str(file)) as first:
                there = await volumes(it, made)
                await gang_with_claims(it, made, "g")
                await until_kept(made, there)
                killed = asyncio.Event()
                seen = 0

                async def kill() -> None:
                    nonlocal seen
                    seen += 1
                    if seen == write:
                        first.process.kill()
                        await asyncio.to_thread(first.process.wait)
                        killed.set()
                    else:
                        proxy.before("PATCH", ONE, kill)

                proxy.before("PATCH", ONE, kill)
                await asyncio.wait_for(killed.wait(), 120)
            async with scheduler(it, proxy, tmp_path):
                await bind(it, made, await until_kept(made, there))
                await it.bound(2, 120)
                await until_said(it, "g", "Placed")

    asyncio.run(run())
