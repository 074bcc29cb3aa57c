"""PodDisruptionBudgets: which pods each one covers, and how many of these may still be evicted."""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

from msgspec.structs import replace

from closeby.objects.disruption import PodDisruptionBudget
from closeby.objects.pods import Pod
from closeby.scheduling.events import BudgetChanged, BudgetDeleted

#: Budget of a pod that none covers, and of one that several cover: the API evicts no such pod.
NONE: Final = -1
SEVERAL: Final = -2


class Budgets:
    """The budgets that were read, and what they allow for some pods."""

    def __init__(self) -> None:
        self._known: dict[str, PodDisruptionBudget] = {}
        #: Another number whenever other pods are covered than before.
        self.version = 0
        #: By namespace: the budgets with their place in the order of their keys; None: to be sorted.
        self._sorted: dict[str, list[tuple[int, PodDisruptionBudget]]] | None = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def names(self) -> tuple[str, ...]:
        """``namespace/name`` of each, in the order in which ``covering`` counts them."""
        return tuple(sorted(self._known))

    def take(self, event: BudgetChanged | BudgetDeleted) -> bool:
        """A budget appeared, changed or is gone; True if it may allow more evictions than before."""
        self._sorted = None
        match event:
            case BudgetChanged(budget):
                before = self._known.get(budget.key)
                self._known[budget.key] = budget
                self.version += before is None or _covered(before) != _covered(budget)
                return before is not None and _allows_more(before, budget)
            case BudgetDeleted(key):
                self.version += 1
                return self._known.pop(key, None) is not None

    def covering(self, pod: Pod) -> int:
        """The budget of a pod, as an index into what is allowed."""
        found = NONE
        for index, budget in self._by_namespace().get(pod.namespace, ()):
            if budget.selector is None or not budget.selector.matches(pod.labels):
                continue
            if budget.unhealthy_may_go and pod.phase != "Running":
                continue
            found = index if found == NONE else SEVERAL
        return found

    def allowed(self, pods: Iterable[Pod], waiting: Iterable[Pod] = ()) -> list[int]:
        """How many evictions each budget allows; as its status says, else by counting these pods.

        ``waiting`` pods count for what a percentage is of, not as available.
        """
        unknown = {budget.namespace for budget in self._known.values() if budget.allowed is None}
        here: dict[str, list[Pod]] = {}
        others: dict[str, list[Pod]] = {}
        if unknown:
            for found, some in ((here, pods), (others, waiting)):
                for pod in some:
                    if pod.namespace in unknown:
                        found.setdefault(pod.namespace, []).append(pod)
        return [
            _allowed(
                budget,
                [pod for pod in here.get(budget.namespace, ()) if _selects(budget, pod)],
                sum(_selects(budget, pod) for pod in others.get(budget.namespace, ())),
            )
            for _, budget in sorted(self._known.items())
        ]

    def of(self, pods: Sequence[Pod], waiting: Iterable[Pod] = ()) -> tuple[list[int], list[int]]:
        """The budget of each pod, and what each budget allows."""
        return [self.covering(pod) for pod in pods], self.allowed(pods, waiting)

    def _by_namespace(self) -> dict[str, list[tuple[int, PodDisruptionBudget]]]:
        if self._sorted is None:
            self._sorted = {}
            for index, (_, budget) in enumerate(sorted(self._known.items())):
                self._sorted.setdefault(budget.namespace, []).append((index, budget))
        return self._sorted


def _covered(budget: PodDisruptionBudget) -> tuple[object, ...]:
    """By what pods are covered."""
    return budget.selector, budget.unhealthy_may_go


def _allows_more(before: PodDisruptionBudget, now: PodDisruptionBudget) -> bool:
    """Whether evictions may be allowed now that were not; a status that allows less is no news."""
    if before.allowed is None or now.allowed is None or replace(before, allowed=now.allowed) != now:
        return before != now
    return now.allowed > before.allowed


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    return budget.selector is not None and budget.selector.matches(pod.labels)


def _allowed(budget: PodDisruptionBudget, pods: Sequence[Pod], absent: int) -> int:
    """How many of the pods may be evicted: as the status says, else by the rule of the controller."""
    if budget.allowed is not None:
        return budget.allowed
    expected = len(pods) + absent
    available = sum(not pod.terminating for pod in pods)
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
