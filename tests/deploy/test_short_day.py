"""A short day on closeby as an operator installs it: by the chart, and by the plain YAML.

The programs run here as their containers would: with their own arguments, and the tokens of their own service
accounts. The nodes are labelled like a cloud's, so that the API server copies zone and region to pods.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.control_plane.api import Api, Object
from tests.control_plane.clouds import COPIED_TO_PODS, binds_with_labels, on_a_cloud
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.nodes import joined, kubelets, node
from tests.deploy.installed import (
    Release,
    applied_plain,
    installed_by_helm,
    kubeconfig,
    probes,
    running,
)
from tests.deploy.test_rights import GROUPS, RACK, fabric, forbidden, pod, workload
from tests.kube.live import eventually

POLICIES = "/apis/admissionregistration.k8s.io/v1"
#: Two pods of this size fill a node.
HALF = "16"


@contextlib.asynccontextmanager
async def release(
    way: str, helm: Path, plane: ControlPlane, api: Api, namespace: str
) -> AsyncIterator[Release]:
    made = applied_plain(api) if way == "plain YAML" else installed_by_helm(helm, plane, api, namespace)
    async with made as it:
        yield it


@dataclass(frozen=True)
class Day:
    """What a tenant does in its namespace, and sees of its pods."""

    api: Api
    namespace: str
    scheduler: str

    async def submit(self, *names: str, priority: str = "") -> None:
        for name in names:
            made = pod(name, self.scheduler, cpu=HALF)
            if priority:
                made["spec"]["priorityClassName"] = priority
            await self.api.create(self.path(), made)

    async def delete(self, *names: str) -> None:
        for name in names:
            await self.api.delete(self.path(name))

    def path(self, name: str = "") -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods" + (f"/{name}" if name else "")

    async def pods(self) -> dict[str, Object]:
        return {one["metadata"]["name"]: one for one in (await self.api.get(self.path()))["items"]}

    async def until_bound(self, *names: str) -> None:
        async def bound() -> bool:
            pods = await self.pods()
            return all(name in pods and pods[name]["spec"].get("nodeName") for name in names)

        await eventually(bound, 60)

    async def until_refused(self, name: str) -> None:
        """It is told that it fits nowhere."""

        async def told() -> bool:
            conditions = (await self.pods())[name]["status"].get("conditions", ())
            return any(
                one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions
            )

        await eventually(told, 60)


@pytest.mark.parametrize("way", ["chart", "plain YAML"])
@pytest.mark.slow
def test_a_short_day(
    helm: Path, control_plane: ControlPlane, namespace: str, tmp_path: Path, way: str
) -> None:
    """Gangs, plain pods, a deletion, a preemption, and a write that the API server refuses for a while."""
    if not control_plane.controllers:
        pytest.skip("needs kube-controller-manager, which makes the pods of a Job")
    hosts = [on_a_cloud(node(f"{namespace}-{i}", labels={RACK: f"r{i // 2}"})) for i in range(6)]
    labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in hosts}
    logs = {one: tmp_path / f"{one}.log" for one in ("scheduler", "controllers")}

    async def run() -> None:
        async with (
            Api(control_plane.access()) as api,
            joined(api, hosts),
            kubelets(api, list(labels)),
            release(way, helm, control_plane, api, f"{namespace}-closeby") as it,
            refusing(api, namespace) as lift,
        ):
            day = Day(api, namespace, "closeby" if way == "plain YAML" else it.namespace)
            await api.create("/apis/closeby.dev/v1alpha1/topologies", fabric(namespace))
            await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", urgent(namespace))
            with contextlib.ExitStack() as programs:
                for one, log in logs.items():
                    who = await kubeconfig(control_plane, api, it, one)
                    programs.enter_context(running(it.arguments(one, tmp_path), who, log))
                try:
                    await gang(day, labels)
                    await plain_pods(day)
                    await preemption(day, namespace)
                    await refusal(day, lift, logs["scheduler"])
                    for one, log in logs.items():
                        assert set((await probes(it, one, log)).values()) == {200}
                except (AssertionError, TimeoutError) as error:
                    raise AssertionError("\n".join(log.read_text() for log in logs.values())) from error
                await leases(api, it)
            await api.delete(f"/apis/closeby.dev/v1alpha1/topologies/{namespace}")
            await api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/{namespace}")
            unwanted = [line for log in logs.values() for line in forbidden(log)]
            assert [line for line in unwanted if f"not here, {namespace}" not in line] == []

    asyncio.run(run())


async def gang(day: Day, labels: dict[str, dict[str, str]]) -> None:
    """The pods of a Job are made a gang, share a rack, and have their node's zone and region."""
    asked = workload(day.namespace)
    asked["spec"] |= {"parallelism": 4, "completions": 4}
    template = asked["spec"]["template"]["spec"]
    template["schedulerName"] = day.scheduler
    template["containers"][0]["resources"] = {"requests": {"cpu": HALF}}
    await day.api.create(f"/apis/batch/v1/namespaces/{day.namespace}/jobs", asked)

    async def placed() -> bool:
        pods = (await day.pods()).values()
        return len(pods) == 4 and all(one["spec"].get("nodeName") for one in pods)

    await eventually(placed, 60)
    pods = list((await day.pods()).values())
    assert len({labels[one["spec"]["nodeName"]][RACK] for one in pods}) == 1
    copies = await binds_with_labels(day.api)
    for one in pods:
        its = one["metadata"]["labels"]
        copied = {key: its[key] for key in COPIED_TO_PODS if key in its}
        wanted = {key: labels[one["spec"]["nodeName"]][key] for key in COPIED_TO_PODS}
        assert copied == (wanted if copies else {})

    async def told() -> bool:
        (group,) = (await day.api.get(GROUPS.format(day.namespace)))["items"]
        return [
            (one["type"], one["status"], one["reason"])
            for one in group.get("status", {}).get("conditions", ())
        ] == [("Scheduled", "True", "Placed")]

    await eventually(told, 60)


