"""Who goes before an item that waits, because of priority or age: placed before it, or first to take room."""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod
from closeby.objects.words import names_text
from closeby.scheduling.fork import Change
from closeby.scheduling.outcomes import Binding, ItemKind, kind_of, name_of
from closeby.whatif.in_the_way import short
from closeby.whatif.questions import Question, fewest, joined, where_entry, where_text
from closeby.whatif.records import AheadEntry, Counterfactual, Kind, ShortEntry
from closeby.whatif.room import Room
from closeby.whatif.trials import TrialResult, Trials

#: Items placed last that are looked at, that are tried alone and together, and that are named.
LATEST = 500
ALONE = 8
TOGETHER = 64
NAMED = 3

_REFERENCES = {ItemKind.GANG: "podgroup", ItemKind.APPLICATION: "appgroup", ItemKind.POD: "pod"}


class AheadItem(Struct, frozen=True):
    """An item that goes before another, with the nodes that it got."""

    key: str
    priority: int
    created: float | None
    bindings: tuple[Binding, ...]
    waits: bool = False
    #: The PriorityClass that gives its priority; empty where none is known.
    priority_class: str = ""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Its pods."""
        return tuple(one.pod for one in self.bindings)

    @property
    def nodes(self) -> list[str]:
        """The nodes of its pods."""
        return sorted({one.node for one in self.bindings}, key=natural_key)

    @property
    def place(self) -> tuple[float, float, str]:
        """Its place in the queue: priority, then age, then name."""
        return -self.priority, math.inf if self.created is None else self.created, self.key

    def entry(self) -> AheadEntry:
        """As data."""
        name = f"{_REFERENCES[kind_of(self.key)]}/{name_of(self.key)}"
        return AheadEntry(
            name=name,
            priority=self.priority,
            priority_class=self.priority_class,
            waits=self.waits,
            nodes=tuple(self.nodes),
        )


def items_placed(trials: Trials) -> list[AheadItem]:
    """What the run placed, the latest first."""
    found = _items(trials, trials.bindings)
    return sorted(found, key=lambda one: max(binding.order for binding in one.bindings), reverse=True)


def placed_before(question: Question, room: Room, placed: Sequence[AheadItem]) -> Iterator[Counterfactual]:
    """Those placed in this run without which it would fit, of which none could have stayed away."""
    own = _own(question)
    if own is None:
        return
    ahead = [one for one in placed[:LATEST] if one.place < own.place]

    def without(some: Sequence[AheadItem]) -> TrialResult | None:
        return question.whole_without([pod for one in some for pod in one.pods])

    for one in islice((one for one in ahead if room.may_hold(one.pods)), ALONE):
        result = without([one])
        if result is not None:
            yield _answer(own, [one], result)
            return
    number = 2
    while number < 2 * min(len(ahead), TOGETHER):
        some = ahead[: min(number, TOGETHER)]
        enough = room.may_hold([pod for one in some for pod in one.pods])
        result = without(some) if enough else None
        if result is not None:
            yield _answer(own, *fewest(some, result, without))
            return
        number *= 2


def shortest(question: Question, room: Room) -> Iterator[Counterfactual]:
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
    way = _pods_in_the_way(question, alone)
    if not way:
        yield from alone or short(question, room)
        return
    change = Change(gone=way)
    if question.whole_without(way) is not None:
        yield from alone
        return
    takers = _items(question.trials, question.trials.taken(question.key, change), waits=True)
    own = _own(question)
    if not takers or own is None:
        yield from short(question, room)
        return
    said = joined([_named(one, own) for one in takers[:NAMED]])
    nodes = sorted({node for one in takers for node in one.nodes}, key=natural_key)
    verb, take = ("waits", "takes") if len(takers) == 1 else ("wait", "take")
    sentence = f"{said} {verb} before it and {take} first what becomes free on {names_text(nodes)}."
    entries = tuple(one.entry() for one in takers)
    yield Counterfactual(kind=Kind.BEHIND, fits=False, sentence=sentence, ahead=entries)
    for one in alone:
        yield replace(one, fits=False, sentence=f"{one.sentence[:-1]}, if {said} did not wait before it.")


def _pods_in_the_way(question: Question, found: Sequence[Counterfactual]) -> tuple[Pod, ...]:
    names = {name for one in found if isinstance(one.short, ShortEntry) for name in one.short.in_the_way}
    return tuple(pod for pod in question.trials.pods if pod.key in names) if names else ()


def _own(question: Question) -> AheadItem | None:
    item = question.trials.engine.state.item(question.key)
    return None if item is None else AheadItem(question.key, item.priority, item.anchor, ())


def _items(trials: Trials, bindings: Sequence[Binding], *, waits: bool = False) -> list[AheadItem]:
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
        found.append(AheadItem(key, priority, min(created, default=None), tuple(own), waits, named))
    return found


def _named(one: AheadItem, own: AheadItem) -> str:
    """``default/big (priority 100, its own is 1)``."""
    if one.priority > own.priority:
        by = f" by PriorityClass {one.priority_class}" if one.priority_class else ""
        return f"{name_of(one.key)} (priority {one.priority:,}{by}, its own is {own.priority:,})"
    older = one.priority == own.priority and one.place[1] < own.place[1]
    return f"{name_of(one.key)} ({'older' if older else 'first by name'})"


def _answer(own: AheadItem, ahead: Sequence[AheadItem], result: TrialResult) -> Counterfactual:
    named = [_named(one, own) for one in ahead[:NAMED]]
    named += [f"{len(ahead) - NAMED:,} more"] if len(ahead) > NAMED else []
    were = "was" if len(ahead) == 1 else "were"
    higher = all(one.priority > own.priority for one in ahead)
    why = f", because of {'its' if len(ahead) == 1 else 'their'} priority," if higher else ""
    return Counterfactual(
        kind=Kind.BEHIND,
        fits=True,
        sentence=f"{joined(named)} {were} placed before it{why} and took its room {where_text(result)}.",
        where=where_entry(result),
        ahead=tuple(one.entry() for one in ahead),
    )
