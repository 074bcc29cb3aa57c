"""How much preferences draw pods to domains: the weights of their terms, summed per topology key as upstream.

Pods with equal terms that count in scores are one set, and pods that no selector tells apart one class. What
the terms of a set say about placed pods of all classes, and what the terms of all placed sets say about a
class, is summed per domain, and follows the pods that come and go. So a pod with thousands of terms costs no
more to place than one with a single term, and nothing is kept for each pair of a term and a class.
"""

from abc import ABC, abstractmethod
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import numpy as np

from closeby.cluster.terms import LabelClass, PerSlot, PlacedChanges, TermMatcher
from closeby.objects.arrays import Bools, Counts, Floats, Ints
from closeby.objects.selectors import PodAffinity, PodAffinityTerm
from closeby.topology.labels import LabelTable

#: Sums of domains, and weights, that are kept, in all together.
KEPT_SUMS: Final = 1 << 21
#: Answers whether a term selects a class that are kept.
_KEPT_ANSWERS: Final = 1 << 23
#: Weights between one set and one class that are remembered with each.
_KNOWN: Final = 512
#: More changes than this, and than a part of what would be counted, are not followed: all is counted again.
_FEW_CHANGES: Final = 128
_COUNTED_PER_CHANGE: Final = 4
#: To find the classes of a term costs as much as to count so many pods.
_PODS_PER_TERM: Final = 64


class ScoredTerms:
    """Pods that have equal terms that count in scores."""

    __slots__ = ("number", "placed", "terms")

    def __init__(self, number: int, terms: Ints) -> None:
        self.number = number
        #: The numbers of the terms, ascending.
        self.terms = terms
        #: Where such pods are.
        self.placed: PerSlot = {}


