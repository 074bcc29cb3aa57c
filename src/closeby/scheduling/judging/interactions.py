"""Which of some pods constrain each other once they are placed: by affinity, anti-affinity or spread.

Each constraint is compared with each class of labels once, however many pods have them, and only where a
label that its selector requires is there. So thousands of different pods are not compared pair by pair.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.population import Population
from closeby.cluster.selector_index import SelectorIndex
from closeby.cluster.tallies import LabelClass
from closeby.objects.arrays import Bools, Ints
from closeby.objects.pods import Pod, all_alike
from closeby.scheduling.by_domain import CountedPods, DomainFilter
from closeby.scheduling.judging.pod_classes import Share

#: Sets of pods of which it is remembered how they constrain each other.
_REMEMBERED: Final = 64
#: Topology keys, and kinds of pods, among which pods that keep off each other are looked for.
_MOST_KEYS: Final = 4
_MOST_KINDS: Final = 2048
#: Comparisons of a constraint with a class of labels that count as one step.
_PER_STEP: Final = 20

_Steps = Callable[[int], None]


class Apart(NamedTuple):
    """Pods no two of which can be in one domain of a topology key."""

    key: str
    #: By the place of their share in the demand: how many of its pods are among them.
    pods: dict[int, int]


class _Kind:
    """Pods with equal labels, as far as they matter, and equal constraints."""

    __slots__ = ("by_share", "constraints", "labels", "pod")

    def __init__(self, pod: Pod, labels: int, constraints: tuple[int, ...]) -> None:
        #: Any of them.
        self.pod = pod
        #: The place of their class of labels.
        self.labels = labels
        self.constraints = constraints
        #: How many of them are in each share.
        self.by_share: dict[int, int] = {}


class Interactions:
    """How the pods of one demand constrain each other."""

    def __init__(
        self, population: Population, filters: Sequence[DomainFilter], demand: Sequence[Share], steps: _Steps
    ) -> None:
        """``steps`` is called with the number of steps that comparing takes."""
        self._population = population
        self._filters = filters
        self._steps = steps
        self._demand = tuple(demand)
        #: The classes of labels with their places, and by place how many pods have each.
        self._labels: dict[LabelClass, int] = {}
        self._labelled: list[int] = []
        #: The constraints with their places, and by place how many pods have each.
        self._constraints: dict[CountedPods, int] = {}
        self._constrained: list[int] = []
        self._kinds: dict[tuple[int, tuple[int, ...]], _Kind] = {}
        self._known: dict[tuple[int, int, str, bool], tuple[int, ...]] = {}
        #: Which constraints select each class, packed along the constraints: (classes, constraints / 8).
        self._bits: NDArray[np.uint8] | None = None
        for place, share in enumerate(self._demand):
            self._gather(place, share.pods)

    @cached_property
    def any(self) -> bool:
        """Whether a placement of one of the pods may change where others of them may go."""
        alone: set[tuple[int, int]] | None = None
        for constraint, labels in self._selections() if self._bits is None else self._packed():
            if self._labelled[labels] > 1 or self._constrained[constraint] > 1:
                return True
            if alone is None:
                alone = {(kind.labels, one) for kind in self._kinds.values() for one in kind.constraints}
            if (labels, constraint) not in alone:  # Else the pod with the constraint selects itself alone.
                return True
        return False

    def compare(self) -> None:
        """Compare all constraints with all labels, if that has not been done. This takes the steps."""
        if self._bits is None:
            bits = np.zeros((len(self._labels), len(self._constraints) // 8 + 1), dtype=np.uint8)
            for constraint, labels in self._selections():
                bits[labels, constraint >> 3] |= 1 << (constraint & 7)
            self._bits = bits

    def helpers(self, place: int, *, own: bool = True) -> Iterator[Pod]:
        """Pods that count for those of a share, other than by anti-affinity: for each set of constraints one.

        ``own``: also pods of the same share, if it has several.
        """
        share = self._demand[place]
        own = own and len(share.pods) > 1
        for constraint in self._of(share.pods[0], self._population.class_of(share.pods[0])):
            if not self._list[constraint].apart:
                which = np.flatnonzero(self._selected(constraint)[self._labels_of_kinds])
                if not own:
                    which = which[(self._first_share[which] != place) | (self._last_share[which] != place)]
                _, distinct = np.unique(self._sets_of_kinds[which], return_index=True)
                for one in which[distinct].tolist():
                    yield self._kind_list[one].pod

    @cached_property
    def apart(self) -> tuple[Apart, ...]:
        """For topology keys some of the pods that keep off each other there, as many as are found quickly."""
        carriers: dict[str, int] = {}
        for constraint, number in zip(self._list, self._constrained, strict=True):
            if constraint.apart:
                carriers[constraint.apart] = carriers.get(constraint.apart, 0) + number
        most = sorted(carriers, key=lambda key: -carriers[key])[:_MOST_KEYS]
        return tuple([found for key in most if (found := self._apart(key)) is not None])

    # Inside

    def _gather(self, place: int, pods: Sequence[Pod]) -> None:
        alike = len(pods) > 1 and all_alike(pods)
        number = len(pods) if alike else 1
        for pod in pods[:1] if alike else pods:
            found = self._population.class_of(pod)
            own = self._of(pod, found)
            labels = self._labels.setdefault(found, len(self._labels))
            if labels == len(self._labelled):
                self._labelled.append(0)
            self._labelled[labels] += number
            for one in own:
                self._constrained[one] += number
            kind = self._kinds.get((labels, own))
            if kind is None:
                kind = self._kinds[labels, own] = _Kind(pod, labels, own)
            kind.by_share[place] = kind.by_share.get(place, 0) + number

    def _of(self, pod: Pod, labels: LabelClass) -> tuple[int, ...]:
        """The places of a pod's constraints."""
        key = (id(pod.spec), id(labels), pod.owner, pod.group is None)
        known = self._known.get(key)
        if known is None:
            found: dict[int, None] = {}
            for one in [one for plugin in self._filters for one in plugin.counts(pod)]:
                place = self._constraints.setdefault(one, len(self._constraints))
                if place == len(self._constrained):
                    self._constrained.append(0)
                found[place] = None
            known = self._known[key] = tuple(sorted(found))
        return known

    def _selections(self) -> Iterator[tuple[int, int]]:
        """Constraints and the classes of labels that they select, both by place."""
        population, asked = self._population, 0
        index: SelectorIndex[int] = SelectorIndex()
        for one, place in self._constraints.items():
            index.add((one.terms[0].selector,), place)
        for labels, place in self._labels.items():
            for constraint in index.candidates(labels.labels):
                asked += 1
                if asked % _PER_STEP == 0:
                    self._steps(1)
                if all(population.selects(term, labels) for term in self._list[constraint].terms):
                    yield constraint, place

    @cached_property
    def _list(self) -> list[CountedPods]:
        return list(self._constraints)

    def _packed(self) -> Iterator[tuple[int, int]]:
        """The same once all were compared."""
        for labels, bits in enumerate(() if self._bits is None else self._bits):
            for constraint in np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist():
                yield constraint, labels

    def _selected(self, constraint: int) -> Bools:
        """Which classes a constraint selects, (classes,)."""
        self.compare()
        assert self._bits is not None
        selected: Bools = (self._bits[:, constraint >> 3] >> (constraint & 7) & 1).astype(np.bool_)
        return selected

    @cached_property
    def _kind_list(self) -> list[_Kind]:
        return list(self._kinds.values())

    @cached_property
    def _labels_of_kinds(self) -> Ints:
        return np.array([kind.labels for kind in self._kind_list])

    @cached_property
    def _sets_of_kinds(self) -> Ints:
        """A number for the set of constraints of each kind."""
        sets: dict[tuple[int, ...], int] = {}
        return np.array([sets.setdefault(kind.constraints, len(sets)) for kind in self._kind_list])

    @cached_property
    def _first_share(self) -> Ints:
        return np.array([min(kind.by_share) for kind in self._kind_list])

    @cached_property
    def _last_share(self) -> Ints:
        return np.array([max(kind.by_share) for kind in self._kind_list])

    def _apart(self, key: str) -> Apart | None:
        """Pods of which each keeps off all others in a topology key, found greedily."""
        kinds = self._kind_list[:_MOST_KINDS]
        rows = np.zeros((len(kinds), len(self._labels)), dtype=np.bool_)
        for place, kind in enumerate(kinds):
            for one in kind.constraints:
                if self._list[one].apart == key:
                    rows[place] |= self._selected(one)
        off = rows[:, self._labels_of_kinds[: len(kinds)]]
        off |= off.T
        left = np.ones(len(kinds), dtype=np.bool_)
        pods: dict[int, int] = {}
        # Those that keep off the most others first.
        for place in np.argsort(-off.sum(axis=1), kind="stable").tolist():
            if not left[place]:
                continue
            itself = bool(off[place, place])
            left &= off[place]
            for share, number in kinds[place].by_share.items():
                pods[share] = pods.get(share, 0) + (number if itself else 1)
                if not itself:
                    break
        return Apart(key, pods) if sum(pods.values()) > 1 else None


class KnownInteractions:
    """The interactions of the pods that were asked about last."""

    def __init__(self, population: Population, filters: Sequence[DomainFilter]) -> None:
        self._population = population
        self._filters = filters
        self._known: dict[tuple[int, ...], Interactions] = {}
        #: The population's when these were seen.
        self._epoch: object = None

    def among(self, demand: Sequence[Share], steps: _Steps) -> Interactions:
        """How pods that are placed together constrain each other.

        ``steps`` is called with the number of steps that it takes.
        """
        population = self._population
        key = tuple([id(share.pods) for share in demand])
        if self._epoch is not population.epoch or len(self._known) >= _REMEMBERED:
            self._known.clear()
        found = self._known.get(key)
        while found is None:
            self._epoch = population.epoch
            found = Interactions(population, self._filters, demand, steps)
            if self._epoch is not population.epoch:
                found = None  # Labels became known by which pods differ that did not before.
        self._known[key] = found
        return found
