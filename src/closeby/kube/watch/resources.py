"""The kinds that closeby watches, and where the server at hand serves them.

Which kinds there are differs by cluster, and changes: a CRD may arrive while closeby runs. One request to the
aggregated discovery document tells all of it, and costs next to nothing while nothing changes.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec import Struct

from closeby.kube.client.errors import UNREADABLE, ApiError, decoded
from closeby.kube.client.transport import Request, Transport

#: No API server stores an object with a longer name.
LONGEST_NAME: Final = 253


def is_name(name: str) -> bool:
    """Whether an API server takes ``name`` as a path segment.

    The rules are those of apimachinery's ``IsValidPathSegmentName``, which hold for the names of all kinds.
    """
    if not 0 < len(name) <= LONGEST_NAME or name in (".", ".."):
        return False
    return "/" not in name and "%" not in name


def path_of(*segments: str) -> str:
    """The path of these segments, each of them quoted: the only place where names become parts of a path.

    Names come from objects, and a user who writes an object chooses them. Unquoted, an owner reference to
    ``?watch=true`` would become a watch, and one to ``../..`` a request for something else.

    Raises:
        ValueError: a segment is not a name. Check names that a user chose with ``is_name`` first.
    """
    for one in segments:
        if not is_name(one):
            raise ValueError(f"{one[:LONGEST_NAME]!r} can't be a segment of a path")
    return "".join(f"/{quote(one, safe='')}" for one in segments)


class Resource(Struct, frozen=True, kw_only=True):
    """A kind as one server serves it."""

    group: str = ""
    version: str
    kind: str
    plural: str
    namespaced: bool
    #: Whether its status is written by a request of its own.
    status: bool = True

    @property
    def api_version(self) -> str:
        """Group and version, as in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def collection(self, namespace: str = "") -> str:
        """The path of all objects, or of those in one namespace."""
        return path_of(*self._collection(namespace))

    def item(self, namespace: str, name: str, part: str = "") -> str:
        """The path of one object, or of a part of it such as ``status``."""
        collection = self._collection(namespace if self.namespaced else "")
        return path_of(*collection, name, *([part] if part else []))

    def _collection(self, namespace: str) -> tuple[str, ...]:
        root = ("apis", self.group, self.version) if self.group else ("api", self.version)
        return (*root, "namespaces", namespace, self.plural) if namespace else (*root, self.plural)


NODES: Final = Resource(version="v1", kind="Node", plural="nodes", namespaced=False)
PODS: Final = Resource(version="v1", kind="Pod", plural="pods", namespaced=True)
NAMESPACES: Final = Resource(version="v1", kind="Namespace", plural="namespaces", namespaced=False)
SERVICES: Final = Resource(version="v1", kind="Service", plural="services", namespaced=True)
#: What selectors go by besides pods. The core group is not in the discovery document.
SELECTED_BY: Final = (NAMESPACES, SERVICES)
PERSISTENT_VOLUME_CLAIMS: Final = Resource(
    version="v1", kind="PersistentVolumeClaim", plural="persistentvolumeclaims", namespaced=True
)
PERSISTENT_VOLUMES: Final = Resource(
    version="v1", kind="PersistentVolume", plural="persistentvolumes", namespaced=False
)
VOLUMES: Final = (PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES)
REPLICATION_CONTROLLERS: Final = Resource(
    version="v1", kind="ReplicationController", plural="replicationcontrollers", namespaced=True
)
LEASES: Final = Resource(
    group="coordination.k8s.io", version="v1", kind="Lease", plural="leases", namespaced=True, status=False
)
EVENTS: Final = Resource(
    group="events.k8s.io", version="v1", kind="Event", plural="events", namespaced=True, status=False
)
ENDPOINT_SLICES: Final = Resource(
    group="discovery.k8s.io",
    version="v1",
    kind="EndpointSlice",
    plural="endpointslices",
    namespaced=True,
    status=False,
)


