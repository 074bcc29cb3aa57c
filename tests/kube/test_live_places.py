"""Places for pods to come, asked for by a PodGroup in closeby's own namespace, on a real API server."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.cli.calling import closeby
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import node
from tests.kube.faulty_proxy import Refuse
from tests.kube.live import through_proxy, unique
from tests.kube.live_world import (
    RACK,
    ZONE,
    World,
    behind_proxy,
    condition,
    group_of,
    host,
    planned,
    replica,
    until,
    until_logged,
    until_said,
    world,
)
from tests.kube.test_live_gangs import leader_of, stands_by
from tests.kube.test_live_volume_binding import storing
from tests.kube.test_live_volumes import disks

WORKLOAD = "closeby.dev/workload"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def question(it: World, count: int, *, uid: str = "0123", required: str = RACK) -> Object:
    """The spec of a PodGroup that asks for places in one rack."""
    pod = it.pod("none", 2)
    annotations = {
        "kai.scheduler/topology": it.topology,
        "kai.scheduler/topology-required-placement": required,
    }
    template = {"metadata": {"annotations": annotations}, "spec": pod["spec"]}
    return {
        "placesFor": {
            "workload": {"namespace": it.namespace, "name": "train", "uid": uid},
            "podSets": [{"name": "main", "count": count, "template": template}],
        }
    }


def real(it: World, name: str, *, uid: str = "0123") -> Object:
    """A pod of that Workload."""
    pod = it.pod(name, 2)
    pod["metadata"] |= {"annotations": {WORKLOAD: uid}, "labels": {"kueue.x-k8s.io/podset": "main"}}
    return pod


async def until_none_is_left(it: World) -> None:
    """Waits until no other namespace has such a PodGroup, as other tests' that are going just now have.

    By them a command knows in which namespace closeby runs.
    """

    async def so() -> bool:
        found = (await it.api.get("/apis/closeby.dev/v1alpha1/podgroups"))["items"]
        asking = {one["metadata"]["namespace"] for one in found if "placesFor" in one["spec"]}
        return asking <= {it.namespace}

    await until(so)


def listed(it: World, since: int = 0) -> set[tuple[object, object]]:
    """Kinds, with their API groups, that the scheduler has listed, by its log from a line on."""
    return {(fields["kind"], fields["api"]) for text, fields in it.lines[since:] if text == "listed"}


GPUS = {"nvidia.com/gpu": "8"}
HOSTS = [host("a1", "r1", 4), host("a2", "r1", 4), host("b1", "r2", 8)]


def test_places_are_held_said_and_taken_over_a_restart(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it:
            async with it.scheduling(own_namespace=namespace):
                await it.declare_group("question", question(it, 4))
                placed = await until_said(it, "question", "Placed")
                assert placed["status"] == "True"
                held = planned(await group_of(it, "question"))
                assert sorted(held) == [f"train-main-{i}" for i in range(4)]
                # There is room for four in the other rack, or here if nothing was held.
                await it.create(*(it.pod(f"other-{i}", 2) for i in range(5)))
                others = await it.bound(4)
                assert set(others.values()).isdisjoint(held.values())
            async with it.scheduling(own_namespace=namespace):
                await it.create(*(real(it, f"real-{i}") for i in range(4)))
                bound = await it.bound(8)
                mine = sorted(node for name, node in bound.items() if name.startswith("real"))
                assert mine == sorted(held.values())
                await it.delete("other-4")

                async def taken() -> bool:
                    status = (await group_of(it, "question"))["status"]
                    return bool(status["scheduled"] == 0)

                await until(taken)
            async with it.scheduling(own_namespace=namespace) as scheduler:
                assert not any("main" in pod.name for pod in scheduler.engine.state.pods.values())

    asyncio.run(run())


def test_a_pod_that_ends_while_no_scheduler_is_there_leaves_its_place_to_the_next(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it:
            async with it.scheduling(own_namespace=namespace):
                await it.declare_group("question", question(it, 4))
                await until_said(it, "question", "Placed")
                await it.create(*(real(it, f"real-{i}") for i in range(4)))
                before = await it.bound(4)

                async def written() -> bool:
                    found = await group_of(it, "question")
                    return found["status"]["scheduled"] == 0 and len(planned(found)) == 4

                await until(written)
            await it.delete("real-1")
            # There is room for four in the other rack, and where that pod was.
            await it.create(*(it.pod(f"other-{i}", 2) for i in range(5)))
            async with it.scheduling(own_namespace=namespace):
                await it.bound(7)
                await it.refusal("other-4", "InsufficientResources")
                await it.create(real(it, "again"))
                assert (await it.bound(8))["again"] == before["real-1"]

    asyncio.run(run())


def test_pods_whose_bindings_fail_before_a_restart_find_their_places(
    control_plane: ControlPlane, namespace: str
) -> None:
    """They are in segments: without their places nothing would be known of where they may go."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy):
            asked = question(it, 4)
            (one,) = asked["placesFor"]["podSets"]
            one["template"]["metadata"]["annotations"] = {
                "kai.scheduler/topology": it.topology,
                "kai.scheduler/segment-size": "2",
                "kai.scheduler/segment-topology-required-placement": RACK,
            }
            pods = [real(it, f"real-{i}") for i in range(4)]
            for i, pod in enumerate(pods):
                pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = str(i)
            proxy.inject("POST", "/pods/real-1/binding", Refuse(503), times=1000)
            proxy.inject("POST", "/pods/real-3/binding", Refuse(503), times=1000)
            async with it.scheduling(own_namespace=namespace):
                await it.declare_group("question", asked)
                await until_said(it, "question", "Placed")
                held = planned(await group_of(it, "question"))
                await it.create(*pods)
                await it.bound(2)

                async def written() -> bool:
                    found = await group_of(it, "question")
                    return found["status"]["scheduled"] == 0 and planned(found) == held

                await until(written)
            proxy.forgive()
            async with it.scheduling(own_namespace=namespace):
                bound = await it.bound(4)
                assert bound == {f"real-{i}": held[f"train-main-{i}"] for i in range(4)}

    asyncio.run(run())


