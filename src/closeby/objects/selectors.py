"""Objects with names and labels, and which of them a selector means.

The rules of selectors are upstream's (``metav1.LabelSelectorAsSelector`` and ``fwk.AffinityTerm``). No
selector (nil) selects nothing and is ``None`` here; an empty one selects everything.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace


class Named(Struct, frozen=True, kw_only=True):
    """An object of a namespace."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class LabelRequirement(Struct, frozen=True, gc=False):
    """One ``matchExpressions`` entry; ``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it. NotIn is satisfied where the label is missing."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None

    def __str__(self) -> str:
        """As ``kubectl get -l`` takes it."""
        values = ",".join(self.values)
        match self.operator:
            case "In":
                return f"{self.key}={values}" if len(self.values) == 1 else f"{self.key} in ({values})"
            case "NotIn":
                return f"{self.key}!={values}" if len(self.values) == 1 else f"{self.key} notin ({values})"
            case "Exists":
                return self.key
            case _:
                return f"!{self.key}"


class LabelSelector(Struct, frozen=True, gc=False):
    """All requirements must hold; without any it selects everything. ``matchLabels`` are In requirements."""

    requirements: tuple[LabelRequirement, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.requirements

    @property
    def keys(self) -> Iterable[str]:
        """The labels that it looks at."""
        return (one.key for one in self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects an object with these labels."""
        return all(one.matches(labels) for one in self.requirements)

    def also(self, more: Iterable[LabelRequirement]) -> "LabelSelector":
        """This selector and more requirements; those that it has already are not repeated."""
        added = tuple(one for one in dict.fromkeys(more) if one not in self.requirements)
        return LabelSelector((*self.requirements, *added)) if added else self

    def __str__(self) -> str:
        """As ``kubectl get -l`` takes it."""
        return ",".join(map(str, self.requirements)) or "all pods"


def selector_of(labels: Mapping[str, str]) -> LabelSelector:
    """What selects objects with all of these labels."""
    return LabelSelector(tuple(LabelRequirement(key, "In", (labels[key],)) for key in sorted(labels)))


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector, which may be nil, selects an object with these labels."""
    return selector is not None and selector.matches(labels)


def _of_own(keys: Iterable[str], operator: str, labels: Mapping[str, str]) -> Iterable[LabelRequirement]:
    return (LabelRequirement(key, operator, (labels[key],)) for key in keys if key in labels)


class PodAffinityTerm(Struct, frozen=True):
    """A term of pod affinity or anti-affinity, as its author wrote it."""

    topology_key: str
    selector: LabelSelector | None = None
    #: With neither of these two set it means the namespace of its own pod.
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()

    def of_pod(self, namespace: str, labels: Mapping[str, str]) -> "PodAffinityTerm":
        """What it means for a pod: its namespaces are named and label keys are part of the selector.

        The API server adds label keys to the selector itself, so that doing it again changes nothing.
        """
        own = not self.namespaces and self.namespace_selector is None
        selector = self.selector
        if selector is not None:
            selector = selector.also(_of_own(self.match_label_keys, "In", labels))
            selector = selector.also(_of_own(self.mismatch_label_keys, "NotIn", labels))
        return PodAffinityTerm(
            topology_key=self.topology_key,
            selector=selector,
            namespaces=(namespace,) if own else self.namespaces,
            namespace_selector=self.namespace_selector,
        )

    def means(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Whether it means pods of a namespace; only of a term for a pod (``of_pod``)."""
        return namespace in self.namespaces or matches(self.namespace_selector, namespace_labels)

    def __str__(self) -> str:
        """For people."""
        pods = "no pods" if self.selector is None else str(self.selector)
        return f"{pods} per {self.topology_key}"


class WeightedPodTerm(Struct, frozen=True):
    """A preferred term; ``weight`` is 1 to 100 for affinity, -1 to -100 for anti-affinity."""

    weight: int
    term: PodAffinityTerm


class PodAffinity(Struct, frozen=True):
    """``affinity.podAffinity`` and ``affinity.podAntiAffinity`` of a pod."""

    #: All of them must hold, for one and the same other pod.
    required: tuple[PodAffinityTerm, ...] = ()
    #: Required anti-affinity: none of them may hold.
    forbidden: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[WeightedPodTerm, ...] = ()

    @property
    def terms(self) -> Iterable[PodAffinityTerm]:
        """All of them."""
        return *self.required, *self.forbidden, *(one.term for one in self.preferred)


class TopologySpreadConstraint(Struct, frozen=True, kw_only=True):
    """``topologySpreadConstraints[]``, with the API server's defaults filled in."""

    topology_key: str
    max_skew: int
    #: ``whenUnsatisfiable`` is DoNotSchedule; else it is ScheduleAnyway.
    hard: bool = True
    selector: LabelSelector | None = None
    min_domains: int = 1
    #: Whether nodes that the pod's node affinity, or untolerated taints, keep it from do not count.
    honors_affinity: bool = True
    honors_taints: bool = False
    match_label_keys: tuple[str, ...] = ()

    def of_pod(self, labels: Mapping[str, str]) -> "TopologySpreadConstraint":
        """What it means for a pod: label keys are part of the selector."""
        if not self.match_label_keys:
            return self
        selector = self.selector
        if selector is not None:
            selector = selector.also(_of_own(self.match_label_keys, "In", labels))
        return replace(self, selector=selector, match_label_keys=())

    def __str__(self) -> str:
        """For people."""
        pods = "no pods" if self.selector is None else str(self.selector)
        return f"{pods} over {self.topology_key}, maxSkew {self.max_skew}"


class Namespace(Struct, frozen=True, kw_only=True):
    """A namespace, of which selectors see the labels."""

    name: str
    labels: Mapping[str, str] = {}


class PodOwner(Struct, frozen=True, kw_only=True, gc=False):
    """What says which pods belong together: default spread goes by it.

    A Service, ReplicationController, ReplicaSet or StatefulSet.
    """

    kind: str
    namespace: str
    name: str
    #: None of a Service without a selector, which selects nothing.
    selector: LabelSelector | None = None

    @property
    def key(self) -> str:
        """``Kind/namespace/name``."""
        return f"{self.kind}/{self.namespace}/{self.name}"
