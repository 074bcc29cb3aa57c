"""The least cost of an application's traffic, by integer programming, to judge what the search found.

A quadratic assignment with capacities, made linear pair by pair. Nodes of one location are as far from all
others, so that it is enough to say for each pair of pods with traffic in which two locations it is and
whether it shares a node; that is as tight as saying it for every two nodes, with far fewer variables.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from closeby.objects.arrays import Amounts, Bools, Floats, Ints
from closeby.scheduling.moving.layout import Sites
from closeby.scheduling.services import Traffic

#: Larger applications and clusters are not tried.
MOST_PODS = 12
MOST_SITES = 16
#: Variables for pairs of locations, and nodes of the branch-and-bound tree. Counts, so that the answer does
#: not depend on the machine. Twice as many variables may take a hundred times as long.
MOST_VARIABLES = 8_000
TREE_NODES = 2_000


def least_cost(traffic: Traffic, sites: Sites) -> float | None:
    """The least cost of placing all pods on the sites; pods that were placed before stay where they are.

    None where that is not known: more than 12 pods or 16 sites, pods whose needs are not amounts alone (host
    ports), no placement of all pods, or no proof within the budget.
    """
    if not 0 < len(sites.needs) <= MOST_PODS or len(sites.slots) > MOST_SITES or bool(sites.pinned.any()):
        return None
    problem = _Problem(traffic, sites)
    if problem.size > MOST_VARIABLES:
        return None
    at = problem.best()
    return None if at is None or not problem.holds(at) else problem.cost(at)


#: Variables and their coefficients.
Terms = Iterable[tuple[int, float]]


class _Program:
    """An integer program that is written variable by variable and row by row."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._upper: list[float] = []
        self._whole: list[int] = []
        self._low: list[float] = []
        self._high: list[float] = []
        self._entries: list[tuple[int, int, float]] = []

    def variable(self, cost: float = 0.0, *, open_: bool = True, whole: bool = False) -> int:
        """A variable from 0 to 1, or only 0 when it is not open; returns its index."""
        self._costs.append(cost)
        self._upper.append(1.0 if open_ else 0.0)
        self._whole.append(1 if whole else 0)
        return len(self._costs) - 1

    def equal(self, terms: Terms, value: float) -> None:
        """The terms add up to a value."""
        self._row(terms, value, value)

    def at_most(self, terms: Terms, value: float) -> None:
        """The terms add up to no more than a value."""
        self._row(terms, -np.inf, value)

    def solve(self) -> Floats | None:
        """The values of the variables at the least cost; None when none is proven to be the least."""
        rows, columns, values = zip(*self._entries, strict=True)
        matrix = csr_array((values, (rows, columns)), shape=(len(self._low), len(self._costs)))
        answer = milp(
            np.asarray(self._costs),
            integrality=np.asarray(self._whole),
            bounds=Bounds(np.zeros(len(self._upper)), np.asarray(self._upper)),
            constraints=LinearConstraint(matrix, np.asarray(self._low), np.asarray(self._high)),
            # HiGHS's presolve calls some feasible programs infeasible (its issue 3090), and saves no time.
            options={"node_limit": TREE_NODES, "mip_rel_gap": 0.0, "presolve": False},
        )
        return np.asarray(answer.x, dtype=np.float64) if answer.success else None

    def _row(self, terms: Terms, low: float, high: float) -> None:
        row = len(self._low)
        self._low.append(low)
        self._high.append(high)
        self._entries.extend((row, variable, value) for variable, value in terms if value)


class _Pair(NamedTuple):
    """Two pods with traffic, and its cost by their locations; ``barred`` where a limit forbids it."""

    one: int
    two: int
    costs: Floats
    barred: Bools


class _PairVariables(NamedTuple):
    """The variables of a pair."""

    #: By site: both pods are there.
    shared: dict[int, int]
    #: By the location of the one and of the other.
    places: list[list[int]]


