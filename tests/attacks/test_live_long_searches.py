"""A tenant's applications on a real API server: large, full of limits, and most of their pods fit nowhere.

Another tenant's gang must be bound while they are searched for. How long that took is told; what is asserted
is how much work the scheduler did in one go, in steps.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from statistics import median

import pytest

from closeby.kube.scheduler.live import STEPS, LiveScheduler
from closeby.objects.reasons import Reason
from closeby.reading.configuration import read_configuration
from closeby.scheduling.events import Event, Tick
from closeby.scheduling.outcomes import Outcome, Output, outcomes_of
from tests.attacks.crowds import PACKED, ROOM, exact_sizes
from tests.control_plane.api import Object, create_namespace, delete_namespace
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.live import unique
from tests.kube.live_world import World, host, until, world

KEP = "scheduling.sigs.k8s.io/v1alpha1"
APP, WORKLOAD = "appgroup.diktyo.x-k8s.io", "appgroup.diktyo.x-k8s.io.workload"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"

ZONES, NODES, GPUS = 8, 16, 2
APPLICATIONS, WORKLOADS, GANG = 6, 40, 8
TAINT = {"key": "tests.closeby.dev/good", "value": "true", "effect": "NoSchedule"}
TOLERATION = {"key": TAINT["key"], "operator": "Exists"}
#: Steps that may be taken beyond the limit, where what was found is put in place.
BEYOND = 100_000

pytestmark = [pytest.mark.live, pytest.mark.slow]


def hosts() -> list[Object]:
    """Nodes of two GPUs in eight zones, and two in none, which are for the gang alone.

    Of an application whose pods have not all come some may be placed, and take what there is.
    """
    resources = {"nvidia.com/gpu": str(GPUS), "cpu": "200", "pods": "500"}
    zoned = [
        node(f"n{place}", labels={ZONE: f"z{place % ZONES}", REGION: "r"}, allocatable=resources)
        for place in range(NODES)
    ]
    room = {"nvidia.com/gpu": "4", "cpu": "200", "pods": "500"}
    return [*zoned, *(node(f"room{place}", allocatable=room, taints=[TAINT]) for place in range(2))]


async def declare_costs(it: World, name: str) -> None:
    costs = [
        {
            "origin": f"z{one}",
            "costList": [
                {"destination": f"z{far}", "networkCost": 5 + 3 * (far - one)}
                for far in range(one + 1, ZONES)
            ],
        }
        for one in range(ZONES - 1)
    ]
    path = f"/apis/{KEP}/namespaces/{it.namespace}/networktopologies"
    body = {"apiVersion": KEP, "kind": "NetworkTopology", "metadata": {"name": name}}
    await it.api.create(path, {**body, "spec": {"configmapName": "none"}})
    weights = {"algorithmName": "UserDefined", "topologyList": [{"topologyKey": ZONE, "originList": costs}]}
    await it.api.patch(f"{path}/{name}/status", {"status": {"weights": [weights]}})


async def attack(it: World, namespace: str, name: str) -> None:
    """An application in which every workload talks to every other one, each pair within a limit."""
    names = [f"w{place}" for place in range(WORKLOADS)]
    workloads = [
        {
            "name": one,
            "type": "Pod",
            "dependencies": [
                {"name": other, "type": "Pod", "maxNetworkCost": 6 + (place + far) % 20}
                for far, other in enumerate(names[place + 1 :])
            ],
        }
        for place, one in enumerate(names)
    ]
    spec = {"numMembers": WORKLOADS, "Pods": workloads}
    body = {"apiVersion": KEP, "kind": "AppGroup", "metadata": {"name": name}, "spec": spec}
    await it.api.create(f"/apis/{KEP}/namespaces/{namespace}/appgroups", body)
    for place, one in enumerate(names):
        pod = it.pod(f"{name}-{one}", cpu=f"{100 + place}m")
        pod["metadata"]["labels"] = {APP: name, WORKLOAD: one}
        await it.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)


class Turns:
    """What each call of the engine decided."""

    def __init__(self, scheduler: LiveScheduler) -> None:
        #: Steps of the decisions.
        self.steps: list[int] = []
        self.outcomes: list[Outcome] = []
        #: Seconds of the longest call, of those that take events in and of those that decide.
        self.longest = [0.0, 0.0]
        handle = scheduler.engine.handle

        def watched(*events: Event) -> list[Output]:
            began = time.perf_counter()
            decisions = handle(*events)
            place = isinstance(events[-1], Tick) if events else False
            self.longest[place] = max(self.longest[place], time.perf_counter() - began)
            self.steps += [scheduler.engine._tools.steps.taken] if outcomes_of(decisions) else []
            self.outcomes += outcomes_of(decisions)
            return decisions

        scheduler.engine.handle = watched  # type: ignore[method-assign]

    def decided(self, namespace: str) -> int:
        """Applications of a namespace about which was decided."""
        return len({one.key for one in self.outcomes if one.key.startswith(f"{namespace}/evil")})


@asynccontextmanager
async def attacked(control_plane: ControlPlane, namespace: str) -> AsyncIterator[tuple[World, str]]:
    async with AsyncExitStack() as stack:
        it = await stack.enter_async_context(world(control_plane, namespace, *hosts()))
        evil = await create_namespace(it.api, service_accounts=control_plane.controllers)
        stack.push_async_callback(delete_namespace, it.api, evil)
        yield it, evil


def test_applications_that_fit_nowhere_keep_no_other_tenant_waiting(
    control_plane: ControlPlane, namespace: str
) -> None:
    network = unique("costs")
    configuration = read_configuration(
        f"networkTopologyNamespaces: [{namespace}]\n"
        f"plugins: [{{name: NetworkMinCost, arguments: {{networkTopologyName: {network}}}}}]"
    )

    async def gang(it: World, name: str) -> float:
        """Seconds from the first request of a gang until all its pods are bound."""
        began = time.perf_counter()
        await it.create_group(name, GANG)
        members = (it.pod(f"{name}-{place}", gang=name, tolerations=[TOLERATION]) for place in range(GANG))
        await it.create(*members)
        await it.bound(GANG)
        took = time.perf_counter() - began
        await it.delete(*(f"{name}-{place}" for place in range(GANG)))

        async def gone() -> bool:
            return not await it.pods()

        await until(gone)
        return took

    async def run() -> None:
        async with (
            attacked(control_plane, namespace) as (it, evil),
            it.scheduling(configuration) as scheduler,
        ):
            turns = Turns(scheduler)
            await declare_costs(it, network)
            # What the attackers' pods take first, the gang could not have.
            alone = [await gang(it, f"alone{place}") for place in range(3)]
            await asyncio.gather(*(attack(it, evil, f"evil{place}") for place in range(APPLICATIONS)))

            async def searching() -> bool:
                return bool(turns.decided(evil))

            await until(searching)
            beside = [await gang(it, f"beside{place}") for place in range(3)]

            async def all_decided() -> bool:
                return turns.decided(evil) == APPLICATIONS

            await until(all_decided, 300)
            assert max(turns.steps) <= STEPS + BEYOND
            sys.stdout.write(
                f"\na gang of {GANG} alone: {median(alone):.2f} s, beside the attack {median(beside):.2f} s; "
                f"the longest turn {turns.longest[1] * 1e3:.0f} ms, "
                f"the longest intake {turns.longest[0] * 1e3:.0f} ms\n"
            )

    asyncio.run(run())


def test_what_a_decision_leaves_undecided_is_solved_beside_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Pods of different sizes that fill their nodes to the last unit."""
    nodes = [host(f"full{place}", "r", ROOM) for place in range(PACKED)]

    async def run() -> None:
        async with (
            world(control_plane, namespace, *nodes) as it,
            it.scheduling() as scheduler,
        ):
            turns = Turns(scheduler)
            await it.create_group("exact", len(exact_sizes()))
            sizes = enumerate(exact_sizes())
            await it.create(
                *(it.pod(f"exact-{place}", size, gang="exact", cpu="1m") for place, size in sizes)
            )
            await it.bound(len(exact_sizes()), 120)
            assert Reason.SEARCH_BUDGET_EXHAUSTED in {one.reason for one in turns.outcomes}

    asyncio.run(run())
