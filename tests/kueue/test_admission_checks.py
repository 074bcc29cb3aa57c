"""closeby as Kueue's admission check: quotas are Kueue's, places are closeby's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from closeby.controllers.admission.controller import AdmissionChecks, AdmissionSettings
from closeby.controllers.admission.verdicts import AdmissionLimits
from closeby.controllers.running import News
from closeby.kube.client.errors import ApiError
from closeby.kube.client.transport import Request, Transport
from closeby.kube.watch.changes import Upserted
from tests.control_plane.api import Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, kubelets, node
from tests.controllers.checking import checking
from tests.kube.live import direct
from tests.kube.live_world import RACK, ZONE, World, until
from tests.kueue.queues import KueueWorld, kueue_world
from tests.kueue.running import API

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

CHECK = "closeby"
USUAL = AdmissionLimits()
REQUIRED = {"kai.scheduler/topology-required-placement": RACK}


def host(name: str, rack: str, gpus: int = 4, **labels: str) -> Object:
    return node(name, labels={ZONE: "z1", RACK: rack, **labels}, allocatable={"nvidia.com/gpu": str(gpus)})


HOSTS = [host("a1", "r1"), host("a2", "r1"), host("b1", "r2"), host("b2", "r2")]


class Beside:
    """closeby beside Kueue: a namespace with queues, and another one in which closeby runs."""

    def __init__(self, queues: KueueWorld, world: World, transport: Transport, own: str) -> None:
        self.queues = queues
        self.world = world
        self.transport = transport
        self.own = own

    def checking(
        self, limits: AdmissionLimits = USUAL, kind: type[AdmissionChecks] = AdmissionChecks
    ) -> contextlib.AbstractAsyncContextManager[None]:
        """`closeby controllers --only admission-checks` is at work inside the context."""
        settings = AdmissionSettings(namespace=self.own, scheduler_name=self.world.name, limits=limits)
        return checking(self.transport, self.world.say, settings, kind)

    @contextlib.asynccontextmanager
    async def working(self, limits: AdmissionLimits = USUAL) -> AsyncIterator[None]:
        """The scheduler and the admission checks are at work."""
        async with self.world.scheduling(own_namespace=self.own), self.checking(limits):
            yield

    async def job(self, name: str, queue: str, *, pods: int, gpus: int = 2, **more: Any) -> None:
        """A Job whose pods must be in one rack."""
        await self.queues.job(
            name,
            queue,
            pods=pods,
            gpus=gpus,
            scheduler=self.world.name,
            template={"annotations": {**REQUIRED, "kai.scheduler/topology": self.world.topology}},
            **more,
        )

    async def until_active(self) -> None:
        """Waits until Kueue may give quota by our check."""
        (name,) = check_of(self)

        async def active() -> bool:
            found = await self.world.api.get(f"{API}/admissionchecks/{name}")
            return any(one["status"] == "True" for one in found.get("status", {}).get("conditions", ()))

        await until(active)

    async def state(self, job: str) -> Object:
        """What our check says of a Job's Workload; empty where it says nothing."""
        checks = (await self.queues.workload(job)).get("status", {}).get("admissionChecks", ())
        return next((one for one in checks if one["name"].startswith(CHECK)), {})

    async def until_state(self, job: str, state: str, says: str = "") -> Object:
        """Waits until it says so."""
        found: Object = {}

        async def so() -> bool:
            found.clear()
            found.update(await self.state(job))
            return found.get("state") == state and says in found.get("message", "")

        try:
            await until(so)
        except TimeoutError:
            raise AssertionError(f"{job}: {found} is not {state}\n{self.lines()}") from None
        return found

    async def racks(self, job: str, number: int) -> set[str]:
        """Waits until so many pods of a Job are bound; the racks in which they are."""
        placed: dict[str, str] = {}

        async def bound() -> bool:
            now = await self.world.placed()
            placed.clear()
            placed.update({name: node for name, node in now.items() if name.startswith(f"{job}-")})
            return len(placed) >= number

        try:
            await until(bound)
        except TimeoutError:
            raise AssertionError(f"{placed}\n{self.lines()}") from None
        assert len(placed) == number
        return {"r1" if name.startswith("a") else "r2" for name in placed.values()}

    async def requests(self) -> list[Object]:
        """The PodGroups that ask for places."""
        found = await self.world.api.get(f"/apis/closeby.dev/v1alpha1/namespaces/{self.own}/podgroups")
        items: list[Object] = found["items"]
        return items

    def lines(self) -> str:
        return "\n".join(f"{text} {fields}" for text, fields in self.world.lines[-30:])