async def plain_pods(day: Day) -> None:
    """They fill the other nodes; one more waits until another is deleted."""
    names = [f"p-{i}" for i in range(8)]
    await day.submit(*names)
    await day.until_bound(*names)
    await day.submit("late")
    await day.until_refused("late")
    await day.delete("p-0")
    await day.until_bound("late")


async def preemption(day: Day, priority: str) -> None:
    """A more important pod takes the place of one, and of one alone."""
    before = await day.pods()
    await day.submit("urgent", priority=priority)
    await day.until_bound("urgent")
    gone = before.keys() - (await day.pods()).keys()
    assert len(gone) == 1 and gone <= {"late", *(f"p-{i}" for i in range(8))}, gone


async def refusal(day: Day, lift: "Lift", log: Path) -> None:
    """A binding that admission refuses holds up nobody else, and succeeds when admission lets it."""
    left = [name for name in await day.pods() if name.startswith("p-")]
    await day.delete(*left[:2])
    await day.submit("refused")

    async def logged() -> bool:
        return refusals(log, day.namespace) > 0

    await eventually(logged, 60)
    await day.submit("other")
    await day.until_bound("other")
    assert not (await day.pods())["refused"]["spec"].get("nodeName")
    await lift()
    await day.until_bound("refused")


def refusals(log: Path, namespace: str) -> int:
    """How often the log has the words of the policy."""
    return log.read_text().count(f"not here, {namespace}")


class Lift:
    """Takes the policy of a context away."""

    def __init__(self, api: Api, paths: Sequence[str]) -> None:
        self._api = api
        self._paths = list(paths)

    async def __call__(self) -> None:
        while self._paths:
            await self._api.delete(self._paths.pop())


@contextlib.asynccontextmanager
async def refusing(api: Api, namespace: str) -> AsyncIterator[Lift]:
    """A policy of the cluster's administrator refuses bindings of pods by their name, until it is lifted."""
    name = f"{namespace}-refuses"
    policy: Object = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods/binding"],
                    }
                ],
            },
            "validations": [{"expression": 'request.name != "refused"', "message": f"not here, {namespace}"}],
        },
    }
    binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    kinds = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
    for kind, one in zip(kinds, (policy, binding), strict=True):
        await api.create(f"{POLICIES}/{kind}", one)
    lift = Lift(api, [f"{POLICIES}/{kind}/{name}" for kind in kinds])
    try:
        yield lift
    finally:
        await lift()


def urgent(name: str) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }


async def leases(api: Api, it: Release) -> None:
    """Each component holds the Lease of its name, and there are no others."""
    found = await api.get(f"/apis/coordination.k8s.io/v1/namespaces/{it.namespace}/leases")
    held = {one["metadata"]["name"]: one["spec"]["holderIdentity"] for one in found["items"]}
    assert held.keys() == {it.account("scheduler"), it.account("controllers")}
    assert all(held.values())