class Watched(Struct, frozen=True):
    """A kind that not every server has; ``versions`` that closeby reads, the best first."""

    group: str
    kind: str
    versions: tuple[str, ...]


#: Kind of the claims for devices.
RESOURCE_CLAIM: Final = "ResourceClaim"

_KUEUE: Final = ("v1beta2", "v1beta1", "v1alpha1")

#: Besides nodes and pods, which every server has.
WATCHED: Final[tuple[Watched, ...]] = (
    Watched("scheduling.k8s.io", "PriorityClass", ("v1",)),
    Watched("policy", "PodDisruptionBudget", ("v1",)),
    Watched("resource.k8s.io", RESOURCE_CLAIM, ("v1", "v1beta2", "v1beta1")),
    Watched("closeby.dev", "PodGroup", ("v1alpha1",)),
    Watched("closeby.dev", "Topology", ("v1alpha1",)),
    Watched("scheduling.run.ai", "PodGroup", ("v2alpha2",)),
    Watched("kai.scheduler", "Topology", ("v1alpha1",)),
    Watched("scheduling.x-k8s.io", "PodGroup", ("v1alpha1",)),
    Watched("scheduling.volcano.sh", "PodGroup", ("v1beta1",)),
    Watched("scheduling.k8s.io", "PodGroup", ("v1beta1", "v1alpha3", "v1alpha2")),
    Watched("scheduling.k8s.io", "CompositePodGroup", ("v1beta1", "v1alpha3")),
    Watched("kueue.x-k8s.io", "Topology", _KUEUE),
    Watched("grove.io", "ClusterTopologyBinding", ("v1alpha1",)),
    Watched("topology.volcano.sh", "HyperNode", ("v1alpha1",)),
    Watched("kueue.x-k8s.io", "ResourceFlavor", _KUEUE),
    Watched("kueue.x-k8s.io", "ClusterQueue", _KUEUE),
    Watched("kueue.x-k8s.io", "LocalQueue", _KUEUE),
    Watched("scheduling.sigs.k8s.io", "AppGroup", ("v1alpha1",)),
    Watched("scheduling.sigs.k8s.io", "NetworkTopology", ("v1alpha1",)),
    Watched("appgroup.diktyo.x-k8s.io", "AppGroup", ("v1alpha1",)),
    Watched("networktopology.diktyo.x-k8s.io", "NetworkTopology", ("v1alpha1",)),
)


#: What is known of volumes, besides claims and volumes themselves.
STORAGE: Final[tuple[Watched, ...]] = (
    Watched("storage.k8s.io", "StorageClass", ("v1",)),
    Watched("storage.k8s.io", "CSINode", ("v1",)),
    Watched("storage.k8s.io", "CSIDriver", ("v1",)),
    Watched("storage.k8s.io", "CSIStorageCapacity", ("v1",)),
    Watched("storage.k8s.io", "VolumeAttachment", ("v1",)),
)
#: Kinds without which nothing is decided about pods with claims.
ABOUT_VOLUMES: Final = frozenset({*(one.kind for one in VOLUMES), *(one.kind for one in STORAGE)})
#: Workloads that select the pods they own, besides ReplicationControllers.
OWNERS: Final[tuple[Watched, ...]] = (
    Watched("apps", "ReplicaSet", ("v1",)),
    Watched("apps", "StatefulSet", ("v1",)),
)
#: What default spread goes by, besides Services.
ABOUT_OWNERS: Final = frozenset({REPLICATION_CONTROLLERS.kind, *(one.kind for one in OWNERS)})


#: Of Kubernetes 1.35. Only the pod-grouper follows it: the scheduler goes by the PodGroups made of it.
WORKLOADS: Final = Watched("scheduling.k8s.io", "Workload", ("v1alpha1",))


class Arrived(Struct, frozen=True):
    """The server serves this now."""

    resource: Resource


