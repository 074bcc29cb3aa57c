"""Labels: what Kubernetes takes as one, those that several rooms know, and which pods a selector means.

The rules of selectors are upstream's (``metav1.LabelSelectorAsSelector`` and ``fwk.AffinityTerm``). No
selector (nil) selects nothing and is ``None`` here; an empty one selects everything.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
#: The older name of the same.
OLD_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"

#: Role of a pod in its job, as annotation and label (Volcano).
TASK_SPEC: Final = "volcano.sh/task-spec"
#: The API version of closeby's own objects and reports.
API_VERSION: Final = "closeby.dev/v1alpha1"
#: Who places pods: scheduling gate of pods that closeby alone chooses the node of, and the controller of
#: Kueue's AdmissionChecks that wait for places.
PLACEMENT: Final = "closeby.dev/placement"
#: In files: begins a gate of pods that their controller makes after a step, and that says what they wait for.
STEP_GATE: Final = "closeby.dev/after: "

#: Label of a gang's member: its place in topology order (KAI topology-aware scheduling design, rank hints).
RANK: Final = "closeby.dev/rank"
#: Annotation of a gang's member: the path of the tightest domain that holds the gang.
TOPOLOGY_DOMAIN: Final = "closeby.dev/topology-domain"


class Named(Struct, frozen=True, kw_only=True):
    """An object of a namespace."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_ONE_NAME: Final = re.compile(_NAME, re.ASCII)
_VALUE: Final = re.compile(rf"({_NAME})?", re.ASCII)
_KEY: Final = re.compile(rf"(({_DNS_LABEL}(\.{_DNS_LABEL})*)/)?{_NAME}", re.ASCII)
_SUBDOMAIN: Final = re.compile(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*", re.ASCII)
_LONGEST_PREFIX: Final = 253


def is_label_name(text: str) -> bool:
    """Whether ``text`` is what a key has behind its prefix, or a value that is not empty."""
    return _ONE_NAME.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether ``text`` is a qualified name: an optional DNS prefix and a name of at most 63 characters."""
    return len(text.partition("/")[0]) <= _LONGEST_PREFIX and _KEY.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether ``text`` is a DNS subdomain, which names most objects."""
    return len(text) <= _LONGEST_PREFIX and _SUBDOMAIN.fullmatch(text) is not None


def is_label(key: str, value: str) -> bool:
    """Whether Kubernetes takes this as a label."""
    return is_label_key(key) and _VALUE.fullmatch(value) is not None


#: The label that the API server gives every Namespace.
NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"


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
