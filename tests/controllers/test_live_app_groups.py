"""The AppGroup controller on a real API server."""

import asyncio
import contextlib
import time
from collections.abc import Callable

import msgspec
import pytest
import yaml

from closeby.controllers.applications.controller import AppGroupController
from closeby.controllers.running import News
from closeby.kube.state.decoding import Decoder
from closeby.kube.watch.changes import Deleted, upserted
from closeby.kube.watch.resources import Resource
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.controllers.at_work import GROUP, Site, published, site
from tests.controllers.test_app_group_status import CHAIN
from tests.kube.faulty_proxy import Cut, Fault, Refuse
from tests.kube.live import eventually, through_proxy

PUBLISHED = "appgroup.diktyo.x-k8s.io"
PUBLISHED_SCHEMA = """
spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
status:
  type: object
  properties:
    runningWorkloads: {type: integer, format: int32, minimum: 0}
    scheduleStartTime: {type: string, format: date-time}
    topologyCalculationTime: {type: string, format: date-time}
    topologyOrder:
      type: array
      items:
        type: object
        properties:
          index: {type: integer, format: int32}
          workload:
            type: object
            required: [kind, name, selector]
            properties: {kind: {type: string}, name: {type: string}, selector: {type: string}}
"""

CIRCLE = """
spec:
  numMembers: 2
  topologySortingAlgorithm: KahnSort
  workloads:
    - workload: {kind: Deployment, name: b-deployment, selector: b}
      dependencies: [{workload: {kind: Deployment, name: a-deployment, selector: a}}]
    - workload: {kind: Deployment, name: a-deployment, selector: a}
      dependencies: [{workload: {kind: Deployment, name: b-deployment, selector: b}}]
"""


def controller(it: Site) -> AppGroupController:
    return AppGroupController(it.writer, it.say)


def order(status: Object) -> list[tuple[str, int]]:
    return [(one["podName"], one["index"]) for one in status.get("topologyOrder", ())]


def condition(status: Object, kind: str = "Valid") -> Object:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), {})


async def told(it: Site, number: int) -> list[Object]:
    """Waits for so many Events about AppGroups; they are posted in the background."""
    found: list[Object] = []

    async def there() -> bool:
        events = await it.api.get(f"/apis/events.k8s.io/v1/namespaces/{it.namespace}/events")
        found[:] = [one for one in events["items"] if one["regarding"]["kind"] == "AppGroup"]
        return len(found) >= number

    await eventually(there)
    return found


async def make(it: Site) -> None:
    """An AppGroup of the published kind."""
    await it.create("appgroups", "a1", CIRCLE, f"{PUBLISHED}/v1alpha1")


def running(number: int) -> Callable[[Object], bool]:
    return lambda status: status.get("runningPods") == number


