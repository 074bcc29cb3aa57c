"""Volumes as the scheduler sees them: claims, volumes, classes, and what nodes and drivers take of them."""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.pods import FILESYSTEM, ClaimRequest, NodeSelectorTerm
from closeby.objects.selectors import LabelSelector, Named

READ_WRITE_ONCE: Final = "ReadWriteOnce"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"
#: Provisioner of classes whose volumes are made by hand.
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
#: CSI drivers of disks that Kubernetes attached itself before.
EBS: Final = "ebs.csi.aws.com"
AZURE_DISK: Final = "disk.csi.azure.com"
CINDER: Final = "cinder.csi.openstack.org"
GCE_PD: Final = "pd.csi.storage.gke.io"
PORTWORX: Final = "pxd.portworx.com"
#: Provisioners that Kubernetes had itself -> the driver by which their volumes count now; empty: they don't.
_MIGRATED: Final[Mapping[str, str]] = {
    "kubernetes.io/aws-ebs": EBS,
    "kubernetes.io/azure-disk": AZURE_DISK,
    "kubernetes.io/azure-file": "",
    "kubernetes.io/cinder": CINDER,
    "kubernetes.io/gce-pd": GCE_PD,
    "kubernetes.io/portworx-volume": PORTWORX,
    "kubernetes.io/vsphere-volume": "",
}


#: Annotation of a claim: the node for which its volume is to be made.
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
#: Annotation of a claim whose volume is bound to it from both sides.
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
#: Annotation of what a controller bound, and not its owner.
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


class PersistentVolumeClaim(Named, frozen=True, kw_only=True, gc=False):
    uid: str = ""
    request: ClaimRequest = ClaimRequest()
    #: Name of the volume that it is bound to, or is to be; empty without.
    volume: str = ""
    #: Whether the two are bound from both sides.
    bound: bool = False
    #: Whether the volume that it was bound to is gone.
    lost: bool = False
    #: Node for which its volume is to be made; None without.
    selected_node: str | None = None
    terminating: bool = False
    #: uid of the object that controls it; empty without.
    controller: str = ""


class PersistentVolume(Struct, frozen=True, kw_only=True, gc=False):
    name: str
    storage_class: str = ""
    #: Bytes.
    size: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = FILESYSTEM
    attributes_class: str = ""
    labels: Mapping[str, str] = {}
    #: Nodes that reach it, as alternatives; None where all do.
    node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    #: ``namespace/name`` of the claim that it is bound to or kept for; empty when it is free.
    claim: str = ""
    #: uid of that claim; empty where any claim of that name is meant.
    claim_uid: str = ""
    #: Whether claims may be bound to it: its phase is Available, or it has none yet.
    available: bool = True
    terminating: bool = False
    #: The CSI driver that attaches it, and what the driver calls it; empty where it has none.
    driver: str = ""
    handle: str = ""
    #: Whether its spec names a disk of a kind that Kubernetes attached itself before that driver did.
    migrated: bool = False


class StorageClass(Struct, frozen=True, kw_only=True):
    """How volumes of a class are made."""

    name: str
    provisioner: str = ""
    #: Whether a claim is bound only once a pod that uses it has a node (``WaitForFirstConsumer``).
    waits: bool = False
    #: Where its volumes can be made, as alternatives; empty means anywhere.
    topologies: tuple[NodeSelectorTerm, ...] = ()
    #: Whether claims without a class get this one.
    default: bool = False
    created: float | None = None

    @property
    def provisions(self) -> bool:
        """Whether volumes are made as they are claimed."""
        return self.provisioner not in ("", NO_PROVISIONER)

    @property
    def driver(self) -> str:
        """The CSI driver that attaches the volumes that are made; empty where none is known to."""
        return _MIGRATED.get(self.provisioner, self.provisioner) if self.provisions else ""


class NodeDriver(Struct, frozen=True):
    """A CSI driver on a node."""

    name: str
    #: Volumes that it attaches there at most; None means any number.
    limit: int | None = None
    #: Labels of nodes by which it says which nodes reach a volume.
    topology_keys: tuple[str, ...] = ()


class CSINode(Struct, frozen=True, kw_only=True):
    """The CSI drivers of the node of the same name."""

    name: str
    drivers: tuple[NodeDriver, ...] = ()


class CSIDriver(Struct, frozen=True, kw_only=True):
    name: str
    #: Whether it says by CSIStorageCapacity how much it can make where.
    storage_capacity: bool = False


class CSIStorageCapacity(Named, frozen=True, kw_only=True):
    """How much of a class can be made on some nodes."""

    storage_class: str
    #: What the labels of these nodes meet; None means no node.
    nodes: LabelSelector | None = None
    #: Size of the largest volume, in bytes; None means that none can be made.
    largest: int | None = None


class VolumeAttachment(Struct, frozen=True, kw_only=True, gc=False):
    """A volume that is attached to a node, or is to be."""

    name: str
    driver: str
    node: str
    #: Name of the PersistentVolume; empty for a volume without one.
    volume: str = ""


StorageObject: TypeAlias = (
    PersistentVolumeClaim
    | PersistentVolume
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
)


def default_class(classes: Iterable[StorageClass]) -> str | None:
    """The class of claims that name none: the newest default, of equals the first by name; None without."""
    marked = [one for one in classes if one.default]
    newest = min(marked, key=lambda one: (-(one.created or 0.0), one.name), default=None)
    return None if newest is None else newest.name


def with_class(claim: PersistentVolumeClaim, default: str | None) -> PersistentVolumeClaim:
    """The claim with the default class, where it names neither a class nor a volume."""
    if default is None or claim.volume or claim.request.storage_class is not None:
        return claim
    return replace(claim, request=replace(claim.request, storage_class=default))


def storage_key(one: StorageObject) -> str:
    """``namespace/name``, or the name of an object without a namespace."""
    match one:
        case PersistentVolumeClaim() | CSIStorageCapacity():
            return one.key
    return one.name
