"""Reads ``ResourceClaim`` of ``resource.k8s.io``."""

from msgspec import field

from closeby.objects.pods import ResourceClaim
from closeby.reading.decoding.affinity import RequiredWire, node_selector_terms
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, namespace_of


class AllocationWire(Wire):
    """``status.allocation``."""

    node_selector: RequiredWire | None = None


class ConsumerWire(Wire, gc=False):
    """``status.reservedFor[]``."""

    api_group: str = ""
    resource: str = ""
    uid: str = ""
    name: str = ""

    @property
    def is_group(self) -> bool:
        """Whether it is a PodGroup of upstream, whose pods do not know its uid."""
        return (self.api_group, self.resource) == ("scheduling.k8s.io", "podgroups")


class ClaimStatusWire(Wire):
    """``status``."""

    allocation: AllocationWire | None = None
    reserved_for: list[ConsumerWire] | None = None


class ResourceClaimWire(ObjectWire):
    """A ResourceClaim."""

    status: ClaimStatusWire | None = field(default=None)


def read_resource_claim(document: Document, reading: DocumentReading) -> ResourceClaim:
    """A claim; what it asks for is nothing to us, who do not allocate.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(ResourceClaimWire)
    status = wire.status or ClaimStatusWire()
    allocation = status.allocation
    consumers, nodes = status.reserved_for or (), None
    if allocation is not None and allocation.node_selector is not None:
        path = ("status", "allocation", "nodeSelector", "nodeSelectorTerms")
        nodes = node_selector_terms(allocation.node_selector.node_selector_terms or (), path)
    return ResourceClaim(
        namespace=namespace_of(wire.meta),
        name=reading.name(document, wire.meta),
        allocated=allocation is not None,
        nodes=nodes,
        reserved_for=frozenset(one.uid or one.name for one in consumers if not one.is_group),
        reserved_for_groups=tuple(one.name for one in consumers if one.is_group),
        terminating=wire.meta.deletion_timestamp is not None,
    )
