"""What is on the way when the lead, the end, or a change of the world comes in between."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.kube.scheduler.live import LiveScheduler
from closeby.kube.writing.lease import Elector, LeaseSettings
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined
from tests.kube.faulty_proxy import Act, Fault, Proxy, Refuse, Silence
from tests.kube.live import FAST, direct, through_proxy
from tests.kube.live_world import (
    World,
    behind_proxy,
    condition,
    group_of,
    host,
    planned,
    replica,
    until,
    until_heard,
    until_logged,
    until_said,
    world,
)

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)
#: Seconds that the server takes for a binding.
SLOW = 0.4
MANY = 20 * 60


@pytest.mark.slow
def test_nothing_is_bound_once_the_lead_may_be_another_ones(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Hundreds of bindings wait for their turn when the Lease can't be renewed any more."""
    hosts = [host(f"h{i}") for i in range(20)]
    bindings: list[float] = []

    async def slow() -> None:
        bindings.append(time.monotonic())
        await asyncio.sleep(SLOW)

    def chance(method: str, path: str) -> Fault | Act | None:
        if method == "POST" and "/binding" in path:
            return slow
        # From the first binding on.
        return Refuse(503) if bindings and method == "PUT" and "/leases/" in path else None

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *hosts) as (it, proxy),
            direct(control_plane.kubeconfig) as transport,
        ):
            # All are there first, so that all wait at once, however long it takes to make them.
            await it.create(*(it.pod(f"p{i}", 0, cpu="1m") for i in range(MANY)))
            proxy.chance = chance
            async with replica(it, proxy, tmp_path, "--no-events") as process:
                await until(_begun)
                leads = await lead_of_another(transport, namespace)
                await asyncio.sleep(2 * SLOW)
                assert process.poll() is None
            assert len(bindings) < MANY
            assert [moment for moment in bindings if moment > leads] == []

    async def _begun() -> bool:
        return bool(bindings)

    asyncio.run(run())


async def lead_of_another(transport: Transport, namespace: str) -> float:
    """When another candidate leads, which waits for the replicas' Lease (monotonic seconds)."""
    settings = LeaseSettings(namespace=namespace, name="closeby-scheduler", identity="another")
    async with aclosing(Elector(transport, settings, time.time).standings()) as standings:
        async for standing in standings:
            if standing.leading:
                break
    return time.monotonic()


def test_what_waits_for_its_turn_is_not_sent_any_more_at_the_end(
    control_plane: ControlPlane, namespace: str
) -> None:
    hosts = [host(f"h{i}") for i in range(20)]

    async def slow() -> None:
        await asyncio.sleep(SLOW)

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *hosts) as (it, proxy):
            proxy.chance = lambda method, path: slow if method == "POST" and "/binding" in path else None
            async with it.scheduling():
                await it.create(*(it.pod(f"p{i}", 0, cpu="1m") for i in range(400)))

                async def sent() -> bool:
                    return proxy.count("POST", "/binding") >= 32

                await until(sent)
                before = proxy.count("POST", "/binding")
            # Those that were on the way, of which some may not have arrived yet.
            assert proxy.count("POST", "/binding") - before <= 32

    asyncio.run(run())


