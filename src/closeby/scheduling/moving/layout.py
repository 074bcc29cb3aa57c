"""The layout of pods with traffic: the nodes among which they may be moved, and what each move costs."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Amounts, Bools, Costs, Counts, Ints
from closeby.objects.pods import Pod
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.services import Traffic
from closeby.topology.tree import Tree

#: Up to so many nodes all are looked at.
ALL_UP_TO = 128
#: Beyond that, of each location the best nodes that would hold the pods so many times.
TIMES_OVER = 2


class Sites(Struct, frozen=True, kw_only=True, eq=False):
    """S nodes, P pods in C classes and R resources."""

    #: (S,), in natural order of the nodes' names.
    slots: Ints
    #: What is free, (R, S), and what each pod needs, (P, R).
    free: Amounts
    needs: Amounts
    #: Which class may go to which node, were it empty: (C, S), and the class of each pod, (P,).
    allowed: Bools
    class_of: Ints
    #: Pods that stay where they are, because what they need is not only a matter of amounts; (P,).
    pinned: Bools


def sites_of(
    cluster: Cluster,
    table: ClassTable,
    traffic: Traffic,
    pods: Sequence[Pod],
    keep: Iterable[int],
    flat_tree: Tree,
) -> Sites:
    """The nodes worth looking at for pods of which none has a node now; ``keep`` are among them.

    ``flat_tree`` knows the natural order of all nodes: slots are given out as nodes come and go, which must
    not decide anything.
    """
    shares = table.shares(pods)
    class_of = {pod.uid: place for place, share in enumerate(shares) for pod in share.pods}
    fits = np.stack([share.pod_class.fits for share in shares])
    positions = flat_tree.position_of
    slots = _worth_looking_at(shares, traffic, len(pods), keep, positions)
    slots = slots[np.argsort(positions[slots], kind="stable")]
    demands = [cluster.demand(pod.spec) for pod in pods]
    rows = sorted({row for demand in demands for row in demand.rows})
    column = {row: place for place, row in enumerate(rows)}
    needs = np.zeros((len(pods), len(rows)), dtype=np.int64)
    for place, demand in enumerate(demands):
        for row, amount in zip(demand.rows, demand.amounts, strict=True):
            needs[place, column[row]] += amount
    return Sites(
        slots=slots,
        free=np.stack([cluster.free(row, slots) for row in rows]),
        needs=needs,
        allowed=fits[:, slots] > 0,
        class_of=np.asarray([class_of[pod.uid] for pod in pods], dtype=np.intp),
        pinned=np.asarray(
            [bool(pod.spec.ports_and_disks or pod.spec.claims) for pod in pods], dtype=np.bool_
        ),
    )


def _worth_looking_at(
    shares: Sequence[Share], traffic: Traffic, count: int, keep: Iterable[int], positions: Ints
) -> Ints:
    fits = np.stack([share.pod_class.fits for share in shares])
    usable = np.flatnonzero((fits > 0).any(axis=0))
    kept = np.asarray(sorted(set(keep)), dtype=np.intp)
    if len(usable) <= ALL_UP_TO:
        return np.union1d(usable, kept)
    allowed = np.isfinite(traffic.standing)
    farthest = float(traffic.standing.max(initial=0.0, where=allowed)) + 1.0
    near = np.where(allowed, traffic.standing, farthest).sum(axis=0)
    chosen = [kept]
    for share in shares:
        room = share.pod_class.fits
        slots = np.flatnonzero(room > 0)
        locations = traffic.locations[slots]
        order = np.lexsort((positions[slots], -room[slots], near[slots], locations))
        slots, locations = slots[order], locations[order]
        held = np.cumsum(room[slots]) - room[slots]
        starts = np.flatnonzero(np.concatenate(([True], locations[1:] != locations[:-1])))
        before = np.repeat(held[starts], np.diff(np.append(starts, len(slots))))
        chosen.append(slots[held - before < TIMES_OVER * count])
    return np.unique(np.concatenate(chosen))


#: Up to so many sites the cost between each two of them is computed beforehand.
PAIRWISE_UP_TO = 512
#: A change that saves less than this saves nothing; or less than this part of the greatest cost there can be.
LEAST_SAVING = 1e-9
ROUNDING = 1e-13


class Snapshot(NamedTuple):
    """All that changes, to return to."""

    at: Ints
    left: NDArray[np.int64]
    costs: Costs
    broken: Counts


class Layout:
    """Where the pods are. With P pods of K kinds on S sites.

    ``costs[k, s]`` is what a pod of kind k would cost on site s as all pods are placed now, itself included
    where it has traffic with its own kind, and ``broken[k, s]`` how many limits it would break there. A
    broken limit costs ``penalty``, more than all traffic together. The two are kept apart, because the cost
    of traffic would be lost in the rounding of that.
    """

    def __init__(self, traffic: Traffic, sites: Sites, pods: Sequence[int]) -> None:
        """``pods``: indices of the pods that take part, into the arrays of both."""
        self.sites = sites
        self.pods = np.asarray(pods, dtype=np.intp)
        self.kinds: Ints = traffic.kinds[self.pods]
        self.needs = sites.needs[self.pods]
        self._allowed = sites.allowed[sites.class_of[self.pods]]
        standing = traffic.standing[:, sites.slots]
        self.locations = traffic.locations[sites.slots]
        self._between = traffic.between
        self._unknown = traffic.unknown
        self._weights = traffic.weights
        #: What a pod of each kind says to all kinds, (K, K, 1).
        self._columns = traffic.weights.T[:, :, None].copy()
        self._limits = traffic.limits
        self._pairwise = len(self.locations) <= PAIRWISE_UP_TO
        if self._pairwise:
            where = np.ix_(self.locations, self.locations)
            self.apart: Costs = traffic.between[where]
            self._obscure: Bools = traffic.unknown[where]
            np.fill_diagonal(self.apart, 0.0)
            np.fill_diagonal(self._obscure, val=False)
        #: By kind: a limit, the kinds that it is about, and once known where sites are beyond it, (S, S).
        self._bounds = _bounds(traffic.limits)
        self._beyond: dict[float, Counts] = {}
        self._linked = (traffic.weights != 0) | np.isfinite(traffic.limits)
        self._has_links = self._linked.any(axis=1)
        self._fits_kind = np.isfinite(standing)
        reach = float(standing.max(initial=0.0, where=self._fits_kind))
        farthest = float(traffic.between.max(initial=0.0)) + 1.0
        greatest = farthest * (float(traffic.weights.sum()) + 1.0)
        per_kind = np.bincount(self.kinds, minlength=len(traffic.weights)).astype(np.float64)
        most = farthest * (float(per_kind @ traffic.weights @ per_kind) + 1.0) + reach * len(pods)
        # A power of two: so many broken limits more or less leave the rounding of the costs as it is.
        self.penalty = float(2.0 ** np.ceil(np.log2(2.0 * most)))
        self.epsilon = max(LEAST_SAVING, ROUNDING * (greatest * len(pods) + reach))
        self._standing = np.where(self._fits_kind, standing, self.penalty)
        self.at: Ints = np.full(len(pods), -1, dtype=np.intp)
        self.left = sites.free.copy()
        self.costs: Costs = self._standing.copy()
        self.broken: Counts = np.zeros(self.costs.shape, dtype=np.int64)
        self.evaluated = 0

    # Changing

    def place(self, pod: int, site: int) -> None:
        """Put a pod that is nowhere on a site."""
        self.at[pod] = site
        self.left[:, site] -= self.needs[pod]
        self._spread(int(self.kinds[pod]), site, 1)

    def lift(self, pod: int) -> int:
        """Take a pod from its site; returns that site."""
        site = int(self.at[pod])
        self.at[pod] = -1
        self.left[:, site] += self.needs[pod]
        self._spread(int(self.kinds[pod]), site, -1)
        return site

    def move(self, pod: int, site: int) -> None:
        """Put a pod on another site."""
        before, kind, needs = int(self.at[pod]), int(self.kinds[pod]), self.needs[pod]
        self.at[pod] = site
        self.left[:, before] += needs
        self.left[:, site] -= needs
        if not self._pairwise:
            self._spread(kind, before, -1)
            self._spread(kind, site, 1)
        elif self._has_links[kind]:
            self.costs += self._columns[kind] * (self.apart[site] - self.apart[before])
            for limit, others in self._bounds.get(kind, ()):
                beyond = self._over(limit)
                self.broken[others] += beyond[site] - beyond[before]

    def swap(self, pod: int, other: int) -> None:
        """Let two pods change places."""
        site, far = int(self.at[pod]), int(self.at[other])
        self.move(pod, far)
        self.move(other, site)

    def clear(self, pods: Sequence[int]) -> None:
        """Take pods from their sites, as far as they have one."""
        if len(pods) < len(self.pods):
            for pod in pods:
                if self.at[pod] >= 0:
                    self.lift(pod)
            return
        self.at[:], self.left[:], self.costs[:], self.broken[:] = -1, self.sites.free, self._standing, 0

    def snapshot(self) -> Snapshot:
        """The present state."""
        return Snapshot(self.at.copy(), self.left.copy(), self.costs.copy(), self.broken.copy())

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a former state."""
        self.at[:], self.left[:], self.costs[:], self.broken[:] = snapshot

    # Asking

    def cost(self) -> float:
        """Cost of all traffic, each pair once."""
        here = self.kinds, self.at
        costs = float((self._standing[here] + self.costs[here]).sum())
        return (costs + self.penalty * int(self.broken[here].sum())) / 2

    def room(self, pod: int) -> Bools:
        """Sites that would take a pod; its own is among them only if it holds it twice. Shape (S,)."""
        enough: Bools = (self.left >= self.needs[pod][:, None]).all(axis=0)
        enough &= self._allowed[pod]
        enough &= self._fits_kind[self.kinds[pod]]
        return enough

    def best_move(self, pod: int) -> tuple[float, int]:
        """The change of cost by the best move of a pod, and the site; inf when it can't move."""
        site = int(self.at[pod])
        self.evaluated += len(self.locations)
        costs, broken = self._without_itself(pod)
        row = (costs - costs[site]) + self.penalty * (broken - broken[site])
        change = np.where(self.room(pod), row, np.inf)
        change[site] = np.inf
        best = int(np.argmin(change))
        return float(change[best]), best

    def best_swap(self, pod: int) -> tuple[float, int]:
        """The change of cost by the best swap of a pod with another one, and the other; inf without one."""
        site, far = int(self.at[pod]), self.at
        self.evaluated += len(far)
        kind, kinds = int(self.kinds[pod]), self.kinds
        costs, broken = self._without_itself(pod)
        away, obscure = self._from(site)
        cost, unknown = away[far], obscure[far]
        pair_costs, pair_broken = self._pair(kind, kinds, cost, unknown)
        own_costs, own_broken = self._pair(kinds, kinds, cost, unknown)
        # Each looks at the other's place as if the other stayed there: twice the pair too little.
        saved = costs[far] - costs[site] + 2 * pair_costs
        saved = saved + (self.costs[kinds, site] - own_costs - self.costs[kinds, far])
        repaired = broken[far] - broken[site] + 2 * pair_broken
        repaired = repaired + (self.broken[kinds, site] - own_broken - self.broken[kinds, far])
        change = saved + self.penalty * repaired
        more = self.needs[pod] - self.needs
        fits = (more <= self.left[:, far].T).all(axis=1) & (-more <= self.left[:, site]).all(axis=1)
        fits &= self._allowed[pod][far] & self._allowed[:, site]
        fits &= self._fits_kind[kind][far] & self._fits_kind[kinds, site]
        fits &= (far != site) & ~self.sites.pinned[self.pods]
        change = np.where(fits, change, np.inf)
        best = int(np.argmin(change))
        return float(change[best]), best

    def keeps_limits(self) -> bool:
        """Whether no limit is broken, when all pods have a place."""
        return not self.broken[self.kinds, self.at].any()

    def sizes(self) -> Costs:
        """The greatest part of all that is free that each pod takes of any resource; shape (P,)."""
        offered = np.maximum(self.sites.free.sum(axis=1, dtype=np.float64), 1.0)
        found: Costs = (self.needs / offered).max(axis=1)
        return found

    def ties(self, pods: Sequence[int]) -> Costs:
        """How much each pod says to all of some, itself counted if it is one of them; shape (P,)."""
        there = np.bincount(self.kinds[list(pods)], minlength=len(self._weights)).astype(np.float64)
        found: Costs = (self._weights @ there)[self.kinds]
        return found

    def row(self, pod: int) -> Costs:
        """What a pod that is nowhere would cost on each site; shape (S,)."""
        kind = self.kinds[pod]
        found: Costs = self.costs[kind] + self.penalty * self.broken[kind]
        return found

    # Inside

    def _without_itself(self, pod: int) -> tuple[Costs, Counts]:
        """What a pod would cost and break on each site, not counting traffic with itself; shape (S,)."""
        kind = int(self.kinds[pod])
        costs, broken = self.costs[kind], self.broken[kind]
        if self._linked[kind, kind]:
            own_costs, own_broken = self._pair(kind, kind, *self._from(int(self.at[pod])))
            costs, broken = costs - own_costs, broken - own_broken
        return costs, broken

    def _spread(self, kind: int, site: int, sign: int) -> None:
        """Add (or take away) what a pod of a kind on a site means to all kinds it has traffic with."""
        if not self._has_links[kind]:
            return
        cost, unknown = self._from(site)
        self.costs += self._columns[kind] * (cost if sign > 0 else -cost)
        for limit, others in self._bounds.get(kind, ()):
            if self._pairwise:
                self.broken[others] += sign * self._over(limit)[site]
            else:
                self.broken[others] += sign * ((cost > limit) | unknown)

    def _over(self, limit: float) -> Counts:
        """1 where two sites are farther from each other than a limit; (S, S)."""
        found = self._beyond.get(limit)
        if found is None:
            found = self._beyond[limit] = ((self.apart > limit) | self._obscure).astype(np.int64)
        return found

    def _from(self, site: int) -> tuple[Costs, Bools]:
        """Cost from a site to each one, and where it is not known; shape (S,)."""
        if self._pairwise:
            return self.apart[site], self._obscure[site]
        location = self.locations[site]
        cost = self._between[location][self.locations]
        unknown = self._unknown[location][self.locations]
        cost[site], unknown[site] = 0.0, False
        return cost, unknown

    def _pair(self, kind: int | Ints, kinds: int | Ints, cost: Costs, unknown: Bools) -> tuple[Costs, Counts]:
        """What pairs of pods cost and break when they are so far from each other."""
        limits = self._limits[kind, kinds]
        costs: Costs = self._weights[kind, kinds] * cost
        broken: Bools = ((cost > limits) | unknown) & np.isfinite(limits)
        return costs, broken.astype(np.int64)


def _bounds(limits: Costs) -> dict[int, list[tuple[float, Ints]]]:
    """By kind, its limits and the kinds at their other end."""
    found: dict[int, list[tuple[float, Ints]]] = {}
    for kind in np.flatnonzero(np.isfinite(limits).any(axis=0)).tolist():
        column = limits[:, kind]
        values = np.unique(column[np.isfinite(column)]).tolist()
        found[kind] = [(limit, np.flatnonzero(column == limit)) for limit in values]
    return found


def traffic_cost(traffic: Traffic, slots: Sequence[int | None]) -> float:
    """Cost of all traffic among placed pods and with those placed before, each pair once.

    ``slots`` has one entry per pod; None for one that has no place.
    """
    pods = np.asarray([pod for pod, slot in enumerate(slots) if slot is not None], dtype=np.intp)
    at = np.asarray([slot for slot in slots if slot is not None], dtype=np.intp)
    kinds, locations = traffic.kinds[pods], traffic.locations[at]
    total = float(traffic.standing[kinds, at].sum())
    for place in range(1, len(pods)):
        cost = traffic.between[locations[place], locations[:place]]
        cost[at[:place] == at[place]] = 0.0
        total += float(traffic.weights[kinds[place], kinds[:place]] @ cost)
    return total
