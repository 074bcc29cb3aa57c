"""Claims for volumes as they stand in manifests, in templates too; label selectors and amounts of storage."""

from collections.abc import Sequence
from typing import Final

from closeby.errors import FieldError, QuantityError
from closeby.objects.bounds import quoted
from closeby.objects.pods import FILESYSTEM, ClaimName, ClaimRequest, PodClaim
from closeby.objects.quantities import LARGEST_AMOUNT, QuantityText, amount
from closeby.objects.selectors import LabelSelector
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.selectors import LabelSelectorWire, Refusal, label_selector
from closeby.reading.decoding.wire import ObjectWire, Quantities, Wire

#: The resource that claims ask for.
STORAGE: Final = "storage"


class ClaimResourcesWire(Wire):
    """``spec.resources`` of a claim."""

    requests: Quantities | None = None


class ClaimSpecWire(Wire):
    """``spec`` of a claim."""

    storage_class_name: str | None = None
    volume_name: str | None = None
    access_modes: list[str] | None = None
    resources: ClaimResourcesWire | None = None
    selector: LabelSelectorWire | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None


class PhaseWire(Wire, gc=False):
    """``status`` of a claim or a volume."""

    phase: str | None = None


class ClaimWire(ObjectWire):
    """A claim, or a template of claims."""

    spec: ClaimSpecWire | None = None
    status: PhaseWire | None = None


def claim_request(spec: ClaimSpecWire | None, path: Path) -> ClaimRequest:
    """What a claim asks for; ``path`` says where its ``spec`` stands.

    Raises:
        FieldError: a value that can't be read.
    """
    spec = spec or ClaimSpecWire()
    requests = spec.resources.requests if spec.resources else None
    size = (*path, "resources", "requests", STORAGE)
    return ClaimRequest(
        storage_class=spec.storage_class_name,
        size=in_bytes((requests or {}).get(STORAGE), size, down=False) or 0,
        access_modes=tuple(sorted(set(spec.access_modes or ()))),
        volume_mode=spec.volume_mode or FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name or "",
        selector=selector_of(spec.selector, (*path, "selector")),
    )


def templates_of(wires: Sequence[ClaimWire] | None, path: Path) -> tuple[PodClaim, ...]:
    """The claims that a StatefulSet makes for each of its pods.

    Raises:
        FieldError: one has no name, or a value that can't be read.
    """
    found = []
    for i, wire in enumerate(wires or ()):
        if not wire.meta.name:
            raise FieldError((*path, i, "metadata", "name"), "is missing", "give the template a name")
        request = claim_request(wire.spec, (*path, i, "spec"))
        found.append(PodClaim(wire.meta.name, ClaimName.BEFORE_POD, request))
    return tuple(found)


def selector_of(wire: LabelSelectorWire | None, path: Path) -> LabelSelector | None:
    """A label selector.

    Raises:
        FieldError: something in it makes no sense; ``path`` says where it stands.
    """
    refused: list[Refusal] = []
    selector = label_selector(wire, path, refused)
    if refused:
        raise FieldError(*refused[0])
    return selector


def in_bytes(text: QuantityText | None, path: Path, *, down: bool) -> int | None:
    """An amount of storage; None where there is no ``text``.

    Raises:
        FieldError: it is no quantity, or negative.
    """
    if text is None:
        return None
    try:
        value = amount(STORAGE, text, "down" if down else "up")
    except QuantityError as error:
        raise FieldError(path, error.message, error.remedy) from error
    if value < 0:
        raise FieldError(path, f"{quoted(str(text))} is negative", "give zero or more")
    return min(value, LARGEST_AMOUNT)
