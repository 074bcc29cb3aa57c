"""A scheduler that may not do what it needs: it says so by name, does not lead, and tells pods nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from closeby.kube.client.connection import Connection, connect
from closeby.kube.client.transport import Transport
from closeby.kube.scheduler.live import LiveScheduler, SchedulerSettings
from closeby.kube.writing.lease import LeaseSettings
from closeby.reading.configuration import Configuration
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import FAST, unique
from tests.kube.live_world import SOON, World, behind_proxy, host, until, world

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)
ROLES, BINDINGS = (f"/apis/rbac.authorization.k8s.io/v1/clusterrole{part}" for part in ("s", "bindings"))
ALL = "*"


def rules(*denied: tuple[str, str]) -> list[Object]:
    """All rights but these, each a resource and a verb."""
    verbs = ("get", "list", "watch", "create", "update", "patch")
    kinds = {
        "": ["pods", "pods/binding", "pods/status", "nodes", "namespaces", "services"],
        "closeby.dev": ["podgroups", "podgroups/status", "topologies"],
        "coordination.k8s.io": ["leases"],
        "events.k8s.io": ["events"],
    }
    named = [
        {
            "apiGroups": [group],
            "resources": [kind],
            "verbs": [verb for verb in verbs if (kind, verb) not in denied],
        }
        for group, all_kinds in kinds.items()
        for kind in all_kinds
    ]
    others = ["scheduling.k8s.io", "policy", "resource.k8s.io", "scheduling.sigs.k8s.io", "apps"]
    return [*named, {"apiGroups": others, "resources": [ALL], "verbs": ["list", "watch"]}]


async def allow(it: World, user: str, *denied: tuple[str, str]) -> None:
    await it.api.patch(f"{ROLES}/{user}", {"rules": rules(*denied)})


@asynccontextmanager
async def acting(control_plane: ControlPlane, it: World, *denied: tuple[str, str]) -> AsyncIterator[World]:
    """The world of a scheduler whose user may do all but this; its name is that of the role."""
    user = it.name
    await it.api.create(ROLES, {"metadata": {"name": user}, "rules": rules(*denied)})
    bound = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await it.api.create(BINDINGS, bound)
    connection = connect(str(control_plane.kubeconfig))
    assert isinstance(connection, Connection)
    headers = (*connection.headers, ("Impersonate-User", user))
    try:
        async with Transport(replace(connection, headers=headers), FAST) as transport:
            yield World(it.api, transport, it.namespace, topology=it.topology, name=user)
    finally:
        for path in (BINDINGS, ROLES):
            await it.api.delete(f"{path}/{user}")


@asynccontextmanager
async def begun(it: World, *, elects: bool = True) -> AsyncIterator[LiveScheduler]:
    """A scheduler that need not become ready."""
    lease = LeaseSettings(namespace=it.namespace, name=unique("lease"), identity="one") if elects else None
    settings = SchedulerSettings(scheduler_name=it.name, reporting=SOON, lease=lease, discover_every=0.5)
    scheduler = LiveScheduler(it.transport, Configuration(), settings, it.say)
    stop = asyncio.Event()
    running = asyncio.create_task(scheduler.run(stop))
    try:
        yield scheduler
    finally:
        stop.set()
        await running


@pytest.mark.parametrize(
    ("denied", "says"),
    [
        (("nodes", "watch"), "may not watch nodes"),
        (("pods/binding", "create"), "may not create pods/binding"),
        (("podgroups", "list"), "may not list podgroups.closeby.dev"),
        (("podgroups/status", "patch"), "may not patch podgroups.closeby.dev/status"),
        (("leases", "update"), "may not update leases.coordination.k8s.io"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_right_that_lacks_from_the_start(
    control_plane: ControlPlane, namespace: str, denied: tuple[str, str], says: str
) -> None:
    """It does not lead, no pod hears anything, and it begins by itself once it may."""

    async def run() -> None:
        async with (
            world(control_plane, namespace, host("n1")) as seen,
            acting(control_plane, seen, denied) as it,
            begun(it) as scheduler,
        ):

            async def lacks() -> bool:
                return scheduler.unready == says

            await it.gang("g", 2)
            await until(lacks)
            assert [one["why"] for one in it.said("rights lacking")] == [says]
            assert not scheduler.leading and not await it.placed()
            assert not await it.events("FailedScheduling")
            await allow(it, it.name)
            await it.bound(2)
            assert scheduler.unready is None

    asyncio.run(run())


def test_a_watch_that_is_refused_while_it_leads(control_plane: ControlPlane, namespace: str) -> None:
    """Nothing is decided by what is not kept up to date, and it says which kind that is."""

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, host("n1")) as (it, proxy),
            it.scheduling() as scheduler,
        ):

            async def denied() -> bool:
                return "may not see podgroups: Forbidden (403)" in (scheduler.unready or "")

            await proxy.streaming("/podgroups")
            proxy.inject("WATCH", "/podgroups", Refuse(403, reason="Forbidden"), 100_000)
            proxy.inject("GET", "/podgroups", Refuse(403, reason="Forbidden"), 100_000)
            proxy.end_streams()
            await until(denied)
            await it.gang("g", 2)
            assert not await it.events("FailedScheduling") and not await it.placed()
            proxy.forgive()
            await it.bound(2)
            assert scheduler.unready is None
            assert not [one for one in it.said("waits") if "does not exist" in str(one["why"])]

    asyncio.run(run())


def test_credentials_that_the_server_takes_no_more(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, host("n1")) as (it, proxy),
            begun(it, elects=False) as scheduler,
        ):

            async def refused() -> bool:
                return "Unauthorized (401)" in (scheduler.unready or "")

            await scheduler.ready.wait()
            proxy.chance = lambda method, path: Refuse(401, reason="Unauthorized")
            await until(refused)

    asyncio.run(run())
