"""Reads label selectors, pod affinity and topology spread, checked as the API server checks them.

What it would refuse is said with its place and left out of the record; the pod has it in ``invalid``.
"""

from collections.abc import Iterator, Mapping

from msgspec import field

from closeby.objects.bounds import quoted
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodTerm,
)
from closeby.reading.decoding.errors import Path
from closeby.reading.decoding.wire import Wire

#: What is wrong: where, why, and the remedy.
Refusal = tuple[Path, str, str]


class LabelRequirementWire(Wire, gc=False):
    """``matchExpressions[]``."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelectorWire(Wire):
    """``labelSelector``, ``namespaceSelector`` or a workload's ``selector``."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[LabelRequirementWire] | None = None


class PodTermWire(Wire):
    """A term of pod affinity."""

    topology_key: str = ""
    label_selector: LabelSelectorWire | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelectorWire | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodTermWire(Wire):
    """A preferred term."""

    weight: int = 0
    pod_affinity_term: PodTermWire | None = None


class PodAffinityWire(Wire):
    """``podAffinity`` or ``podAntiAffinity``."""

    required: list[PodTermWire] | None = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: list[WeightedPodTermWire] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class SpreadWire(Wire):
    """``topologySpreadConstraints[]``."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelectorWire | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


def label_selector(
    wire: LabelSelectorWire | None, path: Path, refused: list[Refusal]
) -> LabelSelector | None:
    """The selector, None for nil; what is wrong with it is appended to ``refused``."""
    if wire is None:
        return None
    found = [
        LabelRequirement(key, "In", (value,)) for key, value in sorted((wire.match_labels or {}).items())
    ]
    for i, one in enumerate(wire.match_expressions or ()):
        place = (*path, "matchExpressions", i)
        wrong = list(_wrong_requirement(one, place))
        refused += wrong
        if not wrong:
            found.append(LabelRequirement(one.key, one.operator, tuple(one.values or ())))
    return LabelSelector(tuple(found))


def map_selector(labels: Mapping[str, str] | None) -> LabelSelector | None:
    """The selector of a Service or ReplicationController: labels that must all be there; None for nil."""
    return None if labels is None else label_selector(LabelSelectorWire(dict(labels)), (), [])


def pod_affinity(
    affinity: PodAffinityWire | None, anti_affinity: PodAffinityWire | None, refused: list[Refusal]
) -> PodAffinity | None:
    """Both parts; paths start at the pod's ``spec``."""
    required, preferred = _terms(affinity, "podAffinity", 1, refused)
    forbidden, avoided = _terms(anti_affinity, "podAntiAffinity", -1, refused)
    if not (required or forbidden or preferred or avoided):
        return None
    return PodAffinity(required, forbidden, (*preferred, *avoided))


def topology_spread(
    wires: list[SpreadWire] | None, refused: list[Refusal]
) -> tuple[TopologySpreadConstraint, ...]:
    """The constraints; paths start at the pod's ``spec``."""
    found = []
    seen = set()
    for i, wire in enumerate(wires or ()):
        path: Path = ("topologySpreadConstraints", i)
        selector = label_selector(wire.label_selector, (*path, "labelSelector"), refused)
        wrong = list(_wrong_spread(wire, path))
        if (wire.topology_key, wire.when_unsatisfiable) in seen:
            wrong.append((path, "repeats the topologyKey and whenUnsatisfiable of another", "remove one"))
        seen.add((wire.topology_key, wire.when_unsatisfiable))
        refused += wrong
        if not wrong:
            found.append(
                TopologySpreadConstraint(
                    topology_key=wire.topology_key,
                    max_skew=wire.max_skew,
                    hard=wire.when_unsatisfiable == "DoNotSchedule",
                    selector=selector,
                    min_domains=1 if wire.min_domains is None else wire.min_domains,
                    honors_affinity=wire.node_affinity_policy != "Ignore",
                    honors_taints=wire.node_taints_policy == "Honor",
                    match_label_keys=tuple(wire.match_label_keys or ()),
                )
            )
    return tuple(found)