def test_a_replica_that_stood_by_holds_the_places_of_the_one_before_it(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", namespace)

    async def run() -> None:
        async with (
            behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy),
            through_proxy(control_plane.access()) as (other_proxy, _),
            replica(it, proxy, tmp_path) as first,
        ):
            await until(lambda: leader_of(it.api, namespace))
            async with replica(it, other_proxy, tmp_path):
                await until(lambda: stands_by(other_proxy))
                # The other rack would do as well once its node is empty.
                await it.create(it.pod("early", 8))
                await it.bound(1)
                await it.declare_group("question", question(it, 4))
                await until_said(it, "question", "Placed")
                held = planned(await group_of(it, "question"))
                first.send_signal(signal.SIGKILL)
                await it.delete("early")
                await it.create(*(it.pod(f"other-{i}", 2) for i in range(5)))
                others = await it.bound(4)
                assert set(others.values()).isdisjoint(held.values())
                await it.create(*(real(it, f"real-{i}") for i in range(4)))
                bound = await it.bound(8)
                mine = sorted(node for name, node in bound.items() if name.startswith("real"))
                assert mine == sorted(held.values())

    asyncio.run(run())


def test_places_are_held_where_the_volume_of_the_pods_is(control_plane: ControlPlane, namespace: str) -> None:
    """No pod has a claim when the places are asked for: the volumes are listed for the places."""

    async def run() -> None:
        far, near = (node(unique(name), labels={ZONE: name, RACK: "r1"}, allocatable=GPUS) for name in "ab")
        async with world(control_plane, namespace, far, near) as it, disks(it) as its_disks:
            await its_disks.bound("data", "b", mode="ReadWriteMany")
            asked = question(it, 2)
            (one,) = asked["placesFor"]["podSets"]
            volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
            one["template"]["spec"]["volumes"] = volumes

            async def held() -> bool:
                found = planned(await group_of(it, "question"))
                return len(found) == 2 and set(found.values()) == {near["metadata"]["name"]}

            async with it.scheduling(own_namespace=namespace):
                await it.declare_group("question", asked)
                await until(held)
            async with it.scheduling(own_namespace=namespace):
                pods = [real(it, f"real-{i}") for i in range(2)]
                for pod in pods:
                    pod["spec"]["volumes"] = volumes
                await it.create(*pods)
                assert set((await it.bound(2)).values()) == {near["metadata"]["name"]}

    asyncio.run(run())


