"""A pod's ``spec`` as needs, and the pool in which equal needs, and equal images of nodes, are one object."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import astuple

from closeby.objects.nodes import NodeImage, is_part_of_a_device
from closeby.objects.pods import AttachedDisk, ClaimName, InlineDisk, PodClaim, PodSpec
from closeby.objects.volumes import AZURE_DISK, CINDER, EBS, GCE_PD, PORTWORX
from closeby.reading.decoding.affinity import (
    NodeAffinityWire,
    TolerationWire,
    preferred_terms,
    required_terms,
    tolerations_of,
)
from closeby.reading.decoding.claims import ClaimWire, claim_request
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.migrated_disks import azure_handle, ebs_handle, gce_handle
from closeby.reading.decoding.requests import (
    ContainersWire,
    effective_requests,
    host_ports,
    qos_class,
    refusals,
)
from closeby.reading.decoding.selectors import (
    PodAffinityWire,
    Refusal,
    SpreadWire,
    pod_affinity,
    topology_spread,
)
from closeby.reading.decoding.wire import Wire


class Present(Wire):
    """Something of which only the presence matters."""


class AffinityWire(Wire):
    """``affinity``."""

    node_affinity: NodeAffinityWire | None = None
    pod_affinity: PodAffinityWire | None = None
    pod_anti_affinity: PodAffinityWire | None = None


class InlineDiskWire(Wire):
    """A network disk in the spec itself; of each kind some of the fields name it."""

    pd_name: str | None = None
    volume_id: str | None = field(name="volumeID", default=None)
    disk_uri: str | None = field(name="diskURI", default=None)
    kind: str | None = None
    iqn: str | None = None
    monitors: list[str] | None = None
    image: str | None = None
    pool: str | None = None
    read_only: bool | None = None


class ImageVolumeWire(Wire, gc=False):
    """``image`` of a volume."""

    reference: str | None = None


class ClaimSourceWire(Wire, gc=False):
    """``persistentVolumeClaim``."""

    claim_name: str = ""


class EphemeralWire(Wire):
    """``ephemeral``."""

    volume_claim_template: ClaimWire | None = None


class VolumeWire(Wire):
    """``volumes[]``, of which only those that can bind a pod to a place or draw it there matter."""

    #: Of these two only their names count, which ``claims_of`` reads.
    name: str | None = None
    persistent_volume_claim: ClaimSourceWire | None = None
    ephemeral: EphemeralWire | None = None
    gce_persistent_disk: InlineDiskWire | None = None
    aws_elastic_block_store: InlineDiskWire | None = None
    azure_disk: InlineDiskWire | None = None
    cinder: InlineDiskWire | None = None
    portworx_volume: InlineDiskWire | None = None
    rbd: InlineDiskWire | None = None
    iscsi: InlineDiskWire | None = None
    image: ImageVolumeWire | None = None


class DeviceClaimWire(Wire, gc=False):
    """``resourceClaims[]``."""

    name: str = ""
    resource_claim_name: str | None = None


class GateWire(Wire, gc=False):
    """``schedulingGates[]``."""

    name: str = ""


class SchedulingGroupWire(Wire, gc=False):
    """``schedulingGroup``."""

    pod_group_name: str | None = None


class WorkloadRefWire(Wire, gc=False):
    """``workloadRef``."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class PodSpecWire(ContainersWire):
    """``spec`` of a pod or a pod template."""

    node_selector: dict[str, str] | None = None
    affinity: AffinityWire | None = None
    tolerations: list[TolerationWire] | None = None
    topology_spread_constraints: list[SpreadWire] | None = None
    volumes: list[VolumeWire] | None = None
    resource_claims: list[DeviceClaimWire] | None = None
    runtime_class_name: str | None = None
    scheduling_gates: list[GateWire] | None = None
    scheduling_group: SchedulingGroupWire | None = None
    workload_ref: WorkloadRefWire | None = None
    scheduler_name: str | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    node_name: str | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class ReadSpec(Struct, frozen=True):
    """What a spec says."""

    needs: PodSpec
    #: What no API server accepts: where in the spec, what is wrong, and the remedy.
    refused: tuple[Refusal, ...]


class SpecPool:
    """Turns specs on the wire into ``PodSpec`` objects, of which equal ones are the same object."""

    def __init__(self) -> None:
        self._by_text: dict[bytes, ReadSpec] = {}
        self._by_value: dict[PodSpec, PodSpec] = {}
        self._images: dict[tuple[str, int], NodeImage] = {}
        self._encoder = msgspec.json.Encoder()

    def read(self, wire: PodSpecWire) -> ReadSpec:
        """What is in ``wire``, which loses its node, group, times and ResourceClaims: they are its own.

        Raises:
            FieldError: something in it makes no sense; the path starts at ``spec``.
        """
        wire.node_name = None
        wire.scheduling_group = None
        wire.workload_ref = None
        wire.active_deadline_seconds = None
        wire.termination_grace_period_seconds = None
        wire.resource_claims = None
        text = self._encoder.encode(wire)
        known = self._by_text.get(text)
        if known is None:
            refused: list[Refusal] = []
            needs = self.intern(_needs(wire, refused))
            known = ReadSpec(needs, (*refusals(wire), *refused))
            self._by_text[text] = known
        return known

    def intern(self, spec: PodSpec) -> PodSpec:
        """The one object that stands for all specs equal to ``spec``."""
        return self._by_value.setdefault(spec, spec)

    def image(self, name: str, size: int) -> NodeImage:
        """The one object that stands for this image on all nodes."""
        known = self._images.get((name, size))
        if known is None:
            known = self._images[name, size] = NodeImage(name, size)
        return known


