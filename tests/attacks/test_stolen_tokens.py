"""Somebody has the token of one of closeby's service accounts: what the API server lets that token do.

Roles let the controllers patch pods, and the scheduler bind, evict and write the status of pods, in every
namespace. The chart's admission policies narrow that to what they write, and to namespaces that the operator
does not exclude. The attacker here speaks to a real API server with that token, as ``kubectl`` would.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from closeby.controllers.grouping.writes import Writes
from closeby.kube.client.transport import Transport
from closeby.kube.writing.volume_writes import ClaimReference, VolumeWriter
from closeby.kube.writing.writer import StatusCondition, Writer
from closeby.objects.pods import Pod, PodSpec
from closeby.scheduling.outcomes import Binding
from tests.control_plane.access import read_kubeconfig
from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.clouds import ZONE, binds_with_labels
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, kubelets, node
from tests.deploy.installed import Release, installed, kubeconfig, running
from tests.kube.live import direct, eventually, unique

SYSTEM = "kube-system"
FOREIGN = "somebody-elses-scheduler"
KEPT = "tests.closeby.dev/kept"
GROUPS = "/apis/closeby.dev/v1alpha1/namespaces/{}/podgroups"


@dataclass(frozen=True)
class Theft:
    """One token, in the hands of an attacker (``thief``) and of closeby's own code (``transport``)."""

    admin: Api
    thief: Api
    transport: Transport
    release: Release
    kubeconfig: Path

    async def pod(
        self, namespace: str, scheduler: str, *, gang: str | None = None, gates: tuple[str, ...] = ()
    ) -> Object:
        """A pending pod with something of everything that the attacker would like to change."""
        metadata: Object = {
            "name": unique("pod"),
            "labels": {"app": "shop"} | ({} if gang is None else {"closeby.dev/pod-group": gang}),
            "annotations": {"note": "mine"},
            "finalizers": [KEPT],
        }
        container = {"name": "main", "image": "good", "resources": {"requests": {"cpu": "1"}}}
        spec: Object = {"schedulerName": scheduler, "containers": [container]}
        spec["schedulingGates"] = [{"name": one} for one in gates]
        return await self.admin.create(pods(namespace), {"metadata": metadata, "spec": spec})


def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def path(pod: Object, part: str = "") -> str:
    metadata = pod["metadata"]
    return f"{pods(metadata['namespace'])}/{metadata['name']}{part}"


def record(pod: Object) -> Pod:
    metadata = pod["metadata"]
    return Pod(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"], spec=PodSpec())


def image(name: str) -> Object:
    """A strategic merge patch of the container."""
    return {"spec": {"containers": [{"name": "main", "image": name}]}}


def labelled(**labels: str | None) -> Object:
    return {"metadata": {"labels": labels}}


@asynccontextmanager
async def stolen(
    helm: Path, control_plane: ControlPlane, namespace: str, component: str, *more: str
) -> AsyncIterator[Theft]:
    """The chart is installed (``more``: arguments of helm), and the component's token is in wrong hands."""
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Api(control_plane.access()))
        release = await stack.enter_async_context(installed(helm, admin, namespace, *more))
        file = await kubeconfig(control_plane, admin, release, component)
        thief = await stack.enter_async_context(Api(read_kubeconfig(file)))
        transport = await stack.enter_async_context(direct(file))
        try:
            yield Theft(admin, thief, transport, release, file)
        finally:
            for one in (SYSTEM, namespace):
                await sweep(admin, one, namespace)


async def sweep(admin: Api, namespace: str, scheduler: str) -> None:
    """Takes the pods of a test away, whatever finalizers they have."""
    for one in (await admin.get(pods(namespace)))["items"]:
        if one["spec"]["schedulerName"] in (scheduler, FOREIGN):
            await admin.patch(path(one), {"metadata": {"finalizers": None}})
            await admin.delete(path(one), {"gracePeriodSeconds": 0})


async def refused(attempt: Awaitable[object], complaint: str) -> None:
    """A policy denies it, in these words."""
    with pytest.raises(ApiError) as denied:
        await attempt
    assert "ValidatingAdmissionPolicy" in denied.value.message, denied.value
    assert complaint in denied.value.message, denied.value


