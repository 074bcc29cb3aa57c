"""What would become of an item that waits if one thing were different: tried on a fork, within a budget.

A trial is not an estimate: the engine decides as it always does. What stands before the item in the queue
decides before it, as it would; what comes after it can't matter to it and is left out, also if it was placed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from closeby.applications.registry import Application, app_group_key, application
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, gang_key
from closeby.objects.words import names_text, natural_key, path_text, plural, span_text
from closeby.plugins.registry import dependency_cost
from closeby.scheduling.fork import Change
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.outcomes import Binding, ItemKind, Outcome, Place, item_key
from closeby.scheduling.placing.tools import Placed
from closeby.simulator.runs import Run
from closeby.topology.constraints import Levels
from closeby.whatif.records import Counterfactual, Fields, JobEntry, Kind, TalkEntry, WhereEntry

#: Decisions that trials may take for one item.
DECISIONS = 2000
#: What an application's pods may do for the price of one decision: look at nodes, and at moves in the search
#: for the cheapest traffic.
LOOKS_A_DECISION = 25_000
MOVES_A_DECISION = 200_000
#: Names of nodes that an entry holds.
NODES = 8

T = TypeVar("T")
R = TypeVar("R")


class TrialResult(Struct, frozen=True, kw_only=True):
    """The item got its nodes in a trial; an application perhaps for some of its pods only."""

    #: None for a plain pod, and where no topology applies.
    place: Place | None
    bindings: tuple[Binding, ...]
    #: What other items got.
    beside: tuple[Binding, ...] = ()

    @property
    def nodes(self) -> list[str]:
        """The nodes that it got."""
        return nodes_of(self.bindings)

    @property
    def where(self) -> WhereEntry:
        """As data."""
        shown, place = tuple(self.nodes[:NODES]), self.place
        if place is None:
            return WhereEntry(nodes=shown)
        topology = place.topology or None
        return WhereEntry(
            topology=topology, level=place.level, domain=place.path, span=place.span, nodes=shown
        )

    @property
    def text(self) -> str:
        """``in zone-a/rack-1, on 3 nodes``; ``on n-1`` where no topology applies."""
        nodes, place = self.nodes, self.place
        if place is None or not place.topology:
            return f"on {names_text(nodes)}" if len(nodes) <= NODES else f"on {plural(len(nodes), 'node')}"
        span = span_text(place.span, place.level, place.outside)
        where = f"in {path_text(place.path)}" if place.path else "across the cluster"
        return f"{where}, on {span}" if span else where


class Trials:
    """A fork of the engine in the state that a run ended in; each item may spend as much on its trials."""

    def __init__(self, run: Run, decisions: int = DECISIONS) -> None:
        """``decisions``: what may be spent for each item."""
        self.engine = run.engine
        self.fork = run.engine.fork()
        self._pods = {pod.uid: pod for pod in run.pods if pod.uid in self.engine.state.pods}
        outcomes = self.fork.decide()
        # Bindings of the fork: none as a rule, since the run ended when nothing found a place any more.
        late = {one.pod.uid: one for outcome in outcomes for one in outcome.bindings}
        for uid, binding in {**run.bindings, **late}.items():
            if uid in self._pods:
                self._pods[uid] = replace(self._pods[uid], node_name=binding.node, rank=binding.rank)
        #: Keys of the items that wait, in the order in which they are decided.
        self.waiting = list(dict.fromkeys(key_of(one) for one in outcomes if one.leftover))
        #: What the run placed.
        self.bindings = tuple(run.bindings.values())
        self._all = self._left = decisions
        self._kept = 0

    @property
    def pods(self) -> Iterable[Pod]:
        """All pods there are; those that hold a node name it."""
        return self._pods.values()

    @property
    def spent(self) -> bool:
        """Whether no trial is left for this item."""
        return self._left <= self._kept

    def keep(self, share: float) -> None:
        """Leave this share of what an item may spend for later questions about it."""
        self._kept = int(share * self._all)

    def of(self, key: str) -> tuple[Pod, ...]:
        """The pods of an item that wait."""
        return self.engine.state.waiting(key)

    def forget_after(self, key: str) -> None:
        """Leave out what is decided after an item, for good; its budget is new."""
        keep = self.waiting.index(key) + 1
        dropped = [pod for one in self.waiting[keep:] for pod in self.of(one)]
        del self.waiting[keep:]
        self.fork.apply(Change(gone=tuple(dropped)))
        for pod in dropped:
            self._pods.pop(pod.uid, None)  # Placeholder pods are no pods of the run.
        self._left, self._kept = self._all, 0

    def try_out(self, key: str, change: Change) -> TrialResult | None:
        """What the item gets with this change; None when it still waits, or no trial is left."""
        outcomes = self._decided(change)
        mine = [one for one in outcomes if key_of(one) == key and one.reason is None and one.bindings]
        if not mine:
            return None
        own = tuple(each for one in mine for each in one.bindings)
        return TrialResult(place=mine[-1].place, bindings=own, beside=_beside(key, outcomes))

    def taken(self, key: str, change: Change) -> tuple[Binding, ...]:
        """What other items get with this change; nothing if no trial is left."""
        return _beside(key, self._decided(change))

    def _decided(self, change: Change) -> Sequence[Outcome]:
        if self.spent:
            return ()
        mark = self.fork.mark()
        self.fork.apply(change)
        outcomes = self.fork.decide()
        self.fork.undo(mark)
        self._left -= 1 + len(self.waiting) + self._effort(outcomes)
        return outcomes

    def _effort(self, outcomes: Iterable[Outcome]) -> int:
        """Decisions beyond one: those about large applications take long."""
        looks = moves = 0
        for one in outcomes:
            if one.kind is ItemKind.APPLICATION:
                looks += (len(one.bindings) + len(one.left)) * self.engine.cluster.node_count
            if one.improvement is not None:
                moves += one.improvement.evaluated
        return looks // LOOKS_A_DECISION + moves // MOVES_A_DECISION


def _beside(key: str, outcomes: Iterable[Outcome]) -> tuple[Binding, ...]:
    return tuple(each for one in outcomes if key_of(one) != key for each in one.bindings)


def key_of(outcome: Outcome) -> str:
    """The key of the work item that was decided."""
    return item_key(outcome.kind, outcome.key)


def nodes_of(bindings: Iterable[Binding]) -> list[str]:
    """The nodes of some bindings, each once, in natural order."""
    return sorted({one.node for one in bindings}, key=natural_key)


class Cost(NamedTuple):
    """Of all edges and pairs of placed replicas; ``over``: pairs that are farther apart than allowed."""

    talk: float
    over: int

    @property
    def figure(self) -> int | float:
        """Whole numbers without a fraction."""
        rounded = round(self.talk, 6)
        return int(rounded) if rounded == int(rounded) else rounded


class LesserRequest(NamedTuple):
    """What an item might ask for instead; ``condition`` is what follows ``It fits``."""

    change: Change
    condition: str
    fields: Fields


class Question(Struct, frozen=True, kw_only=True):
    """An item that waits, or some of its pods. ``key`` is that of the work item."""

    trials: Trials
    key: str
    #: None for a plain pod, and for an application.
    group: PodGroup | None = None
    #: Without those that something else than want of room keeps out of the queue.
    waiting: tuple[Pod, ...]
    #: None for a plain pod, and for a gang.
    application: Application | None = None
    #: Whether the gang has its minimum, and only these members of it wait, which are all equal.
    beyond: bool = False

    def tried(self, change: Change) -> TrialResult | None:
        """What it gets then; None if nothing."""
        result = self.trials.try_out(self.key, change)
        return None if result is None or (self.waiting and not self.got(result)) else result

    def whole_without(self, gone: Sequence[Pod]) -> TrialResult | None:
        """What it gets without these pods; None unless that is all it needs."""
        result = self.tried(Change(gone=tuple(gone))) if gone else None
        return result if result is not None and self.whole(result) else None

    @property
    def own(self) -> tuple[Placed, ...]:
        """The gang's members that hold a node, with its slot."""
        state, cluster = self.trials.engine.state, self.trials.engine.cluster
        placed = ((pod, cluster.placement(pod.uid)) for pod in state.placed(self.key))
        return tuple((pod, slot) for pod, slot in placed if slot is not None)

    @property
    def levels(self) -> Levels | None:
        """The gang's own constraint; None when it asks for none, or for what there is not."""
        if self.group is None:
            return None
        return constraints_of(self.group, self.trials.engine.topologies, False).levels.get("")

    @property
    def there(self) -> int:
        """Members of the gang that hold a node, or have done their work."""
        state = self.trials.engine.state
        return len(state.placed(self.key)) + len(state.done(self.key))

    @property
    def needed(self) -> int:
        """Pods that must find a node together."""
        if self.has_parts:
            return len(self.waiting)
        return 1 if self.group is None else min(max(self.group.min_member - self.there, 1), len(self.waiting))

    @property
    def has_parts(self) -> bool:
        """Whether some of what waits may get a node although the rest does not."""
        return self.application is not None or self.beyond

    @property
    def complete(self) -> bool:
        """Whether trials are left, and the gang has the members that it needs: a change may help it."""
        minimum = 0 if self.group is None else self.group.min_member
        return not self.trials.spent and minimum <= self.there + len(self.waiting)

    def owns(self, pod: Pod) -> bool:
        """Whether a pod belongs to the gang or the application that is asked about."""
        if self.application is not None:
            return app_group_key(pod) == self.application.key
        return self.group is not None and pod.group is not None and gang_key(pod) == self.key

    def got(self, result: TrialResult) -> tuple[Pod, ...]:
        """The pods that got a node of those that wait now."""
        assigned = {one.pod.uid for one in result.bindings}
        return tuple(pod for pod in self.waiting if pod.uid in assigned)

    def whole(self, result: TrialResult) -> bool:
        """Whether all that waits got a node; gangs and plain pods got what they need if they got any."""
        return not self.has_parts or len(self.got(result)) == len(self.waiting)

    def as_many(self, change: Change, easiest: TrialResult) -> TrialResult | None:
        """What comes of a change, if as many pods get a node as with the easiest one.

        A gang that fits has what it needs, only an application may have more or less of it.
        """
        result = self.tried(change)
        few = result is None or (self.has_parts and len(self.got(result)) < len(self.got(easiest)))
        return None if few else result

    @property
    def names(self) -> str:
        """The pods that wait, for sentences."""
        return names_text([pod.name for pod in self.waiting])

    @property
    def at_its_level(self) -> str:
        """``at rack level`` for those that require a level."""
        levels = self.levels
        if levels is None or levels.required is None:
            return ""
        return f" at {levels.tree.level_names[levels.required]} level"

    def changed(self, change: Callable[[Pod], Pod]) -> Change:
        """Its pods that wait as they would be."""
        return Change(waiting=tuple(map(change, self.waiting)))

    def first(self, *wishes: LesserRequest) -> tuple[Counterfactual, ...]:
        """The answer of the first wish with which the item fits; empty if there is none."""
        for one in wishes:
            result = self.tried(one.change)
            if result is not None:
                return (self.answer(Kind.RELAXED, one.change, result, one.condition, fields=one.fields),)
        return ()

    def answer(
        self,
        kind: Kind,
        change: Change,
        result: TrialResult,
        condition: str,
        *,
        fields: Fields | UnsetType = UNSET,
        jobs: tuple[JobEntry, ...] | UnsetType = UNSET,
    ) -> Counterfactual:
        """``It fits now if …: in zone-a/rack-1``; of parts of an item which pods fit, with
        the cost of their traffic in an application.

        ``condition`` is what follows the verb, ``fields`` what would have to be written.
        """
        found = Counterfactual(
            kind=kind,
            fits=self.whole(result),
            sentence=f"It fits {condition}: {result.text}.",
            where=result.where,
            jobs=jobs,
            change=fields,
        )
        if not self.has_parts:
            return found
        pods = self.got(result)
        left = len(self.waiting) - len(pods)
        fit = f"{names_text([pod.name for pod in pods])} {'fits' if len(pods) == 1 else 'fit'}"
        fit += f" ({plural(left, 'other')} would still wait)" if left else ""
        there, here = self._traffic(change, result), self._traffic(Change(), None)
        uids = {pod.uid for pod in pods}
        own = names_text(nodes_of(one for one in result.bindings if one.pod.uid in uids))
        where = f"on {own}" if self.beyond else result.text
        cost = "" if there is None else f" (its traffic then costs {there.figure:,})"
        talk: TalkEntry | UnsetType = UNSET
        if there is not None and here is not None:
            talk = TalkEntry(here=here.figure, there=there.figure, over_here=here.over, over_there=there.over)
        return replace(
            found,
            sentence=f"{fit} {condition}: {where}{cost}.",
            pods=tuple(pod.key for pod in pods),
            talk=talk,
        )

    def _traffic(self, change: Change, result: TrialResult | None) -> Cost | None:
        """What the application's traffic costs after a trial, or now; None where no network gives costs.

        Limits are those that the change asks for.
        """
        if self.application is None:
            return None
        asked, cluster = self.application, self.trials.engine.cluster
        costs = dependency_cost(self.trials.engine.profile)
        asked = next((application(one) for one in change.applications if one.key == asked.key), asked)
        away = {pod.uid for pod in (*change.gone, *change.waiting)}
        new = {} if result is None else {one.pod.uid: one.node for one in (*result.beside, *result.bindings)}
        replicas: dict[str, dict[int, int]] = {}
        for pod in self.trials.pods:
            if app_group_key(pod) != asked.key:
                continue
            node = new.get(pod.uid, None if pod.uid in away else pod.node_name)
            workload, slot = asked.workload_of(pod), None if node is None else cluster.slot(node)
            if workload is not None and slot is not None:
                on = replicas.setdefault(workload, {})
                on[slot] = on.get(slot, 0) + 1
        edges = costs.edges(asked, replicas) if asked.edges and costs.knows_costs(asked) else None
        if edges is None:
            return None
        return Cost(sum(edge.cost for edge in edges), sum(edge.over for edge in edges))


def smallest_sufficient(
    enough: Sequence[T], result: R, tried: Callable[[Sequence[T]], R | None]
) -> tuple[list[T], R]:
    """Without those that may stay: one after another is left out, from the last on, where the rest is enough.

    ``tried`` says what comes of some of them, None if they are not enough; ``result`` is what came of all.
    Returns those of which none could stay, as far as it was tried, and what came of them.
    """
    left = list(enough)
    for one in reversed(enough):
        fewer = [other for other in left if other is not one]
        less = tried(fewer) if fewer else None
        if less is not None:
            left, result = fewer, less
    return left, result


def largest_feasible(steps: Sequence[T], tried: Callable[[T], R | None]) -> tuple[T, R] | None:
    """The last of some steps, each of which asks for more than the one before, that is found to work."""
    best: tuple[T, R] | None = None
    first, end = 0, len(steps)
    while first < end:
        middle = (first + end - 1) // 2
        result = tried(steps[middle])
        if result is None:
            end = middle
        else:
            best, first = (steps[middle], result), middle + 1
    return best
