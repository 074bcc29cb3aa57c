"""From a work item to its outcome: what keeps it out, one cycle, and the bindings that follow."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.bounds import some
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.reading.dialects.grouping import awaits_the_grouper, not_grouped
from closeby.scheduling.gangs.places import place_at, ranks, segment_order, slots_of, split_part
from closeby.scheduling.gangs.rosters import missing, tree_of, unassigned
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.needs import Need, need_of_pod
from closeby.scheduling.outcomes import Binding, Decision, ItemKind, Leftover, Outcome, kind_of, name_of
from closeby.scheduling.placing.application_cycle import place_application
from closeby.scheduling.placing.gang_cycle import place_gang
from closeby.scheduling.placing.places_for_pods import domain_of
from closeby.scheduling.placing.statement import running_members
from closeby.scheduling.placing.tools import (
    Attempt,
    HeldForPods,
    Placed,
    Tools,
    WaitingGang,
    gang_refusal,
    waiting_gang,
)
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.reasons.wording import message

_NO_LABELS: Mapping[str, str] = {}
#: Different resources that one pod may ask for: each one is a column over all nodes.
MOST_RESOURCES: Final = 64
#: What keeps one member out for one of these reasons keeps all of its gang waiting.
_HOLDS_THE_GANG = frozenset({Reason.UNSUPPORTED, Reason.NAMESPACE_EXCLUDED})


def pre_enqueue(tools: Tools, pod: Pod) -> Condition | None:
    """Why a pod may not enter the queue yet; None when it may."""
    if pod.spec.unsupported and (wrong := not_grouped(pod)) is not None:
        return wrong
    if pod.spec.unsupported:
        message = f"it asks for what closeby does not support yet: {some(pod.spec.unsupported)}"
        remedy = "leave the pod to a scheduler that supports it"
        if awaits_the_grouper(pod):
            message = f"it is not known {some(pod.spec.unsupported)}"
            remedy = "if that lasts, see whether the pod-grouper runs (closeby controllers)"
        return Condition(
            reason=Reason.UNSUPPORTED,
            object=f"Pod/{pod.key}",
            field=pod.spec.unsupported[0],
            message=message,
            remedy=remedy,
            blocking=True,
        )
    if pod.spec.invalid:
        return Condition(
            reason=Reason.INVALID_SPEC,
            object=f"Pod/{pod.key}",
            field=pod.spec.invalid[0].partition(" ")[0],
            message=f"no API server accepts it: {some(pod.spec.invalid)}",
            remedy="correct the manifest",
            blocking=True,
        )
    if len(pod.spec.requests) > MOST_RESOURCES:
        return Condition(
            reason=Reason.UNSUPPORTED,
            object=f"Pod/{pod.key}",
            field="spec.containers[*].resources.requests",
            message=f"it asks for {len(pod.spec.requests):,} different resources",
            remedy=f"ask for at most {MOST_RESOURCES}",
            blocking=True,
        )
    for plugin in tools.profile.pre_enqueue:
        refusal = plugin.pre_enqueue(pod) if plugin.minds(pod) else None
        if refusal is not None:
            return refusal
    return None


def follow_plan(
    tools: Tools, gang: WaitingGang, planned: Mapping[str, str], all_of_it: int
) -> Attempt | None:
    """Place members where ``planned`` (uid -> node) puts them; None when the plan helps no member.

    While nothing is bound the plan counts as a whole (``all_of_it`` members) or not at all, as a better place
    costs nothing then.
    """
    state = CycleState(gang.group, tree_of(gang.constraints), gang.members.anchors)
    if tools.pre_filter(state, gang.waiting) is not None:
        return None
    statement = tools.statement(state)
    slots = {uid: tools.cluster.slot(node) for uid, node in planned.items()}
    wanted = [(pod, slot) for pod in gang.waiting if (slot := slots.get(pod.uid)) is not None]
    statement.assume_where_allowed(wanted)
    placed = tuple(state.placed)
    whole = len(placed) == all_of_it
    if placed and (whole or gang.members.total_running):
        where = {pod.uid: slot for pod, slot in placed}
        whole_gang = gang.parts(everyone=True)
        if split_part(whole_gang, where) is None and tools.permit(state, placed) is None:
            statement.commit()
            return Attempt(placed=placed, tree=state.tree, segments=segment_order(whole_gang))
    statement.discard()
    return None


def take_places(tools: Tools, waiting: Sequence[Pod], nodes: Mapping[str, str]) -> Attempt | None:
    """Place pods that are no gang on their nodes (uid -> node); None where no node takes its pod."""
    state = CycleState()
    if tools.pre_filter(state, tuple(waiting)) is not None:
        return None
    statement = tools.statement(state)
    slots = {uid: tools.cluster.slot(node) for uid, node in nodes.items()}
    statement.assume_where_allowed(
        [(pod, slot) for pod in waiting if (slot := slots.get(pod.uid)) is not None]
    )
    placed = tuple(state.placed)
    if not placed or tools.permit(state, placed) is not None:
        statement.discard()
        return None
    statement.commit()
    return Attempt(placed=placed)


def rest_of(waiting: Sequence[Pod], placed: Sequence[Pod]) -> tuple[Pod, ...]:
    """The members that the plan did not help."""
    found = {pod.uid for pod in placed}
    return tuple(pod for pod in waiting if pod.uid not in found)


def place_pod(tools: Tools, pod: Pod, allowed: Bools | None = None) -> Attempt:
    """Place one plain pod, in ``allowed`` slots alone where these are given."""
    state = CycleState()
    refusal = tools.pre_filter(state, (pod,))
    if refusal is not None:
        # Of claims that keep it from every node, the nodes tell by themselves whether they still do.
        return Attempt(refusal=refusal, need=need_of_pod(tools.table, pod) if pod.spec.claims else None)
    explanations = (tools.explain_pod(state, pod),) if tools.explains(pod.key) else ()
    statement = tools.statement(state)
    slot = tools.filler(statement).best_node(pod, allowed)
    if slot is None:
        tools.steps.take(200 + tools.cluster.capacity // 50)
        tools.post_filter(state, (pod,))
        inside = None if allowed is None else np.flatnonzero(allowed & tools.cluster.alive[: len(allowed)])
        why = tools.diagnosis.why_no_node(state, pod, inside)
        refusal = Condition(reason=why.reason, object=f"Pod/{pod.key}", message=message(why), blocking=True)
        need = need_of_pod(tools.table, pod)
        return Attempt(
            refusal=refusal,
            need=need,
            explanations=explanations,
            shortfall=why,
        )
    statement.assume_one(pod, slot)
    placed = ((pod, slot),)
    refusal = tools.permit(state, placed)
    if refusal is not None:
        statement.discard()
        return Attempt(refusal=refusal, explanations=explanations)
    statement.commit()
    return Attempt(placed=placed, explanations=explanations)


class CycleResult(NamedTuple):
    """What became of one work item, and what the queue has to know about it."""

    decision: Decision
    #: What it needs at the least, where it was refused for lack of room.
    need: Need | None = None
    #: Whether other pods of the item wait, whose turn is later.
    behind: bool = False


class Decider:
    """Decides about one work item after another; numbers the placed pods in the order of scheduling."""

    def __init__(self, tools: Tools, state: SchedulingState) -> None:
        self._tools = tools
        self._state = state
        #: uid of each pod whose place was made free in this cycle -> that node, and what was held there.
        self._vacated: dict[str, tuple[str, tuple[tuple[str, int], ...]]] = {}
        self._order = 0

    def decide(self, key: str, waiting: tuple[Pod, ...]) -> CycleResult:
        """Place a work item, or say why not. What was placed is in the state and on the cluster."""
        refused: list[Leftover] = []
        ready = waiting
        if self._state.gated:
            gated = {pod.uid: self._state.gated[pod.uid] for pod in waiting if pod.uid in self._state.gated}
            refused = [
                Leftover(pod, gated[pod.uid].reason, gated[pod.uid].sentence())
                for pod in waiting
                if pod.uid in gated
            ]
            ready = tuple(pod for pod in waiting if pod.uid not in gated)
        held = self._tools.places
        followed = self._into_places(held, key, ready) if held is not None and held.any else None
        followed = followed or self._along_the_plan(key, ready)
        if followed is None:
            return self._wherever(key, ready, refused)
        outcome = followed.decision.outcome
        rest = rest_of(ready, [one.pod for one in outcome.bindings])
        if outcome.refused or (not rest and not refused):
            return followed
        later = self._wherever(key, rest, refused).decision.outcome
        place = later.place or outcome.place
        whole = replace(later, bindings=(*outcome.bindings, *later.bindings), place=place)
        return CycleResult(Decision(whole))

    def _wherever(self, key: str, ready: tuple[Pod, ...], refused: list[Leftover]) -> CycleResult:
        """Place pods wherever it is best."""
        kind = kind_of(key)
        if kind is ItemKind.GANG:
            return self._gang(key, ready, refused)
        attempt = Attempt()
        if kind is ItemKind.APPLICATION:
            attempt = place_application(self._tools, name_of(key), ready)
        elif ready:
            attempt = place_pod(self._tools, ready[0])
        return self._settle(key, ready, refused, attempt, ())

    def _into_places(self, held: HeldForPods, key: str, ready: tuple[Pod, ...]) -> CycleResult | None:
        """What of the item takes the places that were held for it; None if nothing does.

        Those that do not suit any more are given up: the pods are placed like any others, with that room.
        """
        places = held.of(ready)
        if not places:
            return self._without_place(held, key, ready)
        conditions: tuple[Condition, ...] = ()
        gang: WaitingGang | None = None
        if kind_of(key) is ItemKind.GANG:
            group = self._state.groups.get(key)
            if group is None:
                return None
            gang = waiting_gang(self._tools, self._state, group, ready, in_order=False)
            conditions = (*gang.constraints.conditions, *self._state.limits(key))
            blocked = any(one.blocking for one in (*group.conditions, *conditions))
            if blocked or missing(group, gang.members) is not None:
                return None
        asked = {uid: self._state.pods[placeholder].spec.requests for uid, placeholder in places.items()}
        nodes = held.vacate(places)
        self._vacated = {uid: (node, asked[uid]) for uid, node in nodes.items()}
        if gang is None:
            attempt = take_places(self._tools, ready, nodes)
        else:
            attempt = follow_plan(self._tools, gang, nodes, len(places))
        if attempt is None:
            return self._without_place(held, key, ready)
        return self._settle(key, ready, [], attempt, conditions)

    def gave_places_up(self) -> bool:
        """Whether places were made free since the last call that their pods did not take as they were."""
        vacated, self._vacated = self._vacated, {}
        for uid, (node, requests) in vacated.items():
            placed = self._tools.cluster.placed(uid)
            if placed is None or placed[0].spec.requests != requests:
                return True
            if placed[1] != self._tools.cluster.slot(node):
                return True
        return False

    def _without_place(self, held: HeldForPods, key: str, ready: tuple[Pod, ...]) -> CycleResult | None:
        """What becomes of a pod that must not go just anywhere: beside those that run, or nowhere.

        None for all other pods.
        """
        if not ready or kind_of(key) is not ItemKind.POD:
            return None
        if not held.must_have_place(ready[0]):
            return None
        why = "no place is held for it (any more) beside the other pods of its Workload"
        siblings = held.siblings(ready[0])
        allowed = None if siblings is None else domain_of(siblings, self._tools)
        attempt = Attempt() if allowed is None else place_pod(self._tools, ready[0], allowed)
        if not attempt.placed:
            if attempt.refusal is not None:
                why = f"{why}, where {attempt.refusal.message}"
            refusal = Condition(
                reason=Reason.TOPOLOGY_PLACEMENT_FAILED,
                object=f"Pod/{ready[0].key}",
                message=why,
                blocking=True,
            )
            attempt = replace(attempt, refusal=refusal)
        return self._settle(key, ready, [], attempt, ())

    def _along_the_plan(self, key: str, ready: tuple[Pod, ...]) -> CycleResult | None:
        """What of a start that was begun can be carried on as it was written down; None if nothing."""
        group, planned = self._state.groups.get(key), self._state.planned(key)
        if group is None or not planned:
            return None
        gang = waiting_gang(self._tools, self._state, group, ready, in_order=False)
        conditions = gang.constraints.conditions
        if any(one.blocking for one in (*group.conditions, *conditions)):
            return None
        attempt = follow_plan(self._tools, gang, planned, len(group.plan))
        if attempt is None:
            return None
        conditions = (*conditions, *self._state.limits(key))
        return self._settle(key, ready, [], attempt, conditions, carried_on=True)

    def _gang(self, key: str, ready: tuple[Pod, ...], refused: list[Leftover]) -> CycleResult:
        group = self._state.groups.get(key)
        refusal: Condition | None = None
        conditions: tuple[Condition, ...] = ()
        buckets: tuple[tuple[str, ...], ...] | None = None
        attempt = Attempt()
        if group is None:
            refusal = gang_refusal(
                key, Reason.GANG_INCOMPLETE, f"PodGroup {some((key,))} does not exist", "create it"
            )
        else:
            gang = waiting_gang(self._tools, self._state, group, ready)
            ready = gang.waiting
            conditions = (*group.conditions, *gang.constraints.conditions, *unassigned(group, ready))
            conditions += (*self._noticed(gang), *self._state.limits(key))
            buckets = self._buckets(gang) if self._tools.explains(key) else None
            refusal = next((condition for condition in conditions if condition.blocking), None)
            gated = next((entry for entry in refused if entry.reason in _HOLDS_THE_GANG), None)
            if refusal is None and gated is not None:
                refusal = gang_refusal(key, gated.reason, gated.message)
            # Of sizes that are refused segments can't be counted.
            lack = missing(group, gang.members) if refusal is None else None
            if lack is not None and refused and not gang.members.total:
                refusal = gang_refusal(key, refused[0].reason, refused[0].message)
            elif lack is not None:
                refusal = gang_refusal(key, Reason.GANG_INCOMPLETE, lack)
            if refusal is None and ready:
                attempt = place_gang(self._tools, gang)
        if refusal is not None:
            attempt = Attempt(refusal=refusal)
        decided = self._settle(key, ready, refused, attempt, conditions)
        if buckets is None:
            return decided
        return decided._replace(decision=Decision(replace(decided.decision.outcome, buckets=buckets)))

    def _noticed(self, gang: WaitingGang) -> tuple[Condition, ...]:
        return tuple(
            one
            for plugin in self._tools.profile.member_sorts
            for one in plugin.gang_conditions(gang.group, gang.waiting, gang.running)
        )

    def _buckets(self, gang: WaitingGang) -> tuple[tuple[str, ...], ...] | None:
        for plugin in self._tools.profile.member_sorts:
            found = plugin.buckets(gang.group, gang.waiting, gang.running)
            if found is not None:
                return tuple(tuple(pod.name for pod in bucket) for bucket in found)
        return None

    def _settle(
        self,
        key: str,
        ready: tuple[Pod, ...],
        refused: list[Leftover],
        attempt: Attempt,
        conditions: tuple[Condition, ...],
        *,
        carried_on: bool = False,
    ) -> CycleResult:
        """Write an attempt into the state and say it as one outcome; ``carried_on``: it follows a plan."""
        kind = kind_of(key)
        is_gang = kind is ItemKind.GANG
        left = [*refused, *(Leftover(pod, reason, text) for pod, reason, text in attempt.leftover)]
        reason, said = None, None
        if attempt.refusal is not None:
            reason, said = attempt.refusal.reason, attempt.refusal.whole_sentence()
        elif refused and kind is ItemKind.POD:  # A gated or unsupported plain pod is its own refusal.
            reason, said = refused[0].reason, refused[0].message
        running = running_members(self._tools.cluster, self._state, key) if is_gang else ()
        place, slots = None, attempt.slots
        if slots is None:
            slots = slots_of(attempt.placed)
        if attempt.tree is not None and (running or attempt.placed):
            place = place_at(attempt.tree, np.concatenate([slots_of(running), slots]) if running else slots)
        numbers: Sequence[int] | None = None
        if is_gang and attempt.placed:
            taken = self._state.ranks(key)
            unknown = len(self._state.placed(key)) - len(taken)
            tree = attempt.tree or self._tools.topologies.flat()
            own = [pod for pod, _ in attempt.placed if carried_on or pod.begun]
            kept = self._state.written_ranks(key, own) if own else {}
            numbers = ranks(tree, set(taken.values()), unknown, attempt.placed, slots, attempt.segments, kept)
        path = () if place is None else place.path
        outcome = Outcome(
            key=name_of(key),
            kind=kind,
            bindings=self._bind(key, attempt.placed, numbers, path),
            refused=() if attempt.refusal is None else ready,
            left=tuple(left),
            reason=reason,
            message=said,
            place=place,
            domains=attempt.domains,
            conditions=conditions,
            explanations=attempt.explanations,
            shortfall=attempt.shortfall,
            improvement=attempt.improvement,
        )
        return CycleResult(Decision(outcome), attempt.need)

    def _bind(
        self,
        key: str,
        placed: Sequence[Placed],
        numbers: Sequence[int] | None,
        path: tuple[str | None, ...],
    ) -> tuple[Binding, ...]:
        if not placed:
            return ()
        labels: Iterable[Mapping[str, str]] = repeat(_NO_LABELS)
        for plugin in self._tools.profile.pre_binds:
            labels = [
                {**before, **plugin.pre_bind(pod, slot)}
                for before, (pod, slot) in zip(labels, placed, strict=False)
            ]
        pods = [pod for pod, _ in placed]
        self._state.settle(key, pods, numbers or ())
        self._tools.table.forget_pods()
        names = self._tools.cluster.names
        nodes = [names[slot] or "" for _, slot in placed]
        binders = map(self._binder, pods, nodes) if self._tools.profile.binds else repeat(None)
        orders = range(self._order, self._order + len(placed))
        if self._tools.places is not None:
            self._tools.places.placed(pods)
        claims = self._tools.cluster.volumes
        has_claims = any(pod.spec.claims for pod in self._tools.table.one_of_each_spec(pods))
        volumes = map(claims.claimed, pods) if has_claims else repeat(())
        self._order += len(placed)
        # Gangs have thousands of these: no step of Python for each.
        ranked = repeat(None) if numbers is None else numbers
        return tuple(map(Binding, pods, nodes, orders, ranked, repeat(path), labels, binders, volumes))

    def _binder(self, pod: Pod, node: str) -> str | None:
        return next((plugin.name for plugin in self._tools.profile.binds if plugin.bind(pod, node)), None)
