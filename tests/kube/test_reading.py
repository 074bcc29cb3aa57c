"""`closeby explain` and `closeby topology` on a real API server say what they say of its objects in files."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from closeby.kube.state.following import FOLLOWED
from closeby.kube.state.reading import WholeCluster, read_cluster
from closeby.kube.watch.resources import NODES, PODS, Discovery
from closeby.objects.reasons import Problem
from closeby.report.documents.sentences import BY_THIS_COMMAND
from tests.cli.calling import closeby
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.control_plane.nodes import joined, node
from tests.kube.faulty_proxy import Cut, Refuse
from tests.kube.live import direct, through_proxy, unique
from tests.kube.live_world import RACK, ZONE, World, until
from tests.measurements.watching import links

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Cluster:
    """Nodes, a topology and pods on the control plane, and the commands that look at them."""

    def __init__(self, world: World, kubeconfig: Path, folder: Path) -> None:
        self.world = world
        self._kubeconfig = kubeconfig
        self._folder = folder

    async def live(self, *arguments: str) -> Any:
        """What a command says of the cluster."""
        return await self._report(*arguments, "--kubeconfig", str(self._kubeconfig))

    async def live_and_of_files(self, *arguments: str) -> tuple[Any, Any]:
        """What it says of the cluster, and of all that `kubectl get -A -o json` would print.

        What other tests left may be going: both are of a moment in which nothing changed.
        """
        while True:
            before = await self._items()
            live = await self.live(*arguments)
            if before == await self._items():
                break
        file = self._folder / "cluster.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": before}))
        return live, await self._report(*arguments, "-f", str(file))

    async def _items(self) -> list[Object]:
        items: list[Object] = []
        async with direct(self._kubeconfig) as transport:
            served = await Discovery(transport, FOLLOWED).served()
        assert isinstance(served, tuple)
        for kind in (NODES, PODS, *served):
            found = await self.world.api.get(kind.collection())
            items += [{"apiVersion": kind.api_version, "kind": kind.kind, **one} for one in found["items"]]
        return items

    async def _report(self, *arguments: str) -> Any:
        done = await asyncio.to_thread(closeby, *arguments, "--scheduler-name", self.world.name, "-o", "json")
        assert (done.exit_code, done.stderr) == (0, ""), done.stderr
        return json.loads(done.stdout)


@asynccontextmanager
async def cluster(control_plane: ControlPlane, namespace: str, folder: Path) -> AsyncIterator[Cluster]:
    """Two racks of two nodes with 8 GPUs each."""
    nodes = [
        node(unique(f"{rack}-n{i}"), labels={ZONE: "z", RACK: rack}, allocatable={"nvidia.com/gpu": "8"})
        for rack in ("r1", "r2")
        for i in range(2)
    ]
    async with (
        Api(control_plane.access()) as api,
        direct(control_plane.kubeconfig) as transport,
        joined(api, nodes),
    ):
        await define(api)
        world = World(api, transport, namespace)
        async with world.declared():
            yield Cluster(world, control_plane.kubeconfig, folder)


def run(
    control_plane: ControlPlane, namespace: str, folder: Path, look: Callable[[Cluster], Awaitable[None]]
) -> None:
    async def all_of_it() -> None:
        async with cluster(control_plane, namespace, folder) as it:
            await look(it)

    asyncio.run(all_of_it())


def test_a_cluster_and_its_objects_in_a_file_say_the_same(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A gang that gets a rack, one that is too large for one, and a pod that goes anywhere."""

    async def look(it: Cluster) -> None:
        await it.world.gang("fits", 2, required="rack", gpus=8)
        await it.world.gang("wide", 3, required="rack", gpus=8)
        await it.world.create(it.world.pod("solo"))
        for subject in ("podgroup/fits", "podgroup/wide", "pod/wide-1", "pod/solo"):
            arguments = ("explain", subject, "--namespace", namespace)
            live, of_files = await it.live_and_of_files(*arguments)
            # Only in a cluster it is said that no scheduler has decided about it.
            assert live.pop("decided")["source"] == "command" and live.pop("notAsked")
            assert {one["source"] for one in live.pop("decisions")} == {"command"}
            assert live.pop("now")["reason"] == live["reason"]
            live["sentences"].remove(BY_THIS_COMMAND)
            assert live == of_files
            expected = "GangDoesNotFit" if "wide" in subject else None
            assert live["reason"] == expected
        for more in ((), ("--after",)):
            shown = ("topology", "--topology", it.world.topology, *more)
            live, of_files = await it.live_and_of_files(*shown)
            assert live == of_files
            whole = live["topologies"][0]["domains"][0]
            assert whole["capacity"]["nvidia.com/gpu"] == 32
            assert whole["used"].get("nvidia.com/gpu", 0) == (17 if more else 0)

    run(control_plane, namespace, tmp_path, look)


