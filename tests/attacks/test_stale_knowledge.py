"""Others change the cluster between a decision and its binding: nothing is bound by what was so before.

The attacker delays bindings (the server is busy, or fails), or stops the scheduler's process, and meanwhile
fills, cordons, shrinks, moves or deletes the nodes that were chosen, or edits what the gang asks for. What
was not bound yet must be decided again, a gang as a whole; what can't be placed any more must wait and say
why.
"""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from math import inf
from pathlib import Path

import pytest

from closeby.scheduling.engine import Engine
from tests.attacks.rivals import (
    HOSTS,
    MEMBERS,
    NAMES,
    decided,
    fill,
    members,
    plan_of,
    relabel,
    until_full,
    until_given_up,
)
from tests.control_plane.cluster import ControlPlane
from tests.kube.auditing import overcommitted
from tests.kube.faulty_proxy import Cut, Fault, Refuse
from tests.kube.live_world import (
    World,
    behind_proxy,
    condition,
    group_of,
    replica,
    until,
    until_logged,
    until_running,
    until_said,
)

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
BUSY = Refuse(429)


async def waits_and_is_placed_later(it: World, rivals: list[str]) -> None:
    """Nothing of the gang is bound while there is no room, no plan is left; then it starts as a whole."""
    said = await until_said(it, "g", "GangDoesNotFit")
    assert said["status"] == "False"
    assert await members(it) == {}
    assert await plan_of(it) == {}
    await it.delete(*rivals)
    await it.bound(MEMBERS)
    await until_said(it, "g", "Placed")
    assert await unsound(it) == []


async def unsound(it: World) -> list[str]:
    nodes = (await it.api.get("/api/v1/nodes"))["items"]
    return overcommitted((await it.pods()).values(), nodes)


@pytest.mark.parametrize(
    "fault", [BUSY, Refuse(500), Cut()], ids=["too-many-requests", "internal-error", "connection-reset"]
)
def test_another_scheduler_fills_every_node_while_bindings_are_refused(
    control_plane: ControlPlane, namespace: str, fault: Fault
) -> None:
    async def run() -> None:
        async with decided(control_plane, namespace, "/binding", fault) as (it, proxy, scheduler, _):
            rivals = await fill(it, NAMES)
            await until_full(scheduler.engine, NAMES)
            await until_given_up(scheduler.engine, namespace)
            proxy.forgive()
            await waits_and_is_placed_later(it, rivals)

    asyncio.run(run())


def test_another_scheduler_fills_every_node_while_the_plan_is_refused(
    control_plane: ControlPlane, namespace: str
) -> None:
    """No binding was ever sent: the plan that must stand before them could not be written."""

    async def run() -> None:
        where = "/podgroups/g/status"
        async with decided(control_plane, namespace, where, Refuse(503), "PATCH") as (
            it,
            proxy,
            scheduler,
            _,
        ):
            rivals = await fill(it, NAMES)
            await until_full(scheduler.engine, NAMES)
            proxy.forgive()
            await waits_and_is_placed_later(it, rivals)

    asyncio.run(run())


#: Does something to the nodes that were chosen, and returns once the scheduler has heard of it.
Harm = Callable[[World, Engine, list[str]], Awaitable[None]]


async def filled(it: World, engine: Engine, names: list[str]) -> None:
    await fill(it, names)
    await until_full(engine, names)


async def cordoned(it: World, engine: Engine, names: list[str]) -> None:
    for name in names[1:]:
        await it.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})

    async def heard() -> bool:
        return all(engine.cluster.node_at(engine.cluster.slot_of(name)).unschedulable for name in names[1:])

    await until(heard)


async def tainted(it: World, engine: Engine, names: list[str]) -> None:
    taint = {"key": "tests.closeby.dev/broken", "effect": "NoSchedule"}
    await it.api.patch(f"/api/v1/nodes/{names[0]}", {"spec": {"taints": [taint]}})

    async def heard() -> bool:
        return bool(engine.cluster.node_at(engine.cluster.slot_of(names[0])).taints)

    await until(heard)


async def shrunk(it: World, engine: Engine, names: list[str]) -> None:
    change = {"status": {"allocatable": {"nvidia.com/gpu": "5"}}}
    await it.api.patch(f"/api/v1/nodes/{names[0]}/status", change)
    await until_heard_at(engine, names[0], 5)


async def until_heard_at(engine: Engine, name: str, gpus: int) -> None:
    async def heard() -> bool:
        return engine.cluster.node_at(engine.cluster.slot_of(name)).allocatable["nvidia.com/gpu"] == gpus

    await until(heard)


async def relabelled(it: World, engine: Engine, names: list[str]) -> None:
    for name in names[2:]:
        await relabel(it, engine, name, "r9")


