"""`closeby agent` with a real API server: bandwidth in the node's status, and peers out of EndpointSlices."""

import asyncio
import socket
from contextlib import AsyncExitStack, aclosing
from functools import partial
from pathlib import Path

import pytest

from closeby.agents.bandwidth.advertising import AdvertisedNode, patch_of
from closeby.kube.state.endpoints import EndpointPlace, Endpoints
from closeby.kube.watch.changes import Troubled
from closeby.kube.writing.node_status import patch_node_status
from closeby.reading.decoding.bandwidth import BANDWIDTH
from tests.agents.programs import Agent, agent, free_port
from tests.agents.talking import TOKEN
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.kube.live import direct, eventually, unique

P50 = "netperf_p50_latency_microseconds"
ZONE = "topology.kubernetes.io/zone"
LABELS = {"app": "closeby-agent"}
#: Seconds in which an agent has ended that waits for nobody, on any machine.
SOON = 30.0


async def bandwidth(api: Api, name: str) -> tuple[str | None, str | None]:
    """Capacity and allocatable, as the server writes them."""
    status = (await api.get(f"/api/v1/nodes/{name}"))["status"]
    return tuple(status.get(part, {}).get(BANDWIDTH) for part in ("capacity", "allocatable"))


async def says(api: Api, name: str, wanted: str, one: Agent) -> None:
    async def so() -> bool:
        return await bandwidth(api, name) == (wanted, wanted)

    try:
        await eventually(so, 60)
    except TimeoutError as error:
        raise AssertionError(one.log) from error


async def said(one: Agent, part: str) -> bool:
    return part in one.log


async def rests(one: Agent, least: int) -> bool:
    """Whether it has written so often, and nothing in the last 1.5 s, after which it would again."""
    before = one.log.count("bandwidth advertised")
    await asyncio.sleep(1.5)
    return least <= before == one.log.count("bandwidth advertised")


def arguments(control_plane: ControlPlane, name: str, namespace: str, listen: str) -> list[object]:
    return [
        *("--kubeconfig", control_plane.kubeconfig, "--namespace", namespace, "--node-name", name),
        *("--listen", listen, "--round", "0.5"),
    ]


def own_address() -> str:
    """One of this machine that others could reach: the API server takes no endpoints on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        return str(one.getsockname()[0])


def test_bandwidth_is_advertised_and_again_when_the_node_is_recreated(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    name = unique("node")

    async def run() -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(control_plane.access()))
            given = arguments(control_plane, name, namespace, "127.0.0.1:0")
            one = stack.enter_context(
                agent(
                    tmp_path / "log", *given, "--bandwidth", "10G", environment={"CLOSEBY_AGENT_TOKEN": TOKEN}
                )
            )
            # It waits for a node that joins later.
            await asyncio.to_thread(one.until, lambda told: "no such node" in one.log)
            async with joined(api, [node(name)]):
                await says(api, name, "10G", one)
                told = await asyncio.to_thread(
                    one.until, lambda told: told.value("closeby_agent_advertised_bits_per_second") == 1e10
                )
                assert told.value("closeby_agent_interface_bits_per_second") == 1e10
                # As a kubelet that registers again does.
                for part in ("capacity", "allocatable"):
                    await api.patch(f"/api/v1/nodes/{name}/status", {"status": {part: {BANDWIDTH: "0"}}})
                await says(api, name, "10G", one)
                await api.delete(f"/api/v1/nodes/{name}")
                await api.create("/api/v1/nodes", node(name))
                await says(api, name, "10G", one)
                other = (await api.get(f"/api/v1/nodes/{name}"))["status"]["capacity"]
                assert other["cpu"] == "32" and len(other) == 4
                # Nothing is written when nothing differs, once all is told of what was written before.
                await eventually(partial(rests, one, 3), 60)
                assert await asyncio.to_thread(one.stop) < SOON
                assert one.process.returncode == 0, one.log

    asyncio.run(run())


def test_what_the_kubelet_wrote_meanwhile_stays(control_plane: ControlPlane) -> None:
    """The node was made anew and said nothing yet when the agent heard of it."""

    async def run() -> None:
        async with Api(control_plane.access()) as api, direct(control_plane.kubeconfig) as transport:
            name = unique("n")
            path = f"/api/v1/nodes/{name}"
            made = await api.create("/api/v1/nodes", {"metadata": {"name": name}})
            empty = AdvertisedNode(uid=made["metadata"]["uid"])
            await api.patch(f"{path}/status", {"status": {"capacity": {"cpu": "8"}}}, kind="merge")
            assert await patch_node_status(transport, name, patch_of(empty, 10**10)) is not None
            assert (await api.get(path))["status"]["capacity"] == {"cpu": "8"}
            await api.patch(
                f"{path}/status", {"status": {"capacity": None, "allocatable": None}}, kind="merge"
            )
            assert await patch_node_status(transport, name, patch_of(empty, 10**10)) is None
            assert await bandwidth(api, name) == ("10G", "10G")
            await api.delete(path)

    asyncio.run(run())


def test_an_unknown_speed_is_not_advertised_and_removes_nothing(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The loopback interface has no speed."""
    bare, told = unique("node"), unique("node")

    async def run() -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(control_plane.access()))
            nodes = [node(bare), node(told, allocatable={BANDWIDTH: "5G"})]
            await stack.enter_async_context(joined(api, nodes))
            agents = []
            for name in (bare, told):
                given = arguments(control_plane, name, namespace, "127.0.0.1:0")
                environment = {"CLOSEBY_AGENT_TOKEN": TOKEN}
                log = tmp_path / f"{name}.log"
                agents.append(
                    stack.enter_context(agent(log, *given, "--interface", "lo", environment=environment))
                )
            for one in agents:
                await eventually(partial(said, one, "no bandwidth is advertised"), 60)
                assert "--bandwidth 10G" in one.log
            # That it was said does not mean that the node has been heard of.
            advertised = "closeby_agent_advertised_bits_per_second"
            scraped = await asyncio.to_thread(agents[1].until, lambda told: told.value(advertised) == 5e9)
            assert scraped.value("closeby_agent_interface_bits_per_second") is None
            await asyncio.sleep(1.0)
            assert await bandwidth(api, bare) == (None, None)
            assert await bandwidth(api, told) == ("5G", "5G")

    asyncio.run(run())