def claims_of(wire: PodSpecWire, pod_name: str) -> tuple[PodClaim, ...]:
    """The claims of a pod, which ``wire`` loses: they have another name for each pod of a StatefulSet.

    Raises:
        FieldError: a template makes no sense; the path starts at ``spec``.
    """
    found = list[PodClaim]()
    after = f"-{pod_name}"
    for i, volume in enumerate(wire.volumes or ()):
        if volume.persistent_volume_claim is not None:
            name = volume.persistent_volume_claim.claim_name
            stem = name.removesuffix(after)
            if stem and stem != name:
                found.append(PodClaim(stem, ClaimName.BEFORE_POD))
            else:
                found.append(PodClaim(name))
        elif volume.ephemeral is not None:
            template = volume.ephemeral.volume_claim_template or ClaimWire()
            request = claim_request(template.spec, ("volumes", i, "ephemeral", "volumeClaimTemplate", "spec"))
            found.append(PodClaim(volume.name or "", ClaimName.AFTER_POD, request))
        volume.name = volume.persistent_volume_claim = volume.ephemeral = None
    if len(found) <= 1:
        return tuple(found)
    return tuple(sorted(set(found), key=lambda one: (one.name, one.naming)))


def _needs(wire: PodSpecWire, refused: list[Refusal]) -> PodSpec:
    affinity = wire.affinity or AffinityWire()
    among_pods = pod_affinity(affinity.pod_affinity, affinity.pod_anti_affinity, refused)
    spread = topology_spread(wire.topology_spread_constraints, refused)
    required = required_terms(affinity.node_affinity, refused)
    preferred = preferred_terms(affinity.node_affinity, refused)
    requests = effective_requests(wire)
    parts = (name for name, _ in requests if is_part_of_a_device(name))
    return PodSpec(
        requests=requests,
        node_selector=tuple(sorted((wire.node_selector or {}).items())),
        required_affinity=required,
        preferred_affinity=preferred,
        tolerations=tolerations_of(wire.tolerations),
        host_ports=host_ports(wire),
        inline_disks=_inline_disks(wire.volumes or ()),
        attached_disks=_attached_disks(wire.volumes or ()),
        pod_affinity=among_pods,
        topology_spread=spread,
        invalid=tuple(f"spec.{field_path(path)} {message}" for path, message, _ in refused),
        images=_images(wire),
        runtime_class="" if wire.overhead else wire.runtime_class_name or "",
        scheduling_gates=tuple(gate.name for gate in wire.scheduling_gates or ()),
        unsupported=tuple(f"spec.containers[*].resources of {name}, a part of a device" for name in parts),
        qos_class=qos_class(wire),
        scheduler_name=wire.scheduler_name or "",
        priority_class_name=wire.priority_class_name or "",
        priority=wire.priority,
        preemption_policy=wire.preemption_policy or "",
    )


def _images(wire: PodSpecWire) -> tuple[str, ...]:
    """With a tag or digest each: without one the tag is ``latest``."""
    named = [one.image for one in (*(wire.init_containers or ()), *(wire.containers or ()))]
    named += [one.image.reference for one in wire.volumes or () if one.image is not None]
    return tuple(
        sorted(name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in named if name)
    )


def _inline_disks(volumes: Sequence[VolumeWire]) -> tuple[InlineDisk, ...]:
    """The disks that upstream's VolumeRestrictions knows; of AWS none is shared, even to be read."""
    disks = set[InlineDisk]()
    for volume in volumes:
        for kind, disk in (
            ("gcePersistentDisk", volume.gce_persistent_disk),
            ("awsElasticBlockStore", volume.aws_elastic_block_store),
            ("iscsi", volume.iscsi),
            ("rbd", volume.rbd),
        ):
            if disk is None:
                continue
            name = disk.pd_name or disk.volume_id or disk.iqn or f"{disk.pool or 'rbd'}/{disk.image or ''}"
            monitors = tuple(sorted(set(disk.monitors or ()))) if kind == "rbd" else ()
            shared = bool(disk.read_only) and kind != "awsElasticBlockStore"
            disks.add(InlineDisk(kind, name, shared, monitors))
    return tuple(sorted(disks, key=astuple))


def _attached_disks(volumes: Sequence[VolumeWire]) -> tuple[AttachedDisk, ...]:
    """The disks that CSI drivers attach in place of Kubernetes, by what the drivers call them."""
    disks = set[AttachedDisk]()
    for volume in volumes:
        if (disk := volume.gce_persistent_disk) is not None:
            disks.add(AttachedDisk(GCE_PD, gce_handle(disk.pd_name or "", {})))
        if (disk := volume.aws_elastic_block_store) is not None:
            disks.add(AttachedDisk(EBS, ebs_handle(disk.volume_id or "")))
        if (disk := volume.azure_disk) is not None:
            disks.add(AttachedDisk(AZURE_DISK, azure_handle(disk.disk_uri, disk.kind)))
        if (disk := volume.cinder) is not None:
            disks.add(AttachedDisk(CINDER, disk.volume_id or ""))
        if (disk := volume.portworx_volume) is not None:
            disks.add(AttachedDisk(PORTWORX, disk.volume_id or ""))
    return tuple(sorted((one for one in disks if one.handle), key=astuple))