def test_the_status_appears_and_follows_the_pods(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with site(control_plane, namespace, node("w1"), node("w2")) as it:
            await it.create("appgroups", "a1", CHAIN)
            await it.pod("early", "a1", "P2", "w2")
            async with it.running(controller(it)):
                first = await it.until("appgroups", "a1", lambda one: one.get("runningPods") == 1)
                assert order(first) == [("P1", 1), ("P2", 2), ("P3", 3)]
                assert condition(first)["status"] == "True"
                assert condition(first)["observedGeneration"] == 1
                assert first["scheduleStartTime"] <= first["topologyCalculationTime"]
                await it.pod("p1-x", "a1", "P1", "w1")
                await it.pod("p3-x", "a1", "P3")
                await it.pod("stranger", "a2", "P1", "w1")
                await it.until("appgroups", "a1", lambda one: one["runningPods"] == 2)
                await it.drop_pod("early")
                # A pod that is deleted runs no more, but keeps its node until it is gone.
                rest = [{"name": "P1", "replicaID": "p1-x", "hostname": "w1"}]
                later = await it.until("appgroups", "a1", lambda one: one["podsScheduled"] == rest)
                assert later["runningPods"] == 1
                for field in ("scheduleStartTime", "topologyCalculationTime", "topologyOrder", "conditions"):
                    assert later[field] == first[field]
                # What it wrote does not make it write.
                await it.quiet("appgroups", "a1", 2.0)
                await it.create("appgroups", "a2", CHAIN)
                await it.until("appgroups", "a2", lambda one: one.get("runningPods") == 1)
                # A pod changes sides.
                path = f"/api/v1/namespaces/{namespace}/pods/stranger"
                await it.api.patch(path, {"metadata": {"labels": {GROUP: "a1"}}})
                await it.until("appgroups", "a1", lambda one: one["runningPods"] == 2)
                await it.until("appgroups", "a2", lambda one: "podsScheduled" not in one)
            # Another process finds everything as it should be.
            before = await it.version("appgroups", "a1")
            keeper = controller(it)

            async def all_seen() -> bool:
                return keeper.work.depth == 0 and keeper.work.longest == 0

            async with it.running(keeper):
                await eventually(all_seen)
                await asyncio.sleep(1.0)
            assert await it.version("appgroups", "a1") == before

    asyncio.run(run())


def test_the_order_follows_the_spec(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with site(control_plane, namespace) as it, it.running(controller(it)):
            await it.create("appgroups", "a1", CHAIN)
            first = await it.until("appgroups", "a1", order)
            await asyncio.sleep(1.1)
            path = it.path("appgroups", "a1")
            await it.api.patch(path, {"spec": {"topologySortingAlgorithm": "ReverseKahn"}})
            second = await it.until("appgroups", "a1", lambda one: order(one)[0] == ("P3", 1))
            assert order(second) == [("P3", 1), ("P2", 2), ("P1", 3)]
            assert second["topologyCalculationTime"] > first["topologyCalculationTime"]
            assert condition(second)["lastTransitionTime"] == condition(first)["lastTransitionTime"]

    asyncio.run(run())


def test_cycles_and_unknown_sorts_are_reported_until_they_are_corrected(
    control_plane: ControlPlane, namespace: str
) -> None:
    circle = CHAIN.replace("{name: P3, type: Pod}\n", "{name: P3, type: Pod, dependencies: [{name: P2}]}\n")

    async def run() -> None:
        async with site(control_plane, namespace) as it, it.running(controller(it)):
            await it.create("appgroups", "a1", circle.replace("KahnSort", "Sorted"))
            found = await it.until("appgroups", "a1", lambda one: condition(one).get("status") == "False")
            message = condition(found)["message"]
            assert "P2 and P3 need each other in a circle" in message
            assert "'Sorted' is not a sort, so KahnSort is used" in message
            assert condition(found)["reason"] == "InvalidSpec"
            assert [name for name, _ in order(found)] == ["P1", "P2", "P3"]
            pods = [{"name": "P1"}, {"name": "P2"}]
            spec = {"Pods": pods, "topologySortingAlgorithm": "TarjanSort", "numMembers": 2}
            await it.api.patch(it.path("appgroups", "a1"), {"spec": spec})
            mended = await it.until("appgroups", "a1", lambda one: condition(one)["status"] == "True")
            assert [name for name, _ in order(mended)] == ["P2", "P1"]

    asyncio.run(run())


@pytest.mark.timeout(240)
def test_the_word_of_others_stands_and_conflicts_pass(control_plane: ControlPlane, namespace: str) -> None:
    """Somebody else changes the object all the time, so that much of what was looked at is old."""

    async def run() -> None:
        async with site(control_plane, namespace, node("w1")) as it, it.running(controller(it)):
            await it.create("appgroups", "a1", CHAIN)
            await it.until("appgroups", "a1", order)
            path = it.path("appgroups", "a1")
            theirs = {"type": "Pretty", "status": "True", "reason": "Indeed"}
            found = await it.status("appgroups", "a1")
            await it.api.patch(f"{path}/status", {"status": {"conditions": [*found["conditions"], theirs]}})

            async def meddle() -> None:
                for number in range(10_000):
                    await it.api.patch(path, {"metadata": {"annotations": {"number": str(number)}}})
                    await asyncio.sleep(0.15)

            meddling = asyncio.create_task(meddle())
            try:
                for number in range(6):
                    await it.pod(f"p-{number}", "a1", "P1", "w1")
                    await asyncio.sleep(0.3)
                await it.until("appgroups", "a1", lambda one: one.get("runningPods") == 6, seconds=75)
            finally:
                meddling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await meddling
            last = await it.status("appgroups", "a1")
            assert theirs.items() <= condition(last, "Pretty").items()
            assert len(last["podsScheduled"]) == 6

    asyncio.run(run())


@pytest.mark.timeout(240)
def test_a_server_in_trouble_is_outlasted(control_plane: ControlPlane, namespace: str) -> None:
    """Writes are refused in every way, or carried out without an answer; watches break."""
    faults: tuple[Fault, ...] = (
        Refuse(500),
        Refuse(429, {"Retry-After": "1"}),
        Cut(),
        Cut(carried_out=True),
        Refuse(409, reason="Conflict"),
        Refuse(403, reason="Forbidden"),
    )

    async def run() -> None:
        async with (
            site(control_plane, namespace, node("w1")) as it,
            through_proxy(control_plane.access()) as (proxy, transport),
        ):
            behind = Site(it.api, transport, namespace)
            await it.create("appgroups", "a1", CHAIN)
            async with behind.running(controller(behind)):
                await it.until("appgroups", "a1", order)
                for number, fault in enumerate(faults, start=1):
                    # Other tests' objects of that name may be going just now.
                    proxy.inject("PATCH", f"{namespace}/appgroups/a1", fault)
                    await it.pod(f"p-{number}", "a1", "P1", "w1")
                    proxy.cut_streams()
                    await it.until("appgroups", "a1", running(number))
                await it.quiet("appgroups", "a1", 2.0)
            assert len(behind.said("status refused")) == 1

    asyncio.run(run())


def test_two_writers_of_one_field_do_not_race(control_plane: ControlPlane, namespace: str) -> None:
    """Somebody else wants 7 pods to run, at once and for ever."""

    async def run() -> None:
        async with site(control_plane, namespace) as it, it.running(controller(it)):
            began = time.monotonic()
            await it.create("appgroups", "a1", CHAIN)
            await it.until("appgroups", "a1", order)
            path = it.path("appgroups", "a1")
            for _ in range(4):
                await it.until("appgroups", "a1", lambda one: one.get("runningPods") != 7)
                took = time.monotonic() - began
                await it.api.patch(f"{path}/status", {"status": {"runningPods": 7}})
            # Each of our words was taken back: after about 1, 2 and 4 seconds, or half of that.
            assert took >= 0.5 + 1.0 + 2.0

    asyncio.run(run())


def test_an_object_that_goes_and_comes_again_is_another_one(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with site(control_plane, namespace) as it, it.running(controller(it)):
            for _ in range(3):
                await it.create("appgroups", "a1", CHAIN)
                await it.until("appgroups", "a1", order)
                await it.api.delete(it.path("appgroups", "a1"))

    asyncio.run(run())


def test_the_published_kind(control_plane: ControlPlane, namespace: str) -> None:
    """It arrives while the controller runs; it has no status subresource, and no conditions."""
    api_version = f"{PUBLISHED}/v1alpha1"

    async def run() -> None:
        async with (
            site(control_plane, namespace, node("w1")) as it,
            it.running(controller(it)),
            published(it.api, PUBLISHED, "AppGroup", PUBLISHED_SCHEMA),
        ):
            await make(it)
            first = await it.until(
                "appgroups", "a1", lambda one: "topologyOrder" in one, api_version=api_version
            )
            deployments = {
                name: {"kind": "Deployment", "name": f"{name}-deployment", "selector": name} for name in "ab"
            }
            assert first["topologyOrder"] == [
                {"workload": deployments["a"], "index": 2},
                {"workload": deployments["b"], "index": 1},
            ]
            await it.pod("p", "a1", "a", "w1")
            await it.until(
                "appgroups", "a1", lambda one: one["runningWorkloads"] == 1, api_version=api_version
            )
            await it.quiet("appgroups", "a1", 2.0, api_version)
            (event,) = await told(it, 1)
            assert "b and a need each other in a circle" in event["note"]
            assert (event["type"], event["reason"]) == ("Warning", "InvalidSpec")

    asyncio.run(run())


def test_an_object_recreated_in_the_middle_gets_its_condition(
    control_plane: ControlPlane, namespace: str
) -> None:
    """It is the very same as the one before it, whose status is being written."""
    api_version = f"{PUBLISHED}/v1alpha1"
    names = {"kind": "AppGroup", "plural": "appgroups"}
    kind = Resource(group=PUBLISHED, version="v1alpha1", **names, namespaced=True, status=False)

    async def run() -> None:
        async with (
            site(control_plane, namespace) as it,
            published(it.api, PUBLISHED, "AppGroup", PUBLISHED_SCHEMA),
            through_proxy(control_plane.access()) as (proxy, transport),
        ):
            keeper = controller(Site(it.api, transport, namespace))
            uids: list[str] = []

            async def hear() -> None:
                found = await it.api.get(it.path("appgroups", "a1", api_version))
                change = upserted(msgspec.Raw(msgspec.json.encode(found)))
                uids.append(change.uid)
                keeper.observe(News(kind, change, Decoder().read(kind, change)))

            async def anew() -> None:
                await it.api.delete(it.path("appgroups", "a1", api_version))
                keeper.observe(News(kind, Deleted(f"{namespace}/a1", uids[0]), None))
                await make(it)
                await hear()

            await make(it)
            await hear()
            proxy.before("PATCH", "appgroups/a1", anew)
            for _ in range(2):
                await keeper.reconcile((kind, f"{namespace}/a1"))
            assert len(set(uids)) == 2
            assert {one["regarding"]["uid"] for one in await told(it, 2)} == set(uids)

    asyncio.run(run())


def test_the_status_of_a_large_app_group_is_written_less_often(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Each write makes the API server and all that watch handle the whole object."""
    names = [f"w{i}" for i in range(120)]
    pods = [
        {"name": name, "dependencies": [{"name": other, "type": "Pod"} for other in names[i + 1 :]]}
        for i, name in enumerate(names)
    ]

    async def run() -> None:
        async with site(control_plane, namespace, node("w1")) as it, it.running(controller(it)):
            # Before the first write.
            began = time.monotonic()
            await it.create("appgroups", "small", CHAIN)
            await it.create("appgroups", "large", yaml.safe_dump({"spec": {"numMembers": 120, "Pods": pods}}))
            for name in ("small", "large"):
                await it.until("appgroups", name, order)
            large = await it.api.get(it.path("appgroups", "large"))
            # Of what the first write was of, which had no status yet.
            size = len(msgspec.json.encode(large["spec"]))
            assert size > 150_000
            versions: dict[str, set[str]] = {"small": set(), "large": set()}
            for i in range(4):
                for name, role in (("small", "P1"), ("large", "w1")):
                    await it.pod(f"{name}-{i}", name, role, "w1")
                await it.until("appgroups", "small", running(i + 1))
                for name, seen in versions.items():
                    seen.add(await it.version("appgroups", name))
            took = time.monotonic() - began
            assert len(versions["small"]) == 4
            assert len(versions["large"]) <= 1 + took / (size * 1e-5)
            # In the end it says what is so.
            await it.until("appgroups", "large", running(4))

    asyncio.run(run())