async def deleted(it: World, engine: Engine, names: list[str]) -> None:
    for name in names[:2]:
        await it.api.delete(f"/api/v1/nodes/{name}")

    async def heard() -> bool:
        return all(engine.cluster.slot(name) is None for name in names[:2])

    await until(heard)


async def replaced(it: World, engine: Engine, names: list[str]) -> None:
    """Another machine takes the name of one of them, and stands in no rack."""
    await deleted(it, engine, names[:1])
    await it.api.create("/api/v1/nodes", next(one for one in STRAYS if one["metadata"]["name"] == names[0]))

    async def heard() -> bool:
        return engine.cluster.slot(names[0]) is not None

    await until(heard)


#: Machines of the same names without a rack.
STRAYS = [
    {**one, "metadata": {**one["metadata"], "labels": {"kubernetes.io/hostname": one["metadata"]["name"]}}}
    for one in HOSTS
]


@pytest.mark.parametrize("harm", [filled, cordoned, tainted, shrunk, relabelled, deleted, replaced])
def test_the_nodes_that_were_chosen_are_spoilt_meanwhile(
    control_plane: ControlPlane, namespace: str, harm: Harm
) -> None:
    """The other rack still has room for the whole gang: all of it goes there, and the condition says so."""

    async def run() -> None:
        async with decided(control_plane, namespace, "/binding", BUSY) as (it, proxy, scheduler, nodes):
            await harm(it, scheduler.engine, nodes)
            await until_given_up(scheduler.engine, namespace, nodes)
            proxy.forgive()
            other = "r1" if nodes[0].startswith("r0") else "r0"

            async def complete() -> bool:
                return len(await members(it)) == MEMBERS

            await until(complete)
            assert {node.partition("-")[0] for node in (await members(it)).values()} == {other}
            said = await until_said(it, "g", "Placed")
            assert said["message"].endswith(f"z1/{other}")
            assert (await group_of(it, "g"))["status"]["domain"] == f"z1/{other}"
            assert await unsound(it) == []

    asyncio.run(run())


def test_the_required_level_is_edited_meanwhile(control_plane: ControlPlane, namespace: str) -> None:
    """One node is required now, and none holds the gang: nothing is bound until that is taken back."""

    async def run() -> None:
        async with decided(control_plane, namespace, "/binding", BUSY) as (it, proxy, scheduler, _):
            group = scheduler.engine.state.groups

            async def required(level: str) -> None:
                constraint = {"topology": it.topology, "requiredTopologyLevel": level}
                await it.change_group("g", {"spec": {"topologyConstraint": constraint}})

                async def heard() -> bool:
                    found = group[f"{namespace}/g"].constraint
                    return found is not None and found.required == level

                await until(heard)

            await required("hostname")
            await until_given_up(scheduler.engine, namespace)
            proxy.forgive()
            await until_said(it, "g", "TopologyPlacementFailed")
            assert await members(it) == {}
            await required("rack")
            await it.bound(MEMBERS)

    asyncio.run(run())


def test_a_member_is_deleted_before_the_first_binding(control_plane: ControlPlane, namespace: str) -> None:
    """A gang of 32 is not started with 31."""

    async def run() -> None:
        async with decided(control_plane, namespace, "/binding", BUSY) as (it, proxy, scheduler, _):
            await it.delete("g-7")

            await until_given_up(scheduler.engine, namespace)
            proxy.forgive()
            await until_said(it, "g", "GangIncomplete")
            assert await members(it) == {}
            await it.create(it.pod("g-7", gang="g"))
            await it.bound(MEMBERS)

    asyncio.run(run())


