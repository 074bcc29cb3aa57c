"""The NetworkTopology controller on a real API server, with a real Prometheus where there is one."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from closeby.controllers.networks.controller import Timing
from closeby.kube.scheduler.live import LiveScheduler
from closeby.kube.scheduler.live import SchedulerSettings as LiveSettings
from closeby.measurements.addresses import Access
from closeby.reading.configuration import Configuration, PluginEntry
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined
from tests.controllers.at_work import GROUP, KEP, WORKLOAD, Site, published, site
from tests.controllers.networks import (
    HOSTS,
    MEASURED,
    QUICK,
    ZONE,
    Neighbours,
    answering,
    condition,
    controller,
    costs,
    hearing,
    host,
    spec,
)
from tests.controllers.prometheus import measuring
from tests.kube.live import eventually, unique
from tests.measurements.serving import serving

#: Seconds in which the medians of a minute (a real one) have followed, and some to spare.
RANGE = 90.0


def unmeasured(status: Object) -> bool:
    return bool(condition(status, "LatenciesMeasured").get("status") == "False")


def unreachable(status: Object) -> bool:
    """One that is about to stop may break off an answer before."""
    return unmeasured(status) and "can't be reached" in condition(status, "LatenciesMeasured")["message"]


def turns(it: Site) -> list[str]:
    """What was said of whether there are latencies."""
    return [text for _, text, _ in it.heard("no latencies", "latencies recovered")]


async def nodes_there(it: Site) -> int:
    return len((await it.api.get("/api/v1/nodes"))["items"])


@pytest.mark.timeout(400)
def test_costs_follow_what_prometheus_knows(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Measured, changed, without Prometheus, and with it again."""

    async def run() -> None:
        with measuring(tmp_path) as (prometheus, probes):
            probes.measure(MEASURED)
            async with site(control_plane, namespace, *HOSTS) as it, it.running(controller(it)):
                await it.create("networktopologies", "net", spec(prometheus.address))
                first = await it.until("networktopologies", "net", costs)
                found = costs(first)
                assert found["x", "y"] == 220
                assert found["x-1", "x-2"] == 80
                assert found["x-1", "y-1"] == 200
                # x-2 to x-1 to y-1
                assert found["x-2", "y-1"] == 280
                assert first["nodeCount"] == await nodes_there(it)
                assert [condition(first, kind)["status"] for kind in ("Valid", "LatenciesMeasured")] == [
                    "True",
                    "True",
                ]

                # A delay changes; the median over the time range follows, once half of what it is of is new.
                # As many old ones as new ones make something in between.
                await asyncio.sleep(1.0)
                probes.measure({("x-1", "y-1"): 2000.0, ("y-2", "x-2"): 2400.0})
                second = await it.until(
                    "networktopologies",
                    "net",
                    # As far as the detour by z.
                    lambda one: costs(one)["x", "y"] == 1850,
                    seconds=RANGE,
                )
                assert second["weightCalculationTime"] > first["weightCalculationTime"]

                await asyncio.to_thread(prometheus.stop)
                third = await it.until("networktopologies", "net", unreachable)
                assert costs(third) == costs(second)
                stale = condition(third, "LatenciesMeasured")
                calculated = third["weightCalculationTime"]
                assert stale["message"].startswith(
                    f"the costs are those of {calculated}; {prometheus.address}"
                )
                assert stale["lastTransitionTime"] >= calculated
                # It goes on trying, and has nothing to add.
                await it.quiet("networktopologies", "net", 2.0)
                before = turns(it)
                assert before[-1] == "no latencies"

                await asyncio.to_thread(prometheus.start)
                last = await it.until(
                    "networktopologies",
                    "net",
                    lambda one: condition(one, "LatenciesMeasured")["status"] == "True",
                )
                assert last["weightCalculationTime"] > calculated
                assert turns(it)[len(before)] == "latencies recovered"
                # Each is told once; the first may have been before there was anything to read.
                assert all(one != other for one, other in pairwise(turns(it)))

    asyncio.run(run())


