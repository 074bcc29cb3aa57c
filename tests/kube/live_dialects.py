"""What tests share about PodGroups of other schedulers on a real API server."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.control_plane.api import Api, ApiError, Object
from tests.control_plane.definitions import CRDS
from tests.kube.live_world import RACK, World, group_of, until

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
    "v1beta1",
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


async def gang(it: World, dialect: Dialect, name: str = "g", number: int = 4, *, scheduler: str = "") -> None:
    """The dialect's PodGroup and its pods, for our scheduler unless another one is named."""
    body = {
        "apiVersion": f"{dialect.group}/{dialect.version}",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": dialect.spec(it.topology),
    }
    await it.api.create(dialect.path(it.namespace), body)
    pods = [it.pod(f"{name}-{i}", schedulerName=scheduler or it.name) for i in range(number)]
    for pod in pods:
        dialect.join(pod, name)
    await it.create(*pods)


async def mirror_of(it: World, dialect: Dialect, name: str = "g") -> Object:
    """The PodGroup of ours that keeps the plan; empty when there is none."""
    try:
        found = await group_of(it, name)
    except ApiError:
        return {}
    assert found["metadata"]["labels"]["closeby.dev/mirror-of"] == dialect.group
    return found


async def planned(it: World, dialect: Dialect, name: str = "g") -> dict[str, str]:
    """The node of each pod, by uid, in the plan that stands in the mirror's status."""
    nodes = (await mirror_of(it, dialect, name)).get("status", {}).get("plan", {}).get("nodes", ())
    return {pod["uid"]: one["name"] for one in nodes for pod in one["pods"]}


async def nodes_by_uid(it: World) -> dict[str, str]:
    """The node of each bound pod."""
    pods = (await it.pods()).values()
    return {one["metadata"]["uid"]: one["spec"]["nodeName"] for one in pods if one["spec"].get("nodeName")}