def test_a_rack_is_torn_apart_under_the_members_that_are_bound(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Half of the gang is bound when one of its nodes moves to another rack: the rest waits, and says why."""

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
            it.scheduling() as scheduler,
        ):
            for member in range(16, MEMBERS):
                proxy.inject("POST", f"/pods/g-{member}/binding", BUSY, times=1_000_000)
            await it.gang("g", MEMBERS, required="rack")
            await it.bound(16)
            moved = sorted(set((await members(it)).values()))[0]
            rack = moved.partition("-")[0]
            await relabel(it, scheduler.engine, moved, "r9")
            await until_logged(it, "bindings withdrawn")
            proxy.forgive()
            said = await until_said(it, "g", "TopologyPlacementFailed")
            assert f"z1/{rack}" in said["message"] and "z1/r9" in said["message"]
            assert (await group_of(it, "g"))["status"]["domain"] == "z1"
            assert len(await members(it)) == 16
            # Half a gang never stands there without a plan.
            assert len(await plan_of(it)) >= 16
            await relabel(it, scheduler.engine, moved, rack)
            await it.bound(MEMBERS)
            assert (await until_said(it, "g", "Placed"))["message"].endswith(f"z1/{rack}")

    asyncio.run(run())


def test_a_rack_is_renamed_under_a_gang_that_runs(control_plane: ControlPlane, namespace: str) -> None:
    """What was told of the gang is corrected: no condition names a domain that its members are not in."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, _), it.scheduling() as scheduler:
            await it.gang("g", MEMBERS, required="rack")
            nodes = set((await it.bound(MEMBERS)).values())
            await until_said(it, "g", "Placed")
            for name in sorted(nodes):
                await relabel(it, scheduler.engine, name, "renamed")

            async def corrected() -> bool:
                return str((await condition(it, "g"))["message"]).endswith("z1/renamed")

            await until(corrected)
            assert (await group_of(it, "g"))["status"]["domain"] == "z1/renamed"

    asyncio.run(run())


def test_a_plain_pods_node_is_filled_while_its_binding_is_refused(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *HOSTS[:2]) as (it, proxy),
            it.scheduling() as scheduler,
        ):
            proxy.inject("POST", "/binding", BUSY, times=1_000_000)
            await it.create(it.pod("plain", 8))

            async def tried() -> bool:
                return proxy.count("POST", "/pods/plain/binding") > 0

            await until(tried)
            [(pod, slot)] = scheduler.engine.cluster.placed_pods()
            [first, second] = sorted(NAMES[:2], key=lambda name: name != scheduler.engine.cluster.names[slot])
            await fill(it, [first])
            await until_full(scheduler.engine, [first])

            async def given_up() -> bool:
                """From then on no binding is on its way to that node."""
                return scheduler.engine.cluster.placement(pod.uid) != slot

            await until(given_up)
            proxy.forgive()
            assert pod.name == "plain"
            assert (await it.bound(2))["plain"] == second

    asyncio.run(run())


@asynccontextmanager
async def started_again(
    process: subprocess.Popen[bytes], another: Callable[[], AbstractAsyncContextManager[object]]
) -> AsyncIterator[None]:
    """A process that ends, as its Lease ran out while it stood still, is replaced as by its Deployment."""
    async with AsyncExitStack() as stack:

        async def ended() -> bool:
            return process.poll() is not None

        async def replaced() -> None:
            await until(ended, seconds=inf)
            await stack.enter_async_context(another())

        replacing = asyncio.create_task(replaced())
        try:
            yield
        finally:
            replacing.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("election", [(), ("--no-leader-elect",)], ids=["leader", "alone"])
def test_the_process_stands_still_while_every_node_is_filled(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, election: tuple[str, ...]
) -> None:
    """SIGSTOP for 5 s; after SIGCONT the first request is not sent before the cluster was read again."""

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
            replica(it, proxy, tmp_path, *election) as process,
        ):
            proxy.inject("POST", "/binding", BUSY, times=1_000_000)
            await it.gang("g", MEMBERS, required="rack")

            async def begun() -> bool:
                return proxy.count("POST", "/binding") > 0

            await until(begun)
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            rivals = await fill(it, NAMES)

            # Not waiting for something to happen, but making a standstill of this length. Meanwhile what was
            # sent before it meets the fault.
            await asyncio.sleep(max(0.0, 5.0 - (time.monotonic() - stopped)))
            proxy.forgive()
            process.send_signal(signal.SIGCONT)
            async with started_again(process, lambda: replica(it, proxy, tmp_path, *election)):
                await waits_and_is_placed_later(it, rivals)

    asyncio.run(run())


def test_members_are_lost_to_another_scheduler(control_plane: ControlPlane, namespace: str) -> None:
    """The kubelet rejects two members, as others were faster: what is left of the gang has a plan again."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, _), it.scheduling():
            await it.gang("g", MEMBERS, required="rack")
            before = await it.bound(MEMBERS)
            await until_said(it, "g", "Placed")
            assert await plan_of(it) == {}
            # Else the kubelet may say later that they run.
            await until_running(it, "g-3", "g-4")
            for name in ("g-3", "g-4"):
                status = {"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}
                await it.api.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})
            said = await until_said(it, "g", "PartlyPlaced")
            assert said["status"] == "False"
            left = {name: node for name, node in before.items() if name not in ("g-3", "g-4")}

            async def both_told() -> bool:
                """One of them may be told first."""
                return await plan_of(it) == left

            await until(both_told)
            await it.delete("g-3", "g-4")
            await it.create(*(it.pod(name, gang="g") for name in ("g-3", "g-4")))
            await it.bound(MEMBERS)
            await until_said(it, "g", "Placed")
            assert await plan_of(it) == {}

    asyncio.run(run())