@contextlib.asynccontextmanager
async def beside(control_plane: ControlPlane, *hosts: Object) -> AsyncIterator[Beside]:
    """Nodes of two racks, Kueue, and an AdmissionCheck of ours."""
    async with contextlib.AsyncExitStack() as stack:
        queues = await stack.enter_async_context(kueue_world(control_plane))
        api = queues.api
        await stack.enter_async_context(joined(api, hosts))
        await stack.enter_async_context(kubelets(api, {one["metadata"]["name"] for one in hosts}))
        transport = await stack.enter_async_context(direct(control_plane.kubeconfig))
        it = World(api, transport, queues.namespace)
        await stack.enter_async_context(it.declared())
        own = f"own-{queues.namespace}"
        await api.create("/api/v1/namespaces", {"metadata": {"name": own}})
        stack.push_async_callback(api.delete, f"/api/v1/namespaces/{own}")
        name = f"{CHECK}-{queues.namespace}"
        await queues.put(
            "admissionchecks", "AdmissionCheck", name, {"controllerName": "closeby.dev/placement"}
        )
        yield Beside(queues, it, transport, own)


class Overtaken(AdmissionChecks):
    """Hears by its watch what the scheduler says of a question before the question itself is answered."""

    def __init__(self, transport: Transport, *more: Any, **settings: Any) -> None:
        self._told = asyncio.Event()
        super().__init__(cast("Transport", LateAnswers(transport, self._told)), *more, **settings)

    def observe(self, news: News) -> None:
        super().observe(news)
        if isinstance(news.change, Upserted) and b"Scheduled" in news.change.raw:
            self._told.set()


class LateAnswers:
    """Sends like a transport; an answer is given when ``told`` is set."""

    def __init__(self, transport: Transport, told: asyncio.Event) -> None:
        self._transport = transport
        self._told = told

    async def send(self, request: Request) -> bytes | ApiError:
        answer = await self._transport.send(request)
        await self._told.wait()
        return answer


def check_of(it: Beside) -> list[str]:
    return [f"{CHECK}-{it.queues.namespace}"]