def test_an_explanation_says_how_good_its_measurements_are(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Of a cluster they are taken as a scheduler takes them: what is too old is done without."""
    watcher, config = tmp_path / "watcher.json", tmp_path / "config.yaml"
    arguments = {"watcherAddress": str(watcher), "maxAgeSeconds": 600}
    entry = {"name": "CheckRiskNodeBandwidth", "arguments": arguments}
    config.write_text(yaml.safe_dump({"plugins": [entry]}))

    async def look(it: Cluster) -> None:
        await it.world.create(it.world.pod("solo"))
        host = sorted(one["metadata"]["name"] for one in (await it.world.api.get("/api/v1/nodes"))["items"])[
            0
        ]

        async def told() -> tuple[str, ...]:
            found = await it.live("explain", "pod/solo", "-n", namespace, "--config", str(config))
            assert found["pods"][0]["phase"] == "Scheduled"
            return tuple(one["message"] for one in found["conditions"])

        (message,) = await told()
        assert message == f"{watcher} can't be read: No such file or directory"
        watcher.write_text(links(f"{host}: 1 1", time.time() - 100))
        assert all(one.startswith("nodes are not measured") for one in await told())
        measured = time.time() - 700
        watcher.write_text(links(f"{host}: 1 1", measured))
        (message,) = await told()
        age = re.fullmatch(rf"what {watcher} knows was measured (\d+) s ago", message)
        assert age is not None and 700 <= int(age[1]) <= round(time.time() - measured), message

    run(control_plane, namespace, tmp_path, look)


def test_what_the_scheduler_wrote_is_shown_and_agrees(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A gang is bound and a pod refused by a scheduler at work; then it is asked why."""

    async def look(it: Cluster) -> None:
        async with it.world.scheduling():
            await it.world.gang("train", 2, required="rack", gpus=8)
            await it.world.bound(2)
            await it.world.create(it.world.pod("huge", 9))
            said = await it.world.refusal("huge")
        found = await it.live("explain", "pod/huge", "-n", namespace)
        assert (found["reason"], found["now"]["reason"]) == ("Unschedulable", "InsufficientResources")
        (recorded,) = found["recorded"]
        assert (recorded["object"], recorded["type"]) == (f"Pod/{namespace}/huge", "PodScheduled")
        assert (recorded["reason"], recorded["message"]) == ("Unschedulable", said)
        assert said == found["pods"][0]["message"]
        assert recorded["since"].endswith("Z") and found["decided"]["time"] == recorded["since"]
        placed = await it.live("explain", "train", "-n", namespace)
        assert "reason" not in placed["lastDecision"]
        assert placed["lastDecision"]["time"] in placed["sentences"][1]
        assert placed["gang"]["domain"][0] == "z" and placed["gang"]["span"]["rack"] == 1

    run(control_plane, namespace, tmp_path, look)


def test_what_would_have_to_be_different_in_a_cluster(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A rack is full, in the other a pod takes a node until a known time."""

    async def look(it: Cluster) -> None:
        async with it.world.scheduling():
            await it.world.gang("train", 2, required="rack", gpus=8)
            await it.world.bound(2)
            pod = it.world.pod("solo", 8)
            pod["metadata"]["annotations"] = {"closeby.dev/expected-end": "2030-01-31T12:00:00Z"}
            await it.world.create(pod)
            await it.world.bound(3)
        await it.world.gang("next", 2, required="rack", gpus=8)
        before = (await it.world.api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]
        found = (await it.live("explain", "next", "-n", namespace))["counterfactuals"]
        ends = [one["jobs"] for one in found if one["kind"] == "ended" and one["fits"]]
        assert ends == [
            [{"name": f"pod/{namespace}/solo", "pods": 1, "endsBy": "2030-01-31T12:00:00Z"}],
            [{"name": f"podgroup/{namespace}/train", "pods": 2, "endsBy": None}],
        ]
        (short,) = [one["short"] for one in found if one["kind"] == "short"]
        assert (short["fits"], short["nodes"], short["inTheWay"]) == (1, 1, [f"{namespace}/solo"])
        # It was only thought of.
        assert before == (await it.world.api.get(f"/api/v1/namespaces/{namespace}/pods"))["items"]

    run(control_plane, namespace, tmp_path, look)


def test_a_pod_of_another_scheduler_is_left_to_it(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async def look(it: Cluster) -> None:
        await it.world.create(it.world.pod("theirs", schedulerName="gpu-scheduler"))
        found = await it.live("explain", "theirs", "-n", namespace)
        assert found["sentences"] == [f"{namespace}/theirs waits: left to the scheduler gpu-scheduler."]

    run(control_plane, namespace, tmp_path, look)


def test_a_pod_whose_annotations_ask_for_a_gang_waits_for_its_podgroup(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """In files a gang is made of it; in a cluster that is a controller's business, as for the scheduler."""

    async def look(it: Cluster) -> None:
        pod = it.world.pod("asks")
        pod["metadata"]["annotations"] = {
            "kai.scheduler/topology": it.world.topology,
            "kai.scheduler/topology-required-placement": RACK,
        }
        await it.world.create(pod)
        found = await it.live("explain", "asks", "-n", namespace)
        assert (found["reason"], found["gang"]) == ("Unsupported", None)
        assert "without a PodGroup" in found["pods"][0]["message"]

    run(control_plane, namespace, tmp_path, look)


def test_a_pod_waits_for_the_word_of_a_pod_grouper_that_is_at_work(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Whether one is shows in its words on other pods of the scheduler, and can be said."""

    async def create_owned(it: Cluster, name: str, **metadata: Any) -> None:
        """A pod of a workload of some kind; a ConfigMap will do, and nobody adds pods to it."""
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        found = await it.world.api.create(path, {"metadata": {"name": name}})
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": found["metadata"]["uid"]}
        made = it.world.pod(name)
        made["metadata"] |= {"ownerReferences": [owner | {"controller": True}], **metadata}
        await it.world.create(made)

    async def look(it: Cluster) -> None:
        async def waits(*more: str, name: str = "early") -> bool:
            found = await it.live("explain", f"pod/{name}", "-n", namespace, *more)
            (pod,) = found["pods"]
            if pod["phase"] == "Scheduled":
                return False
            assert pod["reason"] == "Unsupported"
            assert "what ConfigMap/early asks for, which the pod-grouper has not said yet" in pod["message"]
            assert "does not support" not in pod["message"]
            return True

        await create_owned(it, "early")
        await it.world.create(it.world.pod("bare"))
        assert not await waits()
        assert await waits("--pod-grouper")
        assert not await waits("--pod-grouper", name="bare")

        await create_owned(it, "spoken-of", annotations={"closeby.dev/pod-group": "none"})
        assert await waits()
        assert not await waits("--no-pod-grouper")
        assert not await waits(name="spoken-of")
        await it.world.delete("spoken-of")
        assert not await waits()

        made = {"app.kubernetes.io/managed-by": "closeby-pod-grouper"}
        await it.world.declare_group("gang", {"minMember": 1}, labels=made)
        await it.world.create(it.world.pod("member", gang="gang"))
        assert await waits()
        assert not await waits(name="member")

    run(control_plane, namespace, tmp_path, look)


def test_a_name_means_what_lies_in_the_contexts_namespace(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """Another namespace has a pod of the same name. The environment names the kubeconfig, as with kubectl."""

    async def look(it: Cluster) -> None:
        await it.world.create(it.world.pod("same"))
        other = World(it.world.api, it.world.transport, "default", name=it.world.name)
        await other.create(other.pod("same"))
        try:
            here = changed(control_plane.kubeconfig, tmp_path / "here", namespace=namespace)
            asked = ("explain", "same", "--scheduler-name", it.world.name)
            done = await asyncio.to_thread(closeby, *asked, environment={"KUBECONFIG": str(here)})
            assert done.stdout.startswith(f"pod/{namespace}/same\n"), done.stderr
            elsewhere = changed(control_plane.kubeconfig, tmp_path / "elsewhere", namespace="kube-system")
            done = await asyncio.to_thread(closeby, *asked, "--kubeconfig", elsewhere)
            assert done.exit_code == 2 and f"pod/{namespace}/same" in done.stderr
        finally:
            await it.world.api.delete("/api/v1/namespaces/default/pods/same", {"gracePeriodSeconds": 0})

    run(control_plane, namespace, tmp_path, look)


def test_two_kinds_of_podgroups_with_one_name(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """closeby's own counts, as for the scheduler, and that there are two is told."""

    async def look(it: Cluster) -> None:
        async with direct(control_plane.kubeconfig) as transport:
            served = await Discovery(transport, FOLLOWED).served()
            assert isinstance(served, tuple)
            upstream = next(
                (x for x in served if (x.group, x.kind) == ("scheduling.k8s.io", "PodGroup")), None
            )
            if upstream is None:
                pytest.skip("the server has no PodGroups of its own")
            await it.world.create_group("twice", 3)
            body = {
                "apiVersion": upstream.api_version,
                "kind": "PodGroup",
                "metadata": {"name": "twice"},
                "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
            }
            await it.world.api.create(upstream.collection(namespace), body)
            found = await read_cluster(transport)
        assert isinstance(found, WholeCluster)
        assert [one.min_member for one in found.manifests.groups if one.namespace == namespace] == [3]
        (clash,) = [one for one in found.manifests.notices if one.object == f"PodGroup/{namespace}/twice"]
        assert "closeby.dev/v1alpha1" in clash.message and upstream.api_version in clash.message
        assert found.gang_kinds[f"{namespace}/twice"].group == "closeby.dev"

    run(control_plane, namespace, tmp_path, look)


def changed(kubeconfig: Path, to: Path, *, namespace: str = "", user: str = "") -> Path:
    """A kubeconfig like another one, for another namespace, or acting as another user."""
    document = yaml.safe_load(kubeconfig.read_text())
    if namespace:
        document["contexts"][0]["context"]["namespace"] = namespace
    if user:
        document["users"][0]["user"]["as"] = user
    to.write_text(yaml.safe_dump(document))
    return to


@contextmanager
def allowed(control_plane: ControlPlane, user: str, *resources: str) -> Iterator[None]:
    """A user may list these resources of the core group in all namespaces."""
    role = {
        "metadata": {"name": user},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["list"]}],
    }
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }

    async def give() -> None:
        async with Api(control_plane.access()) as api:
            await api.create(f"{RBAC}/clusterroles", role)
            await api.create(f"{RBAC}/clusterrolebindings", binding)

    async def take() -> None:
        async with Api(control_plane.access()) as api:
            await api.delete(f"{RBAC}/clusterrolebindings/{user}")
            await api.delete(f"{RBAC}/clusterroles/{user}")

    asyncio.run(give())
    try:
        yield
    finally:
        asyncio.run(take())


