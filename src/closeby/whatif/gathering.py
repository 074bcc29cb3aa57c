"""All counterfactuals of a run: of what waits for want of room, and of what was placed together."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.registry import Application
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.words import joined, names_text
from closeby.scheduling.fork import Change
from closeby.scheduling.outcomes import APPLICATION, PLAIN, Binding, ItemKind, Outcome, kind_of, name_of
from closeby.simulator.runs import Run
from closeby.whatif.ends import ended
from closeby.whatif.in_the_way import in_the_way, short
from closeby.whatif.records import AheadEntry, Counterfactual, Kind, ShortEntry
from closeby.whatif.relaxing import farther, gang_relaxed, other_nodes, smaller
from closeby.whatif.room import Room
from closeby.whatif.trials import (
    DECISIONS,
    Question,
    TrialResult,
    Trials,
    key_of,
    nodes_of,
    smallest_sufficient,
)

#: Items that wait, placed gangs and placed applications of which this is worked out where all are asked for:
#: the first ones.
ITEMS: Final = 50
#: Decisions that all of them may spend together, each no more than its own share of it.
DECISIONS_OF_ALL: Final = 10_000
#: Kinds of members beyond a gang's minimum that are asked about.
KINDS: Final = 4
#: Answers that help only some of the pods of an application: so many are given.
SOME: Final = 3
#: What asking for less, or more room, can help.
_ROOM: Final = frozenset(
    {
        Reason.INSUFFICIENT_RESOURCES,
        Reason.NODE_AFFINITY_MISMATCH,
        Reason.TAINT_NOT_TOLERATED,
        Reason.NODE_UNSCHEDULABLE,
        Reason.HOST_PORT_CONFLICT,
        Reason.VOLUME_IN_USE,
        Reason.VOLUME_NOT_BINDABLE,
        Reason.VOLUME_ZONE_MISMATCH,
        Reason.VOLUME_LIMIT_REACHED,
        Reason.BANDWIDTH_RISK,
        Reason.NETWORK_COST_TOO_HIGH,
        Reason.GANG_DOES_NOT_FIT,
        Reason.TOPOLOGY_PLACEMENT_FAILED,
        Reason.SEARCH_BUDGET_EXHAUSTED,
        Reason.DOMAIN_EXCLUSIVE,
    }
)
#: What only asking for something else can help.
_NAMES: Final = frozenset(
    {
        Reason.TOPOLOGY_NOT_FOUND,
        Reason.TOPOLOGY_LEVEL_NOT_FOUND,
        Reason.POD_AFFINITY_MISMATCH,
        Reason.POD_ANTI_AFFINITY_CONFLICT,
        Reason.TOPOLOGY_SPREAD_VIOLATION,
    }
)
#: Items placed last that are looked at, that are tried alone and together, and that are named.
LATEST: Final = 500
ALONE: Final = 8
TOGETHER: Final = 64
NAMED: Final = 3

_REFERENCES: Final = {ItemKind.GANG: "podgroup", ItemKind.APPLICATION: "appgroup", ItemKind.POD: "pod"}

#: By ``namespace/name``; those of applications and plain pods have a prefix.
Found = Mapping[str, tuple[Counterfactual, ...]]


def counterfactuals(run: Run, only: Collection[str] | None = None) -> Found:
    """What would have to be different for each gang, application or plain pod that waits, by the key of its
    work item.

    ``only`` names some by ``namespace/name``, else the first ``ITEMS`` are asked about. Empty where a change
    of this kind does not help.
    """
    waiting = [one for one in run.outcomes() if _lacks(one) and (only is None or one.key in only)]
    if not waiting:
        return {}
    reasons = {key_of(one): bool(one.reasons & _ROOM) for one in waiting}
    #: Gangs that have their minimum, of which more members wait.
    beyond = {one.key for one in waiting if one.is_gang and one.reason is None}
    trials = Trials(run, min(DECISIONS, DECISIONS_OF_ALL // min(len(waiting), ITEMS)))
    found: dict[str, tuple[Counterfactual, ...]] = {}
    before = _items_placed(trials)
    with trials.fork:
        # What comes later in the queue is no matter to what comes earlier, so the last is asked first.
        for key in reversed([key for key in trials.waiting if key in reasons][:ITEMS]):
            trials.forget_after(key)
            application = trials.engine.applications.get(key.removeprefix(APPLICATION))
            if not key.startswith(APPLICATION):
                group = trials.engine.state.groups.get(key)
                if group is not None and key in beyond:
                    found[key] = tuple(_of_members_beyond(trials, group, before))
                else:
                    found[key] = tuple(_of_waiting(trials, key, before, more_room=reasons[key]))
            elif application is not None:
                found[key] = tuple(_best(_of_waiting_application(trials, key, application)))
    return found


def _lacks(outcome: Outcome) -> bool:
    """Whether something of it waits for what another wish or more room can help."""
    parts = outcome.kind is ItemKind.APPLICATION or (outcome.is_gang and outcome.reason is None)
    reasons = outcome.reasons if parts else {outcome.reason}
    return bool(reasons & (_ROOM | _NAMES))


def _of_waiting(
    trials: Trials, key: str, before: Sequence["_Ahead"], *, more_room: bool
) -> Iterator[Counterfactual]:
    """Of a gang or a plain pod; ``before`` was placed in the run; ``more_room``: that can help."""
    group = None if key.startswith(PLAIN) else trials.engine.state.groups.get(key)
    question = Question(trials=trials, key=key, group=group, waiting=trials.of(key))
    found = [] if group is None else list(gang_relaxed(question, group))
    found += other_nodes(question)
    room = Room(question) if more_room else None
    if room is not None and room.ever_fits:  # Else neither room of others nor the end of anything helps.
        found += _placed_before(question, room, before)
        found += ended(question, room)
    yield from found
    if room is not None:
        yield from _shortest(question, room)


def _of_members_beyond(
    trials: Trials, group: PodGroup, before: Sequence["_Ahead"]
) -> Iterator[Counterfactual]:
    """What would let members of a gang in that has its minimum; equal ones are asked about together."""
    kinds: dict[tuple[PodSpec, str | None], list[Pod]] = {}
    for pod in trials.of(group.key):
        kinds.setdefault((pod.spec, pod.subgroup), []).append(pod)
    equal = list(kinds.values())[:KINDS]
    for number, pods in enumerate(equal, start=1):
        trials.keep(1 - number / len(equal))
        question = Question(trials=trials, key=group.key, group=group, waiting=tuple(pods), beyond=True)
        relaxed = [*gang_relaxed(question, group), *other_nodes(question)]
        helps = [one for one in relaxed if one.fits or one.pods]
        yield from helps
        room = Room(question)
        if room.ever_fits:
            yield from _placed_before(question, room, before)
            yield from ended(question, room)
        if room.ever_fits or not helps:
            yield from _shortest(question, room)


def _of_waiting_application(trials: Trials, key: str, application: Application) -> Iterator[Counterfactual]:
    """What would let the pods fit that wait for want of room or nearness."""
    waiting = tuple(pod for pod in trials.of(key) if pod.uid not in trials.engine.state.gated)
    if not waiting:
        return
    question = Question(trials=trials, key=key, waiting=waiting, application=application)
    room = Room(question)
    #: With the share of all trials that each must leave to those after it.
    questions = (
        (farther(question), 0.6),
        (other_nodes(question), 0.55),
        (ended(question, room), 0.4),
        (in_the_way(question, room), 0.2),
        (smaller(question), 0.0),
    )
    for one, kept in questions:
        trials.keep(kept)
        yield from one


def _best(found: Iterable[Counterfactual]) -> Iterator[Counterfactual]:
    """By kind; where one lets all pods fit, without those of its kind that help only some of them."""
    answers = sorted(found, key=lambda one: tuple(Kind).index(one.kind))
    some = [one for one in answers if one.pods and not one.fits]
    some.sort(key=lambda one: -len(one.pods or ()))
    enough = {one.kind for one in answers if one.fits}
    never = any(one.kind is Kind.SHORT and not one.fits for one in answers)
    for one in answers:
        only_some = one in some and (one.kind in enough or one not in some[:SOME])
        # That no end helps goes without saying where no node would do.
        if not only_some and (one.pods or one.kind is not Kind.ENDED or not never):
            yield one


# Who goes before an item, because of priority or age: placed before it, or first to take room


class _Ahead(Struct, frozen=True):
    """An item that goes before another, with the nodes that it got."""

    key: str
    priority: int
    created: float | None
    bindings: tuple[Binding, ...] = ()
    waits: bool = False
    #: The PriorityClass that gives its priority; empty where none is known.
    priority_class: str = ""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Its pods."""
        return tuple(one.pod for one in self.bindings)

    @property
    def place(self) -> tuple[float, float, str]:
        """Its place in the queue: priority, then age, then name."""
        return -self.priority, math.inf if self.created is None else self.created, self.key

    @property
    def entry(self) -> AheadEntry:
        """As data."""
        return AheadEntry(
            name=f"{_REFERENCES[kind_of(self.key)]}/{name_of(self.key)}",
            priority=self.priority,
            priority_class=self.priority_class,
            waits=self.waits,
            nodes=tuple(nodes_of(self.bindings)),
        )

    def named(self, own: "_Ahead") -> str:
        """``default/big (priority 100, its own is 1)``."""
        if self.priority > own.priority:
            by = f" by PriorityClass {self.priority_class}" if self.priority_class else ""
            return f"{name_of(self.key)} (priority {self.priority:,}{by}, its own is {own.priority:,})"
        older = self.priority == own.priority and self.place[1] < own.place[1]
        return f"{name_of(self.key)} ({'older' if older else 'first by name'})"


