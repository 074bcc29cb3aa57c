"""What would become of an item that waits if one thing were different: tried on a fork, within a budget.

A trial is not an estimate: the engine decides as it always does. What stands before the item in the queue
decides before it, as it would; what comes after it can't matter to it and is left out, also if it was placed.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.scheduling.fork import Change
from closeby.scheduling.outcomes import Binding, ItemKind, Outcome, Place, item_key
from closeby.simulator.runs import Run

#: Decisions that trials may take for one item.
DECISIONS = 2000
#: What an application's pods may do for the price of one decision: look at nodes, and at moves in the search
#: for the cheapest traffic.
LOOKS_A_DECISION = 25_000
MOVES_A_DECISION = 200_000


class TrialResult(Struct, frozen=True, kw_only=True):
    """The item got its nodes in a trial; an application perhaps for some of its pods only."""

    #: None for a plain pod, and where no topology applies.
    place: Place | None
    bindings: tuple[Binding, ...]
    #: What other items got.
    beside: tuple[Binding, ...] = ()


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
            self._pods.pop(pod.uid, None)  # Those that stand in for pods to come are no pods of the run.
        self._left, self._kept = self._all, 0

    def try_out(self, key: str, change: Change) -> TrialResult | None:
        """What the item gets with this change; None when it still waits, or no trial is left."""
        if self.spent:
            return None
        mark = self.fork.mark()
        self.fork.apply(change)
        outcomes = self.fork.decide()
        self.fork.undo(mark)
        self._left -= 1 + len(self.waiting) + self._effort(outcomes)
        return _result(key, outcomes)

    def taken(self, key: str, change: Change) -> tuple[Binding, ...]:
        """What other items get with this change; nothing if no trial is left."""
        if self.spent:
            return ()
        mark = self.fork.mark()
        self.fork.apply(change)
        outcomes = self.fork.decide()
        self.fork.undo(mark)
        self._left -= 1 + len(self.waiting) + self._effort(outcomes)
        return tuple(each for one in outcomes if key_of(one) != key for each in one.bindings)

    def _effort(self, outcomes: Iterable[Outcome]) -> int:
        """Decisions beyond one: those about large applications take long."""
        looks = moves = 0
        for one in outcomes:
            if one.kind is ItemKind.APPLICATION:
                looks += (len(one.bindings) + len(one.left)) * self.engine.cluster.node_count
            if one.improvement is not None:
                moves += one.improvement.evaluated
        return looks // LOOKS_A_DECISION + moves // MOVES_A_DECISION


def key_of(outcome: Outcome) -> str:
    """The key of the work item that was decided."""
    return item_key(outcome.kind, outcome.key)


def _result(key: str, outcomes: Sequence[Outcome]) -> TrialResult | None:
    mine = [one for one in outcomes if key_of(one) == key and one.reason is None and one.bindings]
    if not mine:
        return None
    bindings = tuple(each for one in mine for each in one.bindings)
    beside = tuple(each for one in outcomes if key_of(one) != key for each in one.bindings)
    return TrialResult(place=mine[-1].place, bindings=bindings, beside=beside)
