"""PodDisruptionBudgets: which pods each one covers, and how many of these may still be evicted."""

from collections import Counter
from collections.abc import Iterable, Iterator
from math import ceil
from typing import Final, NamedTuple

from msgspec.structs import replace

from closeby.cluster.population import Label, SelectorIndex
from closeby.objects.pods import Pod, PodDisruptionBudget
from closeby.objects.selectors import LabelSelector
from closeby.scheduling.events import BudgetChanged, BudgetDeleted

#: Budget of a pod that none covers, and of one that several cover: the API evicts no such pod.
NONE: Final = -1
SEVERAL: Final = -2

#: Kinds of pods, by their labels, for which a namespace keeps which budgets select them.
_KINDS: Final = 16_384
#: The labels of a pod at which some budget looks.
_Kind = tuple[Label, ...]


class _Selecting(NamedTuple):
    """A budget by its place among all, and which pods it selects."""

    place: int
    selector: LabelSelector


class Budgets:
    """The budgets that were read, and what they allow for some pods."""

    def __init__(self) -> None:
        self._known: dict[str, PodDisruptionBudget] = {}
        #: Another number whenever other pods are covered than before.
        self.version = 0
        #: The budgets by namespace; None: to be sorted.
        self._sorted: dict[str, _NamespaceBudgets] | None = {}
        #: Namespaces whose budgets count for nothing.
        self.overruled: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def names(self) -> tuple[str, ...]:
        """``namespace/name`` of each, in the order in which ``covering`` counts them."""
        return tuple(sorted(self._known))

    def take(self, event: BudgetChanged | BudgetDeleted) -> bool:
        """A budget appeared, changed or is gone; True if it may allow more evictions than before."""
        match event:
            case BudgetChanged(budget):
                before = self._known.get(budget.key)
                self._known[budget.key] = budget
                if before is None or _covered(before) != _covered(budget):
                    self._cover_others()
                return before is not None and _allows_more(before, budget)
            case BudgetDeleted(key):
                self._cover_others()
                return self._known.pop(key, None) is not None

    def covering(self, pod: Pod) -> int:
        """The budget of a pod that counts, as an index into what is allowed."""
        return NONE if pod.namespace in self.overruled else self._found(pod)

    def overrules(self, pod: Pod) -> bool:
        """Whether budgets cover a pod and count for nothing."""
        return pod.namespace in self.overruled and self._found(pod) != NONE

    def _found(self, pod: Pod) -> int:
        budgets = self._by_namespace().get(pod.namespace)
        if budgets is None:
            return NONE
        found = NONE
        for index in budgets.selecting(budgets.kind_of(pod)):
            if index in budgets.unhealthy_may_go and pod.phase != "Running":
                continue
            if found != NONE:
                return SEVERAL
            found = index
        return found

    def allowed(self, pods: Iterable[Pod], waiting: Iterable[Pod] = ()) -> list[int]:
        """How many evictions each budget allows; as its status says, else by counting these pods.

        ``waiting`` pods count for what a percentage is of, not as available.
        """
        unknown = {budget.namespace for budget in self._known.values() if budget.allowed is None}
        available, expected = Counter[int](), Counter[int]()
        if unknown:
            held, absent = list(pods), list(waiting)
            for counts, some in (
                (available, [pod for pod in held if not pod.terminating]),
                (expected, [*held, *absent]),
            ):
                for index, number in self._selected(unknown, some):
                    counts[index] += number
        return [
            _allowed(budget, available[index], expected[index])
            for index, (_, budget) in enumerate(sorted(self._known.items()))
        ]

    def _selected(self, namespaces: set[str], pods: Iterable[Pod]) -> Iterator[tuple[int, int]]:
        """Budgets of these namespaces, with how many of the pods each selects, kind by kind."""
        sorted_, kinds = self._by_namespace(), Counter[tuple[str, _Kind]]()
        for pod in pods:
            if pod.namespace in namespaces:
                kinds[pod.namespace, sorted_[pod.namespace].kind_of(pod)] += 1
        for (namespace, kind), number in kinds.items():
            for index in sorted_[namespace].selecting(kind):
                yield index, number

    def _cover_others(self) -> None:
        """Other pods are covered than before."""
        self.version += 1
        self._sorted = None

    def _by_namespace(self) -> "dict[str, _NamespaceBudgets]":
        if self._sorted is None:
            self._sorted = {}
            for index, (_, budget) in enumerate(sorted(self._known.items())):
                self._sorted.setdefault(budget.namespace, _NamespaceBudgets()).add(index, budget)
        return self._sorted


class _NamespaceBudgets:
    """The budgets of one namespace, which are asked once for pods of one kind."""

    def __init__(self) -> None:
        self._index: SelectorIndex[_Selecting] = SelectorIndex()
        #: The labels that some budget looks at.
        self._keys: set[str] = set()
        #: The budgets that cover healthy pods alone.
        self.unhealthy_may_go: set[int] = set()
        self._known: dict[_Kind, tuple[int, ...]] = {}

    def add(self, index: int, budget: PodDisruptionBudget) -> None:
        """One more budget, after all others."""
        if budget.selector is None:
            return
        self._index.add((budget.selector,), _Selecting(index, budget.selector))
        self._keys.update(budget.selector.keys)
        if budget.unhealthy_may_go:
            self.unhealthy_may_go.add(index)

    def kind_of(self, pod: Pod) -> "_Kind":
        """The labels of a pod at which some budget looks."""
        return tuple(label for label in pod.labels.items() if label[0] in self._keys)

    def selecting(self, kind: "_Kind") -> tuple[int, ...]:
        """The budgets that select pods of a kind, ascending."""
        found = self._known.get(kind)
        if found is None:
            if len(self._known) >= _KINDS:
                self._known.clear()
            labels = dict(kind)
            found = tuple(one.place for one in self._index.candidates(labels) if one.selector.matches(labels))
            self._known[kind] = found
        return found


def _covered(budget: PodDisruptionBudget) -> tuple[object, ...]:
    """By what pods are covered."""
    return budget.selector, budget.unhealthy_may_go


def _allows_more(before: PodDisruptionBudget, now: PodDisruptionBudget) -> bool:
    """Whether evictions may be allowed now that were not; a status that allows less is no news."""
    if before.allowed is None or now.allowed is None or replace(before, allowed=now.allowed) != now:
        return before != now
    return now.allowed > before.allowed


def _allowed(budget: PodDisruptionBudget, available: int, expected: int) -> int:
    """How many pods may be evicted: as the status says, else by the rule of the controller."""
    if budget.allowed is not None:
        return budget.allowed
    if budget.min_available is not None:
        return max(available - amount(budget.min_available, expected), 0)
    if budget.max_unavailable is None:
        return 0
    return max(available - max(expected - amount(budget.max_unavailable, expected), 0), 0)


def amount(value: int | str, whole: int) -> int:
    """A number of pods, or a percentage of them, rounded up as the controller does."""
    if isinstance(value, int):
        return value
    return ceil(int(value.rstrip("%")) * whole / 100)
