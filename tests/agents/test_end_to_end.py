"""From a network that slows down to the node that the next pod gets, with all that is between.

Agents on five nodes measure each other; a real Prometheus scrapes them; the NetworkTopology controller makes
costs of that on a real API server; the scheduler puts the pod by NetworkMinCost where its caller is near.

How the network is slowed down is in the name of each test: between namespaces by the kernel (netem) where it
can, and by wires that take their time where it can not; over loopback, where namespaces are not permitted
either, by the agents' own setting for trials.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from closeby.controllers.networks.controller import NetworkTopologyController, Timing
from closeby.controllers.networks.settings import PrometheusAccess
from closeby.kube.scheduler.live import LiveScheduler, SchedulerSettings
from closeby.reading.configuration import Configuration, PluginEntry
from tests.agents.networks import Ground, in_namespaces, on_loopback
from tests.agents.programs import Agent, agent, peers_file
from tests.agents.talking import TOKEN
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.controllers.at_work import GROUP, WORKLOAD, Site, site
from tests.controllers.networks import costs
from tests.kube.live import eventually, unique
from tests.measurements.real_prometheus import Prometheus, running

P50 = "netperf_p50_latency_microseconds"
REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
NODES = ("x-1", "y-1", "y-2", "z-1", "z-2")
#: Milliseconds to the core and back: y is near x, z is far from both; then y gets farther than z is.
FIRST = {"x": 2.0, "y": 2.0, "z": 10.0}
LATER = {"x": 2.0, "y": 25.0, "z": 10.0}
#: Seconds that a minute of ``freqUpdate`` takes. Latencies are medians over a minute (a real one), half of
#: which is less than that, even if a busy machine measures, scrapes and asks some seconds late.
REFRESH = 45.0
NETWORK = """
spec:
  metricProvider: {type: Prometheus, address: "%s"}
  topologyAlgorithm: Dijkstra
  freqUpdate: 1
  timeRangeInMinutes: 1
"""
APP = """
spec:
  numMembers: 3
  Pods: [{name: P1, type: Pod, dependencies: [{name: P2, type: Pod}]}, {name: P2, type: Pod}]
"""


def ground(way: str, folder: Path) -> contextlib.AbstractContextManager[Ground]:
    if way == "loopback":
        return contextlib.nullcontext(on_loopback(folder, NODES))
    return in_namespaces(folder, NODES, netem=way == "netem")


@contextlib.contextmanager
def agents(there: Ground, folder: Path) -> Iterator[dict[str, Agent]]:
    """One on each node."""
    peers = peers_file(folder / "peers.yaml", there.probes)
    with contextlib.ExitStack() as stack:
        found = {}
        for name in NODES:
            host, port = there.probes[name]
            found[name] = stack.enter_context(
                agent(
                    folder / f"{name}.log",
                    *("--peers", peers, "--node-name", name, "--listen", f"{host}:{port}"),
                    *("--round", 1, "--trips", 10, "--max-age", 20, *there.arguments(name)),
                    metrics=there.metrics[name],
                    inside=there.inside[name],
                    environment={"CLOSEBY_AGENT_TOKEN": TOKEN},
                )
            )
        for name, one in found.items():
            # One in each other zone, and the neighbour if there is one.
            one.until(lambda told: len({pair[0][0] for pair in told.all(P50)} | {"x"}) == 3, 90)
            assert "Traceback" not in one.log, (name, one.log)
        yield found


def host(name: str) -> Object:
    labels = {REGION: "eu", ZONE: name.partition("-")[0]}
    return node(name, labels=labels, allocatable={"cpu": "4"})


def pod(name: str, workload: str, scheduler: str, **more: Any) -> Object:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
    return {
        "metadata": {"name": name, "labels": {GROUP: "a1", WORKLOAD: workload}},
        "spec": {"schedulerName": scheduler, "containers": [container], **more},
    }


@contextlib.asynccontextmanager
async def scheduling(it: Site, name: str, network: str) -> AsyncIterator[LiveScheduler]:
    """closeby's scheduler at work on pods that name it."""
    arguments = {"networkTopologyName": f"{it.namespace}/{network}"}
    plugins = (PluginEntry(name="NetworkMinCost", weight=5, arguments=arguments),)
    live = LiveScheduler(
        it.transport,
        Configuration(plugins=plugins, network_topology_namespaces=(it.namespace,)),
        SchedulerSettings(scheduler_name=name, discover_every=0.5),
        it.say,
    )
    stop = asyncio.Event()
    work = asyncio.create_task(live.run(stop))
    try:
        yield live
    finally:
        stop.set()
        assert await work is None


