"""Bindings, Events, conditions and status on a real API server, and what is told about each."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Transport
from closeby.kube.watch.resources import PODS
from closeby.kube.writing.writer import (
    DONE,
    Note,
    Reference,
    StatusCondition,
    Writer,
    WriteResult,
)
from closeby.objects.pods import Pod
from closeby.objects.quantities import utc
from closeby.scheduling.outcomes import Binding
from tests.control_plane.api import Api, Object
from tests.control_plane.clouds import COPIED_TO_PODS, binds_with_labels
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, node
from tests.kube.faulty_proxy import Cut, Proxy, Refuse
from tests.kube.live import create_pods, delete_now, eventually, through_proxy, unique
from tests.kube.test_discovery import racks, served


class Scene(msgspec.Struct):
    """Some pods and the nodes a and b, the real server, a proxy, and a writer behind the proxy."""

    api: Api
    proxy: Proxy
    transport: Transport
    writer: Writer
    pods: list[Pod]
    nodes: list[str]
    namespace: str

    async def pod(self, pod: Pod) -> Object:
        return await self.api.get(PODS.item(pod.namespace, pod.name))

    async def node_of(self, pod: Pod) -> str | None:
        node: str | None = (await self.pod(pod))["spec"].get("nodeName")
        return node


@asynccontextmanager
async def scene(control_plane: ControlPlane, namespace: str, pods: int = 1) -> AsyncIterator[Scene]:
    access = control_plane.access()
    async with (
        Api(access) as api,
        through_proxy(access) as (proxy, transport),
        joined(api, [node(unique("a")), node(unique("b"))]) as nodes,
    ):
        made = await create_pods(api, namespace, pods)
        yield Scene(
            api, proxy, transport, Writer(transport, "closeby-test", "replica-0"), made, nodes, namespace
        )


def test_a_binding_carries_labels_and_annotations(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,), (a, _) = world.pods, world.nodes
            bind = Binding(pod, a, rank=3, domain=("zone", "rack"), labels={"example.com/x": "y"})
            assert await world.writer.bind(bind) == DONE
            found = await world.pod(pod)
            assert found["spec"]["nodeName"] == a
            labels = found["metadata"].get("labels", {})
            ours = {key: value for key, value in labels.items() if key not in COPIED_TO_PODS}
            sent = {"closeby.dev/rank": "3", "example.com/x": "y"}
            assert ours == (sent if await binds_with_labels(world.api) else {})
            assert found["metadata"]["annotations"] == {"closeby.dev/topology-domain": "zone/rack"}

    asyncio.run(run())


def test_a_second_binding_is_a_conflict_unless_it_says_the_same(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,), (a, b) = world.pods, world.nodes
            assert (await world.writer.bind(Binding(pod, a))).ok
            assert (await world.writer.bind(Binding(pod, a))).ok
            other = await world.writer.bind(Binding(pod, b))
            assert other.verdict is WriteResult.CONFLICT
            assert other.error is not None and other.error.code == 409
            assert await world.node_of(pod) == a

    asyncio.run(run())


def test_a_pod_that_is_gone_or_not_the_same_any_more(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,), (a, _) = world.pods, world.nodes
            await delete_now(world.api, namespace, pod.name)
            assert (await world.writer.bind(Binding(pod, a))).verdict is WriteResult.GONE
            (again,) = await create_pods(world.api, namespace, 1)
            assert (await world.writer.bind(Binding(pod, a))).verdict is WriteResult.GONE
            assert await world.node_of(again) is None

    asyncio.run(run())


def test_a_pod_with_gates_is_a_conflict_and_a_bad_label_is_fatal(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,), (a, _) = world.pods, world.nodes
            gated = {
                "metadata": {"name": "gated"},
                "spec": {
                    "schedulingGates": [{"name": "example.com/gate"}],
                    "containers": [{"name": "main", "image": "none"}],
                },
            }
            made = await world.api.create(PODS.collection(namespace), gated)
            waiting = msgspec.structs.replace(pod, name="gated", uid=made["metadata"]["uid"])
            assert (await world.writer.bind(Binding(waiting, a))).verdict is WriteResult.CONFLICT
            bad = Binding(pod, a, labels={"example.com/x": "no label's value"})
            assert (await world.writer.bind(bad)).verdict is WriteResult.FATAL

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fault", "times", "verdict", "posts"),
    [
        # The server certainly did nothing; whoever binds asks first whether it may still be repeated.
        pytest.param(Refuse(429), 1, WriteResult.RETRYABLE, 1, id="429"),
        # What became of it is read from the pod.
        pytest.param(Cut(carried_out=True), 1, WriteResult.OK, 1, id="cut-after"),
        pytest.param(Cut(), 1, WriteResult.RETRYABLE, 1, id="cut-before"),
        pytest.param(Refuse(500), 1, WriteResult.RETRYABLE, 1, id="500"),
        pytest.param(Refuse(403), 1, WriteResult.FATAL, 1, id="403"),
    ],
)
def test_a_binding_is_never_repeated_blindly(
    control_plane: ControlPlane,
    namespace: str,
    fault: Refuse | Cut,
    times: int,
    verdict: WriteResult,
    posts: int,
) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,), (a, _) = world.pods, world.nodes
            world.proxy.inject("POST", "/binding", fault, times)
            assert (await world.writer.bind(Binding(pod, a))).verdict is verdict
            assert world.proxy.count("POST", "/binding") == posts
            assert await world.node_of(pod) == (a if verdict is WriteResult.OK else None)

    asyncio.run(run())


def test_an_answer_that_cannot_be_read_back_may_be_tried_again(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,), (a, _) = world.pods, world.nodes
            world.proxy.inject("POST", "/binding", Cut(carried_out=True))
            world.proxy.inject("GET", "/pods", Refuse(503), times=100)
            assert (await world.writer.bind(Binding(pod, a))).verdict is WriteResult.RETRYABLE
            world.proxy.forgive()
            assert (await world.writer.bind(Binding(pod, a))).ok

    asyncio.run(run())


def test_an_event_tells_users_what_happened(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,) = world.pods
            about = Reference(
                api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
            )
            note = Note(
                reason="FailedScheduling", action="Scheduling", text="no rack " + "ü" * 600, warning=True
            )
            # The first is carried out, but its answer is lost; it is one Event all the same.
            world.proxy.inject("POST", "/events", Cut(carried_out=True))
            assert await world.writer.event(about, note, time.time()) == DONE
            listed = await world.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
            (event,) = [one for one in listed["items"] if one["reportingController"] == "closeby-test"]
            assert event["regarding"]["uid"] == pod.uid
            assert (event["type"], event["reason"], event["action"]) == (
                "Warning",
                "FailedScheduling",
                "Scheduling",
            )
            assert event["note"].endswith("ü… (and 210 more bytes)")
            absent = Reference(api_version="v1", kind="Pod", name="x", namespace="closeby-none")
            assert (await world.writer.event(absent, note, time.time())).verdict is WriteResult.GONE

    asyncio.run(run())


def test_a_condition_of_a_pod_leaves_its_others_alone(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with scene(control_plane, namespace) as world:
            (pod,) = world.pods
            other = {"status": {"conditions": [{"type": "example.com/Other", "status": "True"}]}}
            await world.api.patch(PODS.item(namespace, pod.name, "status"), other, kind="strategic")
            refused = StatusCondition(
                type="PodScheduled", status="False", reason="Unschedulable", message="GangDoesNotFit: no rack"
            )
            assert (await world.writer.pod_conditions(pod, [refused])).ok
            found = (await world.pod(pod))["status"]["conditions"]
            assert {one["type"]: one.get("reason") for one in found} == {
                "example.com/Other": None,
                "PodScheduled": "Unschedulable",
            }
            stranger = msgspec.structs.replace(pod, uid="another")
            assert (await world.writer.pod_conditions(stranger, [refused])).verdict is WriteResult.GONE
            absent = msgspec.structs.replace(pod, name="absent")
            assert (await world.writer.pod_conditions(absent, [refused])).verdict is WriteResult.GONE

    asyncio.run(run())


@pytest.mark.parametrize("subresource", [True, False])
def test_the_status_of_a_custom_resource_is_merged(
    control_plane: ControlPlane, namespace: str, subresource: bool
) -> None:
    group = unique("rack") + ".example.com"
    kind = racks(group, subresource)

    async def run() -> None:
        async with scene(control_plane, namespace, pods=0) as world, served(world.api, group, subresource):

            async def there() -> bool:
                return not isinstance(await world.transport.get(kind.collection()), ApiError)

            await eventually(there)
            rack = {"apiVersion": kind.api_version, "kind": "Rack", "metadata": {"name": "r"}}
            made = await world.api.create(kind.collection(), rack)
            version = made["metadata"]["resourceVersion"]
            written = await world.writer.status(kind, "", "r", {"plan": {"p": "a"}, "phase": "x"}, version)
            assert written.ok
            assert int(written.version) > int(version)
            stale = await world.writer.status(kind, "", "r", {"phase": "y"}, version)
            assert stale.verdict is WriteResult.CONFLICT
            assert (await world.writer.status(kind, "", "r", {"plan": {"q": "b"}, "phase": None})).ok
            found = await world.api.get(kind.item("", "r"))
            assert found["status"] == {"plan": {"p": "a", "q": "b"}}
            assert (await world.writer.status(kind, "", "absent", {})).verdict is WriteResult.GONE

    asyncio.run(run())


def test_times_and_notes_as_kubernetes_takes_them() -> None:
    assert utc(0.5, "microseconds") == "1970-01-01T00:00:00.500000Z"
    assert Note(reason="R", action="A", text="short").text == "short"
    assert len(Note(reason="R", action="A", text="ü" * 1000).text.encode()) <= 1024
