"""Reconcilers in one process on a real control plane: what they hear, when they are called, who leads."""

import asyncio
from collections.abc import Callable

from closeby.controllers.running import ControllerRunner, Running
from closeby.kube.client.transport import Transport
from closeby.kube.state.decoding import Decoded
from closeby.kube.watch.resources import NODES, PODS
from closeby.kube.writing.leading import LEASE_LOST
from closeby.kube.writing.lease import LeaseSettings
from closeby.objects.nodes import Node
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.control_plane.nodes import joined, node
from tests.controllers.listening import GROUPS, Listener, say
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import create_pods, delete_now, direct, eventually, through_proxy, unique


class Run:
    """A runner in a task of its own."""

    def __init__(
        self, transport: Transport, *listeners: Listener, lease: LeaseSettings | None = None
    ) -> None:
        self.stop = asyncio.Event()
        self.runner = ControllerRunner(transport, listeners, Running(lease=lease, pause=0.01), say)
        self.task = asyncio.create_task(self.runner.run(self.stop))

    async def end(self) -> None:
        self.stop.set()
        async with asyncio.timeout(60):
            assert await self.task is None


async def so(met: Callable[[], bool]) -> None:
    async def look() -> bool:
        return met()

    await eventually(look)


def lease(namespace: str, identity: str, deadline: float = 100.0) -> LeaseSettings:
    """One that nobody loses because the machine is busy, and that nobody gets by waiting."""
    return LeaseSettings(
        namespace=namespace, name="controllers", identity=identity, duration=120, deadline=deadline, retry=0.3
    )


def test_each_hears_of_pods_and_nodes_and_of_what_it_follows(
    control_plane: ControlPlane, namespace: str
) -> None:
    name = unique("n")

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            direct(control_plane.kubeconfig) as transport,
            joined(api, [node(name)]),
        ):
            await define(api)
            await create_pods(api, namespace, 1)
            groups, plain = (
                Listener(transport, namespace, GROUPS),
                Listener(transport, namespace),
            )
            it = Run(transport, groups, plain)
            await so(lambda: groups.calls > 0)
            assert "+p0" in groups.names("Pod") and f"+{name}" in groups.names("Node")
            path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups"
            body: Object = {
                "apiVersion": "closeby.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": {"minMember": 2},
            }
            await api.create(path, body)
            await so(lambda: groups.names("PodGroup") == ["+g"])
            calls = groups.calls
            await delete_now(api, namespace, "p0")
            await so(lambda: plain.names("Pod")[-1] == "-p0" and groups.calls > calls)
            assert plain.names("PodGroup") == []
            # Others may have changed the node since it joined.
            one, *more = (one for one in groups.news if one.resource == NODES and one.change.key == name)
            others = (one for one in plain.news if one.resource == NODES and one.change.key == name)
            # Read once, for both.
            assert all(this is that for this, that in zip((one, *more), others, strict=True))
            assert isinstance(one.read, Decoded) and isinstance(one.read.record, Node)
            assert next(one for one in groups.news if one.resource == PODS).read is not None
            await it.end()

    asyncio.run(run())


def test_it_is_called_when_it_wants_to_be_and_ends_what_it_began(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with direct(control_plane.kubeconfig) as transport:
            often, idle = (
                Listener(transport, namespace, again=0.05),
                Listener(transport, namespace),
            )
            it = Run(transport, often, idle)
            await so(lambda: often.calls > 10)
            often.slow = 0.5
            calls = often.calls
            await so(lambda: often.calls > calls + 1)
            await it.end()
            assert often.ended == often.calls

    asyncio.run(run())


def test_a_replica_that_stands_by_takes_over_at_once_when_the_leader_ends(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with direct(control_plane.kubeconfig) as transport:
            one, two = (
                Listener(transport, namespace, again=0.05),
                Listener(transport, namespace, again=0.05),
            )
            first = Run(transport, one, lease=lease(namespace, "one"))
            await so(lambda: one.calls > 1)
            second = Run(transport, two, lease=lease(namespace, "two"))
            await so(second.runner.ready.is_set)
            await asyncio.sleep(0.5)
            assert (two.calls, first.runner.leading, second.runner.leading) == (0, True, False)
            await first.end()
            await so(lambda: two.calls > 1)
            assert second.runner.leading
            await second.end()

    asyncio.run(run())


def test_a_leader_that_can_not_renew_its_lease_ends(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with through_proxy(control_plane.access()) as (proxy, transport):
            one = Listener(transport, namespace, again=0.05)
            it = Run(transport, one, lease=lease(namespace, "one", deadline=8.0))
            await so(lambda: one.calls > 1)
            proxy.inject("GET", "/leases/", Refuse(500), times=1_000)
            async with asyncio.timeout(60):
                error = await it.task
            assert error is not None and error.reason == LEASE_LOST
            calls = one.calls
            await asyncio.sleep(0.2)
            assert one.calls == calls

    asyncio.run(run())