def slice_of(node_name: str, service: str, address: str, port: int) -> Object:
    """An EndpointSlice with the pod of one node, in the zone with which the node's name begins."""
    endpoint = {
        "nodeName": node_name,
        "zone": node_name.partition("-")[0],
        "addresses": [address],
        "conditions": {"ready": True},
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": node_name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": [endpoint],
        "ports": [{"name": "probe", "port": port, "protocol": "TCP"}],
    }


def test_peers_are_those_of_the_service(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """One more comes and goes again; those of another Service are none."""
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    names, address = [unique(zone) for zone in ("a", "b", "c")], own_address()
    ports = {name: free_port() for name in names}
    here, there, later = names

    async def run() -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(control_plane.access()))
            agents = []
            for name, port in ports.items():
                given = arguments(control_plane, name, namespace, f"{address}:{port}")
                log = tmp_path / f"{name}.log"
                environment = {"CLOSEBY_AGENT_TOKEN": TOKEN}
                agents.append(
                    stack.enter_context(agent(log, *given, "--no-advertise", environment=environment))
                )
            one, _, third = agents
            for name in (here, there):
                await api.create(slices, slice_of(name, "closeby-agent", address, ports[name]))
            await api.create(slices, slice_of("x-stranger", "something-else", address, 9))
            await asyncio.to_thread(one.until, lambda told: set(told.all(P50)) == {(there, here)})
            assert await asyncio.to_thread(one.asked, "/readyz") == 200
            await eventually(partial(said, third, "is not among the 2 peers"), 60)

            await api.create(slices, slice_of(later, "closeby-agent", address, ports[later]))
            both = {(there, here), (later, here)}
            await asyncio.to_thread(one.until, lambda told: set(told.all(P50)) == both)
            await asyncio.to_thread(third.until, lambda told: len(told.all(P50)) == 2)
            await api.delete(f"{slices}/{later}")
            await asyncio.to_thread(one.until, lambda told: set(told.all(P50)) == {(there, here)})
            for each in agents:
                assert await asyncio.to_thread(each.stop) < SOON
                assert each.process.returncode == 0, each.log

    asyncio.run(run())


def test_kubernetes_itself_tells_where_agents_are(whole_control_plane: ControlPlane, namespace: str) -> None:
    """Its own controller makes the slices: of pods that are ready, on nodes of zones."""
    near, far = unique("near"), unique("far")
    service = {
        "metadata": {"name": "closeby-agent"},
        "spec": {
            "clusterIP": "None",
            "selector": LABELS,
            "ports": [{"name": "probe", "port": 9471, "targetPort": 9471}],
        },
    }

    async def ready(api: Api, pod: str, address: str, status: str) -> None:
        condition = {"type": "Ready", "status": status}
        body = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
        body["status"]["conditions"] = [condition]
        await api.patch(f"/api/v1/namespaces/{namespace}/pods/{pod}/status", body, kind="strategic")

    async def run() -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(Api(whole_control_plane.access()))
            nodes = [node(near, labels={ZONE: "east"}), node(far, labels={ZONE: "west"})]
            await stack.enter_async_context(joined(api, nodes))
            await api.create(f"/api/v1/namespaces/{namespace}/services", service)
            for pod, where in (("p1", near), ("p2", far)):
                container = {"name": "main", "image": "none"}
                body = {
                    "metadata": {"name": pod, "labels": LABELS},
                    "spec": {"nodeName": where, "containers": [container]},
                }
                await api.create(f"/api/v1/namespaces/{namespace}/pods", body)
            transport = await stack.enter_async_context(direct(whole_control_plane.kubeconfig))
            endpoints = Endpoints(transport, namespace, "closeby-agent", "probe")
            changes = await stack.enter_async_context(aclosing(endpoints.changes()))

            async def until(*wanted: EndpointPlace) -> None:
                async with asyncio.timeout(60):
                    async for places in changes:
                        assert not isinstance(places, Troubled), places
                        if set(places) == set(wanted):
                            return

            await ready(api, "p1", "192.0.2.1", "True")
            await ready(api, "p2", "192.0.2.2", "False")
            await until(EndpointPlace(near, "192.0.2.1", 9471, "east"))
            await ready(api, "p2", "192.0.2.2", "True")
            both = (
                EndpointPlace(near, "192.0.2.1", 9471, "east"),
                EndpointPlace(far, "192.0.2.2", 9471, "west"),
            )
            await until(*both)
            await api.delete(f"/api/v1/namespaces/{namespace}/pods/p1", {"gracePeriodSeconds": 0})
            await until(both[1])

    asyncio.run(run())
