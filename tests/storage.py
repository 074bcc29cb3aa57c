"""Short ways to write claims, volumes and classes, and the pods that name them."""

from typing import Any

from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.pods import (
    ClaimName,
    ClaimRequest,
    NodeSelectorTerm,
    Pod,
    PodClaim,
    PodSpec,
    Requirement,
)
from closeby.objects.volumes import NO_PROVISIONER, PersistentVolume, PersistentVolumeClaim, StorageClass

ONCE = ("ReadWriteOnce",)
LOCAL = StorageClass(name="local", provisioner=NO_PROVISIONER, waits=True)
DISKS = StorageClass(name="disks", provisioner="disk.example.com", waits=True)
AT_ONCE = StorageClass(name="at-once", provisioner="disk.example.com")


def claim(
    name: str, storage_class: str | None = "local", size: int = 1, **fields: Any
) -> PersistentVolumeClaim:
    """A claim of the default namespace."""
    modes = fields.pop("modes", ONCE)
    request = ClaimRequest(storage_class=storage_class, size=size, access_modes=modes)
    return PersistentVolumeClaim(namespace="default", name=name, uid=f"uid-{name}", request=request, **fields)


def on_label(key: str, *values: str) -> tuple[NodeSelectorTerm, ...]:
    """The nodes that have one of these values."""
    return (NodeSelectorTerm((Requirement(key, "In", values),)),)


def volume(
    name: str, node: str = "", zone: str = "", storage_class: str = "local", size: int = 1, **fields: Any
) -> PersistentVolume:
    """A volume that one node reaches, or all of a zone, or all."""
    reach = on_label(HOSTNAME, node) if node else on_label(ZONE, zone) if zone else None
    fields = {"access_modes": ONCE, "node_affinity": reach, **fields}
    return PersistentVolume(name=name, storage_class=storage_class, size=size, **fields)


def naming(pod: Pod, *claims: str, own: bool = False) -> Pod:
    """The pod with claims: of these names, or with its own of these templates."""
    naming = ClaimName.BEFORE_POD if own else ClaimName.GIVEN
    found = tuple(PodClaim(name, naming) for name in sorted(claims))
    return replace(pod, spec=replace(pod.spec, claims=found))


def with_claims(spec: PodSpec, *claims: str, own: bool = True) -> PodSpec:
    """The same for needs that several pods share."""
    naming = ClaimName.BEFORE_POD if own else ClaimName.GIVEN
    return replace(spec, claims=tuple(PodClaim(name, naming) for name in sorted(claims)))
