"""What terms of pod affinity say of classes of pods: the pods that one selects, counted per topology key.

Required anti-affinity of placed pods is counted together: a term that comes or goes is written down once, and
each class that is asked about reads what is new to it. So a pod with many terms costs nothing for all the
classes that wait. And one class is compared with all terms at once, in columns."""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

import numpy as np

from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.selectors import LabelRequirement, LabelSelector, PodAffinityTerm
from closeby.topology.labels import LabelTable

#: Slot -> how many pods.
PerSlot = dict[int, int]

#: Counts that a tally keeps up to date, by topology key and eligible slots; with more it forgets all of them.
MOST_VIEWS: Final = 128


class TermCounts:
    """How many of some pods each domain of a topology key holds, by the code of its value.

    Without a key it is how many each slot holds.
    """

    __slots__ = ("_eligible", "_key", "_labels", "_sources", "_structure", "by_code", "flips", "version")

    def __init__(
        self,
        labels: LabelTable,
        key: str | None,
        sources: list[PerSlot],
        eligible: Bools | None,
        version: int = 0,
    ) -> None:
        """``sources`` say where the pods are; only pods on ``eligible`` slots count (None: on all).

        ``version``: greater than any that earlier counts of the same had.
        """
        self._labels = labels
        self._key = key
        self._sources = sources
        self._eligible = eligible
        #: The nodes' structure for which the counts are right.
        self._structure: object = None
        self.by_code: Counts = np.zeros(1, dtype=np.int64)
        #: Grow whenever a count changes; whenever one becomes or ceases to be 0.
        self.version = version
        self.flips = version

    def note(self, slot: int, number: int, structure: object) -> None:
        """So many pods came to a slot, or left it."""
        if structure != self._structure or (self._eligible is not None and not self._eligible[slot]):
            return
        code = slot if self._key is None else int(self._labels.column(self._key).codes[slot])
        if code >= len(self.by_code):
            self._structure = None
            return
        before = int(self.by_code[code])
        self.by_code[code] = before + number
        self.version += 1
        if before == 0 or before + number == 0:
            self.flips += 1

    def note_all(self, slots: Ints, sign: int, structure: object) -> None:
        """Pods came to these slots, one each (``sign`` 1), or left them (-1)."""
        if structure != self._structure:
            return
        if self._eligible is not None:
            slots = slots[self._eligible[slots]]
        codes = slots if self._key is None else self._labels.column(self._key).codes[slots]
        if not len(codes):
            return
        if codes.max() >= len(self.by_code):
            self._structure = None
            return
        before = self.by_code[codes]
        np.add.at(self.by_code, codes, sign)
        self.version += 1
        if not (before.all() and self.by_code[codes].all()):
            self.flips += 1

    def follow(self, structure: object, eligible: Bools | None) -> "TermCounts":
        """Count again if nodes came, went or changed labels, or others are eligible."""
        if structure != self._structure or eligible is not self._eligible:
            self._structure, self._eligible = structure, eligible
            self.version += 1
            self.flips += 1
            self._count()
        return self

    def stale(self) -> None:
        """What the sources say has changed."""
        self._structure = None

    def _count(self) -> None:
        slots = np.fromiter((slot for one in self._sources for slot in one), dtype=np.intp)
        numbers = np.fromiter((count for one in self._sources for count in one.values()), dtype=np.int64)
        if self._eligible is not None and len(slots):
            kept = self._eligible[slots]
            slots, numbers = slots[kept], numbers[kept]
        if self._key is None:
            codes, size = slots.astype(np.int64), self._labels.size
        else:
            column = self._labels.column(self._key)
            codes, size = column.codes[slots].astype(np.int64), len(column.values)
        self.by_code = np.bincount(codes, weights=numbers, minlength=max(size, 1)).astype(np.int64)


