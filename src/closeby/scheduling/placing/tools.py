"""What every cycle works with: the cluster, the plugins, cached judgements, and the gang that waits."""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from math import inf
from typing import Final, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Ints
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, ReasonToken
from closeby.scheduling.gangs.parts import NodeSet, Part
from closeby.scheduling.gangs.places import SegmentOrder
from closeby.scheduling.gangs.rosters import Constraints, Roster, constraints_of, parts, roster
from closeby.scheduling.intake.members import member_order
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.holds import Holds
from closeby.scheduling.judging.needs import Need, RoomIndex
from closeby.scheduling.outcomes import DomainFit, Improvement, PodExplanation
from closeby.scheduling.placing.exclusive import Exclusives
from closeby.scheduling.placing.fill import Filler
from closeby.scheduling.placing.statement import Statement, running_members
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.profile import Profile
from closeby.scheduling.reasons.facts import Shortfall
from closeby.scheduling.reasons.nodes import Diagnosis
from closeby.scheduling.services import Traffic
from closeby.scheduling.solving.program import Solution
from closeby.scheduling.steps import Steps
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree

#: Steps of a decision, whatever it is about, and for each of its pods.
DECISION: Final = 60
POD: Final = 10
#: Programs solved elsewhere whose solutions are remembered.
_REMEMBERED: Final = 64

#: A pod and its slot.
Placed = tuple[Pod, int]
#: A pod that found no place, with the reason.
Left = tuple[Pod, ReasonToken, str]


class Attempt(Struct, frozen=True, kw_only=True, eq=False):
    """What one cycle did. ``placed`` is empty when the item waits; it is assumed on the cluster otherwise."""

    placed: tuple[Placed, ...] = ()
    #: Their slots as a column, where that is at hand.
    slots: Ints | None = None
    #: Elastic members, or pods of an application.
    leftover: tuple[Left, ...] = ()
    refusal: Condition | None = None
    #: Of a refused item, as in ``Outcome``.
    shortfall: Shortfall | None = None
    #: Without that much room every attempt ends in a refusal; None when nothing is known.
    need: Need | None = None
    domains: tuple[DomainFit, ...] = ()
    explanations: tuple[PodExplanation, ...] = ()
    tree: Tree | None = None
    #: Of members with layers, as of ``places.segment_order``.
    segments: Sequence[SegmentOrder] = ()
    improvement: Improvement | None = None


class Siblings(NamedTuple):
    """The Workload of a pod, as the gang that asks for its places."""

    group: PodGroup
    #: The subgroup of the pod; None: there are none.
    subgroup: str | None
    #: Subgroup and slot of each pod that has a node, and of each place that is held.
    placed: Sequence[tuple[str | None, int]]


class HeldForPods(Protocol):
    """The places that are held for pods to come, as decisions about these pods see them."""

    @property
    def any(self) -> bool:
        """Whether any places are asked for."""

    def concerns(self, pods: Iterable[Pod]) -> bool:
        """Whether places may be held for any of these pods."""

    def of(self, pods: Sequence[Pod]) -> dict[str, str]:
        """uid of a pod that waits -> uid of the placeholder pod whose place it takes."""

    def must_have_place(self, pod: Pod) -> bool:
        """Whether a pod without a gang must not go elsewhere."""

    def siblings(self, pod: Pod) -> Siblings | None:
        """The Workload of a pod while others of it run, with their nodes; None while none runs."""

    def vacate(self, places: Mapping[str, str]) -> dict[str, str]:
        """Takes placeholder pods off their nodes; uid of each pod -> the node that it finds free."""

    def placed(self, pods: Iterable[Pod]) -> None:
        """These pods got nodes by a decision."""


