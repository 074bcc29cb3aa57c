"""A cluster on which something goes wrong, and which is sound in the end, whatever it was."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from closeby.objects.reasons import Reason
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.auditing import Audit, audited, broken, overcommitted
from tests.kube.faulty_proxy import Proxy, Refuse
from tests.kube.live_world import RACK, World, behind_proxy, group_of, host, planned, until, until_none

#: Three racks of two nodes of 4 GPUs: each holds a gang of eight, and nothing else says which one it takes.
HOSTS = [host(f"r{rack}-{i}", f"r{rack}", 4) for rack in range(3) for i in range(2)]
REFUSED = str(Reason.BINDING_REFUSED)


@asynccontextmanager
async def trouble(control_plane: ControlPlane, namespace: str) -> AsyncIterator[tuple[World, Proxy, Audit]]:
    """A cluster behind a proxy, which is sound in the end, whatever happened inside the context."""
    async with (
        behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
        audited(it.api, namespace) as audit,
    ):
        yield it, proxy, audit
        await sound(it)


async def sound(it: World) -> None:
    """No node is overcommitted; no gang is split, started in part, or still planned."""

    async def wrong() -> list[str]:
        nodes = (await it.api.get("/api/v1/nodes"))["items"]
        pods = list((await it.pods()).values())
        groups = await it.api.get(f"/apis/closeby.dev/v1alpha1/namespaces/{it.namespace}/podgroups")
        racks = {one["metadata"]["name"]: one["metadata"]["labels"].get(RACK, "") for one in nodes}
        return overcommitted(pods, nodes) + broken(groups["items"], pods, racks)

    await until_none(wrong)


def hold(proxy: Proxy, *members: int) -> None:
    """The server does not answer to the bindings of these members of the gang g."""
    for member in members:
        proxy.inject("POST", f"/pods/g-{member}/binding", Refuse(503), times=1000)


async def held_back(it: World, proxy: Proxy, bound: int) -> dict[str, str]:
    """A gang of eight that requires a rack, of which so many are bound; returns its plan."""
    hold(proxy, *range(bound, 8))
    await it.gang("g", 8, required="rack")
    await it.bound(bound)
    plan = planned(await group_of(it, "g"))
    assert len(plan) == 8
    return plan


async def until_refused(it: World, *names: str) -> list[Object]:
    """Waits until these pods' condition and an Event on each say so; the conditions."""
    found: list[Object] = []

    async def told() -> bool:
        pods, events = await it.pods(), await it.events("FailedScheduling")
        about = {one["regarding"]["name"] for one in events if one["note"].startswith(f"{REFUSED}: ")}
        found[:] = [
            one
            for name in names
            for one in pods[name]["status"].get("conditions", ())
            if one["type"] == "PodScheduled" and one["status"] == "False" and one["reason"] == REFUSED
        ]
        return len(found) == len(names) and about >= set(names)

    await until(told)
    return found
