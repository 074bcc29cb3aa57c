"""A thief has the scheduler's token where another scheduler binds (``scheduler.mode=gate``).

Its role lets the scheduler patch all pods; a policy narrows that to one write: a pod with our gate gets one
node in its required affinity and loses the gate.
"""

import asyncio
from pathlib import Path

import pytest

from closeby.kube.writing.placements import PlacementWriter
from closeby.reading.decoding.keys import PLACED_ON, PLACEMENT_GATE
from closeby.scheduling.outcomes import Binding
from tests.attacks.test_stolen_tokens import (
    FOREIGN,
    KEPT,
    Theft,
    annotated,
    at_work,
    image,
    labelled,
    path,
    record,
    refused,
    stolen,
    unschedulable,
)
from tests.control_plane.api import ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.kube.live import eventually

MODE = ("--set", "scheduler.mode=gate")
OTHER = "tests.closeby.dev/quota"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pin(node: str) -> Object:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def required(*terms: Object) -> Object:
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def placement(node: str = "n1", *, left: tuple[str, ...] = (), **spec: object) -> Object:
    """What the scheduler writes on a pod without terms of its own."""
    gates = [{"name": one} for one in left] or None
    written = {"schedulingGates": gates, **required({"matchFields": [pin(node)]}), **spec}
    return {"metadata": {"annotations": {PLACED_ON: node}}, "spec": written}


def without(body: Object, part: str) -> Object:
    return {**body, "spec": {key: value for key, value in body["spec"].items() if key != part}}


async def learnt(theft: Theft, pod: Object, namespace: str, body: Object, policy: str = "placement") -> None:
    """Waits until the policy is at work: it refuses to have this written on the pod."""

    async def known() -> bool:
        attempt = theft.thief.patch(path(pod), body, dryRun="All")
        return await at_work(f"{namespace}-{namespace}-scheduler-{policy}", attempt)

    await eventually(known)


def test_a_gated_pod_gets_its_node_and_nothing_else(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    two = required({"matchFields": [pin("n1")]}, {"matchFields": [pin("n2")]})
    label = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    toleration = {"key": "any", "operator": "Exists"}
    attempts: list[tuple[Object, str]] = [
        ({"spec": {"schedulingGates": None}}, "the scheduler may add the node"),
        (without(placement(), "schedulingGates"), "removes that one"),
        (placement() | annotated(), "the scheduler may add the node"),
        (without(placement(), "affinity"), "the scheduler may add the node"),
        (placement(**two), "the scheduler may add the node"),
        (placement(**required({"matchFields": [pin("n2")]})), "the scheduler may add the node"),
        (placement(**required({"matchFields": [pin("n1")], **label})), "the scheduler may add the node"),
        (placement(nodeSelector={"zone": "a"}), "gates and its required node affinity alone"),
        (placement(tolerations=[toleration]), "gates and its required node affinity alone"),
        (placement() | labelled(app="payments"), "these labels alone"),
        (placement() | labelled(app=None), "these labels alone"),
        (placement() | annotated(note="yours"), "with a placement the scheduler may write the annotations"),
        (placement() | {"metadata": {"finalizers": None}}, "the owners or the finalizers"),
    ]

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "scheduler", *MODE) as theft:
            pod = await theft.pod(namespace, FOREIGN, gates=(PLACEMENT_GATE,))
            await learnt(theft, pod, namespace, labelled(app="x"))
            for body, complaint in attempts:
                await refused(theft.thief.patch(path(pod), {**body}), complaint)
            quota = await theft.pod(namespace, FOREIGN, gates=(PLACEMENT_GATE, OTHER))
            await refused(theft.thief.patch(path(quota), placement()), "removes that one")
            await theft.thief.patch(path(quota), placement(left=(OTHER,)))
            left = await theft.admin.get(path(pod))
            assert left["spec"] == pod["spec"]
            assert left["metadata"]["labels"] == pod["metadata"]["labels"]

    asyncio.run(run())


def test_pods_without_the_gate_are_left_alone(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "scheduler", *MODE) as theft:
            plain, others = [await theft.pod(namespace, FOREIGN, gates=gates) for gates in ((), (OTHER,))]
            await learnt(theft, plain, namespace, labelled(app="x"))
            rank = labelled(**{"closeby.dev/rank": "1"})
            complaint = "pods with the scheduling gate closeby.dev/placement alone"
            for pod, body in ((plain, image("evil")), (plain, rank), (others, rank)):
                await refused(theft.thief.patch(path(pod), body, kind="strategic"), complaint)
            await refused(theft.thief.patch(path(others), placement()), complaint)
            told = {"status": {"conditions": [unschedulable()]}}
            status = theft.thief.patch(path(plain, "/status"), told, kind="strategic")
            await refused(status, "the status of pods with the scheduling gate")

    asyncio.run(run())


def test_rights_that_gate_mode_does_not_need_are_not_there(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "scheduler", *MODE) as theft:
            pod = await theft.pod(namespace, FOREIGN)
            for part in ("binding", "eviction"):
                with pytest.raises(ApiError) as denied:
                    await theft.thief.create(path(pod, f"/{part}"), {"metadata": {"name": "x"}})
                assert (denied.value.status, "cannot create" in denied.value.message) == (403, True)
            for kind in ("persistentvolumeclaims", "persistentvolumes"):
                with pytest.raises(ApiError) as denied:
                    where = f"/namespaces/{namespace}" if kind == "persistentvolumeclaims" else ""
                    await theft.thief.patch(f"/api/v1{where}/{kind}/x", {"metadata": {}})
                assert "cannot patch" in denied.value.message

    asyncio.run(run())


def test_what_the_scheduler_does_write_is_still_written(
    helm: Path, control_plane: ControlPlane, namespace: str
) -> None:
    """Its own code, with the same token, on pods with all kinds of terms."""
    label = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    field = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}
    alternatives: list[list[Object]] = [[], [label], [label, field, {}], [{"matchFields": [pin("n1")]}]]

    async def run() -> None:
        async with stolen(helm, control_plane, namespace, "scheduler", *MODE) as theft:
            writes = PlacementWriter(theft.transport, lambda uid, node: None, lambda uid: None)
            pods = [await theft.pod(namespace, FOREIGN, gates=(PLACEMENT_GATE,)) for _ in alternatives]
            await learnt(theft, pods[0], namespace, labelled(app="x"))
            for pod, terms in zip(pods, alternatives, strict=True):
                if terms:
                    await theft.admin.patch(path(pod), {"spec": required(*terms)})
                binding = Binding(record(pod), "n1", rank=3, domain=("z", "r"))
                for _ in range(2):  # By a replica too that does not know of the first time.
                    assert (await writes.bind(binding)).ok
                    assert (await writes.look(binding)).ok
                assert not (await writes.bind(Binding(record(pod), "n2"))).ok
                found = await theft.admin.get(path(pod))
                assert found["metadata"]["labels"] == pod["metadata"]["labels"] | {"closeby.dev/rank": "3"}
                assert found["metadata"]["annotations"] == {
                    **pod["metadata"]["annotations"],
                    PLACED_ON: "n1",
                    "closeby.dev/topology-domain": "z/r",
                }
                assert found["metadata"]["finalizers"] == [KEPT]
                assert "schedulingGates" not in found["spec"]

    asyncio.run(run())
