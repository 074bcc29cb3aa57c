"""PodDisruptionBudgets: which pods each one covers, and how many of these may still be evicted."""

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Final

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

    def take(self, event: BudgetChanged | BudgetDeleted) -> None:
        """A budget appeared, changed or is gone."""
        match event:
            case BudgetChanged(budget):
                self._known[budget.key] = budget
            case BudgetDeleted(key):
                self._known.pop(key, None)

    def of(self, pods: Sequence[Pod], waiting: Iterable[Pod] = ()) -> tuple[list[int], list[int]]:
        """The budget of each pod, as an index into the allowed evictions that come second.

        ``waiting`` pods count for what a percentage is of, not as available.
        """
        budget_of = [NONE] * len(pods)
        allowed: list[int] = []
        if not self._known:
            return budget_of, allowed
        by_namespace: dict[str, list[int]] = {}
        for number, pod in enumerate(pods):
            by_namespace.setdefault(pod.namespace, []).append(number)
        others: dict[str, list[Pod]] = {}
        for pod in waiting:
            others.setdefault(pod.namespace, []).append(pod)
        for index, (_, budget) in enumerate(sorted(self._known.items())):
            selector = budget.selector
            mine = [
                number
                for number in by_namespace.get(budget.namespace, ())
                if selector is not None and selector.matches(pods[number].labels)
            ]
            absent = sum(
                selector is not None and selector.matches(pod.labels)
                for pod in others.get(budget.namespace, ())
            )
            allowed.append(_allowed(budget, [pods[number] for number in mine], absent))
            for number in mine:
                if budget.unhealthy_may_go and pods[number].phase != "Running":
                    continue
                budget_of[number] = index if budget_of[number] == NONE else SEVERAL
        return budget_of, allowed


def _allowed(budget: PodDisruptionBudget, pods: Sequence[Pod], absent: int) -> int:
    """How many of the pods may be evicted: as the status says, else by the rule of the controller."""
    if budget.allowed is not None:
        return budget.allowed
    expected = len(pods) + absent
    available = sum(not pod.terminating for pod in pods)
    if budget.min_available is not None:
        return max(available - amount(budget.min_available, expected), 0)
    most = 1 if budget.max_unavailable is None else budget.max_unavailable
    return max(available - max(expected - amount(most, expected), 0), 0)


def amount(value: int | str, whole: int) -> int:
    """A number of pods, or a percentage of them, rounded up as the controller does."""
    if isinstance(value, int):
        return value
    return ceil(int(value.rstrip("%")) * whole / 100)