@pytest.mark.timeout(400)
def test_costs_are_dropped_when_they_are_too_old(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Whichever controller calculated them; and they are back when Prometheus is."""
    patient = replace(QUICK, max_age=600.0)
    strict = replace(QUICK, max_age=3.0)

    async def run() -> None:
        with measuring(tmp_path) as (prometheus, probes):
            probes.measure(MEASURED)
            async with site(control_plane, namespace, *HOSTS) as it:
                async with it.running(controller(it, patient)):
                    await it.create("networktopologies", "net", spec(prometheus.address))
                    first = await it.until("networktopologies", "net", costs)
                    await asyncio.to_thread(prometheus.stop)
                    await it.until("networktopologies", "net", unmeasured)
                    await asyncio.sleep(3.0)
                    last = await it.status("networktopologies", "net")
                    assert costs(last) == costs(first)
                async with it.running(controller(it, strict)):
                    dropped = await it.until("networktopologies", "net", lambda one: "weights" not in one)
                    told = condition(dropped, "LatenciesMeasured")
                    calculated = last["weightCalculationTime"]
                    assert dropped["weightCalculationTime"] == calculated
                    assert told["message"].startswith(
                        f"the costs of {calculated} were dropped, for they are more than 3 s old; "
                    )
                    # Since when nothing could be measured, not since when there are no costs.
                    before = condition(last, "LatenciesMeasured")["lastTransitionTime"]
                    assert told["lastTransitionTime"] == before
                    assert condition(dropped, "AllNodesMeasured") == {}
                    await it.quiet("networktopologies", "net", 1.5)

                    await asyncio.to_thread(prometheus.start)
                    again = await it.until("networktopologies", "net", costs)
                    assert costs(again).keys() == costs(first).keys()
                    assert condition(again, "LatenciesMeasured")["status"] == "True"

    asyncio.run(run())


def test_tokens_of_the_controller_are_for_the_prometheus_that_it_knows(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Whoever writes a NetworkTopology can't have them sent elsewhere."""
    token = tmp_path / "token"
    token.write_text("secret")

    async def run() -> None:
        async with site(control_plane, namespace, *HOSTS) as it:
            with hearing("x-1", "y-1") as known, hearing("x-1", "y-1") as other:
                ours = Neighbours(known.address, Access(token_file=str(token)))
                async with it.running(controller(it, prometheus=ours)):
                    await it.create("networktopologies", "known", spec(known.address))
                    await it.create("networktopologies", "other", spec(other.address))
                    for name in ("known", "other"):
                        await it.until("networktopologies", name, costs)
            assert set(known.tokens) == {"Bearer secret"}
            assert set(other.tokens) == {None}

    asyncio.run(run())


def heard_of(scheduler: LiveScheduler, namespace: str, network: str) -> dict[tuple[str, str], int]:
    """The costs between nodes that the scheduler has heard of, once it has heard of the application too."""
    known = scheduler.engine.applications
    if known.get(f"{namespace}/a1") is None:
        return {}
    return {
        (link.origin, link.destination): link.cost
        for one in known.networks
        if one.key == f"{namespace}/{network}"
        for weights in one.weight_sets
        for link in weights.node_costs
    }


@pytest.mark.timeout(400)
def test_pods_go_where_it_was_measured_to_be_near(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The caller's zone is full, so its callee goes to the nearest one, by the latencies that Prometheus has;
    then the network changes, and so does the place of the next callee.
    """
    scheduler_name, network = unique("closeby"), unique("net")
    app = """
spec:
  numMembers: 3
  Pods: [{name: P1, type: Pod, dependencies: [{name: P2, type: Pod}]}, {name: P2, type: Pod}]
"""

    def pod(name: str, workload: str, **more: Any) -> Object:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
        return {
            "metadata": {"name": name, "labels": {GROUP: "a1", WORKLOAD: workload}},
            "spec": {"schedulerName": scheduler_name, "containers": [container], **more},
        }

    async def run() -> None:
        with measuring(tmp_path) as (prometheus, probes):
            probes.measure(MEASURED)
            arguments = {"networkTopologyName": f"{namespace}/{network}"}
            scheduler_plugins = (PluginEntry(name="NetworkMinCost", weight=5, arguments=arguments),)
            hosts = [one for one in HOSTS if one["metadata"]["name"] != "x-2"]
            async with site(control_plane, namespace, *hosts) as it, it.running(controller(it)):
                scheduler = LiveScheduler(
                    it.transport,
                    Configuration(plugins=scheduler_plugins, network_topology_namespaces=(namespace,)),
                    LiveSettings(scheduler_name=scheduler_name, discover_every=0.5),
                    it.say,
                )
                stop = asyncio.Event()
                scheduling = asyncio.create_task(scheduler.run(stop))
                try:
                    await it.create("networktopologies", network, spec(prometheus.address))
                    await it.create("appgroups", "a1", app)
                    await it.until("networktopologies", network, costs)

                    async def knows(cost: int) -> bool:
                        return heard_of(scheduler, namespace, network).get(("x-1", "z-1")) == cost

                    await eventually(lambda: knows(900))
                    path = f"/api/v1/namespaces/{namespace}/pods"

                    async def place_of(name: str) -> str:
                        placed: list[str] = []

                        async def bound() -> bool:
                            found = await it.api.get(f"{path}/{name}")
                            placed.append(found["spec"].get("nodeName", ""))
                            return bool(placed[-1])

                        await eventually(bound)
                        return placed[-1]

                    await it.api.create(path, pod("caller", "P1", nodeSelector={ZONE: "x"}))
                    assert await place_of("caller") == "x-1"
                    await it.api.create(path, pod("near", "P2"))
                    assert await place_of("near") == "y-1"

                    await asyncio.sleep(1.0)
                    probes.measure({("x-1", "z-1"): 20.0, ("x-1", "y-1"): 900.0})
                    await it.until(
                        "networktopologies",
                        network,
                        lambda one: costs(one)["x-1", "z-1"] == 20,
                        seconds=RANGE,
                    )
                    await eventually(lambda: knows(20))
                    await it.drop_pod("near")
                    await it.api.create(path, pod("next", "P2"))
                    assert await place_of("next") == "z-1"
                finally:
                    stop.set()
                    assert await scheduling is None

    asyncio.run(run())


def test_many_nodes_have_costs_between_zones_alone(control_plane: ControlPlane, namespace: str) -> None:
    """With one node more than 100 the pairs are left out, and listed again when that node goes."""
    hosts = [host(f"{'abcd'[place % 4]}-{place}") for place in range(100)]
    links = [("a-0", one["metadata"]["name"], 100.0) for one in hosts[1:]]

    async def run() -> None:
        async with site(control_plane, namespace, *hosts) as it:
            with serving(answering(*links)) as address:
                async with it.running(controller(it)):
                    await it.create("networktopologies", "net", spec(address, 1000))
                    there = await nodes_there(it)
                    full = await it.until("networktopologies", "net", costs)
                    if there == 100:
                        assert len(costs(full)) == 100 * 99 // 2 + 6
                        assert condition(full, "AllCostsListed")["status"] == "True"
                    async with joined(it.api, [host("a-100")]):
                        short = await it.until(
                            "networktopologies",
                            "net",
                            lambda one: (
                                one["nodeCount"] == there + 1
                                and condition(one, "AllCostsListed")["status"] == "False"
                            ),
                        )
                        assert costs(short) == {
                            (one, other): 100 if one == "a" else 200
                            for one in "abcd"
                            for other in "abcd"
                            if one < other
                        }
                        assert condition(short, "AllCostsListed")["reason"] == "TooManyCosts"
                        assert condition(short, "AllNodesMeasured")["status"] == "False"
                    if there == 100:
                        again = await it.until(
                            "networktopologies", "net", lambda one: one["nodeCount"] == 100
                        )
                        assert costs(again) == costs(full)

    asyncio.run(run())


def test_what_etcd_would_refuse_is_not_written(control_plane: ControlPlane, namespace: str) -> None:
    """The names of 90 nodes are so long that the costs between them would take 1.8 MB."""
    hosts = []
    for place in range(90):
        made = host(f"{'abc'[place % 3]}-{place}", **{"tests.closeby.dev/long": "yes"})
        made["metadata"]["name"] += "." + ".".join(["x" * 60] * 3)
        hosts.append(made)
    names = [one["metadata"]["name"] for one in hosts]

    async def run() -> None:
        async with site(control_plane, namespace, *hosts) as it:
            with serving(answering(*((names[0], one, 100.0) for one in names[1:]))) as address:
                async with it.running(controller(it)):
                    await it.create("networktopologies", "net", spec(address, 1000))
                    found = await it.until("networktopologies", "net", costs)
                    assert costs(found) == {("a", "b"): 100, ("a", "c"): 100, ("b", "c"): 200}
                    listed = condition(found, "AllCostsListed")
                    assert (listed["status"], listed["reason"]) == ("False", "TooManyCosts")
                    assert it.said("status refused") == []

    asyncio.run(run())


def test_a_provider_that_never_answers(control_plane: ControlPlane, namespace: str) -> None:
    """The first word is that there are no costs; a spec that is mended counts at once."""
    patient = Timing(minute=3600.0, retry=3600.0)

    async def run() -> None:
        async with site(control_plane, namespace, *HOSTS) as it, it.running(controller(it, patient)):
            await it.create("networktopologies", "net", spec("http://127.0.0.1:1"))
            found = await it.until(
                "networktopologies", "net", lambda one: condition(one, "LatenciesMeasured")
            )
            stale = condition(found, "LatenciesMeasured")
            assert (stale["status"], stale["reason"]) == ("False", "NoLatencies")
            assert stale["message"].startswith("no costs are known yet; http://127.0.0.1:1 can't be")
            assert "weights" not in found and "weightCalculationTime" not in found
            with serving(answering(("x-1", "y-1", 5.0))) as address:
                provider = {"metricProvider": {"address": address}}
                await it.api.patch(it.path("networktopologies", "net"), {"spec": provider})
                mended = await it.until("networktopologies", "net", costs)
                assert costs(mended)["x-1", "y-1"] == 5

    asyncio.run(run())


def test_costs_of_users_are_left_alone(control_plane: ControlPlane, namespace: str) -> None:
    """Without a provider in the KEP's shape; in the published shape always."""
    group = "networktopology.diktyo.x-k8s.io"
    schema = """
spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
status:
  type: object
  properties:
    nodeCount: {type: integer, format: int64}
    weightCalculationTime: {type: string, format: date-time}
"""
    theirs = """
spec:
  configmapName: costs
  weights:
    - name: UserDefined
      topologyList:
        - topologyKey: topology.kubernetes.io/zone
          originList: [{origin: x, costList: [{destination: y, networkCost: 8}]}]
"""
    by_hand = {"weights": [{"algorithmName": "Dijkstra", "costList": [{"origin": "a", "destination": "b"}]}]}

    async def run() -> None:
        async with (
            site(control_plane, namespace, *HOSTS) as it,
            published(it.api, group, "NetworkTopology", schema),
            it.running(controller(it)),
        ):
            await it.create("networktopologies", "net", "spec: {topologyAlgorithm: Dijkstra}", KEP)
            await it.api.patch(f"{it.path('networktopologies', 'net')}/status", {"status": by_hand})
            counted = await it.until("networktopologies", "net", lambda one: one.get("nodeCount"))
            assert counted["weights"] == by_hand["weights"]
            assert [one["type"] for one in counted["conditions"]] == ["Valid"]
            api_version = f"{group}/v1alpha1"
            await it.create("networktopologies", "costs", theirs, api_version)
            path = it.path("networktopologies", "costs", api_version)
            before = (await it.api.get(path))["spec"]
            found = await it.until(
                "networktopologies", "costs", lambda one: one.get("nodeCount"), api_version=api_version
            )
            assert found == {"nodeCount": await nodes_there(it)}
            assert (await it.api.get(path))["spec"] == before
            await it.quiet("networktopologies", "costs", 1.5, api_version)

    asyncio.run(run())
