"""What a gang asks for, and its running members do not meet any more: a condition, until they do again."""

import asyncio

import pytest

from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import RACK, World, condition, host, until_said, world

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)
TYPE = "ConstraintsMet"
#: Two racks of two nodes, one GPU each.
HOSTS = [host(f"r{rack}-{i}", f"r{rack}", 1) for rack in range(2) for i in range(2)]


async def placed(it: World) -> None:
    """The gang g is placed, and there is nothing to say about its constraints."""
    await until_said(it, "g", "Placed")
    assert not await condition(it, "g", TYPE)


async def unmet(it: World, reason: str = "TopologyPlacementFailed", says: str = "") -> None:
    """Waits until the condition says that they do not, while all members run on."""
    said = await until_said(it, "g", reason, TYPE, says=says)
    assert said["status"] == "False"
    assert (await condition(it, "g"))["status"] == "True"


async def met(it: World) -> None:
    assert (await until_said(it, "g", TYPE, TYPE))["status"] == "True"


async def relabel(it: World, node: str, rack: str) -> None:
    await it.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {RACK: rack}}})


def test_a_constraint_that_is_edited_under_a_running_gang(
    control_plane: ControlPlane, namespace: str
) -> None:
    def asked(level: str) -> dict[str, object]:
        return {"spec": {"topologyConstraint": {"requiredTopologyLevel": level}}}

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            await it.gang("g", 3, required="zone")
            await it.bound(3)
            await placed(it)
            await it.change_group("g", asked("rack"))
            await unmet(it, says="in 2 domains (z1/r0, z1/r1)")
            await it.change_group("g", asked("zone"))
            await met(it)
            await it.change_group("g", asked("row"))
            await unmet(it, "TopologyLevelNotFound")

    asyncio.run(run())


def test_nodes_that_are_relabelled_under_a_running_gang(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it:
            async with it.scheduling():
                await it.gang("g", 2, required="rack")
                nodes = await it.bound(2)
                await placed(it)
                await relabel(it, nodes["g-0"], "elsewhere")
                await unmet(it)
            # What was so while nobody looked, the next process finds.
            await relabel(it, nodes["g-0"], nodes["g-0"].partition("-")[0])
            async with it.successor().scheduling():
                await met(it)

    asyncio.run(run())


def test_a_part_of_a_gang_though_the_whole_stays_where_it_is(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling():
            rack = {"topology": it.topology, "requiredTopologyLevel": "rack"}
            parts = [{"name": name, "minMember": 2, "topologyConstraint": rack} for name in ("a", "b")]
            await it.declare_group("g", {"minMember": 4, "subGroups": parts})
            for name in ("a", "b"):
                for i in range(2):
                    pod = it.pod(f"{name}-{i}", gang="g")
                    pod["metadata"]["labels"]["closeby.dev/subgroup"] = name
                    await it.create(pod)
            nodes = await it.bound(4)
            await placed(it)
            here, there = nodes["a-0"].partition("-")[0], nodes["b-0"].partition("-")[0]
            assert here != there
            await relabel(it, nodes["a-0"], there)
            await unmet(it, says="members of subgroup 'a' are in 2 domains")

    asyncio.run(run())
