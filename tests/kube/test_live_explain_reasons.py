"""`closeby explain` gives the same reason as the scheduler at work for what only a cluster has: default
spread, volumes that could not be had of late, pods in gate mode, places that are held, plans of preemption.

The command decides anew, and is compared with the condition that the scheduler wrote.
"""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeby.kube.metrics.health import Health
from closeby.kube.metrics.meters import Meters
from closeby.kube.metrics.serving import ListenAddress, Server
from closeby.kube.metrics.stories import story_json
from tests.cli.calling import closeby
from tests.control_plane.cluster import ControlPlane
from tests.kube.faulty_proxy import Refuse
from tests.kube.live_world import World, until, until_said, world
from tests.kube.preempting import full_racks, gang, preempting
from tests.kube.test_live_default_spread import hosts as zoned_hosts
from tests.kube.test_live_default_spread import names, owned, served, spreading, workload
from tests.kube.test_live_gates import gated, racks
from tests.kube.test_live_places import HOSTS, question, until_none_is_left
from tests.kube.test_live_places import real as of_workload
from tests.kube.test_live_volume_binding import claiming, hosts, storing
from tests.kube.troubled import REFUSED, trouble, until_refused

#: On a machine that does much else besides, one wait alone may take a minute.
pytestmark = pytest.mark.timeout(400)


async def explained(
    it: World, control_plane: ControlPlane, subject: str, *arguments: str, asks: str = "off"
) -> Any:
    options = ("-n", it.namespace, "--scheduler-name", it.name, "--scheduler", asks, *arguments)
    access = ("--kubeconfig", control_plane.kubeconfig, "-o", "json")
    done = await asyncio.to_thread(closeby, "explain", subject, *options, *access)
    assert (done.exit_code, done.stderr) == (0, ""), done.stderr
    return json.loads(done.stdout)


def test_a_pod_with_default_spread(bare_control_plane: ControlPlane, tmp_path: Path) -> None:
    """The node in the other zone is full."""
    nodes = zoned_hosts()
    first, second = names(nodes)
    file = tmp_path / "spreading.yaml"
    (entry,) = spreading("DoNotSchedule").plugins
    file.write_text(yaml.safe_dump({"plugins": [{"name": entry.name, "arguments": dict(entry.arguments)}]}))

    async def run() -> None:
        async with served(bare_control_plane, *nodes) as (it, _):
            made = await workload(it, "web")
            await it.create(owned(it, "web-0", made, first), it.pod("full", 8, nodeName=second))
            async with it.scheduling(spreading("DoNotSchedule")):
                await it.create(owned(it, "web-1", made))
                said = await it.refusal("web-1", "nodes take it")
                found = await explained(it, bare_control_plane, "pod/web-1", "--config", str(file))
                assert found["now"]["reason"] == said.partition(":")[0]
                assert found["rejected"][first]["reason"] == "TopologySpreadViolation"

    asyncio.run(run())