class Late(Transport):
    """The second status of a PodGroup is written before the last binding, and answered as the end comes."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, FAST)
        self.statuses = 0
        self.written = asyncio.Event()
        self.it: World | None = None

    async def send(self, request: Request) -> bytes | ApiError:
        if request.path.endswith("/g-1/binding"):
            await self.written.wait()
        answer = await super().send(request)
        if request.method == "PATCH" and request.path.endswith("/podgroups/g/status"):
            self.statuses += 1
            if self.statuses == 2:
                self.written.set()
                assert self.it is not None
                await until_logged(self.it, "stopping")
        return answer


def test_a_status_that_is_being_written_at_the_end_is_not_the_last_word(
    control_plane: ControlPlane, namespace: str
) -> None:
    """It says that the gang is on its way, which it is no more."""
    connection = connect(str(control_plane.kubeconfig))
    assert isinstance(connection, Connection)

    async def run() -> None:
        async with world(control_plane, namespace, host("n")) as seen, Late(connection) as transport:
            it = World(seen.api, transport, namespace, topology=seen.topology)
            transport.it = it
            async with it.scheduling():
                # The pods are known when the gang is heard of: its start is told of while it goes on.
                await it.create(it.pod("g-0", gang="g"), it.pod("g-1", gang="g"))
                await it.refusal("g-0")
                await it.create_group("g", 2)
                await it.bound(2)
                assert transport.statuses == 2
            assert planned(await group_of(it, "g")) == {}
            assert (await condition(it, "g"))["reason"] == "Placed"

    asyncio.run(run())


def test_a_replica_whose_watches_are_dead_looks_before_it_leads(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """It has not heard of the plan, nor of the bindings; by what it knows, another rack would be better."""
    hosts = [host(f"r0-{i}", "r0", 4) for i in range(3)]

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *hosts) as (it, proxy),
            through_proxy(control_plane.access()) as (other, _),
            replica(it, proxy, tmp_path) as first,
        ):

            async def leads() -> bool:
                found = await it.api.get(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
                return any(one["spec"].get("holderIdentity") for one in found["items"])

            async def watches() -> bool:
                return other.count("WATCH", "/podgroups") > 0 and other.count("WATCH", "/pods") > 0

            await until(leads)
            for member in range(3, 8):
                proxy.inject("POST", f"/{namespace}/pods/g-{member}/binding", Refuse(503), times=1000)
            # More than there are, so that nobody begins while both hear of it.
            await it.create(*(it.pod(f"g-{i}", 1, gang="g") for i in range(8)))
            await it.create_group("g", 9, required="rack")
            async with replica(it, other, tmp_path):
                await until(watches)
                await asyncio.sleep(2.0)
                # The second one hears that eight are enough; the first one can't begin before it is deaf.
                proxy.inject("PATCH", "/podgroups/g/status", Refuse(503), times=8)
                await it.change_group("g", {"spec": {"minMember": 8}})
                await asyncio.sleep(1.0)
                for kind in ("/podgroups", "/pods"):
                    other.inject("WATCH", kind, Silence(), times=1000)
                other.end_streams()
                await it.bound(3)
                promised = planned(await group_of(it, "g"))
                assert len(promised) == 8
                async with joined(it.api, [host("r2-0", "r2", 8)]):
                    await asyncio.sleep(1.0)
                    first.send_signal(signal.SIGKILL)
                    assert await it.bound(8) == promised

    asyncio.run(run())


@asynccontextmanager
async def bereft_of(
    chosen: Object, control_plane: ControlPlane, namespace: str
) -> AsyncIterator[tuple[World, Proxy, LiveScheduler]]:
    """A gang of three chose this node; it is gone now, and the gang's plan could not be written yet."""
    name = chosen["metadata"]["name"]
    async with (
        behind_proxy(control_plane, namespace, host("other", "r1", 4)) as (it, proxy),
        it.scheduling() as scheduler,
    ):
        proxy.inject("PATCH", "/podgroups/g/status", Refuse(503), times=1000)
        async with joined(it.api, [chosen]):
            await until_heard(scheduler, name, 3)
            await it.gang("g", 3, required="rack")

            async def chosen_by_all() -> bool:
                cluster = scheduler.engine.cluster
                slots = [slot for pod, slot in cluster.placed_pods() if pod.namespace == namespace]
                return slots == [cluster.slot(name)] * 3

            # What is written before says that members are missing.
            await until(chosen_by_all)
            before = proxy.count("PATCH", "/podgroups/g/status")

            async def tried() -> bool:
                return proxy.count("PATCH", "/podgroups/g/status") > before + 3

            await until(tried)
        yield it, proxy, scheduler


