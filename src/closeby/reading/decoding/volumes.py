"""Reads claims, volumes, storage classes, and what nodes and CSI drivers say of volumes."""

from collections.abc import Mapping
from typing import Final

from msgspec import field

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.pods import FILESYSTEM, NodeSelectorTerm, Requirement
from closeby.objects.quantities import QuantityText
from closeby.objects.volumes import (
    AZURE_DISK,
    BIND_COMPLETED,
    CINDER,
    EBS,
    GCE_PD,
    PORTWORX,
    SELECTED_NODE,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    NodeDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from closeby.reading.decoding.affinity import RequiredWire, RequirementWire, node_selector_terms, requirement
from closeby.reading.decoding.claims import (
    STORAGE,
    ClaimSpecWire,
    ClaimWire,
    PhaseWire,
    claim_request,
    in_bytes,
    selector_of,
)
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.migrated_disks import azure_handle, ebs_handle, gce_handle
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.selectors import LabelSelectorWire
from closeby.reading.decoding.wire import Meta, ObjectWire, Quantities, Wire, namespace_of, shared

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_WAITS: Final = "WaitForFirstConsumer"
_TERMS: Path = ("spec", "nodeAffinity", "required", "nodeSelectorTerms")


class ClaimRefWire(Wire, gc=False):
    """``claimRef``."""

    namespace: str = ""
    name: str = ""
    uid: str | None = None


class VolumeAffinityWire(Wire):
    """``nodeAffinity`` of a volume."""

    required: RequiredWire | None = None


class CSISourceWire(Wire, gc=False):
    """``csi`` of a volume."""

    driver: str = ""
    volume_handle: str = ""


class OldSourceWire(Wire, gc=False):
    """A kind of disk that a CSI driver attaches now."""

    pd_name: str | None = None
    volume_id: str | None = field(name="volumeID", default=None)
    disk_uri: str | None = field(name="diskURI", default=None)
    kind: str | None = None


class VolumeSpecWire(Wire):
    """``spec`` of a volume."""

    capacity: Quantities | None = None
    access_modes: list[str] | None = None
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: ClaimRefWire | None = None
    node_affinity: VolumeAffinityWire | None = None
    csi: CSISourceWire | None = None
    aws_elastic_block_store: OldSourceWire | None = None
    azure_disk: OldSourceWire | None = None
    cinder: OldSourceWire | None = None
    gce_persistent_disk: OldSourceWire | None = None
    portworx_volume: OldSourceWire | None = None


class VolumeWire(ObjectWire):
    """A volume."""

    spec: VolumeSpecWire | None = None
    status: PhaseWire | None = None


class TopologyTermWire(Wire):
    """``allowedTopologies[]``."""

    match_label_expressions: list[RequirementWire] | None = None


class StorageClassWire(ObjectWire):
    """A storage class."""

    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTermWire] | None = None


class AllocatableWire(Wire, gc=False):
    """``allocatable`` of a driver on a node."""

    count: int | None = None


class NodeDriverWire(Wire):
    """``drivers[]`` of a CSINode."""

    name: str = ""
    allocatable: AllocatableWire | None = None
    topology_keys: list[str] | None = None


class CSINodeSpecWire(Wire):
    """``spec`` of a CSINode."""

    drivers: list[NodeDriverWire] | None = None


class CSINodeWire(ObjectWire):
    """A CSINode."""

    spec: CSINodeSpecWire | None = None


class CSIDriverSpecWire(Wire):
    """``spec`` of a CSIDriver."""

    storage_capacity: bool | None = None


class CSIDriverWire(ObjectWire):
    """A CSIDriver."""

    spec: CSIDriverSpecWire | None = None


class CSIStorageCapacityWire(ObjectWire):
    """A CSIStorageCapacity."""

    storage_class_name: str = ""
    node_topology: LabelSelectorWire | None = None
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None


class AttachedWire(Wire, gc=False):
    """``source`` of an attachment."""

    persistent_volume_name: str | None = None


class AttachmentSpecWire(Wire):
    """``spec`` of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachedWire | None = None


class AttachmentWire(ObjectWire):
    """An attachment."""

    spec: AttachmentSpecWire | None = None


def read_claim(document: Document, reading: DocumentReading) -> PersistentVolumeClaim:
    """A PersistentVolumeClaim.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(ClaimWire)
    meta, spec = wire.meta, wire.spec or ClaimSpecWire()
    annotations = meta.annotation_map
    phase = wire.status.phase if wire.status else None
    if _BETA_CLASS in annotations:
        spec.storage_class_name = annotations[_BETA_CLASS]
    return PersistentVolumeClaim(
        namespace=shared(namespace_of(meta)),
        name=reading.name(document, meta),
        uid=meta.uid or "",
        request=shared(claim_request(spec, ("spec",))),
        volume=spec.volume_name or "",
        bound=bool(spec.volume_name) and (BIND_COMPLETED in annotations or phase == "Bound"),
        lost=phase == "Lost",
        selected_node=shared(annotations.get(SELECTED_NODE) or None),
        terminating=meta.deletion_timestamp is not None,
        controller=_controller_uid(meta),
    )


