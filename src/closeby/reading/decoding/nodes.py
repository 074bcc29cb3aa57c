"""Reads ``Node``."""

from closeby.errors import FieldError, QuantityError
from closeby.objects.bounds import quoted
from closeby.objects.nodes import Node, NodeImage, Taint
from closeby.objects.quantities import LARGEST_AMOUNT, amount
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Quantities, Wire


class TaintWire(Wire, gc=False):
    """``taints[]``."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpecWire(Wire):
    """``spec``."""

    taints: list[TaintWire] | None = None
    unschedulable: bool | None = None


class ConditionWire(Wire, gc=False):
    """``conditions[]``."""

    type: str = ""
    status: str = ""


class AddressWire(Wire, gc=False):
    """``addresses[]``."""

    address: str = ""


class ImageWire(Wire, gc=False):
    """``images[]``."""

    names: list[str] | None = None
    size_bytes: int | None = None


class NodeStatusWire(Wire):
    """``status``."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[ConditionWire] | None = None
    addresses: list[AddressWire] | None = None
    images: list[ImageWire] | None = None


class NodeWire(ObjectWire):
    """A node."""

    spec: NodeSpecWire | None = None
    status: NodeStatusWire | None = None


def read_node(document: Document, reading: DocumentReading) -> Node:
    """A node; its amounts are rounded down, and cut at ``LARGEST_AMOUNT``.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(NodeWire)
    meta = wire.meta
    spec = wire.spec or NodeSpecWire()
    status = wire.status or NodeStatusWire()
    return Node(
        name=reading.name(document, meta),
        labels=meta.label_map,
        annotations=meta.annotation_map,
        addresses=tuple(one.address for one in status.addresses or () if one.address),
        allocatable=_allocatable(status),
        taints=tuple(Taint(taint.key, taint.value or "", taint.effect) for taint in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        ready=all(one.status == "True" for one in status.conditions or () if one.type == "Ready"),
        uid=meta.uid or "",
        images=_images(status, reading),
    )


def _images(status: NodeStatusWire, reading: DocumentReading) -> tuple[NodeImage, ...]:
    sizes: dict[str, int] = {}
    for image in status.images or ():
        for name in image.names or () if image.size_bytes else ():
            sizes[name] = max(sizes.get(name, 0), image.size_bytes or 0)
    return tuple([reading.pool.image(name, sizes[name]) for name in sorted(sizes)])


def _allocatable(status: NodeStatusWire) -> dict[str, int]:
    field = "capacity" if status.allocatable is None else "allocatable"
    quantities = status.capacity if status.allocatable is None else status.allocatable
    result = {}
    for name, text in (quantities or {}).items():
        try:
            value = amount(name, text, "down")
        except QuantityError as error:
            raise FieldError(("status", field, name), error.message, error.remedy) from error
        if value < 0:
            raise FieldError(("status", field, name), f"{quoted(text)} is negative", "give zero or more")
        result[name] = min(value, LARGEST_AMOUNT)
    return result