def test_a_pod_whose_volume_was_refused(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("closeby.cluster.volumes_by_class.INITIAL_BACKOFF", 600.0)
    nodes = hosts(2)

    async def run() -> None:
        async with storing(control_plane, namespace, *nodes) as (it, _, made), it.scheduling() as scheduler:
            server = Server(ListenAddress("127.0.0.1", 0), Health(), Meters())
            server.story = partial(story_json, scheduler.engine, it.name)
            assert await server.open() is None
            try:
                made.full |= set(names(nodes))
                await made.claim("data")
                await it.create(claiming(it, "p", "data"))
                said = await it.refusal("p", "is not tried again")
                url = f"http://127.0.0.1:{server.port}"
                found = await explained(it, control_plane, "pod/p", asks=url)
            finally:
                await server.close()
            assert found["now"]["reason"] == said.partition(":")[0] == "VolumeNotBindable"
            for name in names(nodes):
                assert "is not tried again" in found["rejected"][name]["message"]
            # That no node is tried can't be known without asking; what the pod says can.
            alone = await explained(it, control_plane, "pod/p")
            assert (alone["reason"], alone["now"]["reason"]) == ("VolumeNotBindable", None)

    asyncio.run(run())


def test_a_binding_that_is_refused(control_plane: ControlPlane, namespace: str) -> None:
    """Whoever is asked: the scheduler, the PodGroup's status, or the pod."""

    async def run() -> None:
        async with trouble(control_plane, namespace) as (it, proxy, _), it.scheduling() as scheduler:
            server = Server(ListenAddress("127.0.0.1", 0), Health(), Meters())
            server.story = partial(story_json, scheduler.engine, it.name)
            assert await server.open() is None
            proxy.inject("POST", "/binding", Refuse(422, reason="Invalid"), 100_000)
            try:
                await it.gang("g", 2, required="rack")
                await it.create(it.pod("alone"))
                await until_refused(it, "g-0", "g-1", "alone")
                await until_said(it, "g", REFUSED)
                for asks in (f"http://127.0.0.1:{server.port}", "off"):
                    found = await explained(it, control_plane, "podgroup/g", asks=asks)
                    assert (found["reason"], found["gang"]["reason"]) == (REFUSED, REFUSED)
                    assert "Invalid (422): injected by a test" in found["gang"]["message"]
                    assert {one["reason"] for one in found["pods"]} == {REFUSED}
                    found = await explained(it, control_plane, "pod/alone", asks=asks)
                    assert found["reason"] == REFUSED
            finally:
                await server.close()
            proxy.forgive()
            await it.bound(3)

    asyncio.run(run())


def test_gated_pods(control_plane: ControlPlane, namespace: str) -> None:
    """They wait for closeby, whatever scheduler they name; then for the one that they name."""

    async def run() -> None:
        async with gated(control_plane, namespace, *racks(2)) as it, it.scheduling(gates=True):
            await it.gang("wide", 9, required="rack")
            said = await until_said(it, "wide", "TopologyPlacementFailed")
            await it.create(it.pod("huge", 5))
            alone = await it.refusal("huge")
            found = await explained(it, control_plane, "podgroup/wide")
            assert found["reason"] == found["now"]["reason"] == said["reason"]
            assert found["now"]["message"] in said["message"] or said["message"] in found["now"]["message"]
            found = await explained(it, control_plane, "pod/huge")
            assert found["now"]["reason"] == alone.partition(":")[0]
            await it.gang("fits", 8, required="rack")
            nodes = await it.ungated(8)
            await it.create(it.pod("thief", 1, nodeName=nodes["fits-3"], schedulingGates=[]))
            found = await explained(it, control_plane, "podgroup/fits")
            assert found["now"]["reason"] is not None
            (recorded,) = (one for one in found["recorded"] if one["type"] == "Scheduled")
            assert recorded["reason"] == "Starting"

    asyncio.run(run())


def test_places_that_are_held(control_plane: ControlPlane, namespace: str) -> None:
    """What does not fit beside them says for whom they are; a pod of that Workload takes its own."""

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling(own_namespace=namespace):
            await it.declare_group("question", question(it, 4))
            await until_said(it, "question", "Placed")
            await it.create(it.pod("large", 8))
            await it.bound(1)
            await it.create(it.pod("other", 4))
            said = await it.refusal("other")
            await until_none_is_left(it)
            found = await explained(it, control_plane, "pod/other")
            assert found["now"]["reason"] == said.partition(":")[0] == "InsufficientResources"
            jobs = {one["name"] for each in found["counterfactuals"] for one in each.get("jobs", ())}
            assert f"workload/{namespace}/train" in jobs
            sentences = [one["sentence"] for one in found["counterfactuals"]]
            assert any(f"held for Workload {namespace}/train" in one for one in sentences)
            mine = of_workload(it, "real-0")
            mine["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
            await it.create(mine)
            waits = await explained(it, control_plane, "pod/real-0")
            assert waits["now"]["reason"] == "SchedulingGated"

    asyncio.run(run())


def test_a_plan_of_preemption(control_plane: ControlPlane, namespace: str) -> None:
    """The gang waits for its victims; the nodes that they leave are not for others of its priority."""

    async def run() -> None:
        async with full_racks(control_plane, namespace, preempting()) as (it, proxy, classes):
            proxy.inject("POST", "/pods/cheap-1/eviction", Refuse(429, {"Retry-After": "1"}), times=10**6)
            await gang(it, "train", 2, classes[1_000])
            await until(lambda: it.events("Preempted"))
            said = await until_said(it, "train", "GangDoesNotFit")

            async def gone() -> bool:
                return "cheap-0" not in await it.pods()

            await until(gone)
            await it.create(it.pod("next", priorityClassName=classes[20]))
            later = await it.refusal("next", "NodeReserved")
            found = await explained(it, control_plane, "podgroup/train")
            assert found["now"]["reason"] == said["reason"]
            (plan,) = found["preemptions"]
            assert {name.partition("/")[2] for name in plan["victims"]} >= {"cheap-1"}
            found = await explained(it, control_plane, "pod/next")
            assert found["now"]["reason"] == later.partition(":")[0]

    asyncio.run(run())
