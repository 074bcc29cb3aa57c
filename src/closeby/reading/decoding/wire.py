"""The parts that all Kubernetes objects share on the wire: partial, tolerant of fields that are not needed
here."""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Generic, TypeVar

from msgspec import Struct

from closeby.objects.quantities import QuantityText

T = TypeVar("T")
Spec = TypeVar("Spec")

#: Written by kubectl; a copy of the whole object that would only take memory.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Wire(Struct, rename="camel", omit_defaults=True):
    """Base of all structures on the wire. Absent and null mean the same, as they do in Kubernetes."""


Quantities = dict[str, QuantityText]


class OwnerReference(Wire, gc=False):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Meta(Wire):
    """``metadata``."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    owner_references: list[OwnerReference] | None = None

    @property
    def label_map(self) -> dict[str, str]:
        """The labels, empty when there are none."""
        return self.labels or {}

    @property
    def annotation_map(self) -> dict[str, str]:
        """The annotations, without kubectl's copy of the object."""
        annotations = self.annotations
        if not annotations:
            return {}
        annotations.pop(_LAST_APPLIED, None)
        return annotations

    @property
    def created(self) -> float | None:
        """Seconds since the epoch."""
        return None if self.creation_timestamp is None else seconds(self.creation_timestamp)

    @property
    def controller(self) -> str:
        """``Kind/name`` of the owner that controls this object; of the first owner where none says so."""
        owners = self.owner_references
        if not owners:
            return ""
        owner = next((one for one in owners if one.controller), owners[0])
        return f"{owner.kind}/{owner.name}"


class ObjectWire(Wire):
    """An object of which only ``metadata`` is read."""

    metadata: Meta | None = None

    @property
    def meta(self) -> Meta:
        """``metadata``, empty when absent."""
        return self.metadata or Meta()


class WithSpec(ObjectWire, Generic[Spec]):
    """An object of which ``spec`` is read too."""

    spec: Spec | None = None


def seconds(moment: datetime) -> float:
    """Seconds since the epoch; a time without a zone is UTC, as Kubernetes writes all times."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


_one_of_all = lru_cache(maxsize=10_000)(lambda value: value)


def shared(value: T) -> T:
    """One object for all that are equal, of those seen last: tens of thousands may say the same."""
    found: T = _one_of_all(value)
    return found


DEFAULT_NAMESPACE = "default"


def namespace_of(meta: Meta) -> str:
    """The namespace of a namespaced object."""
    return meta.namespace or DEFAULT_NAMESPACE


def object_id(kind: str, namespace: str, name: str) -> str:
    """``Kind/namespace/name``, or ``Kind/name`` for an object without a namespace."""
    return f"{kind}/{namespace}/{name}" if namespace else f"{kind}/{name}"
