"""PodGroups of other schedulers on a real API server: placed as gangs, and told as their kinds allow."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.definitions import CRDS
from tests.kube.faulty_proxy import Refuse
from tests.kube.live_world import RACK, World, behind_proxy, host, until

PLAN = "closeby.dev/plan"
#: r1 is too small for a gang of four.
HOSTS = (host("r1-0", "r1", 3), host("r2-0", "r2", 2), host("r2-1", "r2", 2))
UPSTREAM = "scheduling.k8s.io"


@dataclass(frozen=True)
class Dialect:
    """How one scheduler's users ask for a gang."""

    group: str
    version: str
    #: The spec of a gang of four; given the name of a topology.
    spec: Callable[[str], Object]
    #: Makes a pod a member.
    join: Callable[[Object, str], object]
    #: Whether the gang requires one rack.
    requires: bool = False
    builtin: bool = False

    def path(self, namespace: str, name: str = "") -> str:
        """Of a PodGroup, or of all in a namespace."""
        path = f"/apis/{self.group}/{self.version}/namespaces/{namespace}/podgroups"
        return f"{path}/{name}" if name else path


def annotated(key: str) -> Callable[[Object, str], object]:
    return lambda pod, gang: pod["metadata"].setdefault("annotations", {}).update({key: gang})


def labelled(key: str) -> Callable[[Object, str], object]:
    return lambda pod, gang: pod["metadata"]["labels"].update({key: gang})


VOLCANO = Dialect(
    "scheduling.volcano.sh",
    "v1beta1",
    lambda topology: {"minMember": 4},
    annotated("scheduling.k8s.io/group-name"),
)
KAI = Dialect(
    "scheduling.run.ai",
    "v2alpha2",
    lambda topology: {
        "minMember": 4,
        "topologyConstraint": {"topology": topology, "requiredTopologyLevel": RACK},
    },
    annotated("pod-group-name"),
    requires=True,
)
COSCHEDULING = Dialect(
    "scheduling.x-k8s.io",
    "v1alpha1",
    lambda topology: {"minMember": 4},
    labelled("scheduling.x-k8s.io/pod-group"),
)
NATIVE = Dialect(
    UPSTREAM,
    "v1alpha2",
    lambda topology: {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": RACK}]},
    },
    lambda pod, gang: pod["spec"].update({"schedulingGroup": {"podGroupName": gang}}),
    requires=True,
    builtin=True,
)