@pytest.mark.timeout(400)
def test_each_place_has_an_ephemeral_volume_that_its_pod_gets(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The claims are made with the pods, by a real controller. Two places ask for two volumes."""
    racks = {"z0": "r1", "z1": "r1", "z2": "r2"}
    near, other, far = (
        node(unique("n"), labels={ZONE: zone, RACK: rack}, allocatable=GPUS) for zone, rack in racks.items()
    )

    async def run() -> None:
        async with storing(control_plane, namespace, near, other, far) as (it, _, made):
            volumes = {await made.volume(zone) for zone in ("z2", "z2")}
            await made.volume("z0")
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": made.by_hand,
            }
            at_once = unique("at-once")
            scratch = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}]

            def with_scratch(count: int, uid: str) -> Object:
                asked = question(it, count, uid=uid)
                asked["placesFor"]["podSets"][0]["template"]["spec"]["volumes"] = scratch
                return asked

            async with it.scheduling(own_namespace=namespace):
                await it.declare_group("question", with_scratch(2, "0123"))
                await until_said(it, "question", "Placed")
                held = planned(await group_of(it, "question"))
                assert set(held.values()) == {far["metadata"]["name"]}
                await it.declare_group("another", with_scratch(2, "4567"))
                refused = await until_said(it, "another", "GangDoesNotFit")
                assert "ephemeral volume scratch" in refused["message"]
                # Where the volume of a class that binds at once will be is not known before.
                await it.api.create(
                    CLASSES, {"metadata": {"name": at_once}, "provisioner": "disk.example.com"}
                )
                claim["storageClassName"] = at_once
                await it.declare_group("unknown", with_scratch(1, "8901"))
                placed = await until_said(it, "unknown", "Placed")
                assert "without a look at ephemeral volume scratch" in placed["message"]
                claim["storageClassName"] = made.by_hand
            async with it.scheduling(own_namespace=namespace):
                pods = [real(it, f"real-{i}") for i in range(2)]
                for pod in pods:
                    pod["spec"]["volumes"] = scratch
                await it.create(*pods)
                assert set((await it.bound(2)).values()) == {far["metadata"]["name"]}
                assert set((await made.bound()).values()) == volumes
            await it.api.delete(f"{CLASSES}/{at_once}")

    asyncio.run(run())


def test_nothing_is_said_of_places_before_the_volumes_are_listed(
    control_plane: ControlPlane, namespace: str
) -> None:
    """What reads the answer would reject the Workload, or take its quota after a restart."""
    hosts = [node(unique("n"), labels={ZONE: "a", RACK: "r1"}, allocatable=GPUS)]

    async def run() -> None:
        async with storing(control_plane, namespace, *hosts) as (it, proxy, made):
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            claim["storageClassName"] = made.storage_class
            asked = question(it, 1)
            template = asked["placesFor"]["podSets"][0]["template"]
            scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
            template["spec"]["volumes"] = [scratch]
            proxy.inject("GET", "/storageclasses", Refuse(503), times=1000)
            async with it.scheduling(own_namespace=namespace):
                without_volumes = listed(it)
                await it.declare_group("question", asked)
                await until_logged(it, "waits")
                await asyncio.sleep(3)
                assert await condition(it, "question") == {}
                proxy.forgive()
                await until_said(it, "question", "Placed")
            held = planned(await group_of(it, "question"))
            proxy.inject("GET", "/storageclasses", Refuse(503), times=1000)
            before = len(it.lines)

            async def others_are_listed() -> bool:
                return listed(it, before) >= without_volumes - {("PodGroup", "closeby.dev")}

            # Heard of before, the question would have the scheduler wait for the volumes with all it does.
            proxy.before("GET", "/apis/closeby.dev/v1alpha1/podgroups", lambda: until(others_are_listed))
            async with it.scheduling(own_namespace=namespace):
                # There is room for three beside the place.
                await it.create(*(it.pod(f"other-{i}", 2) for i in range(4)))
                await it.bound(3)
                await asyncio.sleep(3)
                assert len(await it.placed()) == 3
                assert (await condition(it, "question"))["status"] == "True"
                proxy.forgive()
                await until_logged(it, "placed")
                await asyncio.sleep(1)
                assert (await condition(it, "question"))["status"] == "True"
            assert planned(await group_of(it, "question")) == held
            # A right that is missing is said, and is no reason that nothing could cure.
            await it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/question")
            proxy.inject("GET", "/storageclasses", Refuse(403), times=1000)
            async with it.scheduling(own_namespace=namespace):
                await it.declare_group("hidden", asked)
                said = await until_said(it, "hidden", "VolumeNotBindable")
                assert "storageclasses" in said["message"]
                assert "may not list" in said["message"]

    asyncio.run(run())


def test_what_fits_in_no_rack_says_so_and_places_are_given_back(
    control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, it.scheduling(own_namespace=namespace):
            await it.declare_group("placed", question(it, 1, uid="4567"))
            await until_said(it, "placed", "Placed")
            await it.declare_group("question", question(it, 5))
            refused = await until_said(it, "question", "TopologyPlacementFailed")
            assert refused["status"] == "False"
            await until_none_is_left(it)
            cluster = ("--kubeconfig", control_plane.kubeconfig, "--scheduler", "off", "-n", it.namespace)
            command = ("explain", *cluster, "--scheduler-name", it.name)
            explained = await asyncio.to_thread(closeby, *command, "train")
            assert explained.exit_code == 2
            assert "TopologyPlacementFailed" in explained.stderr
            assert "1 place held" in explained.stderr
            # What stands in for pods to come, and waits, is no pod that another question knows.
            await it.create_group("g", 2)
            await it.create(*(it.pod(f"g-{i}", 1, gang="g") for i in range(2)))
            await it.bound(2)
            assert (await asyncio.to_thread(closeby, *command, "g")).exit_code == 0
            await it.delete("g-0", "g-1")
            await it.api.delete(f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/placed")
            await it.change_group("question", {"spec": question(it, 4)})
            await until_said(it, "question", "Placed")
            path = f"/apis/closeby.dev/v1alpha1/namespaces/{namespace}/podgroups/question"
            await it.api.delete(path)
            await it.create(*(it.pod(f"other-{i}", 2) for i in range(8)))
            await it.bound(8)

    asyncio.run(run())


def test_places_that_are_lost_once_pods_run_are_said(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS[:2]) as it,
            it.scheduling(own_namespace=namespace),
        ):
            await it.declare_group("question", question(it, 4))
            await until_said(it, "question", "Placed")
            held = planned(await group_of(it, "question"))
            await it.create(*(real(it, f"real-{i}") for i in range(2)))
            bound = await it.bound(2)
            (gone,) = set(held.values()) - set(bound.values())
            await it.api.delete(f"/api/v1/nodes/{gone}")

            async def said() -> bool:
                return "0 places held, 2 lost" in (await condition(it, "question"))["message"]

            await until(said)
            assert (await condition(it, "question"))["status"] == "True"

    asyncio.run(run())


def test_pods_that_are_all_ending_when_the_scheduler_starts_take_no_word_back(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Their controller makes others. What reads the answer would evict these meanwhile."""

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS[:2]) as it:
            pods = [real(it, f"real-{i}") for i in range(4)]
            async with it.scheduling(own_namespace=namespace):
                await it.declare_group("question", question(it, 4))
                await until_said(it, "question", "Placed")
                for pod in pods:
                    pod["metadata"]["finalizers"] = ["tests.closeby.dev/kept"]
                await it.create(*pods)
                await it.bound(4)

                async def taken() -> bool:
                    return bool((await group_of(it, "question"))["status"]["scheduled"] == 0)

                await until(taken)
            await it.delete(*(pod["metadata"]["name"] for pod in pods))
            async with it.scheduling(own_namespace=namespace):

                async def looked_at() -> bool:
                    return "4 lost: " in (await condition(it, "question"))["message"]

                await until(looked_at)
                said = await condition(it, "question")
                assert (said["status"], said["reason"]) == ("True", "Placed")
                for pod in pods:
                    path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
                    await it.api.patch(path, {"metadata": {"finalizers": None}})

                async def held() -> bool:
                    return bool((await group_of(it, "question"))["status"]["scheduled"] == 4)

                await until(held)

    asyncio.run(run())


def test_no_other_namespace_can_ask_for_places(control_plane: ControlPlane, namespace: str) -> None:
    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            it.scheduling(own_namespace="closeby-system"),
        ):
            await it.declare_group("question", question(it, 4))
            await it.create(*(it.pod(f"other-{i}", 2) for i in range(8)))
            await it.bound(8)
            await until_logged(it, "problem")
            assert await condition(it, "question") == {}
            assert any("placesFor" in str(one["field"]) for one in it.said("problem"))

    asyncio.run(run())