class TermWeights:
    """The terms of pods that count in scores, and their sums."""

    def __init__(self, labels: LabelTable, matcher: TermMatcher) -> None:
        self.labels = labels
        self.matcher = matcher
        self.sets: list[ScoredTerms] = []
        self.classes: list[LabelClass] = []
        #: All sets and their terms, pair by pair.
        self._pair_sets, self._pair_terms = array("i"), array("i")
        #: The topology keys, and of each term its key (by number), its weight, which is below zero for
        #: anti-affinity, and whether it is required; a required term has no weight of its own.
        self._keys: dict[str, int] = {}
        self._key_names: list[str] = []
        self._key_of, self._weight_of, self._required = array("i"), array("i"), array("b")
        #: By the term, its weight, its kind, and how often the same pod has it before.
        self._numbers: dict[tuple[PodAffinityTerm, int, bool, int], int] = {}
        self._sets: dict[tuple[int, ...], ScoredTerms] = {}
        #: By class: which terms select it.
        self._answers: OrderedDict[LabelClass, Bools] = OrderedDict()
        #: What pods of classes, and of sets, did lately. Kept since a sum was asked for.
        self._of_classes: PlacedChanges[LabelClass] | None = None
        self._of_sets: PlacedChanges[ScoredTerms] | None = None
        self._sums: OrderedDict[tuple[object, int], DomainWeights[Any]] = OrderedDict()
        self._kept = 0

    @property
    def size(self) -> int:
        """How many terms and sets there are."""
        return len(self._numbers) + len(self.sets)

    def set_of(
        self, affinity: PodAffinity, meant: Callable[[PodAffinityTerm], PodAffinityTerm]
    ) -> ScoredTerms | None:
        """The set of pods with these terms; None without any. ``meant`` says what a term is for the pods."""
        found: Counter[tuple[PodAffinityTerm, int, bool]] = Counter()
        numbers: list[int] = []
        for term, weight, required in (
            *((one, 0, True) for one in affinity.required),
            *((one.term, one.weight, False) for one in affinity.preferred),
        ):
            kind = meant(term), weight, required
            key = (*kind, found[kind])
            found[kind] += 1
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = self._new_term(*kind)
            numbers.append(number)
        if not numbers:
            return None
        numbers.sort()
        known = self._sets.get(tuple(numbers))
        if known is None:
            known = ScoredTerms(len(self.sets), np.asarray(numbers, dtype=np.intp))
            self.sets.append(known)
            self._sets[tuple(numbers)] = known
            self._pair_terms.extend(numbers)
            self._pair_sets.extend([known.number] * len(numbers))
        return known

    def add_class(self, found: LabelClass) -> None:
        self.matcher.add_class(found.namespace, found.labels)
        self.classes.append(found)

    def note(self, found: LabelClass, own: ScoredTerms | None, at: int | Ints, sign: int) -> None:
        """Pods of a class and a set came to a slot or some slots (``sign`` 1), or left (-1)."""
        if self._of_classes is not None:
            self._of_classes.add((found, at, sign))
        if own is not None and self._of_sets is not None:
            self._of_sets.add((own, at, sign))

    def of_own(self, own: ScoredTerms) -> "DomainWeights[Any]":
        """What the preferences of a pod's own set say about placed pods."""
        found = self._sums.get((own, 0))
        if found is None:
            if self._of_classes is None:
                self._of_classes = PlacedChanges()
            found = self._sums[own, 0] = OfOwnTerms(self, own, self._of_classes)
        self._sums.move_to_end((own, 0))
        return found

    def of_placed(self, found: LabelClass, required: int) -> "DomainWeights[Any]":
        """What the terms of placed pods say about a class; ``required`` is the weight of required ones."""
        sums = self._sums.get((found, required))
        if sums is None:
            if self._of_sets is None:
                self._of_sets = PlacedChanges()
            sums = self._sums[found, required] = OfPlacedTerms(self, found, required, self._of_sets)
        self._sums.move_to_end((found, required))
        return sums

    def selecting(self, found: LabelClass) -> Bools:
        """Which terms select a class."""
        terms = len(self._key_of)
        known = self._answers.get(found)
        if known is None or len(known) != terms:
            known = self._answers[found] = self.matcher.terms_for(found.namespace, found.labels)
        self._answers.move_to_end(found)
        while len(self._answers) > 1 and len(self._answers) * terms > _KEPT_ANSWERS:
            self._answers.popitem(last=False)
        return known

    def between(self, own: ScoredTerms, found: LabelClass) -> Ints:
        """The terms of a set that select a class, by number."""
        terms: Ints = own.terms[self.selecting(found)[own.terms]]
        return terms

    def pairs(self, terms: Bools) -> tuple[Ints, Ints]:
        """The sets that have any of some terms, and these, pair by pair; both by number."""
        if not len(self._pair_terms):
            return _NO_NUMBERS, _NO_NUMBERS
        pair_terms = np.frombuffer(self._pair_terms, dtype=np.int32)
        chosen = terms[pair_terms]
        sets: Ints = np.frombuffer(self._pair_sets, dtype=np.int32)[chosen].astype(np.intp)
        return sets, pair_terms[chosen].astype(np.intp)

    def weights(self, terms: Ints, required: int) -> Iterator[tuple[str, Ints, Floats]]:
        """By topology key, with a weight for required terms: which of some terms have a weight, and this."""
        if not len(terms):
            return
        weights = np.frombuffer(self._weight_of, dtype=np.int32)[terms].astype(np.float64)
        if required:
            weights[np.frombuffer(self._required, dtype=np.bool_)[terms]] = required
        keys = np.frombuffer(self._key_of, dtype=np.int32)[terms]
        counted = weights != 0
        for key in np.unique(keys[counted]).tolist():
            chosen = (counted & (keys == key)).nonzero()[0]
            yield self._key_names[key], chosen, weights[chosen]

    def keep(self, more: int) -> None:
        """So many more sums are kept; those asked for longest ago may have to go."""
        self._kept += more
        while self._kept > KEPT_SUMS and len(self._sums) > 1:
            self._kept -= self._sums.popitem(last=False)[1].kept

    def _new_term(self, term: PodAffinityTerm, weight: int, required: bool) -> int:
        key = self._keys.setdefault(term.topology_key, len(self._key_names))
        if key == len(self._key_names):
            self._key_names.append(term.topology_key)
        self._key_of.append(key)
        self._weight_of.append(weight)
        self._required.append(required)
        return self.matcher.add_term(term)


_NO_NUMBERS: Final[Ints] = np.zeros(0, dtype=np.intp)


_Other = TypeVar("_Other", LabelClass, ScoredTerms)


