"""Bindings that were decided and have not ended; a part of the state machine in ``starts``.

Before each attempt at one of them the engine is asked whether it would still decide so. If not, all that
certainly had no effect is withdrawn, and decided again together: a gang as a whole, unless some of it took
effect. While an attempt or a step before a binding is on its way, or the result of an attempt is not known,
no binding of its gang is withdrawn: what the others may do depends on it.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from closeby.kube.gangs.start_events import (
    BindRefused,
    FlightEvent,
    GiveBack,
    LeadLost,
    Missed,
    NoEffect,
    PlanRefused,
    PlanTurn,
    PlanWritten,
    PreparationFailed,
    Prepare,
    Prepared,
    QueueBinding,
    ReadPod,
    SendBinding,
    StartAction,
    StepFailed,
    Undo,
    WritePlan,
)
from closeby.objects.pods import gang_key
from closeby.scheduling.events import BindFailed, BindingsWithdrawn
from closeby.scheduling.outcomes import Binding
from closeby.scheduling.placing.rechecking import NEVER, Recheck


class _Item:
    """A plain pod, or a gang: what is withdrawn together."""

    __slots__ = ("broken", "checked", "flights", "gang", "returning", "took_effect")

    def __init__(self, gang: str | None) -> None:
        self.gang = gang
        #: By uid: the bindings that have not ended.
        self.flights: dict[str, _Flight] = {}
        #: uids of pods whose binding ended without effect, which the engine does not know yet.
        self.returning: set[str] = set()
        self.checked = NEVER
        #: Whether one of the bindings took effect.
        self.took_effect = False
        #: Why the bindings are to be withdrawn; empty while they hold.
        self.broken = ""


class _Flight:
    """One binding that has not ended."""

    __slots__ = ("batch", "binding", "doubted", "item", "prepared", "sent")

    def __init__(self, binding: Binding, item: _Item) -> None:
        self.binding = binding
        self.item = item
        #: Whether an attempt is on its way, and whether an earlier one may have taken effect.
        self.sent = False
        self.doubted = False
        #: Whether steps before the binding ran, or are running.
        self.prepared = False
        #: uids of the pods whose steps are running. Shared by the bindings that are sent once there are none.
        self.batch: set[str] = set()

    @property
    def uncertain(self) -> bool:
        """Whether something may still have an effect, or have had one."""
        return self.sent or self.doubted or (self.prepared and self.binding.pod.uid in self.batch)


class Flights:
    """All bindings in flight; only the newest one of a pod counts."""

    def __init__(self, recheck: Recheck, needs_steps: Callable[[Binding], bool] | None) -> None:
        """``needs_steps``: whether something must be done before this binding."""
        self._recheck = recheck
        self._needs_steps = needs_steps
        self._by_uid: dict[str, _Flight] = {}
        self._gangs: dict[str, _Item] = {}
        #: uid of a member whose binding ended without effect -> its gang, until the engine knows.
        self._returning: dict[str, _Item] = {}
        self._may_send = True

    def __len__(self) -> int:
        """Bindings that have not ended."""
        return len(self._by_uid)

    @property
    def preparing(self) -> int:
        """Those of them that wait for steps before bindings, their own or another member's."""
        return sum(bool(flight.batch) for flight in self._by_uid.values())

    def of_gang(self, key: str) -> frozenset[str]:
        """uids of members whose binding has not ended, as far as the engine knows."""
        item = self._gangs.get(key)
        return frozenset() if item is None else frozenset((*item.flights, *item.returning))

    def any_of_gang(self, key: str) -> bool:
        """Whether ``of_gang`` names any member."""
        return key in self._gangs

    def handle(self, event: FlightEvent) -> list[StartAction]:
        """Takes in what happened to bindings; returns what is to be done."""
        match event:
            case Missed(binding, in_doubt):
                return self._missed(binding, in_doubt)
            case NoEffect(binding):
                return self._no_effect(binding)
            case BindRefused(binding, failure):
                return self._refused(binding, failure)
            case PlanTurn(bindings):
                return self._plan_turn(bindings)
            case PlanWritten(bindings):
                return self.prepare(bindings)
            case PlanRefused(bindings, why):
                return self._give_up(bindings, why)
            case Prepared(binding):
                return self._prepared(binding)
            case StepFailed(binding, why):
                return [] if (flight := self._of(binding)) is None else self._break(flight.item, why)
            case PreparationFailed(binding, why):
                return self._preparation_failed(binding, why)
            case LeadLost():
                self._may_send = False
        return []

    def wanted(self, binding: Binding) -> bool:
        """Whether its pod is to be bound as this says, as far as was asked last."""
        flight = self._of(binding)
        return flight is not None and not flight.item.broken

    def begin(self, bindings: Sequence[Binding]) -> list[StartAction]:
        """These were decided just now, together if they are members of a gang."""
        checked = self._recheck.now()
        actions: list[StartAction] = []
        for binding in bindings:
            pod = binding.pod
            older = self._by_uid.get(pod.uid)
            if pod.group is None:
                item = _Item(None)
            else:
                key = gang_key(pod)
                item = self._gangs.get(key) or self._gangs.setdefault(key, _Item(key))
            # What was decided earlier about a gang was checked earlier, and that counts for all of it. It has
            # one node more now.
            item.checked = replace(item.checked, slots=None) if item.flights else checked
            item.flights[pod.uid] = self._by_uid[pod.uid] = _Flight(binding, item)
            if older is not None:
                actions += self._replaced(older)
        return actions

    def given_back(self, uid: str) -> str | None:
        """The engine knows that the pod's binding ended without effect; the gang of which it is a member."""
        item = self._returning.pop(uid, None)
        if item is None:
            return None
        item.returning.discard(uid)
        self._tidy(item)
        return item.gang

    # Plans, and steps before bindings

    def _plan_turn(self, bindings: Sequence[Binding]) -> list[StartAction]:
        """Of a gang; none of these was sent yet."""
        live = self._live(bindings)
        if not live or not self._may_send:
            return []
        item = live[0].item
        return [WritePlan(item.gang or "")] if self._holds(item) else self._withdraw(item)

    def _give_up(self, bindings: Sequence[Binding], why: str) -> list[StartAction]:
        live = self._live(bindings)
        return self._break(live[0].item, why) if live else []

    def prepare(self, bindings: Sequence[Binding]) -> list[StartAction]:
        """Runs the steps before bindings, then sends them.

        No member of a gang is sent before the steps of all that were decided with it are done.
        """
        if not self._may_send:
            return []
        needs = self._needs_steps
        flights = self._live(bindings)
        if needs is None:
            return [QueueBinding(flight.binding) for flight in flights]
        batch = set[str]()
        for flight in flights:
            flight.prepared = needs(flight.binding)
            flight.batch = batch if flight.item.gang is not None else set()
            if flight.prepared:
                flight.batch.add(flight.binding.pod.uid)
        return [
            Prepare(flight.binding) if flight.prepared else QueueBinding(flight.binding)
            for flight in flights
            if flight.prepared or not flight.batch
        ]

    def _prepared(self, binding: Binding) -> list[StartAction]:
        flight = self._of(binding)
        if flight is None:
            return self._undo(binding)  # Something else was decided about the pod meanwhile.
        return self._step_ended(flight)

    def _step_ended(self, flight: _Flight) -> list[StartAction]:
        """Sends the bindings of its batch if this was the last of its steps."""
        flight.batch.discard(flight.binding.pod.uid)
        if flight.batch or not self._may_send:
            return []
        together = (one for one in flight.item.flights.values() if one.batch is flight.batch)
        return [QueueBinding(one.binding) for one in together]

    def _replaced(self, flight: _Flight) -> list[StartAction]:
        """A newer decision about its pod took its place: no member waits for its steps any more."""
        uid, item = flight.binding.pod.uid, flight.item
        if item.flights.get(uid) is flight:  # The pod has left that gang.
            del item.flights[uid]
            self._tidy(item)
        return self._step_ended(flight) if uid in flight.batch else []

    def _preparation_failed(self, binding: Binding, why: str) -> list[StartAction]:
        flight = self._of(binding)
        if flight is None:
            return self._undo(binding)
        flight.batch.discard(binding.pod.uid)
        if flight.item.gang is not None:
            return self._break(flight.item, why)
        return [*self._return(flight), GiveBack(BindFailed(binding.pod.uid, why))]

    # Attempts

    def turn(self, binding: Binding) -> list[StartAction]:
        """What to do about a binding that could be sent now."""
        flight = self._of(binding)
        if flight is None or not self._may_send:
            return []
        if self._holds(flight.item):
            flight.sent = True
            return [SendBinding(binding)]
        return [ReadPod(binding)] if flight.doubted else self._withdraw(flight.item)

    def _missed(self, binding: Binding, in_doubt: bool) -> list[StartAction]:
        flight = self._of(binding)
        if flight is None:
            return []
        flight.sent = False
        flight.doubted = flight.doubted or in_doubt
        return self._withdraw(flight.item)

    def _no_effect(self, binding: Binding) -> list[StartAction]:
        flight = self._of(binding)
        if flight is None:
            return []
        flight.doubted = False
        return self._withdraw(flight.item)

    # Ends

    def bound(self, binding: Binding) -> list[StartAction]:
        """The pod is bound."""
        flight = self._of(binding)
        if flight is None:
            return []
        flight.item.took_effect = True
        self._remove(flight)
        return self._withdraw(flight.item)

    def _refused(self, binding: Binding, failure: BindFailed) -> list[StartAction]:
        flight = self._of(binding)
        if flight is None:
            return []  # It was withdrawn, and something else may be decided about the pod by now.
        return [*self._return(flight), GiveBack(failure), *self._withdraw(flight.item)]

    def _of(self, binding: Binding) -> _Flight | None:
        flight = self._by_uid.get(binding.pod.uid)
        return flight if flight is not None and flight.binding is binding else None

    def _live(self, bindings: Sequence[Binding]) -> list[_Flight]:
        return [flight for one in bindings if (flight := self._of(one)) is not None]

    def _holds(self, item: _Item) -> bool:
        if item.broken:
            return False
        if item.checked.version == self._recheck.version:
            return True
        bindings = [flight.binding for flight in item.flights.values()]
        item.checked = self._recheck.still_holds(bindings, item.checked, started=item.took_effect)
        if item.checked.broken is not None:
            item.broken = item.checked.broken.sentence()
        return not item.broken

    def _break(self, item: _Item, why: str) -> list[StartAction]:
        item.broken = item.broken or why
        return self._withdraw(item)

    def _withdraw(self, item: _Item) -> list[StartAction]:
        """What does not hold any more, as soon as it is known what became of all attempts and steps."""
        if not item.broken:
            return []
        flights = tuple(item.flights.values())
        if not flights or any(flight.uncertain for flight in flights):
            return []
        uids = tuple(flight.binding.pod.uid for flight in flights)
        event = BindingsWithdrawn(uids, item.broken, item.gang)
        return [*(undo for flight in flights for undo in self._return(flight)), GiveBack(event)]

    def _return(self, flight: _Flight) -> list[StartAction]:
        """Its node is given back to the engine, after what was done for it is undone."""
        uid, item = flight.binding.pod.uid, flight.item
        if item.gang is not None:
            item.returning.add(uid)
            self._returning[uid] = item
        self._remove(flight)
        return self._undo(flight.binding) if flight.prepared else []

    def _undo(self, binding: Binding) -> list[StartAction]:
        """A next leader may rely on what was done: it follows the same plan."""
        return [Undo(binding)] if self._may_send else []

    def _remove(self, flight: _Flight) -> None:
        uid, item = flight.binding.pod.uid, flight.item
        del self._by_uid[uid], item.flights[uid]
        if not item.flights:  # What is decided next is another start.
            item.broken = ""
            self._tidy(item)

    def _tidy(self, item: _Item) -> None:
        if item.gang is not None and not item.flights and not item.returning:
            self._gangs.pop(item.gang, None)
