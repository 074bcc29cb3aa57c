"""The control plane of the tests is a real one: it validates, binds, and brings a Job to its end."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest

from tests.control_plane.access import Access, read_kubeconfig
from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.clouds import COPIED_TO_PODS, binds_with_labels
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS, served
from tests.control_plane.nodes import RUN_SECONDS, joined, kubelets, node


def test_it_says_that_it_is_ready(control_plane: ControlPlane) -> None:
    async def ask() -> Object:
        async with Api(control_plane.access()) as api:
            return await api.get("/version")

    version = asyncio.run(ask())
    assert version["major"] == "1"
    if control_plane.ours:
        assert {"etcd", "kube-apiserver"} <= control_plane.usage().keys()
        assert all(usage.cpu_seconds > 0 for usage in control_plane.usage().values())


def test_an_ordinary_user_may_do_nothing_until_a_role_allows_it(
    own_control_plane: ControlPlane, namespace: str
) -> None:
    path = own_control_plane.ordinary_kubeconfig
    assert path is not None
    pods = f"/api/v1/namespaces/{namespace}/pods"
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    group = "rbac.authorization.k8s.io"
    role = {
        "metadata": {"name": "look"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    }
    binding = {
        "metadata": {"name": "may-look"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "look"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "ordinary"}],
    }

    async def ask() -> list[Any]:
        async with Api(own_control_plane.access()) as admin, Api(read_kubeconfig(path)) as ordinary:
            with pytest.raises(ApiError, match="403 Forbidden"):
                await ordinary.get(pods)
            await admin.create(f"{rbac}/roles", role)
            await admin.create(f"{rbac}/rolebindings", binding)
            # The API server learns of a role through a watch of its own.
            async with asyncio.timeout(60):
                while True:
                    try:
                        return list((await ordinary.get(pods))["items"])
                    except ApiError as error:
                        assert error.status == 403
                        await asyncio.sleep(0.05)

    assert asyncio.run(ask()) == []


def test_a_rule_of_a_custom_resource_rejects_a_bad_object(
    control_plane: ControlPlane, namespace: str
) -> None:
    """spec.least <= spec.most, said in CEL."""
    group = f"{namespace}.closeby.dev"
    rule = {"rule": "self.least <= self.most", "message": "least is above most"}
    spec = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in ("least", "most")},
        "x-kubernetes-validations": [rule],
    }
    definition = {
        "metadata": {"name": f"ranges.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "ranges", "singular": "range", "kind": "Range", "listKind": "RangeList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                }
            ],
        },
    }

    def bounds(name: str, least: int, most: int) -> Object:
        return {
            "apiVersion": f"{group}/v1",
            "kind": "Range",
            "metadata": {"name": name},
            "spec": {"least": least, "most": most},
        }

    async def ask() -> None:
        async with Api(control_plane.access()) as api:
            await api.create(CRDS, definition)
            try:
                async with asyncio.timeout(60):
                    await served(api, definition)
                ranges = f"/apis/{group}/v1/namespaces/{namespace}/ranges"
                await api.create(ranges, bounds("good", 1, 2))
                with pytest.raises(ApiError, match="least is above most") as refused:
                    await api.create(ranges, bounds("bad", 3, 2))
                assert refused.value.status == 422
            finally:
                await api.delete(f"{CRDS}/ranges.{group}")

    asyncio.run(ask())


def test_labels_and_annotations_of_a_binding_land_on_the_pod(
    control_plane: ControlPlane, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    binding = {
        "metadata": {"name": "w-0", "labels": {"rank": "3"}, "annotations": {"domain": "zone-a/rack-1"}},
        "target": {"kind": "Node", "name": f"{namespace}-n"},
    }

    async def bind() -> Object:
        async with Api(control_plane.access()) as api, joined(api, [node(f"{namespace}-n")]):
            if not await binds_with_labels(api):
                pytest.skip("labels of a binding land on the pod since Kubernetes 1.35")
            await api.create(pods, _pod("w-0"))
            await api.create(f"{pods}/w-0/binding", binding)
            with pytest.raises(ApiError, match="409 Conflict"):
                await api.create(f"{pods}/w-0/binding", binding)
            return await api.get(f"{pods}/w-0")

    pod = asyncio.run(bind())
    assert pod["spec"]["nodeName"] == f"{namespace}-n"
    # The API server adds the zone and the region of the node.
    assert pod["metadata"]["labels"]["rank"] == "3"
    assert pod["metadata"]["labels"].keys() - {"rank"} <= set(COPIED_TO_PODS)
    assert pod["metadata"]["annotations"] == {"domain": "zone-a/rack-1"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_of_16_pods_comes_to_its_end(whole_control_plane: ControlPlane, namespace: str) -> None:
    """The controller manager makes the pods, kube-scheduler binds them, the stand-in runs them for 1 s."""
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"metadata": {"annotations": {RUN_SECONDS: "1"}}, "spec": _pod("any")["spec"]}
    template["spec"] |= {"restartPolicy": "Never", "schedulerName": "default-scheduler"}
    job = {
        "metadata": {"name": "train"},
        "spec": {"completions": 16, "parallelism": 16, "template": template},
    }

    async def run() -> Object:
        nodes = [node(f"{namespace}-{number}", allocatable={"cpu": "4"}) for number in range(4)]
        async with (
            Api(whole_control_plane.access()) as api,
            joined(api, nodes) as names,
            kubelets(api, names),
        ):
            created = await api.create(jobs, job)
            async with asyncio.timeout(200):
                return await _finished(api, jobs, created["metadata"]["resourceVersion"])

    with whole_control_plane.also("kube-scheduler"):
        status = asyncio.run(run())["status"]
    assert status["succeeded"] == 16
    assert not whole_control_plane.processes["kube-scheduler"].running


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_its_programs_are_paused_killed_and_started_again(
    own_control_plane: ControlPlane, namespace: str
) -> None:
    etcd = own_control_plane.processes["etcd"]
    apiserver = own_control_plane.processes["kube-apiserver"]
    path = f"/api/v1/namespaces/{namespace}"

    async def look(seconds: float = 60) -> str:
        async with Api(own_control_plane.access()) as api, asyncio.timeout(seconds):
            return str((await api.get(path))["status"]["phase"])

    etcd.pause()
    try:
        with pytest.raises(TimeoutError):
            asyncio.run(look(2))
    finally:
        etcd.resume()
    apiserver.wait_ready()
    assert asyncio.run(look()) == "Active"

    apiserver.kill()
    with pytest.raises(aiohttp.ClientConnectorError):
        asyncio.run(look())
    apiserver.start()
    assert asyncio.run(look()) == "Active"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_kubelets_outlive_the_api_server(own_control_plane: ControlPlane, namespace: str) -> None:
    """A bound pod runs, one bound after a restart does too, and a deleted one is gone."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    apiserver = own_control_plane.processes["kube-apiserver"]

    async def bind(api: Api, name: str) -> None:
        await _bound(api, pods, name, f"{namespace}-n")
        await _phases(api, pods, {name: "Running"})

    async def run() -> None:
        nodes = [node(f"{namespace}-n")]
        async with Api(own_control_plane.access()) as api, joined(api, nodes) as names, kubelets(api, names):
            await bind(api, "before")
            await asyncio.to_thread(apiserver.restart)
            await api.delete(f"{pods}/before")
            await _phases(api, pods, {})
            await bind(api, "after")

    asyncio.run(run())


