"""Which of some pods constrain each other once they are placed: by affinity, anti-affinity or spread.

Each constraint is compared once with all classes of labels, in columns, however many pods have them. So
thousands of different pods are not compared pair by pair.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from closeby.cluster.population import Population
from closeby.cluster.terms import LabelClass, TermMatcher
from closeby.objects.arrays import Bools, Ints
from closeby.objects.pods import Pod, all_alike
from closeby.scheduling.by_domain import CountedPods, DomainFilter
from closeby.scheduling.judging.pod_classes import Share

#: Sets of pods of which it is remembered how they constrain each other.
_REMEMBERED: Final = 64
#: Topology keys, and kinds of pods, among which pods that keep off each other are looked for.
_MOST_KEYS: Final = 4
_MOST_KINDS: Final = 2048
#: Classes of labels with which a constraint is compared in one step.


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
        self, population: Population, filters: Sequence[DomainFilter], demand: Sequence[Share]
    ) -> None:
        self._population = population
        self._filters = filters
        self._demand = tuple(demand)
        #: The classes of labels with their places, and by place how many pods have each.
        self._labels: dict[LabelClass, int] = {}
        self._labelled: list[int] = []
        #: The constraints with their places, and by place how many pods have each.
        self._constraints: dict[CountedPods, int] = {}
        self._constrained: list[int] = []
        self._kinds: dict[tuple[int, tuple[int, ...]], _Kind] = {}
        self._known: dict[tuple[int, int, str, bool], tuple[int, ...]] = {}
        #: Which classes each constraint selects, as far as they were compared, packed: (classes / 8,).
        self._packed: dict[int, NDArray[np.uint8]] = {}
        for place, share in enumerate(self._demand):
            self._gather(place, share.pods)

    @cached_property
    def any(self) -> bool:
        """Whether a placement of one of the pods may change where others of them may go."""
        number_of_pods = np.array(self._labelled)
        for constraint, carriers in enumerate(self._constrained):
            selected = self._selected(constraint).nonzero()[0]
            if len(selected) > 1 or (len(selected) and carriers + number_of_pods[selected[0]] > 2):
                return True
            # Else one pod selects one pod, which may be itself.
            if len(selected) and all(
                kind.labels != selected[0] for kind in self._kind_list if constraint in kind.constraints
            ):
                return True
        return False

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

    @cached_property
    def _list(self) -> list[CountedPods]:
        return list(self._constraints)

    @cached_property
    def _matcher(self) -> TermMatcher:
        matcher = TermMatcher(self._population.labels_of)
        for labels in self._labels:
            matcher.add_class(labels.namespace, labels.labels)
        return matcher

    def _selected(self, constraint: int) -> Bools:
        """Which classes a constraint selects, (classes,)."""
        count = len(self._labels)
        known = self._packed.get(constraint)
        if known is None:
            terms = self._list[constraint].terms
            rows = [self._matcher.classes_for(self._matcher.add_term(term)) for term in terms]
            known = self._packed[constraint] = np.packbits(np.logical_and.reduce(rows))
        return np.unpackbits(known, count=count).view(np.bool_)

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

    def among(self, demand: Sequence[Share]) -> Interactions:
        """How pods that are placed together constrain each other."""
        population = self._population
        key = tuple([id(share.pods) for share in demand])
        if self._epoch is not population.epoch or len(self._known) >= _REMEMBERED:
            self._known.clear()
        found = self._known.get(key)
        while found is None:
            self._epoch = population.epoch
            found = Interactions(population, self._filters, demand)
            if self._epoch is not population.epoch:
                found = None  # Labels became known by which pods differ that did not before.
        self._known[key] = found
        return found