def test_a_node_that_goes_while_the_plan_can_not_be_written(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with bereft_of(host("gone", "r0", 3), control_plane, namespace) as (it, proxy, scheduler):
            await until_heard(scheduler, "gone", None)
            await asyncio.sleep(1.0)
            proxy.forgive()
            assert set((await it.bound(3)).values()) == {"other"}

    asyncio.run(run())


@pytest.mark.parametrize("missing", [0.0, 1.5])
def test_a_node_that_is_recreated_while_the_plan_cannot_be_written(
    missing: float, control_plane: ControlPlane, namespace: str
) -> None:
    """Under its name there is a smaller one: at once, or so late (seconds) that starts were looked after."""

    async def run() -> None:
        async with bereft_of(host("anew", "r0", 3), control_plane, namespace) as (it, proxy, scheduler):
            if missing:
                await until_heard(scheduler, "anew", None)
                await asyncio.sleep(missing)
            async with joined(it.api, [host("anew", "r0", 1)]):
                await until_heard(scheduler, "anew", 1)
                proxy.forgive()
                assert set((await it.bound(3)).values()) == {"other"}

    asyncio.run(run())


@pytest.mark.parametrize("missing", [0.0, 1.5])
def test_a_pod_group_that_is_recreated_in_the_middle_has_the_plan_too(
    missing: float, control_plane: ControlPlane, namespace: str
) -> None:
    """At once, or so late (seconds) that starts were looked after meanwhile."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n", "r1", 8)) as (it, proxy), it.scheduling():
            for member in (2, 3):
                proxy.inject("POST", f"/{namespace}/pods/g-{member}/binding", Refuse(503), times=1000)
            await it.gang("g", 4, required="rack")
            await it.bound(2)
            await it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/g")
            await asyncio.sleep(missing)
            await it.create_group("g", 4, required="rack")
            await until(lambda: _planned(it, 4))
            proxy.forgive()
            await it.bound(4)
            await until(lambda: _planned(it, 0))

    async def _planned(it: World, number: int) -> bool:
        return len(planned(await group_of(it, "g"))) == number

    asyncio.run(run())


def test_the_status_of_a_pod_group_is_not_written_to_its_successor(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Its pods go, and it is made anew, while its condition is being written."""
    seen: list[object] = []

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, host("n")) as (it, proxy),
            it.scheduling() as scheduler,
        ):
            made_anew = asyncio.Event()

            async def anew() -> None:
                await it.delete("g-0")
                await it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/g")
                await it.create_group("g", 2)
                proxy.before("PATCH", "/podgroups/g/status", look)
                made_anew.set()

            async def look() -> None:
                seen.append(await condition(it, "g"))

            proxy.before("PATCH", "/podgroups/g/status", anew)
            await it.gang("g", 1)
            await asyncio.wait_for(made_anew.wait(), 60)

            async def heard() -> bool:
                group = scheduler.engine.state.groups.get(f"{namespace}/g")
                return group is not None and group.min_member == 2

            await until(heard)
            # Of a gang without pods nothing need be said.
            await it.create(it.pod("g-0", gang="g"))
            await until_said(it, "g", "GangIncomplete")
            assert seen == [{}]

    asyncio.run(run())


def test_a_gang_that_was_bound_before_says_so_under_the_next_leader(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The one before has bound its last pod, and ended before it could say so."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, host("n", gpus=1)) as (it, proxy):
            await it.gang("g", 1, gpus=2)
            async with it.scheduling():
                await until_said(it, "g", "GangDoesNotFit")
                proxy.inject("PATCH", "/podgroups/g/status", Refuse(503), times=1000)
                async with joined(it.api, [host("more", gpus=2)]):
                    await it.bound(1)
            proxy.forgive()
            assert (await condition(it, "g"))["reason"] == "GangDoesNotFit"
            async with it.scheduling():
                await until_said(it, "g", "Placed")

    asyncio.run(run())
