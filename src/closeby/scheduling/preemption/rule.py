"""The arguments of preemption, and whose pods may be victims."""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from closeby.objects.groups import POD_SET, PodGroup
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod, PodSpec, ProtectionRequest
from closeby.objects.quantities import parse_duration
from closeby.objects.workloads import is_pinned
from closeby.reading.decoding.keys import QUEUE_NAME
from closeby.reading.decoding.preemption_requests import minimum_request, protection_request
from closeby.scheduling.extension import Handle, PostFilter
from closeby.scheduling.intake.budgets import NONE, SEVERAL
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.plugin_view import CycleState

if TYPE_CHECKING:
    from closeby.scheduling.preemption.domains import DomainChoice, GangQuestion
    from closeby.scheduling.preemption.nodes import NodeChoice, PodQuestion
    from closeby.scheduling.preemption.units import Victims

#: Seconds in which ``maxEvictions`` counts.
DAY: Final = 86_400.0
#: What Kueue writes on pods of workloads that it admitted.
_KUEUE_LABELS: Final = frozenset({POD_SET, QUEUE_NAME, "kueue.x-k8s.io/managed"})
_KUEUE_WORKLOAD: Final = "kueue.x-k8s.io/workload"

#: Arguments that are spans of time, and how the configuration calls them.
_SPANS: Final = {
    "preemption_delay": "preemptionDelay",
    "min_runtime": "minRuntime",
    "plan_deadline": "planDeadline",
    "restart_cost": "restartCost",
    "max_grace": "maxGrace",
}


