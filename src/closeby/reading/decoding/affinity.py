"""Node affinity and tolerations, checked as the API server checks them."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import field

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.labels import is_label, is_label_key
from closeby.objects.nodes import whole_number
from closeby.objects.pods import NodeSelectorTerm, PreferredTerm, Requirement, Toleration
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.selectors import Refusal
from closeby.reading.decoding.wire import Wire


class RequirementWire(Wire):
    """``matchExpressions[]`` or ``matchFields[]``."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class TermWire(Wire):
    """``nodeSelectorTerms[]``."""

    match_expressions: list[RequirementWire] | None = None
    match_fields: list[RequirementWire] | None = None


class PreferredWire(Wire):
    """A weighted term."""

    weight: int = 0
    preference: TermWire | None = None


class RequiredWire(Wire):
    """Terms of which one must hold."""

    node_selector_terms: list[TermWire] | None = None


class NodeAffinityWire(Wire):
    """``affinity.nodeAffinity``."""

    required: RequiredWire | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredWire] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class TolerationWire(Wire, gc=False):
    """``tolerations[]``."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


_PATH: Path = ("affinity", "nodeAffinity")
_REQUIRED: Path = (*_PATH, "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_PREFERRED: Path = (*_PATH, "preferredDuringSchedulingIgnoredDuringExecution")
#: The field that ``matchFields`` may name.
_NAME: Final = "metadata.name"
_OPERATORS = ("Equal", "Exists", "Gt", "Lt")
_EFFECTS = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")


def required_terms(
    affinity: NodeAffinityWire | None, refused: list[Refusal]
) -> tuple[NodeSelectorTerm, ...] | None:
    """The alternatives, or None where nothing is required. ``refused`` gets what no API server accepts; such
    a term matches nothing, and is left out. The paths start at the pod's ``spec``.
    """
    if affinity is None or affinity.required is None:
        return None
    found, terms = [], affinity.required.node_selector_terms or ()
    if not terms:
        refused.append(
            (_REQUIRED, "is empty, so that no node matches", "name a term, or remove the affinity")
        )
    for i, term in enumerate(terms):
        try:
            found.append(_of_labels(_term(term, (*_REQUIRED, i)), (*_REQUIRED, i), values=True))
        except FieldError as error:
            refused.append((error.path, error.message, error.remedy))
    return tuple(found)


def node_selector_terms(terms: Sequence[TermWire], path: Path) -> tuple[NodeSelectorTerm, ...]:
    """Alternatives; ``path`` says where they stand.

    Raises:
        FieldError: an operator or its values make no sense.
    """
    return tuple(_term(term, (*path, i)) for i, term in enumerate(terms))


def preferred_terms(affinity: NodeAffinityWire | None, refused: list[Refusal]) -> tuple[PreferredTerm, ...]:
    """The weighted preferences, without those that no API server accepts: ``refused`` gets them."""
    result = []
    for i, preferred in enumerate((affinity and affinity.preferred) or ()):
        try:
            if not 1 <= preferred.weight <= 100:
                raise FieldError((*_PREFERRED, i, "weight"), f"is {preferred.weight}", "use 1 to 100")
            path = (*_PREFERRED, i, "preference")
            # The API server takes any value here.
            term = _of_labels(_term(preferred.preference or TermWire(), path), path, values=False)
        except FieldError as error:
            refused.append((error.path, error.message, error.remedy))
        else:
            result.append(PreferredTerm(weight=preferred.weight, term=term))
    return tuple(result)


def tolerations_of(
    wires: list[TolerationWire] | None, path: Path = ("tolerations",)
) -> tuple[Toleration, ...]:
    """The tolerations.

    Raises:
        FieldError: an effect or an operator that does not exist, an empty key without operator Exists, or Gt
            or Lt without a whole number.
    """
    result = []
    for i, wire in enumerate(wires or ()):
        operator = wire.operator or "Equal"
        if (wire.effect or "") not in _EFFECTS:
            remedy = f"use {', '.join(_EFFECTS[1:])}"
            raise FieldError((*path, i, "effect"), f"{quoted(wire.effect)} is not a taint effect", remedy)
        if operator not in _OPERATORS:
            remedy = f"use {', '.join(_OPERATORS)}"
            raise FieldError((*path, i, "operator"), f"{quoted(operator)} is not an operator", remedy)
        if operator in ("Gt", "Lt") and whole_number(wire.value or "") is None:
            message = f"{quoted(wire.value or '')} is not a whole number, which {operator} compares"
            raise FieldError((*path, i, "value"), message, "write one without leading zeros")
        if not wire.key and operator != "Exists":
            raise FieldError((*path, i, "key"), "is empty", "name a key, or use operator Exists")
        result.append(Toleration(wire.key or "", operator, wire.value or "", wire.effect or ""))
    return tuple(result)


def _term(term: TermWire, path: Path) -> NodeSelectorTerm:
    expressions = term.match_expressions or ()
    fields = term.match_fields or ()
    return NodeSelectorTerm(
        tuple(requirement(one, (*path, "matchExpressions", i)) for i, one in enumerate(expressions)),
        tuple(_field(one, (*path, "matchFields", i)) for i, one in enumerate(fields)),
    )


def _of_labels(term: NodeSelectorTerm, path: Path, *, values: bool) -> NodeSelectorTerm:
    """The term of a pod, if a node can have the labels that it names (with their ``values``): also one that
    keeps off them matches nothing otherwise.

    Raises:
        FieldError: a key or a value that no label has.
    """
    for i, one in enumerate(term.expressions):
        where = (*path, "matchExpressions", i)
        if not is_label_key(one.key):
            raise FieldError((*where, "key"), f"{quoted(one.key)} is not a label key", "name a label")
        for value in one.values if values else ():
            if not is_label(one.key, value):
                raise FieldError((*where, "values"), f"{quoted(value)} is not a label value", "correct it")
    return term


def _field(wire: RequirementWire, path: Path) -> Requirement:
    if wire.key and wire.key != _NAME:
        raise FieldError((*path, "key"), f"{quoted(wire.key)} is not a field of nodes", f"use {_NAME}")
    if wire.operator in ("In", "NotIn"):
        if len(wire.values or ()) != 1:
            raise FieldError((*path, "values"), f"operator {wire.operator} needs exactly one value")
    elif wire.key:
        raise FieldError((*path, "operator"), f"{quoted(wire.operator)} is for labels", "use In or NotIn")
    return requirement(wire, path)


def requirement(wire: RequirementWire, path: Path) -> Requirement:
    """One requirement.

    Raises:
        FieldError: an operator or its values make no sense; ``path`` says where it stands.
    """
    values = tuple(wire.values or ())
    if not wire.key:
        raise FieldError((*path, "key"), "is missing", "name a label")
    match wire.operator:
        case "In" | "NotIn":
            wrong = "" if values else "needs at least one value"
        case "Exists" | "DoesNotExist":
            wrong = "takes no values" if values else ""
        case "Gt" | "Lt":
            whole = len(values) == 1 and re.fullmatch(r"[+-]?\d+", values[0], re.ASCII)
            wrong = "" if whole else "needs exactly one whole number"
        case _:
            remedy = "use In, NotIn, Exists, DoesNotExist, Gt or Lt"
            raise FieldError((*path, "operator"), f"{quoted(wire.operator)} is not an operator", remedy)
    if wrong:
        raise FieldError((*path, "values"), f"operator {wire.operator} {wrong}")
    return Requirement(wire.key, wire.operator, values)
