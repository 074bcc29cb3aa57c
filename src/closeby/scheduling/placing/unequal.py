"""Placing unequal pods of one part inside one set of nodes.

The fewest domains of each level that hold them are chosen from the top down, each time by asking whether best
fit places them all on the nodes of these; then best fit chooses the nodes. What it can't place is decided by
a program for all nodes.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from operator import itemgetter
from typing import Final

import numpy as np

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.scheduling.extension import Candidate
from closeby.scheduling.gangs.parts import mean_scores
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.sums import Sums
from closeby.scheduling.solving.program import Verdict
from closeby.scheduling.steps import Budget
from closeby.topology.tree import Domain

#: Domains of a level that are tried in a row where the first ones do not hold the pods.
TRIED: Final = 8
#: Pods for which more than one choice of domains is made.
FEW: Final = 64
#: By how much sums in floating point may be wrong.
_ROUNDING: Final = 1e-9


class UnequalFill:
    """One part's pods, in one set of nodes."""

    def __init__(
        self,
        *,
        table: ClassTable,
        statement: Statement,
        sums: Sums,
        demand: Sequence[Share],
        counts: Sequence[DomainCounts],
        domain: Domain,
    ) -> None:
        """``counts``: how many pods of each kind alone fit, of the tree of ``domain``."""
        self._table = table
        self._statement = statement
        self._demand = demand
        self._tree = tree = counts[0].tree
        self._domain = domain
        self._means = mean_scores(table, statement.state, list(zip(demand, counts, strict=True)))
        self._pods, self._free, self._room = sums.columns(demand, tree, self._domain, counts)
        self._few = int(self._pods.wanted.sum()) <= FEW
        #: The positions of all nodes in the tree; others are given by their place among these.
        self._positions = np.arange(*tree.span(self._domain))

    def place(self, candidate: Candidate | None, budget: Budget) -> Verdict:
        """Place all pods, in the fewest domains and on the tightest nodes."""
        nodes = np.arange(len(self._positions))
        if self._pods.lack(self._free, self._room):
            return Verdict.INFEASIBLE
        first = self._first(candidate)
        placed = self._best_fit(nodes, first)
        if placed is None and first is not None:
            placed = self._best_fit(nodes, first := None)
        if placed is None:
            fit = self._pods.by_program(self._free, self._room, budget)
            if fit.placed is None:
                return fit.verdict
            placed = fit.placed
        else:
            nodes = self._fewest_domains(nodes, candidate)
            closer = self._best_fit(nodes, first)
            if closer is None:
                closer = self._best_fit(nodes, None)
            assert closer is not None
            placed = closer
        return self._assume(nodes, placed)

    def _first(self, candidate: Candidate | None) -> Floats | None:
        """What comes before how tight a node is: how far from others of the gang, then its score; (K, n)."""
        tree, state = self._tree, self._statement.state
        first: Floats | None = None
        for kind, share in enumerate(self._demand):
            if not self._table.wishes(share.pod_class, state):
                continue
            usable = np.flatnonzero(self._room[kind])
            scores = self._table.scores(share.pod_class, state, tree.slot_at[self._positions[usable]])
            if scores is not None:
                first = np.zeros(self._room.shape) if first is None else first
                first[kind, usable] = -scores
        start = None if candidate is None else candidate.outward_from
        if start is not None:
            farther = 1.0 + (0.0 if first is None else 2.0 * float(np.abs(first).max()))
            first = np.zeros(self._room.shape) if first is None else first
            for level in range(start.level, self._domain.level, -1):
                outside = tree.owners(self._positions, level) != tree.ancestor(start, level).index
                first[:, outside] += farther
        return first

    def _fewest_domains(self, nodes: Ints, candidate: Candidate | None) -> Ints:
        """The fewest nodes, in the fewest domains of each level, inside those of the level above."""
        start = self._domain.level + 1
        if candidate is not None and candidate.fill_level is not None:
            start = max(start, candidate.fill_level)
        near = None if candidate is None else candidate.outward_from
        # Where members are, nodes are taken by how near they are, however many these are.
        levels = range(start, self._tree.node_level + (near is None))
        found: list[tuple[list[int], Ints]] = []
        # A larger domain may save nodes: of few pods it is seen whether it does.
        for tight in (True, False) if self._few else (True,):
            inside = nodes
            for level in levels:
                inside = self._fewest(level, inside, near, tight=tight)
            positions = self._positions[inside]
            found.append(([len(np.unique(self._tree.owners(positions, level))) for level in levels], inside))
        return min(found, key=itemgetter(0))[1]

    def _fewest(self, level: int, nodes: Ints, near: Domain | None, *, tight: bool) -> Ints:
        """The nodes of the fewest domains of a level, besides the one where members are; ``nodes`` hold."""
        domains, which = np.unique(self._tree.owners(self._positions[nodes], level), return_inverse=True)
        if len(domains) == 1:
            return nodes
        used = np.zeros(0, dtype=np.intp)
        if near is not None and level <= near.level:
            used = np.flatnonzero(domains == self._tree.ancestor(near, level).index)
        parts = self._parts(nodes, which, len(domains))
        times = parts.min(axis=0)
        together = (parts + parts[:, used].sum(axis=1, keepdims=True)).min(axis=0)
        together[used] = times[used]
        single = np.flatnonzero(together >= 1.0 - _ROUNDING)
        if level < self._tree.node_level:
            single = single[self._tree.labelled[level][domains[single]]]
        ordered = self._by_score(level, domains, single, times)
        for one in [*used[together[used] >= 1.0 - _ROUNDING], *ordered[:TRIED].tolist()]:
            inside: Ints = nodes[np.isin(which, [*used, one])]
            if self._holds(inside):
                return inside
        return self._several(nodes, which, parts, used, tight=tight)

    def _by_score(self, level: int, domains: Ints, single: Ints, times: Floats) -> Ints:
        scores = self._means(level, domains[single]) if len(single) > 1 else None
        keys = (times[single],) if scores is None else (times[single], -scores)
        ordered: Ints = single[np.lexsort(keys)]
        return ordered

    def _several(self, nodes: Ints, which: Ints, parts: Floats, used: Ints, *, tight: bool) -> Ints:
        """The largest domains, as few as hold the pods; with ``tight`` the last one as small as it may be.

        ``used`` are there in any case.
        """
        order = np.argsort(-parts.min(axis=0), kind="stable")
        order = order[~np.isin(order, used)]
        there = parts[:, used].sum(axis=1)

        def enough(domains: Ints) -> bool:
            return bool((there + parts[:, domains].sum(axis=1) >= 1.0 - _ROUNDING).all())

        def hold(domains: Ints) -> bool:
            return self._holds(nodes[np.isin(which, np.append(used, domains))])

        until = (there[:, None] + np.cumsum(parts[:, order], axis=1)).min(axis=0)
        high, step = min(int(np.searchsorted(until, 1.0 - _ROUNDING)) + 1, len(order)), 1
        tried = TRIED if self._few else 1
        if self._few:
            for chosen in filter(enough, _choices(order.tolist(), high)):
                if hold(chosen):
                    order, high = np.concatenate([chosen, order[~np.isin(order, chosen)]]), len(chosen)
                    break
        low = high - 1
        while high < len(order) and not hold(order[:high]):
            low, high, step = high, min(high + step, len(order)), step * 2
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (low, middle) if hold(order[:middle]) else (middle, high)
        kept, others = order[: high - 1], order[high - 1 :]
        smaller = others[np.argsort(parts[:, others].min(axis=0), kind="stable")]
        sets = (np.append(kept, one) for one in smaller) if tight else iter(())
        chosen = next(filter(hold, islice(filter(enough, sets), tried)), order[:high])
        # Where not every kind of pods may go everywhere, one of the largest may be of no use.
        for one in kept[: tried - 1].tolist():
            fewer = chosen[chosen != one]
            if enough(fewer) and hold(fewer):
                chosen = fewer
        return nodes[np.isin(which, np.append(used, chosen))]

    def _parts(self, nodes: Ints, which: Ints, count: int) -> Floats:
        """Which part of what all pods ask for each of some domains has, of each resource; (R, count)."""
        asked = self._pods.asked_in_all
        usable = self._room[:, nodes].any(axis=0)
        return np.stack(
            [
                np.bincount(which, weights=np.where(usable, self._free[row, nodes], 0), minlength=count) / one
                for row, one in enumerate(asked.tolist())
                if one
            ]
        )

    def _holds(self, nodes: Ints) -> bool:
        return self._best_fit(nodes, None, quick=not self._few) is not None

    def _best_fit(self, nodes: Ints, first: Floats | None, *, quick: bool = False) -> Counts | None:
        first = None if first is None else first[:, nodes]
        return self._pods.best_fit(self._free[:, nodes], self._room[:, nodes], first, quick=quick)

    def _assume(self, nodes: Ints, placed: Counts) -> Verdict:
        """Place the pods of each kind as planned, those with the least room first.

        Undecided where one can't go there, since more than amounts and the number of pods matters.
        """
        slots = self._tree.slot_at[self._positions[nodes]]
        hardness = self._room.sum(axis=1) / self._pods.wanted
        for kind in np.argsort(hardness, kind="stable").tolist():
            share, takes = self._demand[kind], placed[kind]
            used = np.flatnonzero(takes)
            self._table.refresh(share.pod_class)
            if bool((share.pod_class.fits[slots[used]] < takes[used]).any()):
                return Verdict.UNDECIDED
            self._statement.assume(share.pods, np.repeat(slots[used], takes[used]))
        return Verdict.FEASIBLE


def _choices(order: list[int], few: int) -> Iterator[Ints]:
    """Some choices of the fewest domains, of the largest ones first; then of one more."""
    for count in range(few, min(few + 2, len(order)) + 1):
        for chosen in islice(combinations(order[: count + 4], count), 4 * TRIED):
            yield np.asarray(chosen)