async def at_work(policy: str, attempt: Awaitable[object]) -> bool:
    """Whether this policy is what refuses the attempt; the API server takes a moment to learn of policies."""
    try:
        await attempt
    except ApiError as error:
        return f"ValidatingAdmissionPolicy '{policy}'" in error.message
    return False


def test_with_the_controllers_token_a_pod_gets_no_other_image_and_no_other_labels(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """A pod that waits for our scheduler may be told its gang, once; of other pods nothing may be changed."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "00-0"}
    attempts: list[tuple[Object, str]] = [
        (image("evil"), "the spec of a pod"),
        ({"spec": {"schedulingGates": None}}, "the spec of a pod"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "the spec of a pod"),
        (labelled(app="payments"), "of a pod's labels"),
        (labelled(app=None), "of a pod's labels"),
        (labelled(more="x"), "of a pod's labels"),
        (annotated(note="yours"), "of a pod's annotations"),
        (annotated(note=None), "of a pod's annotations"),
        ({"metadata": {"annotations": {"closeby.dev/pod-group": "x"}}}, "of a pod's annotations"),
        ({"metadata": {"ownerReferences": [owner]}}, "the owners or the finalizers"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": [KEPT]}}, "the owners or the finalizers"),
    ]

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "controllers") as theft:
            thief = theft.thief
            ours = await theft.pod(namespace, namespace, gates=("tests.closeby.dev/quota",))
            grouped = await theft.pod(namespace, namespace, gang="train")
            others = await theft.pod(namespace, FOREIGN)

            async def learnt() -> bool:
                attempt = thief.patch(path(ours), image("evil"), kind="strategic", dryRun="All")
                return await at_work(f"{namespace}-{namespace}-controllers", attempt)

            await eventually(learnt)
            for body, complaint in attempts:
                await refused(thief.patch(path(ours), body, kind="strategic"), complaint)
            for gang in ("other", None):
                await refused(thief.patch(path(grouped), naming(gang)), "of a pod's labels")
            await refused(thief.patch(path(others), naming("train")), f"of schedulerName {namespace} alone")
            for pod in (ours, grouped, others):
                left = await theft.admin.get(path(pod))
                for part in ("labels", "annotations", "finalizers"):
                    assert left["metadata"][part] == pod["metadata"][part]
                assert left["spec"] == pod["spec"]

    asyncio.run(run())


def test_what_the_controllers_do_write_on_pods_is_still_written(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Their own code, with the same token, once the policies are at work."""

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "controllers") as theft:
            member, alone, wrong = [await theft.pod(namespace, namespace) for _ in range(3)]

            async def learnt() -> bool:
                attempt = theft.thief.patch(path(member), labelled(more="x"), dryRun="All")
                return await at_work(f"{namespace}-{namespace}-controllers", attempt)

            await eventually(learnt)
            writes = Writes(theft.transport)
            for _ in range(2):  # It may be written again, by a replica that has not heard of the first time.
                assert await writes.join(record(member), "train", "workers") is None
                assert await writes.leave_alone(record(alone)) is None
            labels = (await theft.admin.get(path(member)))["metadata"]["labels"]
            told = {"closeby.dev/pod-group": "train", "closeby.dev/subgroup": "workers"}
            assert labels == member["metadata"]["labels"] | told
            annotations = (await theft.admin.get(path(alone)))["metadata"]["annotations"]
            assert annotations["closeby.dev/pod-group"] == "none"
            for why in ("InvalidSpec: Job/a/b: no number", "InvalidSpec: Job/a/b: no level"):
                assert await writes.not_grouped(record(wrong), why) is None
                annotations = (await theft.admin.get(path(wrong)))["metadata"]["annotations"]
                assert annotations["closeby.dev/not-grouped"] == why
            corrected = replace(record(wrong), annotations={"closeby.dev/not-grouped": why})
            assert await writes.join(corrected, "train", None) is None
            annotations = (await theft.admin.get(path(wrong)))["metadata"]["annotations"]
            assert annotations == wrong["metadata"]["annotations"]

    asyncio.run(run())


