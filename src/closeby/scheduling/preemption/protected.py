"""Why pods of a domain can't be evicted for an item; asked only where the item is explained."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from closeby.objects.arrays import Ints
from closeby.objects.words import natural_key, plural
from closeby.scheduling.outcomes import KeptPods
from closeby.scheduling.preemption.rule import Protection
from closeby.scheduling.preemption.running import RunningPods
from closeby.scheduling.preemption.units import Victims
from closeby.topology.tree import Tree

#: Gangs and pods that are named for one domain: those with the most pods there.
NAMED: Final = 8


class WhoAsks(NamedTuple):
    """The item that looks for victims."""

    #: Its key, by which its own gang is known, and its priority.
    key: str
    priority: int
    #: Whether victims may violate budgets.
    soft: bool


class ProtectedPods:
    """The pods that hold a node, stay there, and can't be evicted for one item."""

    def __init__(
        self,
        running: RunningPods,
        who: WhoAsks,
        victims: Victims | None,
        protection: Callable[[int], Protection | None],
        shielded: Collection[int],
        stuck: Collection[str],
        budgets: Sequence[str],
    ) -> None:
        """``protection`` tells why a pod (by index) may not be a victim of anyone; ``shielded`` are holders
        that were evicted too often, ``stuck`` uids of pods that were to go and did not, ``budgets`` the
        names of all."""
        self._running = running
        self._who = who
        self._protection = protection
        self._shielded, self._stuck = shielded, stuck
        kept = ~running.terminating
        #: By holder: the budget that forbids what would be necessary, and what it allows.
        self._budget_of: dict[int, tuple[str, int]] = {}
        #: Holders of which only pods beyond the minimum may go.
        self._with_minimum: set[int] = set()
        if victims is not None:
            kept[victims.pods] = False
            kept[victims.leaving] = False
            self._ask_budgets(victims, budgets)
            some = np.unique(running.holder_of[victims.pods])
            self._with_minimum.update(some[running.never_whole[some]].tolist())
            for number in self._with_minimum.union(self._budget_of):
                kept[running.holders[number].pods] = True
        self._kept: Ints = np.flatnonzero(kept)

    @property
    def any_lower(self) -> bool:
        """Whether something besides its priority protects a pod."""
        return bool((self._running.priorities[self._kept] < self._who.priority).any())

    def by_domain(self, tree: Tree, level: int) -> Mapping[int, tuple[int, tuple[KeptPods, ...]]]:
        """By index of a domain: how many pods stay there at the least, and some of them with the reason."""
        running, size = self._running, max(len(self._running.holders), 1)
        domains = tree.owners_of_slots(running.slots[self._kept], level)
        pairs, counts = np.unique(domains * size + running.holder_of[self._kept], return_counts=True)
        found: dict[int, list[tuple[int, int]]] = {}
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            domain, number = divmod(pair, size)
            spare = number in self._with_minimum and number not in self._budget_of
            stay = count - running.holders[number].surplus if spare else count
            if stay > 0:
                found.setdefault(domain, []).append((stay, number))
        return {
            domain: (
                sum(count for count, _ in holders),
                tuple(self._said(count, number) for count, number in self._first(holders)),
            )
            for domain, holders in found.items()
        }

    def _first(self, holders: list[tuple[int, int]]) -> list[tuple[int, int]]:
        most = sorted(holders, key=lambda one: -one[0])
        if len(most) > NAMED:
            least = most[NAMED - 1][0]
            most = [one for one in most if one[0] >= least]
        return sorted(most, key=lambda one: (-one[0], natural_key(self._running.holders[one[1]].key)))[:NAMED]

    def _said(self, count: int, number: int) -> KeptPods:
        holder, running = self._running.holders[number], self._running
        first = holder.members[0]
        name = holder.key if holder.gang else running.pods[first].key
        reason, message = self._why(number)
        return KeptPods(name=name, is_gang=holder.gang, pods=count, reason=reason, message=message)

    def _why(self, number: int) -> tuple[str, str]:
        holder, running = self._running.holders[number], self._running
        if holder.gang and holder.key == self._who.key:
            return "OwnGang", "it is the gang itself"
        rows = holder.pods or holder.members
        own = [(row, why) for row in rows if (why := self._why_pod(row)) is not None]
        if own:
            row, (reason, message) = own[0]
            if len(own) < len(rows):
                message = f"it goes only as a whole, and {running.pods[row].name} stays: {message}"
            return reason, message
        if holder.minimum_kept is not None and number in self._with_minimum:
            reason, message = holder.minimum_kept
            beyond = plural(holder.surplus, "pod")
            return reason, f"{message}: {beyond} beyond its minimum of {holder.least} may go"
        if number in self._shielded:
            return "MaxEvictions", "it was evicted too often within a day"
        if number in self._budget_of:
            budget, allowed = self._budget_of[number]
            return "PodDisruptionBudget", f"PodDisruptionBudget {budget} allows {plural(allowed, 'eviction')}"
        return "Planned", "another plan has its pods"

    def _why_pod(self, row: int) -> tuple[str, str] | None:
        running = self._running
        pod, priority = running.pods[row], int(running.priorities[row])
        if priority >= self._who.priority:
            return "Priority", f"priority {priority} is not below {self._who.priority}"
        protection = self._protection(row)
        if protection is not None:
            return protection
        if pod.uid in self._stuck:
            return "DidNotEnd", "it was to go for another plan and did not end"
        return None

    def _ask_budgets(self, victims: Victims, names: Sequence[str]) -> None:
        """Note who may go but for a budget which allows fewer evictions than that takes."""
        running = self._running
        if self._who.soft or not running.covered:
            return
        allowed = victims.allowed
        for number in np.unique(running.holder_of[victims.pods]).tolist():
            rows = [row for row in running.holders[number].pods if running.budget_of[row] >= 0]
            over = [budget for budget, count in running.budgets_of(rows) if count > allowed[budget]]
            if over and not any(victims.single[row] and allowed[running.budget_of[row]] > 0 for row in rows):
                self._budget_of[number] = names[over[0]], allowed[over[0]]