class LabelClass:
    """Pods that no selector tells apart: of one namespace, with equal values of all labels that matter."""

    __slots__ = (
        "carried",
        "labels",
        "namespace",
        "notes",
        "number",
        "placed",
        "scored",
        "staying",
        "tallies",
    )

    def __init__(self, namespace: str, labels: Mapping[str, str]) -> None:
        self.namespace = namespace
        #: Of the labels that matter those that the pods have.
        self.labels = labels
        #: Where such pods are; those that are not being deleted.
        self.placed: PerSlot = {}
        self.staying: PerSlot = {}
        self.tallies: list[Tally] = []
        #: Required anti-affinity of placed pods to such pods; a term may have no pod any more.
        self.carried: list[CarriedTerm] = []
        #: What plugins worked out about such pods (``Population.note``), while the population's epoch lasts.
        self.notes: dict[object, object] = {}


class Tally:
    """Where the placed pods are that some terms select."""

    __slots__ = ("_labels", "_made", "_views", "notes", "sources", "staying", "where")

    def __init__(self, labels: LabelTable, *, staying: bool = False) -> None:
        self._labels = labels
        #: Only pods that are not being deleted count.
        self.staying = staying
        self.where: list[PerSlot] = []
        #: For each of these the first term because of which its pods count.
        self.sources: list[PodAffinityTerm] = []
        #: What plugins keep with it, while the population's epoch lasts.
        self.notes: dict[object, object] = {}
        self._views: dict[object, TermCounts] = {}
        #: How many of these were made so far.
        self._made = 0

    @property
    def total(self) -> int:
        """All such pods."""
        return sum(sum(one.values()) for one in self.where)

    def domains(
        self, structure: object, key: str | None, which: object = None, eligible: Bools | None = None
    ) -> TermCounts:
        """The counts per domain of a key, up to date.

        Only pods on ``eligible`` slots count (None: on all), which may change; ``which`` says what they are.
        """
        view = self._views.get((key, which))
        if view is None:
            if len(self._views) >= MOST_VIEWS:
                # Each takes memory for all domains, and time with each pod that comes or goes.
                self._views.clear()
            self._made += 1
            view = TermCounts(self._labels, key, self.where, eligible, self._made << 32)
            self._views[key, which] = view
        return view.follow(structure, eligible)

    def causes(self, key: str) -> dict[int, tuple[PodAffinityTerm, int]]:
        """By code of a key's value the first term that counts pods there, and how many."""
        codes = self._labels.column(key).codes
        found: dict[int, tuple[PodAffinityTerm, int]] = {}
        for term, where in zip(self.sources, self.where, strict=True):
            for slot, number in where.items():
                code = int(codes[slot])
                first, pods = found.get(code, (term, 0))
                if first is term:
                    found[code] = term, pods + number
        return found

    def note(self, slot: int, number: int, structure: object) -> None:
        """So many such pods came to a slot, or left it."""
        for view in self._views.values():
            view.note(slot, number, structure)

    def note_all(self, slots: Ints, sign: int, structure: object) -> None:
        """Such pods came to these slots (``sign`` 1), or left them (-1)."""
        for view in self._views.values():
            view.note_all(slots, sign, structure)

    def stale(self) -> None:
        """Count again when asked next."""
        for view in self._views.values():
            view.stale()


class Selection(Tally):
    """Where the placed pods are that all, or any, of some terms of one pod select."""

    __slots__ = ("_any", "_terms")

    def __init__(
        self, labels: LabelTable, terms: Sequence[PodAffinityTerm], *, of_any: bool, staying: bool
    ) -> None:
        super().__init__(labels, staying=staying)
        self._terms = terms
        self._any = of_any

    @property
    def selectors(self) -> list[LabelSelector | None]:
        """One of these selects each pod that counts."""
        return [one.selector for one in (self._terms if self._any else self._terms[:1])]

    def offer(self, found: LabelClass, selects: Callable[[PodAffinityTerm, LabelClass], bool]) -> None:
        """Pods of one more class count, if the terms select them."""
        if self._any:
            first = next((term for term in self._terms if selects(term, found)), None)
        else:
            first = self._terms[0] if all(selects(term, found) for term in self._terms) else None
        if first is None:
            return
        self.where.append(found.staying if self.staying else found.placed)
        self.sources.append(first)
        found.tallies.append(self)
        self.stale()


