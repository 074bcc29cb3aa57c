"""What would become of an item that waits if one thing were different: tried, and undone again.

A trial is not an estimate: an engine of its own, in the state that a run ended in, applies the change and
decides as it always does. Then everything is taken back. What stands before the item in the queue decides
before it, as it would; what comes after it can't matter to it and is left out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.applications import AppGroup
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    Event,
    GroupChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.intake.scheduling_state import gang_key
from closeby.scheduling.outcomes import Binding, ItemKind, Outcome, Place, bindings_of, item_key, outcomes_of
from closeby.simulator.runs import Run

#: Decisions that trials may take for one item.
DECISIONS = 2000
#: What an application's pods may do for the price of one decision: look at nodes, and at moves in the search
#: for the cheapest talk.
LOOKS_A_DECISION = 25_000
MOVES_A_DECISION = 200_000


class Change(Struct, frozen=True, kw_only=True):
    """What is different in a trial. Pods that wait come as they are to wait."""

    groups: tuple[PodGroup, ...] = ()
    #: Pods that are gone, whether they run or wait.
    gone: tuple[Pod, ...] = ()
    #: Pods that wait, instead of those of the same uid.
    waiting: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    #: Applications that are there, as they would have to be written.
    applications: tuple[AppGroup, ...] = ()


class TrialResult(Struct, frozen=True, kw_only=True):
    """The item got its nodes in a trial; an application perhaps for some of its pods only."""

    #: None for a plain pod, and where no topology applies.
    place: Place | None
    bindings: tuple[Binding, ...]
    #: What other items got.
    beside: tuple[Binding, ...] = ()


class Trials:
    """An engine in the state that a run ended in; each item may spend as much on its trials."""

    def __init__(self, run: Run, decisions: int = DECISIONS) -> None:
        """``decisions``: what may be spent for each item."""
        self._groups = {group.key: group for group in run.groups}
        self._pods = {pod.uid: pod for pod in map(partial(_as_left, run), run.pods) if pod is not None}
        #: uid -> place among all pods: what is taken out comes back in the order in which it was put in.
        self._order = {uid: number for number, uid in enumerate(self._pods)}
        self.engine = run.again(pod for pod in self._pods.values() if pod.node_name is not None)
        self.engine.handle(*(PodUpserted(pod) for pod in self._pods.values() if pod.node_name is None))
        outcomes = self._decide()
        # None as a rule: the run ended when nothing found a place any more.
        for binding in (each for outcome in outcomes for each in outcome.bindings):
            self._pods[binding.pod.uid] = replace(binding.pod, node_name=binding.node, rank=binding.rank)
            self.engine.handle(PodUpserted(self._pods[binding.pod.uid]))
        #: Keys of the items that wait, in the order in which they are decided.
        self.waiting = list(dict.fromkeys(key_of(one) for one in outcomes if one.leftover))
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

    def forget_after(self, key: str | None) -> None:
        """Leave out what is decided after an item (None: all that waits), for good; its budget is new."""
        keep = 0 if key is None else self.waiting.index(key) + 1
        dropped = self.waiting[keep:]
        del self.waiting[keep:]
        for pod in [pod for one in dropped for pod in self.of(one)]:
            self.engine.handle(PodDeleted(pod.uid))
            del self._pods[pod.uid]
        self._left, self._kept = self._all, 0

    def try_out(self, key: str, change: Change) -> TrialResult | None:
        """What the item gets with this change; None when it still waits, or no trial is left."""
        if self.spent:
            return None
        self._take(1 + len(self.waiting))
        cluster = self.engine.cluster
        out = {pod.uid: pod for pod in (*change.gone, *change.waiting) if pod.uid in self._pods}
        back: list[Event] = [
            *(GroupChanged(self._groups[group.key]) for group in change.groups),
            *(NodeUpserted(cluster.node_at(cluster.slot_of(node.name))) for node in change.nodes),
            *(AppGroupChanged(_application(self.engine, one.key)) for one in change.applications),
        ]
        self.engine.handle(
            *(PodDeleted(uid) for uid in out),
            *map(NodeUpserted, change.nodes),
            *map(GroupChanged, change.groups),
            *map(AppGroupChanged, change.applications),
            *map(PodUpserted, change.waiting),
        )
        outcomes = self._decide()
        self._take(self._effort(outcomes))
        placed = [each.pod.uid for outcome in outcomes for each in outcome.bindings]
        self._undo({*placed, *(pod.uid for pod in change.waiting)}, out, back)
        return _result(key, outcomes)

    def _effort(self, outcomes: Iterable[Outcome]) -> int:
        """Decisions beyond one: those about large applications take long."""
        looks = moves = 0
        for one in outcomes:
            if one.kind is ItemKind.APPLICATION:
                looks += (len(one.bindings) + len(one.left)) * self.engine.cluster.node_count
            if one.improvement is not None:
                moves += one.improvement.evaluated
        return looks // LOOKS_A_DECISION + moves // MOVES_A_DECISION

    def _take(self, decisions: int) -> None:
        self._left -= decisions

    def _decide(self) -> list[Outcome]:
        """Every decision until nothing changes."""
        outcomes: list[Outcome] = []
        placed = True
        while placed:
            decisions = self.engine.handle(Tick())
            placed = bool(bindings_of(decisions))
            outcomes += outcomes_of(decisions)
        return outcomes

    def _undo(self, changed: Collection[str], out: Mapping[str, Pod], back: Iterable[Event]) -> None:
        gangs = {gang_key(pod) for pod in out.values() if pod.group is not None and pod.node_name is not None}
        # A gang's members count in the order in which they came, so all are added again.
        kin = [
            pod.uid
            for key in gangs
            for pod in self.engine.state.placed(key)
            if pod.uid in self._pods and pod.uid not in changed
        ]
        away = sorted({*changed, *kin} & self.engine.state.pods.keys())
        self.engine.handle(*map(PodDeleted, away), *back)
        uids = sorted({*out, *away} & self._pods.keys(), key=self._order.__getitem__)
        pods = [self._pods[uid] for uid in uids]
        self.engine.handle(*(PodUpserted(pod) for pod in pods if pod.node_name is not None))
        self.engine.handle(*(PodUpserted(pod) for pod in pods if pod.node_name is None))


def key_of(outcome: Outcome) -> str:
    """The key of the work item that was decided."""
    return item_key(outcome.kind, outcome.key)


def _as_left(run: Run, pod: Pod) -> Pod | None:
    """A pod as the run left it; None if the run had nothing to do with it."""
    binding = run.bindings.get(pod.uid)
    if binding is not None:
        return replace(pod, node_name=binding.node, rank=binding.rank)
    return pod if pod.node_name is not None or pod.uid in run.leftovers else None


def _application(engine: Engine, key: str) -> AppGroup:
    application = engine.applications.get(key)
    if application is None:
        raise KeyError(f"there is no application {key}")
    return application.group


def _result(key: str, outcomes: Sequence[Outcome]) -> TrialResult | None:
    mine = [one for one in outcomes if key_of(one) == key and one.reason is None and one.bindings]
    if not mine:
        return None
    bindings = tuple(each for one in mine for each in one.bindings)
    beside = tuple(each for one in outcomes if key_of(one) != key for each in one.bindings)
    return TrialResult(place=mine[-1].place, bindings=bindings, beside=beside)