class Tools:
    """Shared by all cycles of one engine."""

    def __init__(
        self,
        cluster: Cluster,
        topologies: Topologies,
        profile: Profile,
        *,
        explain: bool | Collection[str],
        explain_everything: bool,
        holds: Holds | None = None,
        exclusives: Exclusives | None = None,
    ) -> None:
        """``holds``: what the item in hand must keep off. ``exclusives``: None where no domain is held."""
        self.cluster = cluster
        self.topologies = topologies
        self.profile = profile
        self.holds = Holds() if holds is None else holds
        self.exclusives = exclusives
        #: Places that are held for pods to come; None as long as none were asked for.
        self.places: HeldForPods | None = None
        self._pod_by_pod = profile.pod_by_pod
        #: Of the decision in hand.
        self.steps = Steps()
        #: By key what came of programs that were solved elsewhere, the latest last.
        self._solved: dict[Hashable, Solution] = {}
        self.table = ClassTable(cluster, profile.filters, profile.scores, self.holds)
        self.rooms = RoomIndex(cluster, self.table, topologies, self.holds)
        self.diagnosis = Diagnosis(cluster, self.table, profile.filters, profile.scores)
        self._explain = explain
        self.explain_everything = explain_everything

    def for_fork(self) -> "Tools":
        """The same with the same caches, for decisions that are only tried: nothing is explained or bound."""
        twin = copy(self)
        twin.profile = replace(self.profile, post_filters=(), pre_binds=(), binds=(), post_binds=())
        twin._explain, twin.explain_everything = False, False
        return twin

    def statement(self, state: CycleState) -> Statement:
        """An empty statement that reports what it does to the plugins and the cycle's state."""
        state.steps = self.steps
        return Statement(self.cluster, self.profile.reserves, state, self.allows)

    def filler(self, statement: Statement, before_pod: Callable[[Pod], None] | None = None) -> Filler:
        """Places pods on a statement; ``before_pod`` is called with each pod that is placed on its own."""
        return Filler(
            cluster=self.cluster,
            table=self.table,
            statement=statement,
            flat_tree=self.topologies.flat,
            before_pod=before_pod,
            pod_by_pod=self._pod_by_pod,
        )

    def begin(self, pods: int, limit: float = inf) -> Steps:
        """A decision about so many pods begins; after ``limit`` steps it searches no more."""
        self.steps = Steps(limit, self._solved)
        self.steps.take(DECISION + POD * pods)
        return self.steps

    def note_solved(self, program: Hashable, solution: Solution) -> None:
        """A program (by key) was solved elsewhere."""
        self._solved[program] = solution
        while len(self._solved) > _REMEMBERED:
            del self._solved[next(iter(self._solved))]

    @property
    def explains_any(self) -> bool:
        """Whether any gang or plain pod is to be explained."""
        return bool(self._explain)

    def explains(self, key: str) -> bool:
        """Whether the gang or plain pod of that name is to be explained."""
        return self._explain if isinstance(self._explain, bool) else key in self._explain

    def explain_pod(self, state: CycleState, pod: Pod) -> PodExplanation:
        """How the nodes look to a pod right now."""
        return self.diagnosis.explain_pod(state, pod, self.explain_everything)

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        """The first PreFilter plugin's refusal."""
        kinds = self.table.one_of_each_spec(pods)
        for plugin in self.profile.pre_filters:
            if not any(map(plugin.minds, kinds)):
                continue
            if (refusal := plugin.pre_filter(state, pods)) is not None:
                return refusal
        return None

    def tried_first(self, pods: Sequence[Pod]) -> NodeSet | None:
        """Nodes that a plugin wants a gang tried on before all others, if they have room for it."""
        for plugin in self.profile.first_nodes:
            mask = plugin.tried_first(pods)
            if mask is not None:
                room = [(int(share.pod_class.fits[mask].sum()), share) for share in self.table.shares(pods)]
                return NodeSet(mask=mask) if all(fit >= len(share.pods) for fit, share in room) else None
        return None

    def allows(self, state: CycleState, pod: Pod, slot: int) -> bool:
        """Whether all filters let a pod go to a slot now."""
        pod_class = self.table.of(pod)
        nodes = Nodes(self.cluster, np.asarray([slot], dtype=np.intp))
        return bool(pod_class.fits[slot] > 0) and all(
            bool(plugin.filter(state, pod, nodes)[0])
            for plugin in (*pod_class.blind_filters, *state.more_filters)
        )

    def traffic(self, state: CycleState, pods: tuple[Pod, ...]) -> Traffic | None:
        """What traffic among the pods costs, by the first plugin that knows; None where they must stay."""
        if any(plugin.forbids_moves(state) for plugin in self.profile.traffic_costs):
            return None
        for plugin in self.profile.traffic_costs:
            if (traffic := plugin.traffic(state, pods)) is not None:
                return traffic
        return None

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        """Tell the PostFilter plugins that the pods found no place."""
        for plugin in self.profile.post_filters:
            plugin.post_filter(state, pods)

    def permit(self, state: CycleState, placed: tuple[Placed, ...]) -> Condition | None:
        """The first Permit plugin's refusal."""
        for plugin in self.profile.permits:
            if (refusal := plugin.permit(state, placed)) is not None:
                return refusal
        return None


class WaitingGang(Struct, frozen=True, kw_only=True, eq=False):
    """A gang and its members, as they stand now."""

    group: PodGroup
    #: Members without a node that may be placed, in the order in which they are to be.
    waiting: tuple[Pod, ...]
    #: Members that hold a node and stay there, with its slot.
    running: tuple[Placed, ...]
    #: All of them by leaf.
    members: Roster
    constraints: Constraints

    def parts(self, *, everyone: bool) -> Part:
        """What has to find a place: the minimum, or ``everyone`` who waits."""
        return parts(self.group, self.members, self.constraints, everyone)


def waiting_gang(
    tools: Tools, state: SchedulingState, group: PodGroup, waiting: tuple[Pod, ...], *, in_order: bool = True
) -> WaitingGang:
    """The gang with these members to place; ``in_order`` lets plugins say in which order."""
    running = running_members(tools.cluster, state, group.key)
    constraints = constraints_of(group, tools.topologies, tools.profile.close_by_default)
    if in_order and not constraints.layerings:
        waiting = _in_order(tools, group, waiting, running)
    done = state.done(group.key)
    ranks: Mapping[str, int] = {}
    if constraints.layerings:
        ranks = state.ranks(group.key) if running else ranks
        planned = state.planned(group.key)
        begun = state.written_ranks(group.key, [pod for pod in waiting if pod.begun or pod.uid in planned])
        if begun:
            taken = set(ranks.values())
            ranks = {**ranks, **{uid: rank for uid, rank in begun.items() if rank not in taken}}
    return WaitingGang(
        group=group,
        waiting=waiting,
        running=running,
        members=roster(group, waiting, running, done, constraints.layerings, member_order, ranks),
        constraints=constraints,
    )


def gang_refusal(key: str, reason: ReasonToken, message: str, remedy: str = "") -> Condition:
    """Why the whole gang waits."""
    return Condition(reason=reason, object=f"PodGroup/{key}", message=message, remedy=remedy, blocking=True)


def _in_order(
    tools: Tools, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[Placed]
) -> tuple[Pod, ...]:
    """The members as the first plugin that knows better wants them placed."""
    for plugin in tools.profile.member_sorts:
        ordered = plugin.member_order(group, waiting, running)
        if ordered is not None:
            return ordered
    return waiting