class CarriedTerm(Tally):
    """A required anti-affinity of placed pods, and where those are that carry it."""

    __slots__ = ("term",)

    def __init__(self, labels: LabelTable, term: PodAffinityTerm) -> None:
        super().__init__(labels)
        #: For its pods: namespaces are named, label keys are part of the selector.
        self.term = term
        self.where.append({})
        self.sources.append(term)


_Labels = Mapping[str, str]
#: A label with its value, or (with None) with any.
_Part = tuple[str, str | None]
#: What a term says of namespaces.
_Scope = tuple[tuple[str, ...], LabelSelector | None]

#: Requirements that a label meets, not breaks.
_MET: Final = frozenset({"In", "Exists"})

#: Of a term that selects nothing.
_NEVER: Final = -1


class TermMatcher:
    """Terms and classes by number, in the order in which they were added."""

    def __init__(self, labels_of: Callable[[str], _Labels]) -> None:
        """``labels_of`` gives the labels of a namespace."""
        self._labels_of = labels_of
        self._terms: list[PodAffinityTerm] = []
        #: By label: terms of which it meets a requirement, or breaks one, and classes that have it.
        self._meets: dict[_Part, array[int]] = {}
        self._breaks: dict[_Part, array[int]] = {}
        self._having: dict[_Part, array[int]] = {}
        #: Of each term how many requirements labels must meet.
        self._needed = array("i")
        self._scopes: dict[_Scope, int] = {}
        self._scope_of = array("i")
        self._namespaces: dict[str, int] = {}
        self._namespace_of = array("i")
        #: By namespace: the scopes that mean it, as far as they are compared.
        self._meant: dict[str, array[int]] = {}

    def add_term(self, term: PodAffinityTerm) -> int:
        """One more term, for its pods; its number."""
        number = len(self._terms)
        self._terms.append(term)
        scope = term.namespaces, term.namespace_selector
        self._scope_of.append(self._scopes.setdefault(scope, len(self._scopes)))
        needed = 0 if term.selector is not None else _NEVER
        for one in () if term.selector is None else term.selector.requirements:
            meets = one.operator in _MET
            needed += meets
            for part in _parts(one):
                (self._meets if meets else self._breaks).setdefault(part, array("i")).append(number)
        self._needed.append(needed)
        return number

    def add_class(self, namespace: str, labels: _Labels) -> None:
        """One more class of pods, with labels that matter."""
        number = len(self._namespace_of)
        self._namespace_of.append(self._namespaces.setdefault(namespace, len(self._namespaces)))
        for label in labels.items():
            for part in _of(label):
                self._having.setdefault(part, array("i")).append(number)

    def terms_for(self, namespace: str, labels: _Labels) -> Bools:
        """Which terms select pods of a namespace with labels; shape (terms,)."""
        parts = [part for label in labels.items() for part in _of(label)]
        met = np.zeros(len(self._terms), dtype=np.int32)
        for part in parts:
            if part in self._meets:
                np.add.at(met, _numbers(self._meets[part]), 1)
        selected: Bools = met == _numbers(self._needed)
        for part in parts:
            if part in self._breaks:
                selected[_numbers(self._breaks[part])] = False
        meant = np.array(self._scopes_of(namespace), dtype=np.bool_)
        if not meant.all():
            selected &= meant[_numbers(self._scope_of)]
        return selected

    def classes_for(self, number: int) -> Bools:
        """Which classes a term selects; shape (classes,)."""
        term = self._terms[number]
        if term.selector is None:
            return np.zeros(len(self._namespace_of), dtype=np.bool_)
        scope = self._scope_of[number]
        meant = np.asarray([self._scopes_of(name)[scope] for name in self._namespaces], dtype=np.bool_)
        selected: Bools = meant[_numbers(self._namespace_of)]
        for one in term.selector.requirements:
            having = [_numbers(self._having[part]) for part in _parts(one) if part in self._having]
            if one.operator in _MET:
                met = np.zeros(len(selected), dtype=np.bool_)
                for some in having:
                    met[some] = True
                selected &= met
            else:
                for some in having:
                    selected[some] = False
        return selected

    def _scopes_of(self, namespace: str) -> "array[int]":
        """For each scope whether it means a namespace."""
        known = self._meant.setdefault(namespace, array("b"))
        if len(known) < len(self._scopes):
            labels = self._labels_of(namespace)
            for names, selector in list(self._scopes)[len(known) :]:
                means = namespace in names or (selector is not None and selector.matches(labels))
                known.append(means)
        return known


