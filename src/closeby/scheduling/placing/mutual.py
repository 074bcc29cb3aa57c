"""Placing pods that count for each other: by affinity, anti-affinity or spread among themselves.

Pods that must share a domain are tried in one domain after another. Equal pods are then shared out by their
limits (``limits``), all at once. What that does not settle is searched pod by pod, within the budget: each
step is one that all filters allow at that moment, so that some order of the pods leads to every placement.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.groups import Strategy
from closeby.objects.pods import Pod
from closeby.scheduling.by_domain import DomainLimit, DomainMask
from closeby.scheduling.gangs.parts import NodeSet, mean_scores, scoped_fits
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.judging.interactions import Apart
from closeby.scheduling.judging.pod_classes import Share, masks_of
from closeby.scheduling.placing.descent import descend
from closeby.scheduling.placing.limits import bounds, capped, exceed_domains, finest_first, room_of
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.sums import Sums
from closeby.scheduling.placing.trial import Trial
from closeby.scheduling.solving.best_fit import MOST_KINDS, Fit, Rule
from closeby.scheduling.steps import Budget
from closeby.topology.tree import Tree

#: Pods that are tried on the tightest nodes at first, and how often one is taken back then.
FEW: Final = 32


class Mutual:
    """One part's pods, in one set of nodes."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        table: ClassTable,
        statement: Statement,
        demand: Sequence[Share],
        inside: NodeSet,
        tree: Tree,
        strategy: Strategy,
    ) -> None:
        """``demand``: the pods by class, as ``ClassTable.beside_each_other`` says."""
        self._cluster = cluster
        self._table = table
        self._statement = statement
        self._demand = demand
        self._inside = inside
        self._tree = tree
        self._strategy = strategy
        self._masks = [masks_of(table.domain_filters, share.pods[0]) for share in demand]
        self._among = table.interactions(demand)
        self._planned: list[Rule] = []
        self._reaches_beyond = any(share.reaches_beyond for share in demand)

    @cached_property
    def _labelled(self) -> list[list[Pod]]:
        """Of each share one pod with each set of labels."""
        return [
            list({(pod.namespace, *sorted(pod.labels.items())): pod for pod in share.pods}.values())
            for share in self._demand
        ]

    def meetings(self) -> Iterator[NodeSet]:
        """Node sets to try one after another: the domains in which all pods may have to meet, then all."""
        found = [
            mask
            for place, (share, masks) in enumerate(zip(self._demand, self._masks, strict=True))
            for mask in masks
            if (mask.gathers and (len(share.pods) > 1 or len(self._demand) > 1)) or self._opens(mask, place)
        ]
        if not found:
            yield self._inside
            return
        yield from self._domains(found)
        if len(self._demand) > 1:
            yield self._inside

    def in_vain(self, inside: NodeSet) -> bool:
        """Whether more pods keep off each other than there are domains for them: then no order helps."""
        return self._among is not None and any(
            self._too_few_domains(apart, inside) for apart in self._among.apart
        )

    def share_out(self, inside: NodeSet) -> bool | None:
        """Place equal pods by their limits; None where only trying can tell whether they fit."""
        (share,) = self._demand
        if not all(mask.allowed().any() for mask in self._masks[0]):
            return False  # None of them can be the first, by which a domain opens for the others.
        fits = self._fits(share, inside)
        wanted = len(share.pods)
        limits = finest_first([limit for mask in self._masks[0] if (limit := mask.limit()) is not None])
        order = self._tree.slot_at[slice(*self._tree.span(inside.domain_in(self._tree)))]
        forced: Counts | None = None
        for place, limit in enumerate(limits):
            found = bounds(limit, room_of(limit, fits), wanted)
            if found is None:
                return False if _exact(limits[: place + 1]) else None
            if found.least.any():
                if forced is not None or limit is not limits[-1]:
                    return None
                forced = capped(limit, fits, found.least, order)
            fits = capped(limit, fits, found.most, order)
        if int(fits.sum()) < wanted:
            return None if limits else False
        slots = self._chosen(fits, forced, wanted, inside)
        self._statement.assume(share.pods, slots[np.argsort(self._tree.position_of[slots], kind="stable")])
        return True

    def decide(self, inside: NodeSet, sums: Sums, budget: Budget) -> Fit:
        """Whether the pods fit, as amounts and their own terms say; an order is not looked for."""
        slots = self._tree.slot_at[slice(*self._tree.span(inside.domain_in(self._tree)))]
        self._planned = self._rules(slots) if len(self._demand) <= MOST_KINDS else []
        return sums.decide(self._demand, self._tree, inside, budget, self._planned)

    def search(self, inside: NodeSet, fit: Fit, budget: Budget) -> bool:
        """Place the pods as ``decide`` found, in an order that the filters allow.

        Where it found nothing, or there is no such order, in any order and on any node that they allow then;
        few pods first of all, since that goes to the tightest nodes.
        """
        slots = self._tree.slot_at[slice(*self._tree.span(inside.domain_in(self._tree)))]
        if sum(len(share.pods) for share in self._demand) <= FEW:
            first = Budget()
            first.backtracks = FEW
            if self._on_trial(inside, first):
                return True
            if not first.spent:
                return False
        if fit.placed is not None and self._replay(fit.placed, slots, self._planned):
            return True
        return self._on_trial(inside, budget)

    def _on_trial(self, inside: NodeSet, budget: Budget) -> bool:
        trial = Trial(
            cluster=self._cluster,
            table=self._table,
            statement=self._statement,
            demand=sorted(self._demand, key=lambda share: self._hardness(share, inside)),
            slots=self._slots(inside),
            budget=budget,
        )
        return any(True for _ in trial.ways(any_order=True))

    def _hardness(self, share: Share, inside: NodeSet) -> tuple[bool, float]:
        """Pods that others wait for come first, then those with the least room for each of them."""
        room = float(self._fits(share, inside)[self._slots(inside)].sum())
        return self._table.helped_by_pods(share.pods[:1]), room / len(share.pods)

    def _rules(self, slots: Ints) -> list[Rule]:
        """What the pods' own terms say of where they may be in the end; all of it is so in any placement."""
        spreads: list[tuple[int, DomainMask, DomainLimit, Bools]] = []
        for place, masks in enumerate(self._masks):
            for mask in masks:
                limit = mask.limit()
                if limit is not None and limit.eligible is not None:
                    counts = [mask.grows_with(pod) for of_share in self._labelled for pod in of_share]
                    spreads.append((place, mask, limit, np.array(counts)))
        owners = np.repeat(np.arange(len(self._demand)), [len(of_share) for of_share in self._labelled])
        rules: dict[Hashable, Rule] = {}
        for first, mask, limit, selected in spreads:
            counted, missed = set(owners[selected].tolist()), set(owners[~selected].tolist())
            # The last of these in a domain saw all others, on the same nodes, and its own term says no less.
            alike = {
                place
                for place, other, own, others in spreads
                if other.key == mask.key and own.max_skew <= limit.max_skew and _same(own, limit)
                if np.array_equal(others, selected) and self._nodes_of(place) == self._nodes_of(first)
            }
            kinds = tuple(sorted(alike - missed))
            rules[mask.key, limit.max_skew, limit.min_domains, selected.tobytes(), kinds] = Rule(
                kinds=kinds,
                counted=tuple(sorted(counted)),
                codes=limit.codes[slots].astype(np.int64),
                counts=limit.counts,
                eligible=limit.eligible,
                max_skew=limit.max_skew,
                min_domains=limit.min_domains,
            )
        for apart in () if self._among is None else self._among.apart:
            kinds = tuple(
                place for place, number in apart.pods.items() if number == len(self._demand[place].pods)
            )
            codes = self._cluster.labels.column(apart.key).codes[slots].astype(np.int64)
            rules[apart.key, kinds] = Rule(kinds=kinds, codes=codes, counts=np.zeros(0, dtype=np.int64))
        return list(rules.values())

    def _nodes_of(self, place: int) -> tuple[object, ...]:
        """What a share asks of nodes: a spread counts pods on nodes alone that its own pods may use."""
        spec = self._demand[place].pods[0].spec
        return spec.node_selector, spec.required_affinity, spec.tolerations

    def _replay(self, placed: Counts, slots: Ints, rules: Sequence[Rule]) -> bool:
        """Place pods as planned, in an order in which the filters allow each; False where none is found."""
        kinds, nodes = np.nonzero(placed)
        takes = placed[kinds, nodes]
        kinds, nodes = np.repeat(kinds, takes), np.repeat(nodes, takes)
        rank = np.zeros(len(nodes), dtype=np.int64)
        for rule in rules:
            if rule.eligible is not None:
                codes = rule.codes[nodes]
                order = np.argsort(codes, kind="stable")
                place = np.empty(len(order), dtype=np.int64)
                place[order] = np.arange(len(order)) - np.searchsorted(codes[order], codes[order])
                np.maximum(rank, rule.counts[codes] + place, out=rank)
        order = np.argsort(rank, kind="stable")
        waiting = list(zip(kinds[order].tolist(), slots[nodes[order]].tolist(), strict=True))
        left = [iter(share.pods) for share in self._demand]
        mark = self._statement.checkpoint()
        while waiting:
            later = []
            for kind, slot in waiting:
                if self._table.of(self._demand[kind].pods[0]).fits[slot] > 0:
                    self._statement.assume_one(next(left[kind]), slot)
                else:
                    later.append((kind, slot))
            if len(later) == len(waiting):
                self._statement.rollback(mark)
                return False
            waiting = later
        return True

    def _too_few_domains(self, apart: Apart, inside: NodeSet) -> bool:
        slots = self._slots(inside)
        column = self._cluster.labels.column(apart.key)
        there, codes = np.unique(column.codes[slots], return_inverse=True)
        free = len(there) and there[0] == 0  # Nodes without the label take any number of the pods.
        if not free and sum(apart.pods.values()) > len(there):
            return True
        number_by_usable: Counter[bytes] = Counter()
        for place, number in apart.pods.items():
            share = self._demand[place]
            self._table.refresh(share.pod_class)
            usable = np.zeros(len(there), dtype=np.bool_)
            usable[codes[share.pod_class.fits[slots] > 0]] = True
            if not (free and usable[0]):
                number_by_usable[np.packbits(usable).tobytes()] += number
        return exceed_domains(number_by_usable)

    def _opens(self, mask: DomainMask, place: int) -> bool:
        """Whether nodes are closed to pods of a share until those of others are placed there."""
        if self._among is None or mask.allowed().any():
            return False
        return any(map(mask.grows_with, self._among.helpers(place, own=False)))

    def _domains(self, masks: Sequence[DomainMask]) -> Iterator[NodeSet]:
        """The domains of all keys together that could hold the pods, the tightest or the emptiest first."""
        columns = self._cluster.labels
        keys = dict.fromkeys(mask.key for mask in masks)
        codes = np.stack([columns.column(key).codes[: self._cluster.capacity] for key in keys])
        rooms = [self._fits(share, self._inside) for share in self._demand]
        usable = np.flatnonzero((codes > 0).all(axis=0) & (np.stack(rooms) > 0).any(axis=0))
        if not len(usable):
            return
        _, which = np.unique(codes[:, usable], axis=1, return_inverse=True)
        which = which.reshape(-1)
        held = np.stack([np.bincount(which, weights=room[usable]) for room in rooms])
        wanted = np.asarray([len(share.pods) for share in self._demand])
        enough = np.flatnonzero((held >= wanted[:, None]).all(axis=0))
        total = held.sum(axis=0)[enough]
        if self._strategy is Strategy.SPREAD:
            total = -total
        for domain in enough[np.argsort(total, kind="stable")].tolist():
            mask = np.zeros(self._cluster.capacity, dtype=np.bool_)
            mask[usable[which == domain]] = True
            if self._inside.mask is not None:
                mask &= self._inside.mask
            yield NodeSet(self._inside.tree, self._inside.domain, mask)

    def _fits(self, share: Share, inside: NodeSet) -> Counts:
        """The room of each node of a set at the most, (slots,)."""
        return scoped_fits(self._table, share.pod_class, inside, self._cluster.capacity)

    def _slots(self, inside: NodeSet) -> Ints:
        mask = inside.allowed(self._cluster.capacity)
        slots = self._tree.slot_at[slice(*self._tree.span(inside.domain_in(self._tree)))]
        return slots if mask is None else slots[mask[slots]]

    def _chosen(self, fits: Counts, forced: Counts | None, wanted: int, inside: NodeSet) -> Ints:
        """The slots that the pods go to: what the limits ask for, then the tightest domain for the others."""
        chosen: list[Ints] = []
        if forced is not None:
            slots = np.flatnonzero(forced)
            chosen.append(np.repeat(slots, forced[slots]))
            fits, wanted = fits - forced, wanted - int(forced.sum())
        if wanted:
            tree = self._tree
            counts = DomainCounts(tree, fits)
            means = mean_scores(self._table, self._statement.state, ((self._demand[0], counts),))
            fill = descend(counts, inside.domain_in(tree), wanted, self._strategy, means)
            positions, takes = fill.in_topology_order()
            chosen.append(np.repeat(tree.slot_at[positions], takes))
        return np.concatenate(chosen)


def _same(one: DomainLimit, other: DomainLimit) -> bool:
    """Whether the least of the same domains counts, with the same placed pods in each."""
    eligible = (one.eligible, other.eligible)
    return all(
        first is not None and second is not None and np.array_equal(first, second)
        for first, second in ((one.counts, other.counts), eligible)
    )


def _exact(limits: Sequence[DomainLimit]) -> bool:
    """Whether pods that limits, the finest first, do not let in can't be placed in any other way.

    So it is where each domain is inside one of the next limit, and only the last shares out by its least one.
    """
    return all(finer.eligible is None and _inside(finer, coarser) for finer, coarser in pairwise(limits))


def _inside(finer: DomainLimit, coarser: DomainLimit) -> bool:
    """Whether each domain of one limit is inside one of the other; nodes without the finer key are free."""
    known = finer.codes > 0
    inner, outer = finer.codes[known], coarser.codes[known]
    owner = np.zeros(len(finer.counts), dtype=np.int32)
    owner[inner] = outer
    return bool((owner[inner] == outer).all())