def test_quota_admits_and_closeby_places(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working():
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            await it.job("train", "team", pods=4)
            ready = await it.until_state("train", "Ready")
            assert "4 places held in z1/r" in ready["message"]
            await it.queues.until_condition("train", "Admitted", "True")
            assert len(await it.racks("train", 4)) == 1
            (request,) = await it.requests()
            assert request["spec"]["placesFor"]["workload"]["namespace"] == it.queues.namespace

    asyncio.run(run())


def test_a_workload_that_fits_by_quota_but_in_no_rack_waits_and_gives_its_quota_back(
    kueue_cluster: ControlPlane,
) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working(AdmissionLimits(deadline=5)):
            # With BestEffortFIFO Kueue tries the one again that gave its quota back, and the others later.
            await it.queues.queue("team", gpus=12, checks=check_of(it), strategy="StrictFIFO")
            await it.job("large", "team", pods=6)
            await it.until_state("large", "Pending", "TopologyPlacementFailed")
            await it.job("small", "team", pods=2)
            # The first one holds all of the quota until its deadline.
            await it.queues.until_condition("small", "Admitted", "True")
            assert (await it.queues.condition("large", "QuotaReserved"))["status"] == "False"
            assert len(await it.racks("small", 2)) == 1

            async def one_asks() -> bool:
                return len(await it.requests()) == 1

            await until(one_asks)

    asyncio.run(run())


def test_an_answer_of_the_scheduler_that_comes_early_is_not_forgotten(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.world.scheduling(own_namespace=it.own):
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            async with it.checking(kind=Overtaken):
                await it.job("train", "team", pods=4)
                await it.until_state("train", "Ready")

    asyncio.run(run())


def test_a_question_that_can_not_be_asked_is_said_and_gives_the_quota_back(
    kueue_cluster: ControlPlane,
) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it:
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            it.own = f"no-{it.own}"
            async with it.checking(AdmissionLimits(deadline=8)):
                await it.job("train", "team", pods=4)
                await it.until_state("train", "Pending", f'namespaces "{it.own}" not found')

                async def given_back() -> bool:
                    said = [fields for text, fields in it.world.lines if text == "admission check"]
                    return any(fields["state"] == "Retry" for fields in said)

                await until(given_back)

    asyncio.run(run())


def test_two_queues_compete_for_racks(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working():
            for team in ("red", "blue"):
                await it.queues.queue(team, gpus=16, checks=check_of(it))
            for number in range(2):
                await it.job(f"red-{number}", "red", pods=4)
                await it.job(f"blue-{number}", "blue", pods=4)
            jobs = ["red-0", "red-1", "blue-0", "blue-1"]

            async def states() -> dict[str, str]:
                return {job: str((await it.state(job)).get("state")) for job in jobs}

            async def both_racks() -> bool:
                return sorted((await states()).values()) == ["Pending", "Pending", "Ready", "Ready"]

            await until(both_racks)
            first = [job for job, state in (await states()).items() if state == "Ready"]
            assert {*await it.racks(first[0], 4), *await it.racks(first[1], 4)} == {"r1", "r2"}
            # What is done makes room for the next.
            path = f"/apis/batch/v1/namespaces/{it.queues.namespace}/jobs/{first[0]}"
            await it.world.api.delete(path, {"propagationPolicy": "Background"})
            jobs.remove(first[0])

            async def next_one() -> bool:
                return sorted((await states()).values()) == ["Pending", "Ready", "Ready"]

            await until(next_one)

    asyncio.run(run())


def test_places_outlive_a_restart_of_either_process(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it:
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            async with it.checking():
                await it.until_active()
            async with it.world.scheduling(own_namespace=it.own):
                # Quota alone admits no Workload.
                await it.job("train", "team", pods=4)
                await it.queues.until_condition("train", "QuotaReserved", "True")
                async with it.checking():
                    await it.until_state("train", "Ready")
                await it.queues.until_condition("train", "Admitted", "True")
            # The pods come while neither is there, and others want their places.
            await it.world.create(*(it.world.pod(f"other-{i}", 2) for i in range(5)))
            async with it.working():
                assert len(await it.racks("train", 4)) == 1
                assert (await it.state("train"))["state"] == "Ready"

    asyncio.run(run())


def test_places_that_are_lost_say_retry(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        hosts = [host("a1", "r1"), host("a2", "r1"), host("b1", "r2", 2)]
        async with beside(kueue_cluster, *hosts) as it, it.working():
            # A second check keeps the pods from coming.
            other = f"other-{it.queues.namespace}"
            await it.queues.put("admissionchecks", "AdmissionCheck", other, {"controllerName": "tests/other"})
            status = {"status": {"conditions": [_active()]}}
            await it.world.api.patch(f"{API}/admissionchecks/{other}/status", status)
            await it.queues.queue("team", gpus=16, checks=[*check_of(it), other])
            await it.job("train", "team", pods=4)
            await it.until_state("train", "Ready")
            await it.world.api.patch("/api/v1/nodes/a1", {"spec": {"unschedulable": True}})

            async def retried() -> bool:
                said = it.world.said("admission check")
                return any(one["state"] == "Retry" and "are lost" in str(one["why"]) for one in said)

            await until(retried)
            # It asks again as soon as it has its quota again.
            await it.until_state("train", "Pending", "GangDoesNotFit")

    asyncio.run(run())


def test_nothing_is_said_of_a_workload_that_is_being_evicted(kueue_cluster: ControlPlane) -> None:
    """Without a job nothing takes its quota away after the eviction, as while pods are ending."""

    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working():
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            path = f"{API}/namespaces/{it.queues.namespace}/workloads"
            asked = {"cpu": "1", "nvidia.com/gpu": "2"}
            container = {"name": "main", "image": "none", "resources": {"requests": asked}}
            pod = {"schedulerName": it.world.name, "restartPolicy": "Never", "containers": [container]}
            template = {"metadata": {"annotations": REQUIRED}, "spec": pod}
            spec = {"queueName": "team", "podSets": [{"name": "main", "count": 4, "template": template}]}
            kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
            await it.world.api.create(path, {**kind, "metadata": {"name": "bare"}, "spec": spec})

            async def status() -> tuple[bool, bool, str]:
                found = (await it.world.api.get(f"{path}/bare")).get("status", {})
                true = {one["type"] for one in found.get("conditions", ()) if one["status"] == "True"}
                states = [one["state"] for one in found.get("admissionChecks", ())]
                return "QuotaReserved" in true, "Evicted" in true, "".join(states)

            async def ready() -> bool:
                return await status() == (True, False, "Ready")

            async def given_back() -> bool:
                return not await it.requests()

            await until(ready)
            await it.world.api.patch(f"{path}/bare", {"spec": {"active": False}})
            await until(given_back)
            assert await status() == (True, True, "Pending")

    asyncio.run(run())


def test_a_workload_that_was_evicted_is_asked_for_again(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working():
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            await it.job("train", "team", pods=4)
            await it.racks("train", 4)
            path = f"{API}/namespaces/{it.queues.namespace}/workloads"
            path = f"{path}/{(await it.queues.workload('train'))['metadata']['name']}"
            await it.world.api.patch(path, {"spec": {"active": False}})
            await it.queues.until_condition("train", "QuotaReserved", "False")
            for name in ("a1", "b1"):
                await it.world.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
            await it.world.api.patch(path, {"spec": {"active": True}})
            await it.queues.until_condition("train", "QuotaReserved", "True")
            await it.until_state("train", "Pending", "TopologyPlacementFailed")
            assert (await it.queues.condition("train", "Admitted"))["status"] == "False"
            await it.world.api.patch("/api/v1/nodes/b1", {"spec": {"unschedulable": None}})
            assert await it.racks("train", 4) == {"r2"}

    asyncio.run(run())


def test_pods_of_another_scheduler_are_ready_at_once(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working():
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            await it.queues.job("train", "team", pods=4, gpus=2)
            ready = await it.until_state("train", "Ready")
            assert "default-scheduler" in ready["message"]
            assert await it.requests() == []

    asyncio.run(run())


def test_what_can_never_fit_is_rejected(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working():
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            await it.queues.job(
                "train",
                "team",
                pods=2,
                gpus=2,
                scheduler=it.world.name,
                template={"annotations": {"hami.io/gpu-scheduler-policy": "x", "gpu-fraction": "0.5"}},
            )
            evicted = await it.queues.until_condition("train", "Evicted", "True")
            assert "gpu-fraction" in evicted["message"]
            assert (await it.queues.workload("train"))["spec"]["active"] is False

    asyncio.run(run())


def test_flavors_choose_the_nodes_and_fewer_pods_hold_fewer_places(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        taint = {"key": "team", "value": "red", "effect": "NoSchedule"}
        tainted = node(
            "b1",
            labels={ZONE: "z1", RACK: "r2", "pool": "red"},
            allocatable={"nvidia.com/gpu": "8"},
            taints=[taint],
        )
        async with beside(kueue_cluster, host("a1", "r1", 8), tainted) as it, it.working():
            tolerated = {"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}
            flavor = {"nodeLabels": {"pool": "red"}, "tolerations": [tolerated]}
            await it.queues.queue("team", gpus=6, flavor=flavor, checks=check_of(it))
            # Of four pods at least two: the quota is for three.
            partly = {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}}
            await it.job("train", "team", pods=4, metadata=partly, completionMode="NonIndexed")
            ready = await it.until_state("train", "Ready")
            assert "3 places held" in ready["message"]
            assert await it.racks("train", 3) == {"r2"}

    asyncio.run(run())


def test_a_workload_in_segments_of_which_a_pod_is_done_starts_over_with_the_others(
    kueue_cluster: ControlPlane,
) -> None:
    async def run() -> None:
        async with beside(kueue_cluster, *HOSTS) as it, it.working():
            await it.queues.queue("team", gpus=16, checks=check_of(it))
            segments = {
                "kai.scheduler/topology": it.world.topology,
                "kai.scheduler/segment-size": "2",
                "kai.scheduler/segment-topology-required-placement": RACK,
            }
            template = {"annotations": segments}
            await it.queues.job("train", "team", pods=4, gpus=2, scheduler=it.world.name, template=template)
            await it.racks("train", 4)
            first = next(name for name in await it.queues.pods() if name.startswith("train-0-"))
            path = f"/api/v1/namespaces/{it.queues.namespace}/pods/{first}/status"
            await it.world.api.patch(path, {"status": {"phase": "Succeeded"}})

            async def reclaimed() -> bool:
                return bool((await it.queues.workload("train"))["status"].get("reclaimablePods"))

            await until(reclaimed)
            assert (await it.state("train"))["state"] == "Ready"
            name = (await it.queues.workload("train"))["metadata"]["name"]
            workload = f"{API}/namespaces/{it.queues.namespace}/workloads/{name}"
            await it.world.api.patch(workload, {"spec": {"active": False}})
            await it.queues.until_condition("train", "QuotaReserved", "False")
            await it.world.api.patch(workload, {"spec": {"active": True}})
            # Kueue admits the three that are left.
            await it.until_state("train", "Ready", "3 places held")
            await it.queues.until_condition("train", "Admitted", "True")

            async def bound() -> bool:
                pods = [one for name, one in (await it.queues.pods()).items() if name != first]
                return sum("nodeName" in one["spec"] for one in pods) == 3

            await until(bound)

    asyncio.run(run())


def test_kueues_own_topologies_beside_closeby_on_other_nodes(kueue_cluster: ControlPlane) -> None:
    async def run() -> None:
        hosts = [
            host("a1", "r1", pool="ours"),
            host("a2", "r1", pool="ours"),
            host("k1", "r3", pool="kueues"),
        ]
        async with beside(kueue_cluster, *hosts) as it, it.working():
            topology = f"kueues-{it.queues.namespace}"
            levels = {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]}
            await it.queues.put("topologies", "Topology", topology, levels)
            ours = {"nodeLabels": {"pool": "ours"}}
            await it.queues.queue("ours", gpus=8, flavor=ours, checks=check_of(it))
            theirs = {"nodeLabels": {"pool": "kueues"}, "topologyName": topology}
            await it.queues.queue("theirs", gpus=4, flavor=theirs)
            asks = {"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}}
            await it.queues.job("kueues", "theirs", pods=2, gpus=2, template=asks)
            await it.job("mine", "ours", pods=4)
            assert await it.racks("mine", 4) == {"r1"}

            async def elsewhere() -> bool:
                placed = await it.world.placed()
                return [node for name, node in placed.items() if name.startswith("kueues")] == ["k1", "k1"]

            await until(elsewhere)

    with kueue_cluster.also("kube-scheduler"):
        asyncio.run(run())


def _active() -> Object:
    when = "2026-01-01T00:00:00Z"
    return {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": when}
