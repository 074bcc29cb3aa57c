"""Reads ``PriorityClass``."""

from closeby.objects.priorities import PriorityClass
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire


class PriorityClassWire(ObjectWire):
    """A named priority."""

    value: int = 0
    global_default: bool | None = None


def read_priority_class(document: Document, reading: DocumentReading) -> PriorityClass:
    """A priority class.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(PriorityClassWire)
    return PriorityClass(
        name=reading.name(document, wire.meta), value=wire.value, global_default=bool(wire.global_default)
    )