def _items_placed(trials: Trials) -> list[_Ahead]:
    """What the run placed, the latest first."""
    found = _items(trials, trials.bindings)
    return sorted(found, key=lambda one: max(binding.order for binding in one.bindings), reverse=True)


def _placed_before(question: Question, room: Room, placed: Sequence[_Ahead]) -> Iterator[Counterfactual]:
    """Those placed in this run without which it would fit, of which none could have stayed away."""
    own = _own(question)
    if own is None:
        return
    ahead = [one for one in placed[:LATEST] if one.place < own.place]

    def without(some: Sequence[_Ahead]) -> TrialResult | None:
        return question.whole_without([pod for one in some for pod in one.pods])

    alone = [[one] for one in islice((one for one in ahead if room.may_hold(one.pods)), ALONE)]
    most = min(len(ahead), TOGETHER)
    together = [ahead[: 2**power] for power in range(1, (most - 1).bit_length())]
    together += [ahead[:most]] if most > 1 else []
    for some in (*alone, *together):
        enough = len(some) == 1 or room.may_hold([pod for one in some for pod in one.pods])
        result = without(some) if enough else None
        if result is None:
            continue
        fewest, where = smallest_sufficient(some, result, without)
        named = joined([one.named(own) for one in fewest], NAMED)
        were, whose = ("was", "its") if len(fewest) == 1 else ("were", "their")
        higher = all(one.priority > own.priority for one in fewest)
        why = f", because of {whose} priority," if higher else ""
        yield Counterfactual(
            kind=Kind.BEHIND,
            fits=True,
            sentence=f"{named} {were} placed before it{why} and took its room {where.text}.",
            where=where.where,
            ahead=tuple(one.entry for one in fewest),
        )
        return