def looking_as(kubeconfig: Path, until_it_says: Callable[[str], bool]) -> Any:
    """`closeby topology`, as soon as the API server has learned of a role through its watch."""
    found: list[Any] = []

    async def said() -> bool:
        found.append(await asyncio.to_thread(closeby, "topology", "--kubeconfig", kubeconfig, "-o", "json"))
        return until_it_says(found[-1].stderr)

    asyncio.run(until(said))
    return found[-1]


def test_a_user_who_may_list_nothing(control_plane: ControlPlane, tmp_path: Path) -> None:
    done = closeby(
        "topology",
        "--kubeconfig",
        changed(control_plane.kubeconfig, tmp_path / "none", user=unique("nobody")),
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nodes can't be listed: Forbidden (403)" in done.stderr
    assert "--verb=list --resource=nodes,pods" in done.stderr


def test_kinds_that_a_user_may_not_list_are_left_out_and_reported(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    async def defined() -> None:
        async with Api(control_plane.access()) as api:
            await define(api)

    asyncio.run(defined())
    user = unique("reader")
    kubeconfig = changed(control_plane.kubeconfig, tmp_path / "reader", user=user)
    with allowed(control_plane, user, "nodes", "pods"):
        done = looking_as(kubeconfig, lambda stderr: not stderr.startswith("error"))
    assert done.exit_code == 0
    assert "let this user list podgroups.closeby.dev" in done.stderr
    errors = json.loads(done.stdout)["errors"]
    assert any(one.startswith("topologies.closeby.dev/v1alpha1 can't be read: Forbidden") for one in errors)


def test_a_server_with_trouble(control_plane: ControlPlane, namespace: str) -> None:
    """What passes is waited for; a kind that it can't give is left out only if that was asked for."""

    async def look() -> None:
        async with (
            Api(control_plane.access()) as api,
            through_proxy(control_plane.access()) as (proxy, transport),
        ):
            await define(api)
            world = World(api, transport, namespace)
            await world.create(*(world.pod(f"p{i}") for i in range(30)))
            proxy.inject("GET", "/api/v1/pods", Refuse(429, {"Retry-After": "0"}))
            proxy.inject("GET", "/api/v1/pods", Cut())
            progress: list[int] = []
            found = await read_cluster(transport, progress=progress.append)
            assert isinstance(found, WholeCluster)
            names = {pod.name for pod in found.manifests.pods if pod.namespace == namespace}
            assert names == {f"p{i}" for i in range(30)}
            assert progress[-1] >= 30 and progress == sorted(progress)
            proxy.inject("GET", "/topologies", Refuse(500), times=100)
            refused = await read_cluster(transport)
            assert isinstance(refused, Problem)
            assert "topologies.closeby.dev/v1alpha1 can't be read" in str(refused)
            assert "--keep-going" in refused.remedy
            without = await read_cluster(transport, keep_going=True)
            assert isinstance(without, WholeCluster)
            assert len(without.skipped) == 1 and not without.manifests.topologies

    asyncio.run(look())
