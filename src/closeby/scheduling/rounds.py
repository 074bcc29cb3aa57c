"""Rounds of decisions: what is new or may be helped is queued, and items are decided one after another."""

from collections.abc import Callable
from functools import partial
from math import inf

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.objects.unexpected import Contained, brief
from closeby.scheduling.events import Tick
from closeby.scheduling.extension import Handle
from closeby.scheduling.intake.books import Books
from closeby.scheduling.intake.cures import ANYTHING, NOTHING, Stir, cures
from closeby.scheduling.intake.keys import kind_of, name_of
from closeby.scheduling.intake.queue import WorkQueue
from closeby.scheduling.judging.needs import Need
from closeby.scheduling.outcomes import Decision, Outcome, Output, Released, Suspended
from closeby.scheduling.parking import RESTARTS, Parking, Progress
from closeby.scheduling.placing.deciding import Decided, Decider
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.reserving.choosing import Chooser
from closeby.scheduling.reserving.imagining import Imagination
from closeby.scheduling.reserving.reservations import Moment, Reservations

#: Notes in an item's story what happened, with what was decided if something was.
Tell = Callable[[str, str, Outcome | None], None]
#: Frees what pods of an item hold that was not to be decided after all; they look for a node again.
GiveBack = Callable[[tuple[Pod, ...]], None]