def test_with_the_schedulers_token_a_pod_is_not_called_ready_or_moved_into_a_service(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Of a waiting pod's status two conditions alone are written, and with a binding our label alone."""
    ready = {"type": "Ready", "status": "True"}
    attempts: list[tuple[Object, str]] = [
        ({"status": {"phase": "Running"}}, "conditions and nominatedNodeName alone"),
        (
            {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}},
            "conditions and nominatedNodeName alone",
        ),
        ({"status": {"conditions": [ready]}}, "closeby.dev/Preempting alone"),
        ({"status": {"conditions": [unschedulable() | {"status": "True"}]}}, "closeby.dev/Preempting alone"),
        (labelled(app="payments"), "may not change its metadata"),
        (annotated(note="yours"), "may not change its metadata"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": [KEPT]}}, "may not change its metadata"),
    ]

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "scheduler") as theft:
            admin, thief = theft.admin, theft.thief
            async with joined(admin, [node(f"{namespace}-n")]) as (host,):
                ours, others = [await theft.pod(namespace, name) for name in (namespace, FOREIGN)]
                placed = await theft.pod(namespace, namespace)
                await admin.create(path(placed, "/binding"), binding(placed, host))
                told = {"status": {"conditions": [unschedulable()]}}

                async def learnt() -> bool:
                    prefix = f"{namespace}-{namespace}-scheduler"
                    status = thief.patch(path(others, "/status"), told, kind="strategic", dryRun="All")
                    labels = binding(ours, host, labels={"app": "payments"})
                    bound = thief.create(path(ours, "/binding?dryRun=All"), labels)
                    known = [
                        await at_work(f"{prefix}-status", status),
                        await at_work(f"{prefix}-binding", bound),
                    ]
                    return all(known)

                await eventually(learnt)
                for body, complaint in attempts:
                    await refused(thief.patch(path(ours, "/status"), body, kind="strategic"), complaint)
                for pod in (others, placed):
                    attempt = thief.patch(path(pod, "/status"), told, kind="strategic")
                    await refused(attempt, f"of waiting pods of schedulerName {namespace} alone")
                for more in ({"labels": {"app": "payments"}}, {"annotations": {"note": "yours"}}):
                    await refused(thief.create(path(ours, "/binding"), binding(ours, host, **more)), "alone")
                await moved_elsewhere(theft, host)
                # What the scheduler does write, by its own code.
                writer = Writer(theft.transport, "closeby-scheduler", "test")
                condition = StatusCondition(
                    type="PodScheduled", status="False", reason="Unschedulable", message="no room"
                )
                preempting = StatusCondition(type="closeby.dev/Preempting", status="True", reason="Evicting")
                for node_name in (UNSET, host, None):
                    written = await writer.pod_conditions(record(ours), [condition, preempting], node_name)
                    assert written.ok, written.error
                bound = await writer.bind(Binding(record(ours), host, rank=3, domain=("z1", "r1")))
                assert bound.ok, bound.error
                left = await admin.get(path(ours))
                assert left["spec"]["nodeName"] == host
                assert left["metadata"]["annotations"]["closeby.dev/topology-domain"] == "z1/r1"

    asyncio.run(run())


async def moved_elsewhere(theft: Theft, host: str) -> None:
    """A false zone may be sent with a binding; the API server writes the node's own over it, or nothing."""
    pod = await theft.pod(theft.release.namespace, theft.release.namespace)
    await theft.thief.create(path(pod, "/binding"), binding(pod, host, labels={ZONE: "elsewhere"}))
    of_the_node = (await theft.admin.get(f"/api/v1/nodes/{host}"))["metadata"]["labels"][ZONE]
    labels = (await theft.admin.get(path(pod)))["metadata"]["labels"]
    assert labels.get(ZONE) == (of_the_node if await binds_with_labels(theft.admin) else None)


@pytest.mark.parametrize("component", ["controllers", "scheduler"])
def test_with_a_stolen_token_no_lease_of_another_name_is_made(
    helm: Path, control_plane: ControlPlane, namespace: str, component: str
) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

    def lease(name: str) -> Object:
        return {"metadata": {"name": name}, "spec": {"holderIdentity": "a thief"}}

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, component) as theft:
            other = {"scheduler": "controllers", "controllers": "scheduler"}[component]

            async def learnt() -> bool:
                attempt = theft.thief.create(f"{leases}?dryRun=All", lease("squatted"))
                return await at_work(f"{namespace}-{namespace}-leases", attempt)

            await eventually(learnt)
            for name in ("squatted", theft.release.account(other)):
                await refused(
                    theft.thief.create(leases, lease(name)), "the name of its service account alone"
                )
            await theft.thief.create(leases, lease(theft.release.account(component)))

    asyncio.run(run())