def _terms(
    wire: PodAffinityWire | None, name: str, sign: int, refused: list[Refusal]
) -> tuple[tuple[PodAffinityTerm, ...], tuple[WeightedPodTerm, ...]]:
    if wire is None:
        return (), ()
    path: Path = ("affinity", name, "requiredDuringSchedulingIgnoredDuringExecution")
    required = [_term(term, (*path, i), refused) for i, term in enumerate(wire.required or ())]
    path = ("affinity", name, "preferredDuringSchedulingIgnoredDuringExecution")
    preferred = []
    for i, weighted in enumerate(wire.preferred or ()):
        if not 1 <= weighted.weight <= 100:
            refused.append(((*path, i, "weight"), f"is {weighted.weight}", "use 1 to 100"))
        term = _term(weighted.pod_affinity_term or PodTermWire(), (*path, i, "podAffinityTerm"), refused)
        if term is not None:
            preferred.append(WeightedPodTerm(sign * weighted.weight, term))
    return tuple(term for term in required if term is not None), tuple(preferred)


def _term(wire: PodTermWire, path: Path, refused: list[Refusal]) -> PodAffinityTerm | None:
    selector = label_selector(wire.label_selector, (*path, "labelSelector"), refused)
    namespaces = label_selector(wire.namespace_selector, (*path, "namespaceSelector"), refused)
    if not wire.topology_key:
        refused.append(((*path, "topologyKey"), "is missing", "name a label of nodes"))
        return None
    return PodAffinityTerm(
        topology_key=wire.topology_key,
        selector=selector,
        namespaces=tuple(sorted(set(wire.namespaces or ()))),
        namespace_selector=namespaces,
        match_label_keys=tuple(wire.match_label_keys or ()),
        mismatch_label_keys=tuple(wire.mismatch_label_keys or ()),
    )


def _wrong_requirement(wire: LabelRequirementWire, path: Path) -> Iterator[Refusal]:
    if not wire.key:
        yield (*path, "key"), "is missing", "name a label"
    match wire.operator:
        case "In" | "NotIn":
            if not wire.values:
                yield (*path, "values"), f"operator {wire.operator} needs at least one value", "give one"
        case "Exists" | "DoesNotExist":
            if wire.values:
                yield (*path, "values"), f"operator {wire.operator} takes no values", "remove them"
        case _:
            remedy = "use In, NotIn, Exists or DoesNotExist"
            yield (*path, "operator"), f"{quoted(wire.operator)} is not an operator", remedy


def _wrong_spread(wire: SpreadWire, path: Path) -> Iterator[Refusal]:
    if not wire.topology_key:
        yield (*path, "topologyKey"), "is missing", "name a label of nodes"
    if wire.max_skew < 1:
        yield (*path, "maxSkew"), f"is {wire.max_skew}", "use 1 or more"
    if wire.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
        message = f"{quoted(wire.when_unsatisfiable)} is not known"
        yield (*path, "whenUnsatisfiable"), message, "use DoNotSchedule or ScheduleAnyway"
    if wire.min_domains is not None:
        if wire.min_domains < 1:
            yield (*path, "minDomains"), f"is {wire.min_domains}", "use 1 or more"
        if wire.when_unsatisfiable != "DoNotSchedule":
            remedy = "remove it, or use whenUnsatisfiable: DoNotSchedule"
            yield (*path, "minDomains"), "goes with whenUnsatisfiable: DoNotSchedule alone", remedy
    for name, policy in (
        ("nodeAffinityPolicy", wire.node_affinity_policy),
        ("nodeTaintsPolicy", wire.node_taints_policy),
    ):
        if policy not in (None, "Honor", "Ignore"):
            yield (*path, name), f"{quoted(policy)} is not a policy", "use Honor or Ignore"
