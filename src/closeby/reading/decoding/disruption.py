"""Reads ``PodDisruptionBudget`` (policy/v1)."""

from typing import Final

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.pods import PodDisruptionBudget
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.selectors import LabelSelectorWire, Refusal, label_selector
from closeby.reading.decoding.wire import ObjectWire, Wire, namespace_of

#: Characters of a percentage: a tenant may write any number of digits.
_LONGEST: Final = 12


class BudgetSpecWire(Wire):
    """``spec``."""

    selector: LabelSelectorWire | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatusWire(Wire):
    """``status``."""

    disruptions_allowed: int | None = None


class BudgetWire(ObjectWire):
    """A PodDisruptionBudget."""

    spec: BudgetSpecWire | None = None
    status: BudgetStatusWire | None = None


def read_budget(document: Document, reading: DocumentReading) -> PodDisruptionBudget:
    """How many pods of a kind may be evicted at once.

    Raises:
        FieldError: a value that can't be read, or that no API server accepts.
    """
    wire = document.decode(BudgetWire)
    spec = wire.spec or BudgetSpecWire()
    refused: list[Refusal] = []
    selector = label_selector(spec.selector, ("spec", "selector"), refused)
    if refused:
        path, message, remedy = refused[0]
        raise FieldError(path, message, remedy)
    if spec.min_available is not None and spec.max_unavailable is not None:
        message = "is given beside maxUnavailable"
        raise FieldError(("spec", "minAvailable"), message, "keep one of the two")
    _check(("spec", "minAvailable"), spec.min_available)
    _check(("spec", "maxUnavailable"), spec.max_unavailable)
    return PodDisruptionBudget(
        namespace=namespace_of(wire.meta),
        name=reading.name(document, wire.meta),
        selector=selector,
        min_available=spec.min_available,
        max_unavailable=spec.max_unavailable,
        allowed=wire.status.disruptions_allowed if wire.status else None,
        unhealthy_may_go=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )


def _check(path: Path, value: int | str | None) -> None:
    if value is None:
        return
    if isinstance(value, int):
        right = value >= 0
    else:
        share = value[:-1] if value.endswith("%") and len(value) <= _LONGEST else ""
        right = share.isdecimal() and int(share) <= 100
    if not right:
        message = f"{quoted(str(value))} is neither a number of pods nor a percentage"
        raise FieldError(path, message, "write one such as 2 or 50%")