def test_with_the_schedulers_token_volumes_are_bound_and_not_changed(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Of a claim one annotation is written, of a volume the claim for which it is kept."""
    claims, volumes = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", "/api/v1/persistentvolumes"
    size = {"storage": "1Gi"}
    common: Object = {"accessModes": ["ReadWriteOnce"], "storageClassName": f"{namespace}-waits"}
    spec = {**common, "capacity": size, "csi": {"driver": "d", "volumeHandle": "h"}}

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "scheduler") as theft:
            admin, thief = theft.admin, theft.thief
            made = await admin.create(
                claims, {"metadata": {"name": "c"}, "spec": {**common, "resources": {"requests": size}}}
            )
            volume = f"{volumes}/{namespace}-v"
            await admin.create(volumes, {"metadata": {"name": f"{namespace}-v"}, "spec": spec})
            try:

                async def learnt() -> bool:
                    attempt = thief.patch(volume, labelled(app="payments"), dryRun="All")
                    return await at_work(f"{namespace}-{namespace}-scheduler-volumes", attempt)

                await eventually(learnt)
                await refused(thief.patch(f"{claims}/c", annotated(note="yours")), "selected-node alone")
                await refused(thief.patch(volume, annotated(note="yours")), "selected-node alone")
                more = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
                await refused(thief.patch(volume, more), "claimRef alone")
                # What the scheduler does write, by its own code.
                writer = VolumeWriter(theft.transport)
                claim = ClaimReference(namespace, "c", made["metadata"]["uid"])
                assert await writer.select("n", claim) is None
                assert await writer.unselect("n", claim) is None
                assert await writer.keep(f"{namespace}-v", claim) is None
                assert (await admin.get(volume))["spec"]["claimRef"]["uid"] == claim.uid
                assert await writer.let_go(f"{namespace}-v", claim) is None
            finally:
                await admin.patch(volume, {"metadata": {"finalizers": None}})
                await admin.delete(volume)

    asyncio.run(run())


@pytest.mark.parametrize("component", ["controllers", "scheduler"])
def test_no_stolen_token_reaches_a_pod_of_the_system(
    helm: Path, control_plane: ControlPlane, namespace: str, component: str
) -> None:
    """Where the operator excludes a namespace nothing is bound, evicted, changed or grouped there."""

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, component) as theft:
            admin, thief = theft.admin, theft.thief
            pod = await theft.pod(SYSTEM, namespace)
            tenants = await theft.pod(namespace, namespace)
            policy = f"{namespace}-{namespace}-exclusion"
            group = {
                "apiVersion": "closeby.dev/v1alpha1",
                "kind": "PodGroup",
                "metadata": {"name": namespace},
                "spec": {"minMember": 1},
            }
            evict: Object = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod["metadata"]["name"]},
            }
            told = {"status": {"conditions": [unschedulable()]}}

            def attempts() -> list[Awaitable[object]]:
                if component == "controllers":
                    return [
                        thief.patch(path(pod), naming("x"), dryRun="All"),
                        thief.create(f"{GROUPS.format(SYSTEM)}?dryRun=All", group),
                    ]
                return [
                    thief.create(f"{path(pod, '/binding')}?dryRun=All", binding(pod, "somewhere")),
                    thief.create(f"{path(pod, '/eviction')}?dryRun=All", evict),
                    thief.patch(path(pod, "/status"), told, kind="strategic", dryRun="All"),
                ]

            async def learnt() -> bool:
                return all([await at_work(policy, one) for one in attempts()])

            await eventually(learnt)
            left = await admin.get(path(pod))
            assert left["metadata"]["labels"] == pod["metadata"]["labels"]
            # A tenant's gang may be made, and a tenant's pod be evicted, which `onPartial: Evict` takes.
            if component == "controllers":
                await thief.create(f"{GROUPS.format(namespace)}?dryRun=All", group)
            else:
                evict["metadata"] = {"name": tenants["metadata"]["name"]}
                await thief.create(f"{path(tenants, '/eviction')}?dryRun=All", evict)

    asyncio.run(run())


def test_pods_of_the_system_that_ask_for_closeby_wait_with_a_reason(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The scheduler does not even try what would be refused; a gang there hears it by its condition."""
    log = tmp_path / "log"

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "scheduler") as theft:
            admin = theft.admin
            host = f"{namespace}-n"
            async with joined(admin, [node(host)]), kubelets(admin, [host]):
                lone = await theft.pod(SYSTEM, namespace)
                gang = {
                    "apiVersion": "closeby.dev/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": namespace},
                    "spec": {"minMember": 1},
                }
                await admin.create(GROUPS.format(SYSTEM), gang)
                member = await theft.pod(SYSTEM, namespace, gang=namespace)
                tenants = await theft.pod(namespace, namespace)

                async def told() -> bool:
                    events = await admin.get(f"/apis/events.k8s.io/v1/namespaces/{SYSTEM}/events")
                    heard = {
                        one["regarding"].get("uid")
                        for one in events["items"]
                        if one["reason"] == "FailedScheduling" and "NamespaceExcluded" in one["note"]
                    }
                    group = await admin.get(f"{GROUPS.format(SYSTEM)}/{namespace}")
                    conditions = group.get("status", {}).get("conditions", ())
                    return (
                        {one["metadata"]["uid"] for one in (lone, member)} <= heard
                        and [one["reason"] for one in conditions] == ["NamespaceExcluded"]
                        and "nodeName" in (await admin.get(path(tenants)))["spec"]
                    )

                try:
                    with running(theft.release.arguments("scheduler", tmp_path), theft.kubeconfig, log):
                        try:
                            await eventually(told)
                        except TimeoutError as error:
                            raise AssertionError(log.read_text()) from error
                    for one in (lone, member):
                        left = await admin.get(path(one))
                        assert "nodeName" not in left["spec"]
                        assert "conditions" not in left["status"]
                finally:
                    await admin.delete(f"{GROUPS.format(SYSTEM)}/{namespace}")
        assert "ValidatingAdmissionPolicy" not in log.read_text()

    asyncio.run(run())