class Late(Api):
    """Before the first status of a pod is written, another has its name and node; the watch is behind."""

    def __init__(self, access: Access) -> None:
        super().__init__(access)
        self.made_anew = False
        self._answered = asyncio.Event()

    async def watch(
        self, path: str, resource_version: str, **query: str
    ) -> AsyncIterator[tuple[str, Object]]:
        async for kind, told in super().watch(path, resource_version, **query):
            if self.made_anew:
                await self._answered.wait()
            yield kind, told

    async def patch(self, path: str, body: Mapping[str, Any], *, kind: str = "merge", **query: str) -> Object:
        if not self.made_anew:
            self.made_anew = True
            pods, _, name = path.removesuffix("/status").rpartition("/")
            there = await self.get(f"{pods}/{name}")
            await self.delete(f"{pods}/{name}", {"gracePeriodSeconds": 0})
            await _bound(self, pods, name, there["spec"]["nodeName"])
        try:
            return await super().patch(path, body, kind=kind, **query)
        finally:
            self._answered.set()


def test_the_kubelets_leave_alone_a_pod_whose_name_has_passed_to_another(
    control_plane: ControlPlane, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"

    async def run() -> None:
        nodes = [node(f"{namespace}-n")]
        async with Late(control_plane.access()) as api, joined(api, nodes) as names, kubelets(api, names):
            await _bound(api, pods, "w-0", names[0])
            await _phases(api, pods, {"w-0": "Running"})
            assert api.made_anew

    asyncio.run(run())


async def _bound(api: Api, pods: str, name: str, node_name: str) -> None:
    await api.create(pods, _pod(name))
    target = {"kind": "Node", "name": node_name}
    await api.create(f"{pods}/{name}/binding", {"metadata": {"name": name}, "target": target})


def _pod(name: str) -> Object:
    """A pod that asks for one CPU and that nobody schedules."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": "nobody", "containers": [container]}}


async def _phases(api: Api, pods: str, wanted: dict[str, str]) -> None:
    async with asyncio.timeout(60):
        while True:
            items = (await api.get(pods))["items"]
            if {pod["metadata"]["name"]: pod["status"]["phase"] for pod in items} == wanted:
                return
            await asyncio.sleep(0.05)


async def _finished(api: Api, jobs: str, version: str) -> Object:
    while True:
        async for _, job in api.watch(jobs, version):
            version = job["metadata"]["resourceVersion"]
            conditions = job.get("status", {}).get("conditions", [])
            if any(each["type"] == "Complete" for each in conditions):
                return job