@asynccontextmanager
async def served(api: Api, dialect: Dialect) -> AsyncIterator[None]:
    """The dialect's kind is there inside the context."""
    if dialect.builtin:
        yield
        return
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    name = f"podgroups.{dialect.group}"
    definition = {
        "metadata": {
            "name": name,
            # Groups of the Kubernetes project ask for it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": dialect.group,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [
                {
                    "name": dialect.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }

    async def created() -> bool:
        """One of the same name may still be on its way out."""
        try:
            await api.create(CRDS, definition)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    async def listed() -> bool:
        try:
            await api.get(f"/apis/{dialect.group}/{dialect.version}/podgroups")
        except ApiError:
            return False
        return True

    async def gone() -> bool:
        try:
            await api.get(f"{CRDS}/{name}")
        except ApiError as error:
            return error.status == 404
        return False

    await until(created)
    try:
        await until(listed)
        yield
    finally:
        await api.delete(f"{CRDS}/{name}")
        await until(gone)


async def gang(it: World, dialect: Dialect, name: str = "g", number: int = 4) -> None:
    """The dialect's PodGroup and its pods."""
    body = {
        "apiVersion": f"{dialect.group}/{dialect.version}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": dialect.spec(it.topology),
    }
    await it.api.create(dialect.path(it.namespace), body)
    pods = [it.pod(f"{name}-{i}") for i in range(number)]
    for pod in pods:
        dialect.join(pod, name)
    await it.create(*pods)


def planned(group: Object) -> dict[str, str]:
    """The node of each pod, by uid, in the plan that stands in the annotation."""
    text = group["metadata"].get("annotations", {}).get(PLAN)
    nodes = {} if text is None else json.loads(text)["nodes"]
    return {uid: node for node, uids in nodes.items() for uid in uids}


async def nodes_by_uid(it: World) -> dict[str, str]:
    """The node of each bound pod."""
    pods = (await it.pods()).values()
    return {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName")}


@pytest.fixture(params=[VOLCANO, KAI, COSCHEDULING, NATIVE], ids=lambda dialect: dialect.group)
def dialect(request: pytest.FixtureRequest, control_plane: ControlPlane) -> Dialect:
    found: Dialect = request.param

    async def there() -> bool:
        async with Api(control_plane.access()) as api:
            try:
                await api.get(f"/apis/{found.group}/{found.version}/podgroups")
            except ApiError:
                return False
        return True

    if found.builtin and not asyncio.run(there()):
        pytest.skip("the API server does not serve scheduling.k8s.io v1alpha2")
    return found


def test_a_gang_is_placed_and_its_plan_stands_only_meanwhile(
    control_plane: ControlPlane, namespace: str, dialect: Dialect
) -> None:
    plans: list[dict[str, str]] = []

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), served(it.api, dialect):

            async def look() -> None:
                plans.append(planned(await it.api.get(dialect.path(namespace, "g"))))

            async def plan_gone() -> bool:
                return not planned(await it.api.get(dialect.path(namespace, "g")))

            proxy.before("POST", "/binding", look)
            async with it.scheduling():
                await gang(it, dialect)
                placed = await it.bound(4)
                if dialect.requires:
                    assert {place.partition("-")[0] for place in placed.values()} == {"r2"}
                assert plans == [await nodes_by_uid(it)]
                await until(plan_gone)
                group = await it.api.get(dialect.path(namespace, "g"))
                if dialect.group == UPSTREAM:
                    await until(lambda: _told(it, dialect, "True"))
                else:
                    # Nobody else's status is written, and what can't have a condition gets an Event.
                    assert "status" not in group
                    await until(lambda: _told_by_event(it, "Scheduled"))

    asyncio.run(run())


def test_a_gang_that_waits_is_told_where_its_kind_allows(
    control_plane: ControlPlane, namespace: str, dialect: Dialect
) -> None:
    """Seven members are needed in one rack, or in all where nothing requires one."""
    hosts = (host("r1-0", "r1", 2), host("r2-0", "r2", 1))

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *hosts) as (it, proxy), served(it.api, dialect):
            # All its members are there: of one that is incomplete for a moment that would be told first.
            await gang(it, dialect)
            async with it.scheduling():
                if dialect.group == UPSTREAM:
                    await until(lambda: _told(it, dialect, "False"))
                else:
                    await until(lambda: _told_by_event(it, "FailedScheduling"))
                assert await it.placed() == {}
                assert proxy.count("POST", "/binding") == 0
                assert not planned(await it.api.get(dialect.path(namespace, "g")))

    asyncio.run(run())


def test_a_start_that_stopped_is_carried_on_along_the_annotation(
    control_plane: ControlPlane, namespace: str, dialect: Dialect
) -> None:
    """The scheduler ends with half of the bindings sent; the next one finds where the others were to go."""

    async def run() -> None:
        async with behind_proxy(control_plane, namespace, *HOSTS) as (it, proxy), served(it.api, dialect):
            for member in (1, 3):
                proxy.inject("POST", f"/{namespace}/pods/g-{member}/binding", Refuse(503), times=1000)
            async with it.scheduling():
                await gang(it, dialect)
                await it.bound(2)
            group = await it.api.get(dialect.path(namespace, "g"))
            promised = planned(group)
            assert len(promised) == 4
            proxy.forgive()
            again = World(it.api, it.transport, namespace, topology=it.topology, name=it.name)
            async with again.scheduling():
                await again.bound(4)
                assert await nodes_by_uid(again) == promised

                async def plan_gone() -> bool:
                    return not planned(await it.api.get(dialect.path(namespace, "g")))

                await until(plan_gone)

    asyncio.run(run())


async def _told(it: World, dialect: Dialect, status: str) -> bool:
    group = await it.api.get(dialect.path(it.namespace, "g"))
    conditions = group.get("status", {}).get("conditions") or ()
    found = [one for one in conditions if one["type"] == "PodGroupScheduled" and one["status"] == status]
    if status == "False":
        assert all(one["reason"] == "Unschedulable" for one in found)
    return bool(found)


async def _told_by_event(it: World, reason: str) -> bool:
    found = [one for one in await it.events(reason) if one["regarding"]["kind"] == "PodGroup"]
    assert len(found) <= 1, found
    return [one["regarding"]["name"] for one in found] == ["g"]