class PreemptionRule(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Arguments of ``DefaultPreemption``. Spans of time are written like ``30s`` or ``5m``."""

    #: ``observe`` says what would be evicted and evicts nothing.
    preemption: Literal["on", "observe", "off"] = "on"
    #: How long an item waits before it preempts.
    preemption_delay: str = "0"
    #: How long a pod runs before it may be a victim.
    min_runtime: str = "0"
    #: What a victim needs to get back to its last checkpoint, which is lost too.
    restart_cost: str = "5m"
    #: How long victims may take to end beyond their grace, and budgets to allow their evictions.
    plan_deadline: str = "2m"
    #: Pods of closeby's own, or those of all schedulers.
    victims: Literal["ours", "all"] = "ours"
    #: The longest grace of a victim that a plan waits for on a cluster; pods with a longer one go last.
    max_grace: str = "10m"
    #: Whether a PodDisruptionBudget may be violated: ``soft`` where nothing else makes room, ``strict``
    #: never. Unset: soft for plain pods, as upstream, and strict for gangs.
    pdb: Literal["soft", "strict"] | None = None
    #: Namespaces whose PodDisruptionBudgets count for nothing: their pods are deleted rather than evicted.
    overrule_budgets: tuple[str, ...] = ()
    #: Evictions of one gang or owner within a day, after which it is protected from the same priority.
    max_evictions: Annotated[int, Meta(ge=1)] = 3
    #: Namespaces in which the annotation ``closeby.dev/preemptible: "false"`` counts. Unset: in files all,
    #: on a cluster none.
    protected_namespaces: tuple[str, ...] | None = None
    #: Upstream's; closeby looks at every candidate, so they change nothing.
    min_candidate_nodes_percentage: int = msgspec.field(name="minCandidateNodesPercentage", default=10)
    min_candidate_nodes_absolute: int = msgspec.field(name="minCandidateNodesAbsolute", default=100)

    def __post_init__(self) -> None:
        for name, known in _SPANS.items():
            if parse_duration(getattr(self, name)) is None:
                raise ValueError(f"{known}: {getattr(self, name)!r} is not a span of time such as 30s or 5m")

    @property
    def delay(self) -> float:
        """``preemptionDelay`` in seconds."""
        return parse_duration(self.preemption_delay) or 0.0

    @property
    def runtime(self) -> float:
        """``minRuntime`` in seconds."""
        return parse_duration(self.min_runtime) or 0.0

    @property
    def deadline(self) -> float:
        """``planDeadline`` in seconds."""
        return parse_duration(self.plan_deadline) or 0.0

    def soft(self, *, gang: bool) -> bool:
        """Whether a gang, or a plain pod, may violate budgets."""
        return not gang if self.pdb is None else self.pdb == "soft"


class Preempts(PostFilter):
    """A PostFilter plugin by whose rule the engine clears domains."""

    Arguments = PreemptionRule

    def __init__(self, arguments: PreemptionRule, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self.rule = arguments

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        """Nothing to note: the engine asks for victims once the item is refused."""

    def domain_for(self, question: "GangQuestion", victims: "Victims") -> "DomainChoice | None":
        """Who goes for a gang, and where it goes then; None: no victims are enough."""
        return question.best(victims)

    def node_for(self, question: "PodQuestion", victims: "Victims") -> "NodeChoice | None":
        """Who goes for a plain pod, and where it goes then; None: no victims are enough."""
        return question.best(victims)


def preempting_plugin(plugins: Iterable[PostFilter]) -> Preempts | None:
    """The first plugin that says how to preempt."""
    return next((plugin for plugin in plugins if isinstance(plugin, Preempts)), None)


def rule_of(plugins: Iterable[PostFilter]) -> PreemptionRule | None:
    """The rule of the first plugin that has one."""
    plugin = preempting_plugin(plugins)
    return None if plugin is None else plugin.rule


class PodTimes(NamedTuple):
    """When a pod started, and when it wrote its last checkpoint; None for never."""

    started: float | None
    checkpointed: float | None


class Preemptible(Struct, frozen=True, kw_only=True):
    """Given to an engine that may preempt: whose pods it may evict."""

    #: Pods of this scheduler are ours; None: all are.
    scheduler_name: str | None = None
    #: Namespaces whose pods may protect themselves by annotation, unless the rule names some; None: all.
    namespaces: Collection[str] | None = None
    #: Namespaces whose pods are never victims.
    excluded_namespaces: Collection[str] = ()
    #: The times of a pod, None for one that may not be evicted; unset: as the pod says them (where
    #: it does not say when it started, when it was created), which a run over time knows better. Asked
    #: again for each search.
    times: Callable[[Pod], PodTimes | None] | None = None
    #: Nothing is evicted, whatever the rule says.
    observe: bool = False
    #: The caller reports each eviction (``VictimEvicted``); else victims count as evicted once planned.
    reports: bool = False


class Protection(NamedTuple):
    """Why a pod may not be a victim of any item."""

    #: As in the report.
    reason: str
    message: str


_NAMESPACE_EXCLUDED: Final = Protection("NamespaceExcluded", "its namespace is excluded")
_PINNED: Final = Protection("Pinned", "it comes back to its node at once")
_SEVERAL_BUDGETS: Final = Protection("SeveralBudgets", "several PodDisruptionBudgets cover it")
_KUEUE: Final = Protection("Kueue", "Kueue admitted it")
_OTHER_SCHEDULER: Final = Protection("OtherScheduler", "another scheduler has placed it")
MIN_RUNTIME: Final = Protection("MinRuntime", "it has not run for as long as a victim must")


class Protections:
    """Why pods may not be victims of any item, whatever its priority and however long they have run."""

    def __init__(self, state: SchedulingState, rule: PreemptionRule, whose: Preemptible) -> None:
        self._state = state
        self._excluded = whose.excluded_namespaces
        self._trusted = whose.namespaces if rule.protected_namespaces is None else rule.protected_namespaces
        self._scheduler = None if rule.victims == "all" else whose.scheduler_name

    def of(self, pod: Pod, budget: int) -> Protection | None:
        """Why a pod, which ``budget`` covers, may not be a victim at all; None if it may."""
        if (found := self.by_itself(pod, budget)) is not None:
            return found
        group = self._state.group_of(pod)
        found = None if group is None else self.of_gang(group, ())[0]
        return _OTHER_SCHEDULER if found is None and not self.is_ours(pod.spec) else found

    def by_itself(self, pod: Pod, budget: int) -> Protection | None:
        """The same by what the pod says itself."""
        if pod.namespace in self._excluded:
            return _NAMESPACE_EXCLUDED
        if budget == NONE and not (pod.owner or pod.labels or pod.annotations):
            return None
        if is_pinned(pod):
            return _PINNED
        if budget == SEVERAL and pod.phase != "Pending":
            return _SEVERAL_BUDGETS
        if self._trusts(pod.namespace):
            request = protection_request(pod.annotations, pod.labels)
            if request is not None and not (request.minimum_only and pod.group is not None):
                return _on_request(request)
        if _KUEUE_WORKLOAD in pod.annotations:
            return _KUEUE
        return None if _KUEUE_LABELS.isdisjoint(pod.labels) else _KUEUE

    def of_gang(
        self, group: PodGroup | None, members: Iterable[Pod]
    ) -> tuple[Protection | None, Protection | None]:
        """Why no member may be evicted, and why those of the minimum may not: someone asks for that."""
        if group is not None and group.protected_by is not None and self._trusts(group.namespace):
            found = _on_request(group.protected_by, of_group=True)
            if group.protected_by.minimum_only:
                return None, found
            return found, self._minimum_of(members)
        return None, self._minimum_of(members)

    def _minimum_of(self, members: Iterable[Pod]) -> Protection | None:
        asked = (minimum_request(pod.labels) for pod in members if self._trusts(pod.namespace))
        request = next((one for one in asked if one is not None), None)
        return None if request is None else _on_request(request)

    def is_ours(self, spec: PodSpec) -> bool:
        """Whether such pods are of the scheduler whose pods may be victims."""
        return self._scheduler is None or (spec.scheduler_name or DEFAULT_SCHEDULER) == self._scheduler

    def _trusts(self, namespace: str) -> bool:
        """Whether users protect their pods there."""
        return self._trusted is None or namespace in self._trusted


def _on_request(request: ProtectionRequest, *, of_group: bool = False) -> Protection:
    """Of a pod that says, or whose PodGroup says, that it is not to be evicted."""
    whose = "its PodGroup" if of_group else "it"
    return Protection("Annotation", f"{whose} says {request.text}")
