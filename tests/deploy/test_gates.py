"""The chart with ``scheduler.mode=gate``: a Job's pods are grouped, placed, and bound by kube-scheduler."""

import asyncio
from pathlib import Path

from closeby.reading.decoding.keys import PLACED_ON, PLACEMENT_GATE
from tests.control_plane.api import Api, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, kubelets, node
from tests.deploy.installed import allowed, installed, kubeconfig, running
from tests.deploy.test_rights import RACK, fabric, forbidden
from tests.kube.live import eventually

MODE = ("--set", "scheduler.mode=gate")
#: What the scheduler may do in the other mode, and needs not in this one.
NOT_NEEDED = [
    ("create", "pods:binding"),
    ("create", "pods:eviction"),
    ("patch", "persistentvolumeclaims"),
    ("patch", "persistentvolumes"),
    ("get", "persistentvolumeclaims"),
]


def job(name: str, members: int, topology: str, cpu: str) -> Object:
    """A Job that asks for one rack; nothing in its template names closeby but the gate."""
    annotations = {"kai.scheduler/topology": topology, "kai.scheduler/topology-required-placement": RACK}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
    spec = {
        "schedulingGates": [{"name": PLACEMENT_GATE}],
        "restartPolicy": "Never",
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"parallelism": members, "completions": members, "template": {"spec": spec}},
    }


def test_a_job_of_kube_scheduler_lands_in_one_rack(
    helm: Path, whole_control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    plane = whole_control_plane
    nodes = [node(f"{namespace}-{i}", labels={RACK: f"r{i // 2}"}) for i in range(6)]
    names = [one["metadata"]["name"] for one in nodes]
    racks = {one["metadata"]["name"]: one["metadata"]["labels"][RACK] for one in nodes}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    logs = {component: tmp_path / f"{component}.log" for component in ("scheduler", "controllers")}

    async def run() -> None:
        async with (
            Api(plane.access()) as api,
            joined(api, nodes),
            kubelets(api, names),
            installed(helm, api, namespace, *MODE) as release,
        ):
            user = release.user("scheduler")
            for verb, resource in NOT_NEEDED:
                assert not await allowed(api, user, verb, resource, namespace=namespace), (verb, resource)
            await api.create("/apis/closeby.dev/v1alpha1/topologies", fabric(namespace))
            scheduler = await kubeconfig(plane, api, release, "scheduler")
            controllers = await kubeconfig(plane, api, release, "controllers")

            async def bound() -> bool:
                found = (await api.get(pods))["items"]
                on = [one["spec"].get("nodeName") for one in found]
                if len(on) < 4 or not all(on):
                    return False
                assert len({racks[name] for name in on}) == 1
                assert [one["metadata"]["annotations"][PLACED_ON] for one in found] == on
                assert {one["spec"]["schedulerName"] for one in found} == {"default-scheduler"}
                return True

            with (
                plane.also("kube-scheduler"),
                running(release.arguments("scheduler", tmp_path), scheduler, logs["scheduler"]),
                running(release.arguments("controllers", tmp_path), controllers, logs["controllers"]),
            ):
                jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
                await api.create(jobs, job("train", 4, namespace, "16"))
                try:
                    await eventually(bound, 90)
                except TimeoutError as error:
                    raise AssertionError("\n".join(log.read_text() for log in logs.values())) from error
            await api.delete(f"/apis/closeby.dev/v1alpha1/topologies/{namespace}")
            assert [forbidden(log) for log in logs.values()] == [[], []]

    asyncio.run(run())