def _parts(requirement: LabelRequirement) -> Iterable[_Part]:
    """The labels that meet a requirement, or break it."""
    if requirement.operator in ("In", "NotIn"):
        return ((requirement.key, value) for value in dict.fromkeys(requirement.values))
    return ((requirement.key, None),)


def _of(label: tuple[str, str]) -> Iterable[_Part]:
    return label, (label[0], None)


def _numbers(some: "array[int]") -> Ints:
    return np.array(some, dtype=np.intp)


#: Changes that are remembered; who has read less counts again.
MOST: Final = 1 << 14
#: To count again costs as much as reading a change for each so many terms.
_TERMS_PER_CHANGE: Final = 4

_Kind = TypeVar("_Kind")


class PlacedChanges(Generic[_Kind]):
    """What pods of some kinds did lately: they came (1) to a slot or some slots, or left (-1)."""

    def __init__(self) -> None:
        self._kept: list[tuple[_Kind, int | Ints, int]] = []
        self._dropped = 0

    @property
    def end(self) -> int:
        """How many there were so far."""
        return self._dropped + len(self._kept)

    def add(self, change: tuple[_Kind, int | Ints, int]) -> None:
        if len(self._kept) >= MOST:
            self._dropped += len(self._kept)
            self._kept.clear()
        self._kept.append(change)

    def since(self, place: int) -> Sequence[tuple[_Kind, int | Ints, int]] | None:
        """Those after the first ``place``; None if they are not remembered any more."""
        return None if place < self._dropped else self._kept[place - self._dropped :]


class AntiAffinityOfOthers(Tally):
    """Where the placed pods are that have a required anti-affinity, of one topology key, to pods of a class.

    A pod counts once for each such term that it has.
    """

    __slots__ = ("_changes", "_class", "_key", "_place", "_seen", "_selects")

    def __init__(
        self,
        labels: LabelTable,
        found: LabelClass,
        key: str,
        changes: PlacedChanges[CarriedTerm],
        selects: Callable[[PodAffinityTerm, LabelClass], bool],
    ) -> None:
        super().__init__(labels)
        self._class = found
        self._key = key
        self._changes = changes
        self._selects = selects
        #: How many terms of the class, and how many changes, are known.
        self._seen = 0
        self._place = changes.end

    def domains(
        self, structure: object, key: str | None, which: object = None, eligible: Bools | None = None
    ) -> TermCounts:
        self._catch_up(structure)
        return super().domains(structure, key, which, eligible)

    def _catch_up(self, structure: object) -> None:
        carried = self._class.carried
        for one in carried[self._seen :]:
            if one.term.topology_key == self._key:
                self.where += one.where
                self.sources.append(one.term)
        self._seen = len(carried)
        if self._place == self._changes.end:
            return
        changes = self._changes.since(self._place)
        self._place = self._changes.end
        if changes is None or len(changes) * _TERMS_PER_CHANGE > len(self.where):
            self.stale()
            return
        for one, at, sign in changes:
            if one.term.topology_key != self._key or not self._selects(one.term, self._class):
                continue
            if isinstance(at, int):
                self.note(at, sign, structure)
            else:
                self.note_all(at, sign, structure)