def _shortest(question: Question, room: Room) -> Iterator[Counterfactual]:
    """``short`` for the item alone, and who waits before it and would take that room first."""
    before = question.trials.waiting[:-1]
    if not before:
        yield from short(question, room)
        return
    fork = question.trials.fork
    mark = fork.mark()
    fork.apply(Change(gone=tuple(pod for key in before for pod in question.trials.of(key))))
    alone = list(short(question, room))
    fork.undo(mark)
    names = {name for one in alone if isinstance(one.short, ShortEntry) for name in one.short.in_the_way}
    way = tuple(pod for pod in question.trials.pods if pod.key in names) if names else ()
    if not way:
        yield from alone or short(question, room)
        return
    if question.whole_without(way) is not None:
        yield from alone
        return
    takers = _items(question.trials, question.trials.taken(question.key, Change(gone=way)), waits=True)
    own = _own(question)
    if not takers or own is None:
        yield from short(question, room)
        return
    said = joined([one.named(own) for one in takers[:NAMED]])
    nodes = names_text(nodes_of(binding for one in takers for binding in one.bindings))
    verb, take = ("waits", "takes") if len(takers) == 1 else ("wait", "take")
    sentence = f"{said} {verb} before it and {take} first what becomes free on {nodes}."
    entries = tuple(one.entry for one in takers)
    yield Counterfactual(kind=Kind.BEHIND, fits=False, sentence=sentence, ahead=entries)
    for one in alone:
        yield replace(one, fits=False, sentence=f"{one.sentence[:-1]}, if {said} did not wait before it.")


def _own(question: Question) -> _Ahead | None:
    item = question.trials.engine.state.item(question.key)
    return None if item is None else _Ahead(question.key, item.priority, item.anchor)


def _items(trials: Trials, bindings: Sequence[Binding], *, waits: bool = False) -> list[_Ahead]:
    """Bindings by work item, with the item's place in the queue."""
    state = trials.engine.state
    by_key: dict[str, list[Binding]] = {}
    for one in bindings:
        by_key.setdefault(state.item_key(one.pod), []).append(one)
    found = []
    for key, own in by_key.items():
        created = [one.pod.created for one in own if one.pod.created is not None]
        priority = min(state.priorities.of(one.pod) for one in own)
        group = state.groups.get(key)
        names = {one.pod.spec.priority_class_name for one in own}
        names |= set() if group is None else {group.priority_class_name}
        named = state.priorities.named(priority, names)
        found.append(_Ahead(key, priority, min(created, default=None), tuple(own), waits, named))
    return found