class DomainWeights(ABC, Generic[_Other]):
    """Sums of weights per topology key and domain about pods of classes or sets; they follow these pods."""

    def __init__(self, weights: TermWeights, required: int, changes: PlacedChanges[_Other]) -> None:
        self._weights = weights
        #: What a required term weighs.
        self._required = required
        self._changes: PlacedChanges[_Other] = changes
        self._place = changes.end
        self._structure: object = None
        self._sums: dict[str, Counts] = {}
        #: How much was looked at to count them.
        self._counted = 0
        self._known: dict[_Other, tuple[tuple[str, int], ...]] = {}
        #: How much of what is kept it has, as ``TermWeights`` counts it.
        self.kept = 0

    def by_key(self, structure: object) -> Mapping[str, Counts]:
        """For topology keys the sums by code of the value, up to date; code 0 (no label) has none."""
        if structure != self._structure:
            self._count(structure)
        elif self._place != self._changes.end:
            changes = self._changes.since(self._place)
            if changes is None or len(changes) > _FEW_CHANGES + self._counted // _COUNTED_PER_CHANGE:
                self._count(structure)
            else:
                self._place, known = self._changes.end, self._known
                for other, at, sign in changes:
                    weights = known.get(other)
                    if weights is None:
                        weights = self._remember(other)
                    if weights:
                        self._follow(weights, at, sign)
        return self._sums

    @abstractmethod
    def _others(self) -> Iterator[tuple[str, Counts]]:
        """For topology keys the weights about all others, by their number."""

    @abstractmethod
    def _of_number(self, number: int) -> _Other:
        """One of them."""

    @abstractmethod
    def _terms_about(self, other: _Other) -> Ints:
        """The terms about one of them."""

    def _count(self, structure: object) -> None:
        self._structure, self._place = structure, self._changes.end
        self._sums.clear()
        self._counted = 0
        for key, weights in self._others():
            column = self._weights.labels.column(key)
            others = weights.nonzero()[0]
            where = [self._of_number(number).placed for number in others.tolist()]
            slots = np.fromiter(chain.from_iterable(where), dtype=np.intp)
            pods = np.fromiter(chain.from_iterable(one.values() for one in where), dtype=np.int64)
            each = np.repeat(weights[others], [len(one) for one in where])
            sums = np.bincount(column.codes[slots], weights=pods * each, minlength=len(column.values))
            sums[0] = 0
            self._sums[key] = sums.astype(np.int64)
            self._counted += len(slots)
        self._note_kept()

    def _follow(self, weights: Iterable[tuple[str, int]], at: int | Ints, sign: int) -> None:
        for key, weight in weights:
            column = self._weights.labels.column(key)
            if not column.carried:
                continue
            sums = self._sums.get(key)
            if sums is None:
                sums = self._sums[key] = np.zeros(len(column.values), dtype=np.int64)
                self._note_kept()
            if isinstance(at, int):
                sums[column.codes[at]] += sign * weight
            else:
                np.add.at(sums, column.codes[at], sign * weight)
            sums[0] = 0

    def _remember(self, other: _Other) -> tuple[tuple[str, int], ...]:
        found = self._weights.weights(self._terms_about(other), self._required)
        if len(self._known) >= _KNOWN:
            self._known.clear()
        known = self._known[other] = tuple((key, int(weights.sum())) for key, _, weights in found)
        return known

    def _note_kept(self) -> None:
        before, self.kept = self.kept, _KNOWN + sum(map(len, self._sums.values()))
        self._weights.keep(self.kept - before)


class OfOwnTerms(DomainWeights[LabelClass]):
    """What the preferences of a set say about placed pods."""

    def __init__(self, weights: TermWeights, own: ScoredTerms, changes: PlacedChanges[LabelClass]) -> None:
        super().__init__(weights, 0, changes)
        self._own = own

    def _others(self) -> Iterator[tuple[str, Counts]]:
        terms, classes = self._own.terms, len(self._weights.classes)
        self._counted += _PODS_PER_TERM * len(terms)
        for key, at, weights in self._weights.weights(terms, 0):
            if not self._weights.labels.column(key).carried:
                continue
            found = np.zeros(classes, dtype=np.int64)
            for term, weight in zip(terms[at].tolist(), weights.tolist(), strict=True):
                found[self._weights.matcher.classes_for(term)] += int(weight)
            yield key, found

    def _of_number(self, number: int) -> LabelClass:
        return self._weights.classes[number]

    def _terms_about(self, other: LabelClass) -> Ints:
        return self._weights.between(self._own, other)


class OfPlacedTerms(DomainWeights[ScoredTerms]):
    """What the terms of placed pods say about a class."""

    def __init__(
        self, weights: TermWeights, found: LabelClass, required: int, changes: PlacedChanges[ScoredTerms]
    ) -> None:
        super().__init__(weights, required, changes)
        self._class = found

    def _others(self) -> Iterator[tuple[str, Counts]]:
        sets, terms = self._weights.pairs(self._weights.selecting(self._class))
        self._counted += len(terms)
        for key, at, weights in self._weights.weights(terms, self._required):
            if self._weights.labels.column(key).carried:
                yield key, np.bincount(sets[at], weights=weights).astype(np.int64)

    def _of_number(self, number: int) -> ScoredTerms:
        return self._weights.sets[number]

    def _terms_about(self, other: ScoredTerms) -> Ints:
        return self._weights.between(other, self._class)
