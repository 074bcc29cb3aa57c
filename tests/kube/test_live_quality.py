"""A gang on a real API server is measured as `closeby simulate` measures the same cluster."""

import asyncio
import json
import math

import pytest

from closeby.kube.scheduler.scheduler_meters import SchedulerMeters
from tests.cli.calling import report
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import World, host, until, world
from tests.kube.scraping import scrape

#: Four nodes in a rack, one of which somebody holds, and two in another: a gang of four whole nodes, which an
#: empty rack could hold, is in both.
HOSTS = [host(f"q1-{i}", "q1") for i in range(4)] + [host(f"q2-{i}", "q2") for i in range(2)]


async def objects(it: World) -> list[Object]:
    """The cluster as kubectl prints it."""
    named = {
        "Node": await it.api.get("/api/v1/nodes"),
        "Pod": await it.api.get(f"/api/v1/namespaces/{it.namespace}/pods"),
        "PodGroup": await it.api.get(f"/apis/closeby.dev/v1alpha1/namespaces/{it.namespace}/podgroups"),
        "Topology": await it.api.get("/apis/closeby.dev/v1alpha1/topologies"),
    }
    return [
        {"apiVersion": found["apiVersion"], "kind": kind, **one}
        for kind, found in named.items()
        for one in found["items"]
        if kind != "Topology" or one["metadata"]["name"] == it.topology
    ]


def test_a_bound_gang_is_measured_as_a_simulation_measures_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    meters = SchedulerMeters("closeby")

    async def run() -> list[Object]:
        async with world(control_plane, namespace, *HOSTS) as it:
            await it.create(it.pod("held", 8, nodeName="q1-1"))
            async with it.scheduling(meters=meters):
                await it.create_group("wide", 4, preferred="rack")
                await it.create(*(it.pod(f"wide-{i}", 8, gang="wide") for i in range(4)))
                placed = await it.bound(5)

                async def measured() -> bool:
                    return scrape(meters).value("closeby_gang_slowdown_count") == 1

                await until(measured)
                assert sum(node.startswith("q2") for node in placed.values()) == 1
                return await objects(it)

    cluster = asyncio.run(run())
    told = scrape(meters)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": cluster})
    found = report("simulate", "-f", "-", stdin=text)
    (group,) = found["groups"]
    assert group["scheduled"] == 4
    quality = group["quality"]
    excess = {level: value for (level,), value in told.all("closeby_gang_excess_span_sum").items()}
    assert excess == quality["excessSpan"] == {"zone": 1.0, "rack": 2.0, "hostname": 1.0}
    slowdown = told.value("closeby_gang_slowdown_sum")
    assert slowdown is not None
    assert math.isclose(slowdown, quality["slowdown"], rel_tol=1e-5)
    assert slowdown > 1.1
    assert told.value("closeby_gang_wait_seconds_count", size="9-64") == 1
    #   48 GPUs, 40 of them held; the 8 that are free are on one node.
    assert told.value("closeby_resource_utilisation_ratio", resource="nvidia.com/gpu") == pytest.approx(
        40 / 48
    )