class Rounds:
    """The owner of what is to be decided, and when."""

    def __init__(
        self,
        tools: Tools,
        books: Books,
        handle: Handle,
        tell: Tell,
        *,
        rests: bool,
        reserve_after: float,
        give_back: GiveBack | None,
    ) -> None:
        """``rests`` and ``reserve_after`` as the engine takes them.

        With ``give_back`` a fault while an item is decided refuses that item; without it is raised.
        """
        self._tools = tools
        self._books = books
        self._tell = tell
        self._rests = rests
        self._give_back = give_back
        self._decider = Decider(tools, books)
        self.parking: Parking[Decided] = Parking(tools.pace, tools.cluster)
        self.queue = WorkQueue(tools.profile.queue_sort, self._lacks)
        chooser = Chooser(tools, Imagination(tools, books, handle))
        self.reservations = Reservations(reserve_after, tools, books, self.queue, chooser)
        #: Items that something is new about since the last tick, in the order it was heard.
        self.news: dict[str, None] = {}
        #: What happened since the last tick that may help items that wait.
        self._stirred = NOTHING
        #: Namespaces of which AppGroups changed since the last tick.
        self._changed_applications: set[str] = set()

    def kept_out(self, pod: Pod) -> Condition | None:
        """Why a pod may not enter the queue yet; None when it may."""
        return self._decider.kept_out(pod)

    def consider(self, key: str) -> None:
        """Something of a work item is new: it is queued at the next tick, when all news is in."""
        if self._books.waits(key):
            self.parking.abandon(key)
            self.news[key] = None
            self.reservations.renewed(key)

    def consider_anew(self, key: str) -> None:
        """A gang's object has appeared: what its place in the queue goes by stands there."""
        if self.queue.knows(key):
            self._drop(key)
        self.consider(key)

    def wake(self, stir: Stir) -> None:
        """Something happened that may help those that wait: they are looked at again at the next tick."""
        self._stirred |= stir
        self.parking.missed(stir)
        if stir & ~Stir.ROOM:
            # What a parked search has worked out, by costs for instance, holds no more.
            self.parking.abandon_all()
            self.reservations.doubt()

    def flush_unschedulable(self) -> None:
        """Every unschedulable item is tried again at the next tick, in case a helpful event was missed.

        Suspended searches continue: nothing is known to have changed.
        """
        self._stirred |= ANYTHING
        self.parking.missed(ANYTHING)
        self.reservations.doubt()

    def wake_applications(self, namespace: str) -> None:
        """An AppGroup changed. It concerns the items of its namespace only, so only those are tried again."""
        self._changed_applications.add(namespace)
        self.parking.abandon_all(namespace)

    def forget(self, key: str) -> None:
        """Nothing of an item waits any more."""
        self._drop(key)
        self.news.pop(key, None)

    def decide(self, outputs: list[Output], tick: Tick) -> None:
        """Take the items that are ready, in the order of the queue, and add what is decided."""
        moment = None if tick.now is None else Moment(tick.now, tick.wall)
        self._queue_news(tick.now)
        self._review(outputs, moment)
        taken = 0
        while tick.limit is None or taken < tick.limit:
            key = self.queue.pop()
            if key is None:
                return
            if not self._books.waits(key):
                self._drop(key)
                continue
            taken += 1
            self._decide_item(outputs, key, moment, tick.steps)
            if self.queue.interrupted(key):
                return

    def validate(self) -> None:
        """Assert every invariant of what is to be decided."""
        self.reservations.validate()
        self.queue.validate(settled=not self._stirred and not self._changed_applications)
        for key in self.parking.keys:
            assert self.queue.interrupted(key), f"{key} is parked but not queued to go on"
        for key in self._books.item_keys():
            assert key in self.news or self.queue.knows(key), f"{key} waits but is not queued"

    def _decide_item(
        self, outputs: list[Output], key: str, moment: Moment | None, allowance: int | None
    ) -> None:
        bar = self._tools.bar
        bar.applies = self.reservations.bars(key)
        ground = self._tools.cluster.structure, bar.number if bar.applies else None
        done = self.parking.run(key, partial(self._decided, key), allowance, ground)
        bar.applies = False
        if done.parked:
            self.queue.interrupt(key)
            outputs.append(Suspended(key, done.steps))
        else:
            self._carry_out(outputs, key, moment, done)
        if allowance is not None:
            placed = done.result is not None and bool(done.result.decision.bindings)
            self.queue.charge(key, done.steps, allowance, in_vain=not placed)

    def _carry_out(
        self, outputs: list[Output], key: str, moment: Moment | None, done: Progress[Decided]
    ) -> None:
        decided = self._changed_too_often(key) if done.result is None else done.result
        decision, need, behind = decided
        outcome = self.reservations.mentioned(key, decision.outcome)
        outputs.append(Decision(outcome, decision.fault))
        self._tell(key, "decided", outcome)
        if behind and self._done_with(outcome):
            # The members of less priority take their turn where that stands in the queue.
            self._drop(key)
            self._put(key)
        elif outcome.refused or outcome.left:
            # What some pods of a gang lack says nothing of the others.
            whole = need if need is not None and (need.some or not outcome.left) else None
            now = self._resting(moment)
            self.queue.park(key, cures(outcome.reasons), now, whole, done.total)
            if done.missed:
                self.queue.stir_item(key, done.missed, now)
            self.reservations.decided(key, outcome, moment)
        else:
            self._drop(key)
        if outcome.is_gang:
            self._review(outputs, moment)

    def _done_with(self, outcome: Outcome) -> bool:
        """Whether all pods that could be tried are placed."""
        return not outcome.refused and all(one.pod.uid in self._books.held for one in outcome.left)

    def _decided(self, key: str) -> Decided:
        turn = self._books.turn(key)
        self._tools.begin(len(turn.pods))
        decided = self._attempt(key, turn.pods)
        return decided._replace(behind=True) if turn.behind else decided

    def _attempt(self, key: str, waiting: tuple[Pod, ...]) -> Decided:
        if self._give_back is None:
            return self._decider.decide(key, waiting)
        with Contained() as deciding:
            return self._decider.decide(key, waiting)
        assert deciding.error is not None
        self._give_back(waiting)
        why = f"deciding about it ended in a fault of closeby or of a plugin: {brief(deciding.error)}"
        outcome = Outcome(
            key=name_of(key),
            kind=kind_of(key),
            refused=waiting,
            reason=Reason.SCHEDULER_ERROR,
            message=f"{why}; the scheduler's log has more",
        )
        return Decided(Decision(outcome, deciding.error))

    def _changed_too_often(self, key: str) -> Decided:
        outcome = Outcome(
            key=name_of(key),
            kind=kind_of(key),
            refused=self._books.turn(key).pods,
            reason=Reason.SEARCH_BUDGET_EXHAUSTED,
            message=f"the cluster changed {RESTARTS + 1} times during a long search; it is tried again later",
        )
        return Decided(Decision(outcome))

    def _queue_news(self, now: float | None) -> None:
        for key in self.news:
            self._put(key, now if self._rests else None)
        self.news.clear()
        self.queue.rise(inf if now is None else now)
        if self._stirred:
            self.queue.stir(self._stirred, now if self._rests else None)
            self._stirred = NOTHING
        if self._changed_applications:
            self.queue.stir_in(self._changed_applications, Stir.NETWORK, now if self._rests else None)
            self._changed_applications.clear()

    def _put(self, key: str, now: float | None = None) -> None:
        """Queue an item, at another place where its priority is another one now."""
        item = self._books.item(key)
        if item is None:
            if self.queue.knows(key):
                self.queue.wake(key)
            return
        if self.queue.knows(key) and not self.queue.stands(item):
            self._drop(key)
        self.queue.put(item, now)

    def _review(self, outputs: list[Output], moment: Moment | None) -> None:
        """Reserve nodes, or release them; whoever had to keep off them is looked at then."""
        before = self._tools.bar.number
        for change in self.reservations.review(moment):
            outputs.append(change)
            kept = change.reservation
            if isinstance(change, Released):
                self._tell(kept.key, kept.released(change.why), None)
            else:
                self._tell(kept.key, kept.sentence(), None)
        if self._tools.bar.number != before:
            self.queue.stir(Stir.ROOM, self._resting(moment))
            self.parking.missed(Stir.ROOM)

    def _resting(self, moment: Moment | None) -> float | None:
        """The time from which rests count; None where nothing rests."""
        return moment.now if moment is not None and self._rests else None

    def _lacks(self, need: Need, key: str) -> bool:
        return self._tools.rooms.lack(need, barred=self.reservations.bars(key))

    def _drop(self, key: str) -> None:
        self.queue.drop(key)
        self.parking.forget(key)
        self.reservations.gone(key)