class Left(Struct, frozen=True):
    """The server does not serve this any more: its objects are gone."""

    resource: Resource


class _Subresource(Struct, frozen=True):
    subresource: str = ""


class _ResponseKind(Struct, frozen=True):
    kind: str = ""


class _ResourceWire(Struct, frozen=True, rename="camel"):
    resource: str = ""
    response_kind: _ResponseKind | None = None
    scope: str = ""
    verbs: tuple[str, ...] | None = None
    subresources: tuple[_Subresource, ...] | None = None


class _VersionWire(Struct, frozen=True):
    version: str = ""
    resources: tuple[_ResourceWire, ...] | None = None


class _Name(Struct, frozen=True):
    name: str = ""


class _GroupWire(Struct, frozen=True):
    metadata: _Name = _Name()
    versions: tuple[_VersionWire, ...] | None = None


class _DiscoveryWire(Struct, frozen=True):
    kind: str = ""
    items: tuple[_GroupWire, ...] | None = None


_decode = msgspec.json.Decoder(_DiscoveryWire).decode
_ACCEPT: Final = ", ".join(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in ("v2", "v2beta1")
)
_NOT_MODIFIED: Final = 304
#: A kind must be missing so often in a row: while a server starts it may not know all of its kinds yet.
_MISSES: Final = 2


class Discovery:
    """Asks one server what it serves."""

    def __init__(self, transport: Transport, watched: Iterable[Watched] = WATCHED) -> None:
        self._transport = transport
        self._watched = tuple(watched)
        self._tag: str | None = None
        self._served: tuple[Resource, ...] = ()

    async def served(self) -> tuple[Resource, ...] | ApiError:
        """Those of the watched kinds that the server has, each in the best version that closeby reads."""
        headers = {"Accept": _ACCEPT} | ({"If-None-Match": self._tag} if self._tag else {})
        answer = await self._transport.exchange(Request(path="/apis", headers=headers))
        if isinstance(answer, ApiError):
            return answer
        if answer.code == _NOT_MODIFIED:
            return self._served
        try:
            found = decoded(_decode, answer.body)
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, f"the list of API groups can't be read: {error}")
        if found.kind != "APIGroupDiscoveryList":
            return ApiError(
                None, UNREADABLE, "the server is older than Kubernetes 1.27, the first that closeby knows"
            )
        self._tag = answer.tag
        self._served = _chosen(found, self._watched)
        return self._served

    async def changes(self, interval: float = 10.0) -> AsyncGenerator[Arrived | Left | ApiError, None]:
        """What the server has now, then what comes and goes, looked up every ``interval`` seconds."""
        known: dict[Resource, int] = {}
        while True:
            served = await self.served()
            if isinstance(served, ApiError):
                yield served
            else:
                for resource in served:
                    if resource not in known:
                        yield Arrived(resource)
                    known[resource] = 0
                for resource in [one for one in known if one not in served]:
                    known[resource] += 1
                    if known[resource] >= _MISSES:
                        del known[resource]
                        yield Left(resource)
            await asyncio.sleep(interval)


def _chosen(found: _DiscoveryWire, watched: Iterable[Watched]) -> tuple[Resource, ...]:
    offered = {
        (group.metadata.name, version.version, one.response_kind.kind): one
        for group in found.items or ()
        for version in group.versions or ()
        for one in version.resources or ()
        if one.response_kind is not None and "watch" in (one.verbs or ())
    }
    chosen = []
    for kind in watched:
        for version in kind.versions:
            one = offered.get((kind.group, version, kind.kind))
            if one is not None:
                chosen.append(_resource(kind, version, one))
                break
    return tuple(chosen)


def _resource(kind: Watched, version: str, wire: _ResourceWire) -> Resource:
    return Resource(
        group=kind.group,
        version=version,
        kind=kind.kind,
        plural=wire.resource,
        namespaced=wire.scope == "Namespaced",
        status=any(part.subresource == "status" for part in wire.subresources or ()),
    )
