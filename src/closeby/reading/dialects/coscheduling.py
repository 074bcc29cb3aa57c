"""The coscheduling plugin's PodGroup (``scheduling.x-k8s.io/v1alpha1``): a minimum and nothing more."""

import msgspec

from closeby.objects.groups import PodGroup
from closeby.reading.common.podgroups import new_group
from closeby.reading.common.trees import checked
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec


class SpecWire(Wire):
    """``spec``; its timeout has no meaning where a gang is placed in one piece."""

    min_member: int | None = None


def read_pod_group(document: Document, reading: DocumentReading) -> PodGroup:
    """A gang.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    minimum = wire.spec.min_member if wire.spec else None
    group = new_group(document, reading, wire.meta)
    return checked(msgspec.structs.replace(group, min_member=1 if minimum is None else minimum))