def test_the_pod_grouper_leaves_pods_of_the_system_alone(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """A pod there that asks for a gang gets none, and nothing is tried again and again."""
    log = tmp_path / "log"
    asks = {"kai.scheduler/topology": "f", "kai.scheduler/topology-required-placement": "rack"}

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "controllers") as theft:
            admin = theft.admin
            for where in (SYSTEM, namespace):
                container = {"name": "main", "image": "good"}
                body = {
                    "metadata": {"name": namespace, "annotations": asks},
                    "spec": {"schedulerName": namespace, "containers": [container]},
                }
                await admin.create(pods(where), body)

            async def grouped() -> bool:
                pod = await admin.get(f"{pods(namespace)}/{namespace}")
                return "closeby.dev/pod-group" in pod["metadata"].get("labels", {})

            with running(theft.release.arguments("controllers", tmp_path), theft.kubeconfig, log):
                try:
                    await eventually(grouped)
                except TimeoutError as error:
                    raise AssertionError(log.read_text()) from error
            system = await admin.get(f"{pods(SYSTEM)}/{namespace}")
            assert "labels" not in system["metadata"]
            assert not [
                one
                for one in (await admin.get(GROUPS.format(SYSTEM)))["items"]
                if one["metadata"]["name"] == namespace
            ]
        assert f"{SYSTEM}/{namespace}" not in log.read_text()

    asyncio.run(run())


def naming(gang: str | None) -> Object:
    return {"metadata": {"labels": {"closeby.dev/pod-group": gang}}}


def annotated(**annotations: str | None) -> Object:
    return {"metadata": {"annotations": annotations}}


def unschedulable() -> Object:
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}


def binding(pod: Object, host: str, **more: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod["metadata"]["name"], **more},
        "target": {"apiVersion": "v1", "kind": "Node", "name": host},
    }