async def heard(live: LiveScheduler, it: Site, network: str, near: str, far: str) -> None:
    """Waits until the scheduler knows the application, and the costs that stand in the status."""

    async def so() -> bool:
        known = live.engine.applications
        links = {
            (one.origin, one.destination): one.cost
            for each in known.networks
            if each.key == f"{it.namespace}/{network}"
            for weights in each.weight_sets
            for one in weights.zone_costs
        }
        return known.get(f"{it.namespace}/a1") is not None and nearer(links, near, far)

    await eventually(so, 60)


async def place_of(it: Site, name: str) -> str:
    """Where a pod was put."""
    found: list[str] = []

    async def bound() -> bool:
        one = await it.api.get(f"/api/v1/namespaces/{it.namespace}/pods/{name}")
        found.append(one["spec"].get("nodeName", ""))
        return bool(found[-1])

    await eventually(bound, 60)
    return found[-1]


async def story(
    control_plane: ControlPlane, namespace: str, there: Ground, prometheus: Prometheus, fill: float
) -> None:
    """The caller's zone is full, so its callee goes to the nearest; then another one is nearest."""
    scheduler, network = unique("closeby"), unique("net")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    timing = Timing(minute=REFRESH, retry=0.5, gathered=0.2)
    began = time.monotonic()
    async with site(control_plane, namespace, *map(host, NODES)) as it:
        ours = PrometheusAccess(address=prometheus.address)
        controller = NetworkTopologyController(it.writer, it.say, timing=timing, prometheus=ours)
        async with it.running(controller), scheduling(it, scheduler, network) as live:
            await asyncio.sleep(2.0)
            await it.create("networktopologies", network, NETWORK % prometheus.address)
            await it.create("appgroups", "a1", APP)
            # What is measured too early is measured anew no sooner than after a refresh.
            first = costs(
                await it.until(
                    "networktopologies", network, wanted(near="y", far="z"), seconds=2 * REFRESH + 30
                )
            )
            # On a busy machine answers take longer, but not as a wrong unit would make them.
            assert 4_000 <= first["x", "y"] < 400_000, first
            assert 12_000 <= first["x", "z"] < 1_200_000, first
            await heard(live, it, network, near="y", far="z")
            await it.api.create(pods, pod("caller", "P1", scheduler, nodeSelector={ZONE: "x"}))
            assert await place_of(it, "caller") == "x-1"
            await it.api.create(pods, pod("near", "P2", scheduler))
            assert (await place_of(it, "near")).startswith("y-")

            # The range of the medians is full of what was: the worst case for what changes.
            await asyncio.sleep(max(0.0, fill - (time.monotonic() - began)))
            calculated: set[str] = set()

            def followed(status: Object) -> bool:
                calculated.add(status["weightCalculationTime"])
                # In the very middle a median is between what was and what is.
                return wanted(near="z", far="y")(status) and costs(status)["x", "y"] >= 27_000

            there.far(LATER)
            await it.until("networktopologies", network, followed, seconds=4 * REFRESH)
            await heard(live, it, network, near="z", far="y")
            await it.drop_pod("near")
            await it.api.create(pods, pod("next", "P2", scheduler))
            assert (await place_of(it, "next")).startswith("z-")
            # What was before, and two refreshes at the latest.
            assert len(calculated) <= 1 + 2, calculated


def wanted(near: str, far: str) -> Callable[[Object], bool]:
    """Whether zone x is nearer to the one than to the other, and so is its node to theirs."""

    def met(status: Object) -> bool:
        known = costs(status)
        pairs = [("x-1", f"{near}-1"), ("x-1", f"{far}-2")]
        if not nearer(known, near, far) or not all(pair in known for pair in pairs):
            return False
        return known[pairs[0]] < known[pairs[1]]

    return met


def nearer(known: Mapping[tuple[str, str], int], near: str, far: str) -> bool:
    return ("x", near) in known and ("x", far) in known and known["x", near] < known["x", far]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("way", "fill"),
    [
        pytest.param("netem", 60.0, id="delayed by netem in namespaces", marks=pytest.mark.soak),
        pytest.param("wires", 60.0, id="delayed by slow wires in namespaces", marks=pytest.mark.soak),
        pytest.param("loopback", 0.0, id="delayed by the agents over loopback"),
    ],
)
def test_the_next_pod_goes_where_the_network_is_near_now(
    way: str, fill: float, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    with ground(way, tmp_path) as there:
        there.far(FIRST)
        directory = tmp_path / "prometheus"
        directory.mkdir()
        prometheus = Prometheus(directory, {one: {} for one in there.metrics.values()})
        with agents(there, tmp_path), running(prometheus):
            asyncio.run(story(control_plane, namespace, there, prometheus, fill))
