"""PodTopologySpread: pods of one kind are spread over the domains of a topology key.

The rules are upstream's (``plugins/podtopologyspread``).
"""

from collections.abc import Hashable, Sequence
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from closeby.cluster.pod_owners import selecting_owner
from closeby.cluster.population import Population
from closeby.cluster.terms import LabelClass, TermCounts
from closeby.objects.arrays import Bools, Counts, Scores
from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.nodes import NO_EXECUTE, NO_SCHEDULE, Node, Taint, tolerated
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason, Rejection
from closeby.objects.selectors import PodAffinityTerm, TopologySpreadConstraint
from closeby.objects.words import plural
from closeby.scheduling.by_domain import CountedPods, DomainFilter, DomainLimit, DomainMask
from closeby.scheduling.extension import Handle, NormalizeScore, Scope
from closeby.scheduling.plugin_view import CycleState, NodeColumn, Nodes
from closeby.scheduling.repeats import UNSCORED, Repeats, Spread, SpreadScores


class DefaultConstraint(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A constraint of pods that have none of their own; the selector is that of their Service or workload."""

    max_skew: Annotated[int, Meta(ge=1)]
    topology_key: Annotated[str, Meta(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    min_domains: Annotated[int, Meta(ge=1)] = 1
    node_affinity_policy: Literal["Honor", "Ignore"] = "Honor"
    node_taints_policy: Literal["Honor", "Ignore"] = "Ignore"

    @property
    def constraint(self) -> TopologySpreadConstraint:
        """As pods have them."""
        return TopologySpreadConstraint(
            topology_key=self.topology_key,
            max_skew=self.max_skew,
            hard=self.when_unsatisfiable == "DoNotSchedule",
            min_domains=self.min_domains,
            honors_affinity=self.node_affinity_policy == "Honor",
            honors_taints=self.node_taints_policy == "Honor",
        )


_SYSTEM: Final = (
    TopologySpreadConstraint(topology_key=HOSTNAME, max_skew=3, hard=False),
    TopologySpreadConstraint(topology_key=ZONE, max_skew=5, hard=False),
)


class PodTopologySpreadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Names and defaults as upstream's; ``defaultsForGangs`` is closeby's own."""

    default_constraints: tuple[DefaultConstraint, ...] = field(default=(), name="defaultConstraints")
    defaulting_type: Literal["System", "List"] = field(default="System", name="defaultingType")
    #: Whether the defaults also spread members of gangs and pods of applications, which else stay close.
    defaults_for_gangs: bool = field(default=False, name="defaultsForGangs")

    def __post_init__(self) -> None:
        """Checks what goes together."""
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError("defaultConstraints go with defaultingType: List alone")
        kinds = [(one.topology_key, one.when_unsatisfiable) for one in self.default_constraints]
        if len(set(kinds)) < len(kinds):
            raise ValueError("defaultConstraints name a topologyKey and whenUnsatisfiable twice")


class _Eligible:
    """Slots on which pods count for constraints; one array as long as nothing changes."""

    __slots__ = ("cursor", "slots")

    def __init__(self) -> None:
        self.cursor: object = None
        self.slots: Bools = np.zeros(0, dtype=np.bool_)


class _Spread(DomainMask):
    """One hard constraint: domains that take one more pod."""

    def __init__(
        self,
        plugin: "PodTopologySpread",
        pod: Pod,
        one: TopologySpreadConstraint,
        keys: tuple[str, ...],
        itself: bool,
    ) -> None:
        self.key = one.topology_key
        self.constraint = one
        #: 1 if the pod counts for its own constraint.
        self.itself = int(itself)
        self._plugin = plugin
        self._pod = pod
        self._keys = keys
        self._answer: tuple[Hashable, Bools] = (None, np.zeros(0, dtype=np.bool_))
        self._domains: tuple[object, object, Bools] = (None, None, np.zeros(0, dtype=np.bool_))
        selector = one.selector
        population = plugin.handle.cluster.population
        self.tally = (
            None if selector is None or selector.empty else population.tally_in(pod.namespace, selector)
        )

    @property
    def asks(self) -> str:
        _, there = self.counts()
        domains, least = int(np.count_nonzero(there)), self.constraint.min_domains
        few = f", and minDomains {least} where there {_are(domains)}" if domains < least else ""
        return f"topology spread of {self.constraint}{few}"

    def stamp(self) -> Hashable:
        return self._stamp_of(*self._look())

    def allowed(self) -> Bools:
        view, eligible = self._look()
        stamp = self._stamp_of(view, eligible)
        if stamp != self._answer[0]:
            counts, there = self._counts(view, eligible)
            least = self._least(counts, there)
            allowed: Bools = counts + (self.itself - least) <= self.constraint.max_skew
            allowed[0] = False
            self._answer = (stamp, allowed)
        return self._answer[1]

    def grows_with(self, pod: Pod) -> bool:
        selector = self.constraint.selector
        if self.tally is None or selector is None or pod.namespace != self._pod.namespace:
            return False
        return selector.matches(self._plugin.handle.cluster.population.class_of(pod).labels)

    @property
    def closes(self) -> bool | None:
        return None if self.tally is not None and self.itself else False

    def limit(self) -> DomainLimit | None:
        if self.tally is None or not self.itself:
            return None
        counts, there = self.counts()
        eligible = np.zeros(len(counts), dtype=np.bool_)
        eligible[: len(there)] = there[: len(counts)]
        cluster = self._plugin.handle.cluster
        return DomainLimit(
            codes=cluster.labels.column(self.key).codes[: cluster.capacity],
            counts=counts,
            eligible=eligible,
            max_skew=self.constraint.max_skew,
            min_domains=max(self.constraint.min_domains, 1),
        )

    def counts(self) -> tuple[Counts, Bools]:
        """Pods per domain, and which domains count, by code."""
        return self._counts(*self._look())

    def least(self) -> int:
        """The minimum over the domains that count."""
        return self._least(*self.counts())

    def _stamp_of(self, view: TermCounts | None, eligible: Bools) -> Hashable:
        return None if view is None else view.version, id(eligible), self._plugin.handle.cluster.structure

    def _counts(self, view: TermCounts | None, eligible: Bools) -> tuple[Counts, Bools]:
        column = self._plugin.handle.cluster.labels.column(self.key)
        structure = self._plugin.handle.cluster.structure
        if self._domains[0] is not eligible or self._domains[1] != structure:
            codes = column.codes[: len(eligible)][eligible]
            there: Bools = np.bincount(codes, minlength=len(column.values)) > 0
            there[0] = False
            self._domains = (eligible, structure, there)
        counts = np.zeros(len(column.values), dtype=np.int64) if view is None else view.by_code
        return counts, self._domains[2]

    def _least(self, counts: Counts, there: Bools) -> int:
        found = counts[: len(there)][there]
        return int(found.min()) if len(found) >= max(self.constraint.min_domains, 1) else 0

    def _look(self) -> tuple[TermCounts | None, Bools]:
        which, eligible = self._plugin.eligible(self._pod, self.constraint, self._keys)
        if self.tally is None:
            return None, eligible
        structure = self._plugin.handle.cluster.structure
        return self.tally.domains(structure, self.key, which, eligible), eligible


def _are(domains: int) -> str:
    return f"{'is' if domains == 1 else 'are'} {plural(domains, 'domain')}, so that the least counts as 0"


class _Judgement:
    """What there is to know about pods of one label class with one spec."""

    __slots__ = ("key", "masks", "needs_all", "soft", "spec")

    def __init__(
        self,
        spec: PodSpec,
        masks: tuple[_Spread, ...],
        key: Hashable,
        soft: tuple[TopologySpreadConstraint, ...],
        needs_all: bool,
    ) -> None:
        self.spec = spec
        self.masks = masks
        self.key = key
        #: Preferences, with the pod's label keys in their selector.
        self.soft = soft
        #: Whether only nodes with all keys are scored.
        self.needs_all = needs_all


class PodTopologySpread(DomainFilter, NormalizeScore):
    """Upstream's plugin of that name.

    A hard constraint lets a pod go where the pods of its kind in the domain, with it, are at most ``maxSkew``
    more than in the emptiest domain. The score is higher where fewer such pods are.
    """

    name = "PodTopologySpread"
    Arguments = PodTopologySpreadArguments
    reason = Reason.TOPOLOGY_SPREAD_VIOLATION
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    default_weight = 2.0

    def __init__(self, arguments: PodTopologySpreadArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._system = arguments.defaulting_type == "System"
        self._defaults = (
            _SYSTEM if self._system else tuple(one.constraint for one in arguments.default_constraints)
        )
        self._for_gangs = arguments.defaults_for_gangs
        self._hard_defaults = any(one.hard for one in self._defaults)
        self._taints = NodeColumn(handle.cluster, _taints)
        self._eligible: dict[Hashable, _Eligible] = {}

    @property
    def shares_by_spec(self) -> bool:
        return not self._population.active and not self._hard_defaults

    def class_key(self, pod: Pod) -> Hashable:
        if not self._may_be_kept_out(pod):
            return None
        return self._judgement(pod).key

    def lasting_key(self, pod: Pod) -> Hashable:
        if not self._may_be_kept_out(pod):
            return None
        # What its owner selects may become known, or change.
        return self._population.class_of(pod), "" if pod.spec.topology_spread else pod.owner

    def masks(self, pod: Pod) -> Sequence[DomainMask]:
        return self._judgement(pod).masks if self._may_be_kept_out(pod) else ()

    def counts(self, pod: Pod) -> Sequence[CountedPods]:
        return [
            CountedPods((PodAffinityTerm("", mask.constraint.selector, (pod.namespace,)),))
            for mask in (self._judgement(pod).masks if self._may_be_kept_out(pod) else ())
            if mask.tally is not None
        ]

    def constrained(self, pod: Pod) -> bool:
        return self._may_be_kept_out(pod)

    def helped_by_pods(self, pod: Pod) -> bool:
        return any(one.hard for one in pod.spec.topology_spread) or (
            self._hard_defaults and not pod.spec.topology_spread
        )

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        masks = self._judgement(pod).masks
        place = self.refusing(pod, slot)
        mask = masks[place if place is not None else 0]
        value, text = self.handle.cluster.node_at(slot).labels.get(mask.key), f"{mask.asks}: "
        if value is None:
            return Rejection(Reason.TOPOLOGY_SPREAD_VIOLATION, f"{text}the node has no label {mask.key}")
        here = int(mask.counts()[0][self.handle.cluster.labels.column(mask.key).codes[slot]])
        text += f"{mask.key}={value} has {plural(here, 'such pod')}, the emptiest domain {mask.least()}"
        return Rejection(Reason.TOPOLOGY_SPREAD_VIOLATION, text)

    # Scores

    @property
    def scores_by_spec(self) -> bool:
        return not self._defaults or not self._population.owners.by_namespace

    def scores(self, pod: Pod) -> bool:
        if pod.spec.topology_spread:
            return any(not one.hard for one in pod.spec.topology_spread)
        selecting = self._population.owners.by_namespace.get(pod.namespace) if self._defaults else None
        if not selecting or not self._defaulted(pod):
            return False
        return bool(self._judgement(pod).soft)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """More where more such pods are; -1 for nodes that lack a key."""
        return self._spread(pod, nodes).values

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        return SpreadScores.normalized(scores)

    def repeats(self, state: CycleState, pod: Pod, nodes: Nodes) -> Repeats:
        """Each pod counts for the next ones where the selector selects it."""
        return self._spread(pod, nodes) if self.scores(pod) else UNSCORED

    def _spread(self, pod: Pod, nodes: Nodes) -> SpreadScores:
        judged, population = self._judgement(pod), self._population
        structure, column = self.handle.cluster.structure, self.handle.cluster.labels.column
        keys = tuple(one.topology_key for one in judged.soft)
        kinds: list[Spread] = []
        for one in judged.soft:
            selector, by_node = one.selector, one.topology_key == HOSTNAME
            codes = nodes.label_codes(one.topology_key).astype(np.intp)
            itself, eligible = False, None
            if selector is None or selector.empty:
                counts = np.zeros(len(nodes) if by_node else len(column(one.topology_key).values), np.int64)
            else:
                tally = population.tally_in(pod.namespace, selector)
                itself = not pod.terminating and selector.matches(population.class_of(pod).labels)
                if by_node:
                    counts = np.array(tally.domains(structure, None).by_code[nodes.index])
                else:
                    which, eligible = self.eligible(pod, one, keys if judged.needs_all else ())
                    counts = tally.domains(structure, one.topology_key, which, eligible).by_code.copy()
            kinds.append(Spread(by_node, one.max_skew, codes, counts, itself, eligible))
        return SpreadScores(kinds, judged.needs_all, len(nodes), nodes.index)

    # Inside

    def eligible(
        self, pod: Pod, one: TopologySpreadConstraint, keys: tuple[str, ...]
    ) -> tuple[Hashable, Bools]:
        """Slots on which pods count for a constraint of a pod: one array as long as no node changes."""
        spec = pod.spec
        affinity = (spec.node_selector, spec.required_affinity) if one.honors_affinity else None
        tolerations = spec.tolerations if one.honors_taints else None
        which = (keys, affinity, tolerations)
        cluster = self.handle.cluster
        known = self._eligible.get(which)
        if known is None:
            if len(self._eligible) > 1024:
                self._eligible.clear()
            known = self._eligible[which] = _Eligible()
        if known.cursor != cluster.node_changes.cursor:
            known.cursor = cluster.node_changes.cursor
            slots = self._now_eligible(pod, one, keys)
            if not np.array_equal(slots, known.slots):
                known.slots = slots
        return which, known.slots

    def _now_eligible(self, pod: Pod, one: TopologySpreadConstraint, keys: tuple[str, ...]) -> Bools:
        cluster = self.handle.cluster
        nodes = Nodes(cluster)
        found: Bools = cluster.alive[: cluster.capacity].copy()
        for key in keys:
            found &= nodes.label_codes(key) > 0
        if one.honors_affinity:
            found &= self.handle.required_affinity(pod, nodes)
        if one.honors_taints:
            found &= self._taints.flags(nodes, lambda taints: _all_tolerated(pod, taints))
        return found

    @property
    def _population(self) -> Population:
        return self.handle.cluster.population

    def _may_be_kept_out(self, pod: Pod) -> bool:
        if pod.spec.topology_spread:
            return any(one.hard for one in pod.spec.topology_spread)
        return self._hard_defaults and self._defaulted(pod)

    @property
    def has_hard_defaults(self) -> bool:
        """Whether a default constraint may keep pods out."""
        return self._hard_defaults

    def goes_by_owner(self, pod: Pod) -> bool:
        """Whether it depends on what the owner of a pod selects."""
        owned = bool(selecting_owner(pod) and self._defaults)
        return owned and not pod.spec.topology_spread and self._defaulted(pod)

    def _defaulted(self, pod: Pod) -> bool:
        """Whether the defaults are for such a pod."""
        if self._for_gangs or pod.group is None:
            return self._for_gangs or self.handle.applications.of(pod) is None
        return False

    def _judgement(self, pod: Pod) -> _Judgement:
        own = self._population.class_of(pod)
        place = (self.name, id(pod.spec), selecting_owner(pod), self._defaulted(pod))
        found = own.notes.get(place)
        if isinstance(found, _Judgement) and found.spec is pod.spec:
            return found
        made = self._made(pod, own)
        self._population.note(own, place, made)
        return made

    def _made(self, pod: Pod, own: LabelClass) -> _Judgement:
        constraints = tuple(one.of_pod(pod.labels) for one in pod.spec.topology_spread)
        if not constraints and self._defaulted(pod):
            selector = self._population.owners.default_selector(pod, own.labels)
            if not selector.empty:
                constraints = tuple(replace(one, selector=selector) for one in self._defaults)
        hard = tuple(one for one in constraints if one.hard)
        keys = tuple(one.topology_key for one in hard)
        masks = tuple(
            _Spread(
                self,
                pod,
                one,
                keys,
                one.selector is not None and one.selector.matches(own.labels),
            )
            for one in hard
        )
        spec = pod.spec
        key = (
            tuple((mask.constraint, mask.tally, mask.itself) for mask in masks),
            spec.node_selector,
            spec.required_affinity,
            spec.tolerations,
        )
        return _Judgement(
            spec,
            masks,
            key if masks else None,
            tuple(one for one in constraints if not one.hard),
            needs_all=bool(spec.topology_spread) or not self._system,
        )


def _taints(node: Node) -> tuple[Taint, ...]:
    return tuple(taint for taint in node.taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))


def _all_tolerated(pod: Pod, taints: tuple[Taint, ...]) -> bool:
    return all(tolerated(pod.spec.tolerations, taint) for taint in taints)