def read_volume(document: Document, reading: DocumentReading) -> PersistentVolume:
    """A PersistentVolume.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(VolumeWire)
    meta, spec = wire.meta, wire.spec or VolumeSpecWire()
    phase = wire.status.phase if wire.status else None
    size = in_bytes((spec.capacity or {}).get(STORAGE), ("spec", "capacity", STORAGE), down=True)
    required = spec.node_affinity.required if spec.node_affinity else None
    claim = spec.claim_ref
    driver, handle = _attached(spec, meta.label_map)
    return PersistentVolume(
        name=reading.name(document, meta),
        storage_class=shared(meta.annotation_map.get(_BETA_CLASS, spec.storage_class_name or "")),
        size=size or 0,
        access_modes=shared(tuple(sorted(set(spec.access_modes or ())))),
        volume_mode=shared(spec.volume_mode or FILESYSTEM),
        attributes_class=spec.volume_attributes_class_name or "",
        labels=meta.label_map,
        node_affinity=None
        if required is None
        else shared(node_selector_terms(required.node_selector_terms or (), _TERMS)),
        claim="" if claim is None else f"{claim.namespace}/{claim.name}",
        claim_uid="" if claim is None else claim.uid or "",
        available=phase is None or phase == "Available",
        terminating=meta.deletion_timestamp is not None,
        driver=shared(driver),
        handle=handle,
        migrated=spec.csi is None and bool(driver),
    )


def read_storage_class(document: Document, reading: DocumentReading) -> StorageClass:
    """A StorageClass.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(StorageClassWire)
    annotations = wire.meta.annotation_map
    mode = wire.volume_binding_mode or "Immediate"
    if mode not in ("Immediate", _WAITS):
        remedy = f"use Immediate or {_WAITS}"
        raise FieldError(("volumeBindingMode",), f"{quoted(mode)} is not a binding mode", remedy)
    return StorageClass(
        name=reading.name(document, wire.meta),
        provisioner=wire.provisioner,
        waits=mode == _WAITS,
        topologies=tuple(
            NodeSelectorTerm(_topology(term, i)) for i, term in enumerate(wire.allowed_topologies or ())
        ),
        default=any(annotations.get(key) == "true" for key in _DEFAULT_CLASS),
        created=wire.meta.created,
    )


def read_csi_node(document: Document, reading: DocumentReading) -> CSINode:
    """A CSINode.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(CSINodeWire)
    drivers = (wire.spec.drivers if wire.spec else None) or ()
    return CSINode(
        name=reading.name(document, wire.meta),
        drivers=tuple(
            shared(
                NodeDriver(
                    one.name,
                    one.allocatable.count if one.allocatable else None,
                    tuple(sorted(set(one.topology_keys or ()))),
                )
            )
            for one in sorted(drivers, key=lambda one: one.name)
        ),
    )


def read_csi_driver(document: Document, reading: DocumentReading) -> CSIDriver:
    """A CSIDriver.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(CSIDriverWire)
    capacity = bool(wire.spec and wire.spec.storage_capacity)
    return CSIDriver(name=reading.name(document, wire.meta), storage_capacity=capacity)


def read_storage_capacity(document: Document, reading: DocumentReading) -> CSIStorageCapacity:
    """A CSIStorageCapacity.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(CSIStorageCapacityWire)
    largest = in_bytes(wire.maximum_volume_size, ("maximumVolumeSize",), down=True)
    if largest is None:
        largest = in_bytes(wire.capacity, ("capacity",), down=True)
    return CSIStorageCapacity(
        namespace=namespace_of(wire.meta),
        name=reading.name(document, wire.meta),
        storage_class=wire.storage_class_name,
        nodes=selector_of(wire.node_topology, ("nodeTopology",)),
        largest=largest,
    )


def read_attachment(document: Document, reading: DocumentReading) -> VolumeAttachment:
    """A VolumeAttachment.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(AttachmentWire)
    spec = wire.spec or AttachmentSpecWire()
    return VolumeAttachment(
        name=reading.name(document, wire.meta),
        driver=shared(spec.attacher),
        node=shared(spec.node_name),
        volume=(spec.source.persistent_volume_name if spec.source else None) or "",
    )


def _controller_uid(meta: Meta) -> str:
    return next((one.uid for one in meta.owner_references or () if one.controller), "")


def _attached(spec: VolumeSpecWire, labels: Mapping[str, str]) -> tuple[str, str]:
    """The CSI driver that attaches a volume, and what the driver calls it; empty where none does."""
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    driver = handle = ""
    if (disk := spec.aws_elastic_block_store) is not None:
        driver, handle = EBS, ebs_handle(disk.volume_id or "")
    elif (disk := spec.azure_disk) is not None:
        driver, handle = AZURE_DISK, azure_handle(disk.disk_uri, disk.kind)
    elif (disk := spec.cinder) is not None:
        driver, handle = CINDER, disk.volume_id or ""
    elif (disk := spec.gce_persistent_disk) is not None:
        driver, handle = GCE_PD, gce_handle(disk.pd_name or "", labels)
    elif (disk := spec.portworx_volume) is not None:
        driver, handle = PORTWORX, disk.volume_id or ""
    return (driver, handle) if handle else ("", "")


def _topology(wire: TopologyTermWire, number: int) -> tuple[Requirement, ...]:
    """The requirements of a term of ``allowedTopologies``, which have no operator: it is ``In``."""
    found = []
    for i, one in enumerate(wire.match_label_expressions or ()):
        one.operator = "In"
        path: Path = ("allowedTopologies", number, "matchLabelExpressions", i)
        found.append(requirement(one, path))
    return tuple(found)
