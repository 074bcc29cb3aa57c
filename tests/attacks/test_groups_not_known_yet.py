"""Pods name AppGroups that the scheduler has not heard of: new ones, ones that never come, and very many.

The scheduler looks every 10 s which kinds there are. A pod that named an AppGroup of a kind installed since
was placed as a plain pod, far from a dependency with `maxNetworkCost`, and stayed there for ever. It must now
wait until the server was asked after the pod was seen, and a grace is over.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from closeby.kube.client.errors import ApiError
from closeby.kube.state.following import FOLLOWED
from closeby.kube.watch.resources import Discovery
from closeby.reading.configuration import read_configuration
from tests.attacks.applications import (
    HOSTS,
    OPERATOR,
    WEST_IS_NEAR,
    create_network,
    database,
    declare_app,
    member,
    neighbour,
    path_of,
)
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, define
from tests.control_plane.nodes import node
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live_world import World, behind_proxy, until, world

KINDS = ("appgroups.scheduling.sigs.k8s.io", "networktopologies.scheduling.sigs.k8s.io")
#: The looks of every 10 s come too late in these tests: only those that a pod causes help.
SELDOM = 3600.0


@asynccontextmanager
async def without_kinds(it: World) -> AsyncIterator[None]:
    """The kinds of the KEP are not installed, until somebody does; they are there afterwards in any case."""
    await asyncio.gather(*(it.api.delete(f"{CRDS}/{name}") for name in KINDS))
    discovery = Discovery(it.transport, FOLLOWED)

    async def gone() -> bool:
        served = await discovery.served()
        assert not isinstance(served, ApiError), served
        return not any(one.kind in ("AppGroup", "NetworkTopology") for one in served)

    await until(gone)
    try:
        yield
    finally:
        await define(it.api)


def app_group_found(pod: Object) -> Object:
    """The condition about its AppGroup; empty when it is not there."""
    conditions = pod["status"].get("conditions", ())
    return next((one for one in conditions if one["type"] == "closeby.dev/AppGroupFound"), {})


async def events_about(it: World, name: str) -> list[str]:
    """The reasons of the Events about AppGroups, of one pod."""
    found = await it.events("AppGroupNotFound")
    return [one["reason"] for one in found if one["regarding"]["name"] == name]


@pytest.mark.parametrize("order", list(itertools.permutations(("group", "network", "pods"))))
def test_kinds_that_are_installed_while_the_scheduler_runs(
    control_plane: ControlPlane, namespace: str, order: tuple[str, ...]
) -> None:
    """The kinds, an AppGroup, its costs and its pods come one right after the other, in every order.

    The west is near to the database, and the limit forbids the middle; by name, and as plain pods, the first
    would go there. The grace is long, and is not waited for: pods go on when their AppGroup is heard.
    """
    patient = read_configuration("unknownAppGroupDelay: 10m")

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, without_kinds(it):
            await database(it)

            async def pods() -> None:
                await it.create(*(member(it, f"web-{i}", "web") for i in range(2)))

            async with it.scheduling(patient, discover_every=SELDOM):
                if order[0] == "pods":
                    await pods()
                await define(it.api)
                # Without costs a limit lets no pod leave the node of the other end: the order in which
                # costs and pods come must not matter.
                steps: dict[str, Callable[[], Awaitable[None]]] = {
                    "group": lambda: declare_app(it, limit=5),
                    "network": lambda: create_network(it.api, OPERATOR, "costs", WEST_IS_NEAR),
                    "pods": pods,
                }
                for step in order:
                    if step != "pods" or order[0] != "pods":
                        await steps[step]()
                try:
                    placed = await it.bound(3)
                finally:
                    await it.api.delete(path_of(OPERATOR, "costs"))
                assert (placed["web-0"], placed["web-1"]) == ("west", "west")
                assert not any(app_group_found(pod) for pod in (await it.pods()).values())

    asyncio.run(run())


@pytest.mark.parametrize("installed", [True, False])
def test_an_app_group_that_never_comes(control_plane: ControlPlane, namespace: str, installed: bool) -> None:
    """Whether its kind is there or not: the pod is placed by itself, and its condition says so."""

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it:
            if installed:
                await placed_alone(it)
            else:
                async with without_kinds(it):
                    await placed_alone(it)

    asyncio.run(run())


async def placed_alone(it: World) -> None:
    async with it.scheduling(discover_every=SELDOM):
        await it.create(member(it, "web", "web"), it.pod("plain"))
        await it.bound(2)

        async def told() -> bool:
            return bool(await events_about(it, "web"))

        await until(told)
        pods = await it.pods()
        condition = app_group_found(pods["web"])
        assert (condition["status"], condition["reason"]) == ("False", "AppGroupNotFound")
        assert f"{it.namespace}/app" in condition["message"]
        assert not app_group_found(pods["plain"])


def test_the_pod_says_what_it_waits_for(control_plane: ControlPlane, namespace: str) -> None:
    """Nothing is placed before the grace is over; members of AppGroups that are known never wait for it."""
    patient = read_configuration("unknownAppGroupDelay: 10m")

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it:
            await declare_app(it, "known")
            async with it.scheduling(patient):
                await it.create(member(it, "early", "web"))
                assert "AppGroupNotFound" in await it.refusal("early")
                await it.create(it.pod("plain"), member(it, "web", "web", app="known"))
                assert set(await it.bound(2)) == {"plain", "web"}
                await declare_app(it, "app")
                assert "early" in await it.bound(3)

    asyncio.run(run())


def test_an_app_group_that_the_watch_does_not_tell_of(control_plane: ControlPlane, namespace: str) -> None:
    """The watch of AppGroups is refused while pods are heard: the grace ends, and the pod waits on.

    The server still lists the AppGroup's name, so that the pod is not a plain one.
    """
    hasty = read_configuration("unknownAppGroupDelay: 0s")
    whole = "/apis/scheduling.sigs.k8s.io/v1alpha1/appgroups"

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), it.scheduling(hasty):
            # One that is only begun would survive.
            await proxy.streaming(whole)
            for method in ("WATCH", "GET"):
                proxy.inject(method, whole, Refuse(503), times=1_000_000)
            proxy.cut_streams()
            await declare_app(it)
            await it.create(member(it, "web", "web"))
            assert "AppGroupNotFound" in await it.refusal("web")
            before = proxy.count("GET", f"namespaces/{namespace}/appgroups")

            async def asked_again() -> bool:
                return proxy.count("GET", f"namespaces/{namespace}/appgroups") >= before + 2

            await until(asked_again)
            assert not await it.placed()
            proxy.forgive()
            assert set(await it.bound(1)) == {"web"}
            assert not app_group_found((await it.pods())["web"])

    asyncio.run(run())


def test_many_pods_that_name_app_groups_that_never_exist(control_plane: ControlPlane, namespace: str) -> None:
    """A tenant makes pods that name an AppGroup each: all of them together cost one look a second."""
    number = 200
    big = node("big", allocatable={"cpu": "100", "pods": "1000"})

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, big) as (it, proxy),
            it.scheduling(discover_every=SELDOM),
        ):
            before = looks(proxy, namespace)
            pods = [member(it, f"p-{i}", "web", app=f"app-{i}", gpus=0) for i in range(number)]
            for pod in pods:
                pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
            await it.create(*pods)
            await it.bound(number)
            assert 0 < looks(proxy, namespace) - before < number

    asyncio.run(run())


def test_a_namespace_whose_app_groups_take_long_to_list_holds_back_no_other(
    control_plane: ControlPlane, namespace: str
) -> None:
    """A tenant has so many AppGroups that their names never come. Pods of others go on meanwhile."""
    hasty = read_configuration("unknownAppGroupDelay: 0s")

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
            neighbour(it) as tenant,
            it.scheduling(hasty, discover_every=SELDOM),
        ):
            released = asyncio.Event()

            async def endless() -> None:
                await released.wait()

            part = f"namespaces/{tenant.namespace}/appgroups"
            proxy.chance = lambda method, path: endless if method == "GET" and part in path else None
            await tenant.create(member(tenant, "theirs", "web"))
            await until_seen(proxy, part)
            try:
                await it.create(member(it, "web", "web"))
                assert set(await it.bound(1)) == {"web"}
                assert not await tenant.placed()
            finally:
                proxy.forgive()
                released.set()
            assert set(await tenant.bound(1)) == {"theirs"}

    asyncio.run(run())


async def until_seen(proxy: Proxy, part: str) -> None:
    """Waits until there was such a request."""

    async def seen() -> bool:
        return proxy.count("GET", part) > 0

    await until(seen)


def looks(proxy: Proxy, namespace: str) -> int:
    """Requests for the kinds there are, and for the AppGroups of a namespace."""
    return proxy.seen["GET /apis"] + proxy.count("GET", f"namespaces/{namespace}/appgroups")