class _Problem:
    """Pods on sites, with what is scarce among their needs."""

    def __init__(self, traffic: Traffic, sites: Sites) -> None:
        self._pods, self._sites = range(len(sites.needs)), range(len(sites.slots))
        found, self._location = np.unique(traffic.locations[sites.slots], return_inverse=True)
        self._places = range(len(found))
        self._members = [np.flatnonzero(self._location == place).tolist() for place in self._places]
        standing = traffic.standing[:, sites.slots][traffic.kinds]
        self._allowed: Bools = sites.allowed[sites.class_of] & np.isfinite(standing)
        self._standing: Floats = np.where(self._allowed, standing, 0.0)
        scarce = sites.needs.sum(axis=0) > sites.free.min(axis=1, initial=np.iinfo(np.int64).max)
        self._needs, self._free = _in_large_units(sites.needs[:, scarce], sites.free[scarce])
        self._pairs = tuple(self._linked_pairs(traffic, found))
        self._like = list(
            zip(traffic.kinds.tolist(), sites.class_of.tolist(), map(bytes, self._needs), strict=True)
        )
        self._program = _Program()
        self._x = [
            [
                self._program.variable(
                    float(self._standing[pod, site]), open_=bool(self._allowed[pod, site]), whole=True
                )
                for site in self._sites
            ]
            for pod in self._pods
        ]

    # Asking

    @property
    def size(self) -> int:
        """How many variables the pairs with traffic need."""
        return len(self._pairs) * len(self._places) ** 2

    def best(self) -> Ints | None:
        """Site of each pod in a cheapest placement; None when none is proven to be one."""
        for row in self._x:
            self._program.equal([(x, 1.0) for x in row], 1.0)
        for needs, free in zip(self._needs.T, self._free, strict=True):
            for site in self._sites:
                self._program.at_most([(self._x[pod][site], needs[pod]) for pod in self._pods], free[site])
        written = [self._write_pair(pair) for pair in self._pairs]
        for pod in self._pods:
            self._write_room_beside(pod, written)
        self._write_symmetry()
        found = self._program.solve()
        return None if found is None else np.argmax(found[np.asarray(self._x)], axis=1)

    def holds(self, at: Ints) -> bool:
        """Whether a placement is allowed in exact numbers; solvers know them only nearly."""
        used = np.zeros_like(self._free)
        np.add.at(used.T, at, self._needs)
        kept = (used <= self._free).all() and self._allowed[np.asarray(self._pods), at].all()
        return bool(kept) and not any(
            pair.barred[self._location[at[pair.one]], self._location[at[pair.two]]]
            for pair in self._pairs
            if at[pair.one] != at[pair.two]
        )

    def cost(self, at: Ints) -> float:
        """Cost of a placement, each pair once."""
        total = float(self._standing[np.asarray(self._pods), at].sum())
        return total + sum(
            float(pair.costs[self._location[at[pair.one]], self._location[at[pair.two]]])
            for pair in self._pairs
            if at[pair.one] != at[pair.two]
        )

    # Writing

    def _linked_pairs(self, traffic: Traffic, found: Ints) -> Iterator[_Pair]:
        between: Floats = traffic.between[np.ix_(found, found)]
        unknown: Bools = traffic.unknown[np.ix_(found, found)]
        for one, two in combinations(self._pods, 2):
            kinds = traffic.kinds[one], traffic.kinds[two]
            weight, limit = float(traffic.weights[kinds]), float(traffic.limits[kinds])
            barred = ((between > limit) | unknown) & np.isfinite(limit)
            if weight or barred.any():
                yield _Pair(one, two, weight * between, barred)

    def _write_pair(self, pair: _Pair) -> _PairVariables:
        """Where a pair is follows from where its pods are."""
        program, x = self._program, self._x
        places = [
            [
                # On the only site of a location the two share it, which costs nothing.
                program.variable(0.0)
                if here == there and len(self._members[here]) == 1
                else program.variable(
                    float(pair.costs[here, there]), open_=here == there or not pair.barred[here, there]
                )
                for there in self._places
            ]
            for here in self._places
        ]
        shared: dict[int, int] = {}
        for here, members in enumerate(self._members):
            one, two = ([(x[pod][site], -1.0) for site in members] for pod in (pair.one, pair.two))
            program.equal([*((place, 1.0) for place in places[here]), *one], 0.0)
            program.equal([*((row[here], 1.0) for row in places), *two], 0.0)
            inside = places[here][here]
            if len(members) == 1:
                shared[members[0]] = inside
                continue
            together = []
            for site in members:
                both = shared[site] = program.variable(-float(pair.costs[here, here]))
                program.at_most([(both, 1.0), (x[pair.one][site], -1.0)], 0.0)
                program.at_most([(both, 1.0), (x[pair.two][site], -1.0)], 0.0)
                together.append((both, 1.0))
            write = program.equal if pair.barred[here, here] else program.at_most
            write([*together, (inside, -1.0)], 0.0)
        return _PairVariables(shared, places)

    def _write_room_beside(self, pod: int, written: Sequence[_PairVariables]) -> None:
        """Near a pod there is only so much room for those it has traffic with.

        Follows from the capacities when all is whole, but without it the bounds are next to worthless.
        """
        mine = [
            (pair.two if pair.one == pod else pair.one, variables)
            for pair, variables in zip(self._pairs, written, strict=True)
            if pod in (pair.one, pair.two)
        ]
        for needs, free in zip(self._needs.T, self._free, strict=True):
            for site in self._sites:
                beside = [(variables.shared[site], needs[other]) for other, variables in mine]
                own = (self._x[pod][site], float(needs[pod] - free[site]))
                self._program.at_most([own, *beside], 0.0)
            for here, members in enumerate(self._members):
                left = float(needs[pod] - free[members].sum())
                near = [(variables.places[here][here], needs[other]) for other, variables in mine]
                self._program.at_most([*((self._x[pod][site], left) for site in members), *near], 0.0)

    def _write_symmetry(self) -> None:
        """Of placements that differ by exchanging equal pods or sites, keep the first in reading order."""
        x = self._x
        for one, two in _next_equals(self._like):
            for last in self._sites:
                self._program.at_most(
                    [
                        *((x[two][s], 1.0) for s in range(last + 1)),
                        *((x[one][s], -1.0) for s in range(last + 1)),
                    ],
                    0.0,
                )
        sites = [
            (self._location[site], *(bytes(a[:, site]) for a in (self._free, self._allowed, self._standing)))
            for site in self._sites
        ]
        for here, there in _next_equals(sites):
            for pod in self._pods:
                self._program.at_most(
                    [(x[pod][there], 1.0), *((x[before][here], -1.0) for before in range(pod))], 0.0
                )


def _in_large_units(needs: Amounts, free: Amounts) -> tuple[Amounts, Amounts]:
    """Amounts in the greatest unit that all needs are multiples of: solvers are good at small numbers."""
    unit = np.maximum(np.gcd.reduce(needs, axis=0), 1)
    needs = needs // unit
    return needs, np.minimum(free // unit[:, None], needs.sum(axis=0)[:, None])


def _next_equals(keys: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Each index with the next one of an equal key."""
    last: dict[object, int] = {}
    for place, key in enumerate(keys):
        if key in last:
            yield last[key], place
        last[key] = place
