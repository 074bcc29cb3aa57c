"""What happens between a look of the pod-grouper and its write, or between its write and the watch's event.

Nothing is followed: each test tells the pod-grouper itself what the watch would, and when.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from closeby.controllers.grouping.objects import POD_GROUPS
from closeby.controllers.grouping.owners import Ref
from closeby.controllers.grouping.pod_grouper import Grouping, PodGrouper
from closeby.controllers.running import News
from closeby.kube.state.decoding import Decoder
from closeby.kube.watch.changes import upserted
from closeby.kube.watch.resources import PODS, Resource
from tests.control_plane.api import Api, Object, create_namespace
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import define
from tests.controllers.grouper_world import World, reference
from tests.kube.faulty_proxy import Proxy
from tests.kube.live import through_proxy


class Told:
    """A pod-grouper that hears what it is told."""

    def __init__(self, it: World, proxy: Proxy) -> None:
        self.it = it
        self.proxy = proxy
        self.grouper = PodGrouper(it.transport, Grouping(scheduler_name=it.name), it.say)

    def hear(self, resource: Resource, one: Object) -> None:
        change = upserted(msgspec.Raw(msgspec.json.encode(one)))
        self.grouper.observe(News(resource, change, Decoder().read(resource, change)))

    async def pod(self, name: str, owner: Object) -> None:
        self.hear(PODS, await self.it.create("v1", "pods", self.it.pod(name, owner)))

    async def told_to_be_alone(self) -> set[str]:
        return {
            name
            for name, one in (await self.it.pods()).items()
            if one["metadata"].get("annotations", {}).get("closeby.dev/pod-group") == "none"
        }


@asynccontextmanager
async def told(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Told]:
    async with (
        Api(control_plane.access()) as api,
        through_proxy(control_plane.access()) as (proxy, transport),
    ):
        await define(api)
        yield Told(World(control_plane, api, transport, namespace), proxy)


def ref(it: World, one: Object) -> Ref:
    meta = one["metadata"]
    return Ref(it.namespace, one["apiVersion"], one["kind"], meta["name"], meta["uid"])


def test_a_pod_that_comes_while_its_siblings_get_events_gets_one_too(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Its owner is named again while the attempt at the owner above is at its end."""

    async def run() -> None:
        async with told(control_plane, namespace) as that:
            it, grouper = that.it, that.grouper
            job = await it.job("train", 2, {})
            job["kind"] = "Job"
            body = {"metadata": {"name": "part", "ownerReferences": [reference(job)]}}
            direct = await it.create("v1", "configmaps", body)
            direct["kind"] = "ConfigMap"

            async def late() -> None:
                await that.pod("late", direct)
                await grouper.reconcile(ref(it, direct))

            that.proxy.before("PATCH", "/pods/early", late)
            await that.pod("early", direct)
            await grouper.reconcile(ref(it, direct))
            for _ in range(2):
                await grouper.reconcile(ref(it, job))
            assert await that.told_to_be_alone() == {"early", "late"}

    asyncio.run(run())


def test_a_pod_group_whose_deletion_went_unseen_is_recreated(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Its end falls between two watches, so that nobody tells of it; what its workload asks for changes."""

    async def run() -> None:
        async with told(control_plane, namespace) as that:
            it, grouper = that.it, that.grouper
            job = await it.job("train", 2, it.wish())
            job["kind"] = "Job"
            for i in range(2):
                await that.pod(f"train-{i}", job)
            await grouper.reconcile(ref(it, job))
            assert len(await it.naming("train")) == 2
            await it.api.delete(it.group_path("train"))
            await it.api.patch(
                it.path("batch/v1", "jobs", "train"), {"metadata": {"annotations": it.wish("zone")}}
            )
            for _ in range(2):
                await grouper.reconcile(ref(it, job))
            constraint = (await it.groups())["train"]["spec"]["topologyConstraint"]
            assert constraint["requiredTopologyLevel"] == "zone"

    asyncio.run(run())


def test_a_name_that_another_writer_takes_meanwhile_is_left_to_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The watch tells of the user's PodGroup before the server refuses ours."""

    async def run() -> None:
        async with told(control_plane, namespace) as that:
            it, grouper = that.it, that.grouper
            job = await it.job("train", 2, it.wish())
            job["kind"] = "Job"

            async def users() -> None:
                body = {
                    "apiVersion": "closeby.dev/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": "train"},
                    "spec": {"minMember": 1},
                }
                that.hear(POD_GROUPS, await it.create("closeby.dev/v1alpha1", "podgroups", body))

            that.proxy.before("GET", "/podgroups/train", users)
            for i in range(2):
                await that.pod(f"train-{i}", job)
            for _ in range(2):
                await grouper.reconcile(ref(it, job))
            assert len(await it.naming("train-job")) == 2

    asyncio.run(run())


def test_a_pod_does_not_say_any_more_what_is_wrong_with_a_workload_that_is_gone(
    bare_control_plane: ControlPlane,
) -> None:
    """It asks for a gang itself and goes on waiting, but for no correction.

    No controller takes the pod away with its Job, or lets the Job go later.
    """

    async def run() -> None:
        async with Api(bare_control_plane.access()) as api:
            namespace = await create_namespace(api, service_accounts=False)
        async with told(bare_control_plane, namespace) as that:
            it, grouper = that.it, that.grouper
            wrong = it.wish() | {"kai.scheduler/batch-min-member": "many"}
            job = await it.job("train", 1, wrong)
            job["kind"] = "Job"
            await it.create("v1", "pods", it.pod("train-0", job, wrong))
            for says in (True, False):
                that.hear(PODS, (await it.pods())["train-0"])
                await grouper.reconcile(ref(it, job))
                annotations = (await it.pods())["train-0"]["metadata"]["annotations"]
                assert ("closeby.dev/not-grouped" in annotations) is says
                if says:
                    gone = {"propagationPolicy": "Background"}
                    await it.api.delete(it.path("batch/v1", "jobs", "train"), gone)

    asyncio.run(run())
