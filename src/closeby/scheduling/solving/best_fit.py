"""Whether pods of several kinds fit beside each other on some nodes, and how.

Best fit places most of what fits: kinds of pods one after another, the largest first, each pod on the node
where it leaves least. What it does not place is decided by sums, or else by an integer program over mixtures:
how many of each kind fill one node. Nodes that have the same room are one number in it (Gilmore and Gomory,
1961); resources that can't bind are left out first, since many sizes then are few.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import MOST, Demand
from closeby.objects.arrays import Amounts, Bools, Counts, Floats, Ints
from closeby.scheduling.solving.program import Program, Verdict
from closeby.scheduling.steps import Budget

#: Mixtures of one kind of nodes, and columns of a program: beyond this nothing is decided.
MOST_OF_A_NODE: Final = 2_000
MOST_COLUMNS: Final = 20_000
#: Kinds of pods or nodes for which a program is made.
MOST_KINDS: Final = 256
#: By how much sums of amounts in floating point may be wrong.
_ROUNDING: Final = 1e-9
#: Products beyond this would not be exact.
_LARGEST: Final = 1 << 31
_ALL: Final = slice(None)


class Fit(Struct, frozen=True, eq=False):
    """Whether pods fit, and how many of each kind go to each node then, (K, n)."""

    verdict: Verdict
    placed: Counts | None = None


_NO: Final = Fit(Verdict.INFEASIBLE)
_UNDECIDED: Final = Fit(Verdict.UNDECIDED)


class Rule(Struct, frozen=True, kw_only=True, eq=False):
    """How many pods of some kinds each domain of a key takes: one, or no more than the least and so many.

    It may say less than a term of pods says, and never more: so what does not fit by it does not fit.
    """

    #: The kinds that it limits; of a spread also those that count for the least domain.
    kinds: tuple[int, ...]
    counted: tuple[int, ...] = ()
    #: The domain of each node, (n,); 0: none.
    codes: Ints
    #: The placed pods that count in each domain, (domains,).
    counts: Counts
    #: Of a spread the domains of which the least counts, (domains,); None: a domain takes one pod.
    eligible: Bools | None = None
    #: How far a domain may be above the least; with fewer eligible domains that one counts as 0.
    max_skew: int = 1
    min_domains: int = 1


class UnequalPods:
    """Pods of K kinds, which ask for R resources."""

    def __init__(self, needs: Sequence[tuple[Demand, int]]) -> None:
        """``needs``: what a pod of each kind asks for, and how many there are."""
        #: Rows of the resources that any of them asks for.
        self.rows = sorted({row for demand, _ in needs for row in demand.rows})
        of_kind = [dict(zip(demand.rows, demand.amounts, strict=True)) for demand, _ in needs]
        #: What each asks for of each resource, (K, R), and how many there are, (K,).
        self._asked = np.asarray([[of.get(row, 0) for row in self.rows] for of in of_kind], dtype=np.int64)
        self.wanted = np.asarray([count for _, count in needs], dtype=np.int64)

    @property
    def asked_in_all(self) -> Amounts:
        """What all pods together ask for of each resource, (R,)."""
        return self.wanted @ self._asked

    # Sums

    def asked_beyond(self, free: Amounts) -> Bools:
        """Of which resources the pods ask for more than is free on all nodes, (R,); ``free``: (R, n)."""
        beyond: Bools = self.times_in(free, np.array([0, free.shape[1]]))[:, 0] < 1
        return beyond

    def times_in(self, free: Amounts, starts: Ints) -> Floats:
        """How many times each resource is enough for all pods in parts of the nodes, (R, parts).

        Each part is from one of ``starts`` until the next one.
        """
        asked = self.wanted.astype(np.float64) @ self._asked
        until = np.zeros((len(free), free.shape[1] + 1))
        np.cumsum(free, axis=1, dtype=np.float64, out=until[:, 1:])
        held = np.diff(until[:, starts], axis=1) + _ROUNDING * until[:, -1:]
        return np.floor(held / np.maximum(asked, _ROUNDING)[:, None])

    def limiting(self, kind: int, free: Amounts, room: Counts, rows: Sequence[int] | slice = _ALL) -> Bools:
        """Which of some resources limit the pods of a kind as they should, (rows,).

        ``room`` is how many of them fit on each node, (n,), ``free`` what it has of these resources,
        (rows, n). A resource that is ignored does not limit them.
        """
        asked = self._asked[kind][rows].astype(np.float64)
        limiting: Bools = (room * asked[:, None] <= free).all(axis=1)
        return limiting

    def binding(self, free: Amounts, room: Counts) -> Amounts:
        """What is free of each resource, (R, n), with one that does not limit the pods as if without end."""
        limits = np.logical_and.reduce([self.limiting(kind, free, one) for kind, one in enumerate(room)])
        return free if limits.all() else np.where(limits[:, None], free, MOST)

    # Deciding

    def decide(self, free: Amounts, room: Counts, budget: Budget, rules: Sequence[Rule] = ()) -> Fit:
        """Whether the pods fit on some nodes.

        ``free`` is what is left of each resource, (R, n), as ``binding`` gives it; ``room`` how many pods of
        each kind alone a node takes, (K, n). The ``budget`` limits the work of the solver. ``rules`` hold
        for what is placed in the end.
        """
        if self.lack(free, room):
            return _NO
        placed = None if rules else self.best_fit(free, room)
        if placed is not None:
            return Fit(Verdict.FEASIBLE, placed)
        return self.by_program(free, room, budget, rules)

    def by_program(self, free: Amounts, room: Counts, budget: Budget, rules: Sequence[Rule] = ()) -> Fit:
        """The same, where sums and best fit were asked before."""
        if len(self.wanted) > MOST_KINDS or budget.solver <= 0:
            return _UNDECIDED
        return _Problem(self._asked, self.wanted, free, room, rules).solve(budget)

    def lack(self, free: Amounts, room: Counts) -> bool:
        """Whether there is too little room for one kind, or too little of a resource for all."""
        return bool((room.sum(axis=1) < self.wanted).any() or self.asked_beyond(free).any())

    def best_fit(
        self, free: Amounts, room: Counts, first: Floats | None = None, *, quick: bool = False
    ) -> Counts | None:
        """How many pods of each kind go to each node, (K, n); None where some find no room in this way.

        ``first``: nodes with less of it come before others, for each kind, (K, n). ``quick``: the kinds are
        tried in one order alone.
        """
        total = np.maximum(free.sum(axis=1, dtype=np.float64), 1.0)
        load = np.minimum(self.wanted @ self._asked / total, 1.0)
        sizes = self._asked / total
        for weights in (load, None):
            size = sizes.max(axis=1) if weights is None else sizes @ weights
            order = np.argsort(-size, kind="stable")
            placed = self._in_order(order, free, room, load / total, first)
            if placed is not None or quick:
                return placed
        hardest = np.argsort(room.sum(axis=1) / self.wanted, kind="stable")
        return self._in_order(hardest, free, room, load / total, first)

    def _in_order(
        self, order: Ints, free: Amounts, room: Counts, weights: Floats, first: Floats | None
    ) -> Counts | None:
        left = free.copy()
        placed = np.zeros_like(room)
        tight = weights @ left
        for kind in order.tolist():
            now, asked = room[kind], self._asked[kind]
            usable = np.flatnonzero(now)
            now = now[usable]
            for row in np.flatnonzero(asked).tolist():
                np.minimum(now, left[row, usable] // asked[row], out=now)
            usable, now = usable[now > 0], now[now > 0]
            keys = (tight[usable],) if first is None else (tight[usable], first[kind, usable])
            by_size = np.lexsort(keys)
            until = np.cumsum(now[by_size])
            wanted = int(self.wanted[kind])
            if not len(until) or until[-1] < wanted:
                return None
            count = int(np.searchsorted(until, wanted)) + 1
            nodes, takes = usable[by_size[:count]], now[by_size[:count]]
            takes[-1] -= int(until[count - 1]) - wanted
            placed[kind, nodes] = takes
            left[:, nodes] -= asked[:, None] * takes
            tight[nodes] = weights @ left[:, nodes]
        return placed


class _Cell(NamedTuple):
    """Nodes of one kind in a program."""

    node: int
    nodes: Ints
    #: The column of each kind of pods that goes there.
    pods: dict[int, int]
    #: The columns of mixtures, with how many pods of each kind they hold; none where amounts are rows.
    mixtures: list[tuple[int, Counts]]


class _Problem:
    """One question, with few kinds of pods and of nodes: what differs in nothing that binds is one."""

    def __init__(
        self, asked: Amounts, wanted: Counts, free: Amounts, room: Counts, rules: Sequence[Rule]
    ) -> None:
        used = np.flatnonzero(room.any(axis=0))
        self._used = used
        self._shape = room.shape
        room = room[:, used]
        unit = np.maximum(np.gcd.reduce(asked, axis=0), 1)
        asked, free = asked // unit, free[:, used] // unit[:, None]
        # Where something else than amounts limits a kind on a node, it says nothing of other kinds.
        by_amounts = [
            (np.min(free[of > 0] // of[of > 0, None], axis=0) == own)[own > 0].all()
            for of, own in zip(asked, room, strict=True)
        ]
        alone = np.where(by_amounts, 0, 1 + np.arange(len(wanted)))
        # A resource of which a node has enough for all that it could take is left out there.
        ample = asked.T.astype(np.float64) @ np.minimum(room, wanted[:, None]) <= free
        free = np.where(ample, MOST, free)
        rows = _binding_rows(asked, free, room)
        asked, free = asked[:, rows], free[rows]
        self._rules: list[tuple[Rule, Ints]] = []
        member = np.zeros((len(wanted), 2 * len(rules)), dtype=np.int64)
        for place, rule in enumerate(rules):
            member[list(rule.kinds), 2 * place] = member[list(rule.counted), 2 * place + 1] = 1
            of_node = _as_resource(rule, used, wanted)
            if of_node is None:
                self._rules.append((rule, member[:, 2 * place : 2 * place + 2]))
            else:
                asked, free = np.column_stack([asked, member[:, 2 * place]]), np.vstack([free, of_node])
        size = asked.shape[1]
        table = np.concatenate([asked, member, alone[:, None], room], axis=1)
        merged, of = np.unique(table, axis=0, return_inverse=True)
        self._kind_of = of.reshape(-1)
        self._wanted_of = wanted
        self._asked = merged[:, :size]
        self._wanted = np.bincount(self._kind_of, weights=wanted).astype(np.int64)
        room = np.minimum(merged[:, size + member.shape[1] + 1 :], self._wanted[:, None])
        codes = [rule.codes[None, used] for rule, _ in self._rules]
        nodes, at = np.unique(np.concatenate([free, room, *codes]), axis=1, return_inverse=True)
        self._node_of = at.reshape(-1)
        self._free, self._room = nodes[:size], nodes[size : size + len(room)]
        self._codes = nodes[size + len(room) :]

    def solve(self, budget: Budget) -> Fit:
        """The verdict of a program for the fewest nodes: over mixtures, or if these are many over nodes."""
        program = Program()
        cells: list[_Cell] = []
        for node in range(self._free.shape[1]):
            nodes = np.flatnonzero(self._node_of == node)
            mixtures = self._mixtures(node)
            if mixtures is not None:
                cells.append(self._of_mixtures(program, node, nodes, mixtures))
            elif len(nodes) * len(self._wanted) + program.size <= MOST_COLUMNS:
                cells += [self._of_amounts(program, node, nodes[[one]]) for one in range(len(nodes))]
            else:
                return _UNDECIDED
            if program.size > MOST_COLUMNS:
                return _UNDECIDED
        for kind, wanted in enumerate(self._wanted.tolist()):
            there = [(cell.pods[kind], 1) for cell in cells if kind in cell.pods]
            program.row(there, least=wanted, most=wanted)
        for place, (rule, member) in enumerate(self._rules):
            self._add(program, rule, member, place, cells)
        solution = budget.solve(program)
        if solution.verdict is not Verdict.FEASIBLE:
            return Fit(solution.verdict)
        return Fit(Verdict.FEASIBLE, self._placed(cells, solution.values))

    def _of_mixtures(self, program: Program, node: int, nodes: Ints, mixtures: Counts) -> _Cell:
        """Nodes of one kind: how many take which mixture, and how many pods of each kind they get."""
        cell = _Cell(node, nodes, {}, [(program.column(len(nodes), cost=1), counts) for counts in mixtures])
        program.row([(place, 1) for place, _ in cell.mixtures], most=len(nodes))
        most = mixtures.max(axis=0, initial=0) * len(nodes)
        for kind in np.flatnonzero(most).tolist():
            own = cell.pods[kind] = program.column(min(int(most[kind]), int(self._wanted[kind])))
            held = [(place, int(counts[kind])) for place, counts in cell.mixtures]
            program.row([(own, -1), *held], least=0)
        return cell

    def _of_amounts(self, program: Program, node: int, nodes: Ints) -> _Cell:
        """One node: how many pods of each kind it takes, by what these ask for."""
        cell = _Cell(node, nodes, {}, [])
        for kind in np.flatnonzero(self._room[:, node]).tolist():
            cell.pods[kind] = program.column(int(self._room[kind, node]))
        for row, free in enumerate(self._free[:, node].tolist()):
            program.row([(at, int(self._asked[kind, row])) for kind, at in cell.pods.items()], most=free)
        return cell

    def _add(self, program: Program, rule: Rule, member: Ints, place: int, cells: Sequence[_Cell]) -> None:
        """The rows of a rule."""
        codes = self._codes[place]
        flags = np.zeros((len(self._wanted), 2), dtype=np.bool_)
        np.logical_or.at(flags, self._kind_of, member > 0)
        eligible, total = rule.eligible, int(self._wanted.sum())
        least = -1
        if eligible is not None:
            enough = int(eligible.sum()) >= max(rule.min_domains, 1)
            least = program.column(total + int(rule.counts.max(initial=0)) if enough else 0)
            there = set(np.unique(codes).tolist())
            for code in np.flatnonzero(eligible).tolist():
                if code not in there:
                    program.row([(least, 1)], most=int(rule.counts[code]))
        for code in np.unique(codes).tolist():
            inside = [cell.pods for cell in cells if codes[cell.node] == code]
            own, counted = (
                [pods[kind] for kind in np.flatnonzero(flag).tolist() for pods in inside if kind in pods]
                for flag in flags.T
            )
            if eligible is None:
                if code:
                    program.row([(place, 1) for place in own], most=1)
                continue
            if not code:
                program.row([(place, 1) for place in own], most=0)
                continue
            placed = int(rule.counts[code])
            if eligible[code]:
                program.row([(least, 1), *((place, -1) for place in counted)], most=placed)
            if placed <= rule.max_skew:
                program.row([(least, -1), *((place, 1) for place in own)], most=rule.max_skew - placed)
                continue
            # Too many may be there already, as long as no other comes.
            comes = program.column(1)
            program.row([(comes, -total), *((place, 1) for place in own)], most=0)
            program.row(
                [(least, -1), (comes, total + placed), *((place, 1) for place in own)],
                most=rule.max_skew + total,
            )

    def _mixtures(self, node: int) -> Counts | None:
        """The mixtures that fit on a node and that no pod of the last kind could be added to."""
        most = self._room[:, node].tolist()
        # The kind with the most room is added last, as many as fit.
        order = sorted(np.flatnonzero(self._room[:, node]).tolist(), key=most.__getitem__)
        partial: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), tuple(self._free[:, node].tolist()))]
        for kind in order:
            asked, last = self._asked[kind].tolist(), kind == order[-1]
            longer = []
            for counts, left in partial:
                fits = min([most[kind], *(one // of for one, of in zip(left, asked, strict=True) if of)])
                for count in (fits,) if last else range(fits + 1):
                    rest = tuple([one - count * of for one, of in zip(left, asked, strict=True)])
                    longer.append(((*counts, count), rest))
                if len(longer) > MOST_OF_A_NODE:
                    return None
            partial = longer
        mixtures = np.zeros((len(partial), len(most)), dtype=np.int64)
        mixtures[:, order] = [counts for counts, _ in partial]
        return mixtures

    def _placed(self, cells: Sequence[_Cell], values: Ints) -> Counts:
        """How many pods of each kind, as they were given, each node takes, (K, n)."""
        taken = np.zeros((len(self._wanted), len(self._used)), dtype=np.int64)
        for cell in cells:
            left = np.zeros(len(self._wanted), dtype=np.int64)
            left[list(cell.pods)] = values[list(cell.pods.values())]
            if not cell.mixtures:
                taken[:, cell.nodes[0]] = left
            nodes = iter(cell.nodes.tolist())
            for place, counts in cell.mixtures:
                for _ in range(int(values[place])):
                    given = np.minimum(counts, left)
                    left -= given
                    taken[:, next(nodes)] = given
        placed = np.zeros(self._shape, dtype=np.int64)
        for kind in range(len(self._wanted)):
            self._share(placed, np.flatnonzero(self._kind_of == kind), taken[kind])
        return placed

    def _share(self, placed: Counts, members: Ints, taken: Counts) -> None:
        """Pods of kinds that were merged take what all of them got, one kind after another."""
        ends = np.cumsum(taken)
        start = 0
        for kind in members.tolist():
            end = start + int(self._wanted_of[kind])
            inside = np.clip(ends, start, end)
            placed[kind, self._used] = np.diff(np.concatenate([[start], inside]))
            start = end


def _as_resource(rule: Rule, used: Ints, wanted: Counts) -> Ints | None:
    """How many more pods of a rule each node takes; None unless each is a domain of its own."""
    codes = rule.codes[used]
    known = codes[codes > 0]
    if len(np.unique(known)) < len(known):
        return None
    if rule.eligible is None:
        return np.where(codes > 0, 1, MOST)
    least = 0
    if int(rule.eligible.sum()) >= max(rule.min_domains, 1):
        # What the least domain can reach, where all others are filled up to it and no further.
        counts, total = np.sort(rule.counts[rule.eligible]), int(wanted.sum())
        filled = counts * np.arange(1, len(counts) + 1) - np.cumsum(counts)
        reached = int(np.searchsorted(filled, total, side="right"))
        least = int(counts[reached - 1]) + (total - int(filled[reached - 1])) // reached
    return np.where(codes > 0, np.maximum(least + rule.max_skew - rule.counts[codes], 0), 0)


def _binding_rows(asked: Amounts, free: Amounts, room: Counts) -> list[int]:
    """Resources without those of which another one says as much on every node.

    One that a node has enough of says nothing there. Of two, one says no more than the other where each kind
    of pods takes a smaller part of what the node has of it.
    """
    rows = [row for row in range(len(free)) if (free[row] < MOST).any()]
    for row in tuple(reversed(rows)):
        for other in rows:
            if other == row:
                continue
            there = np.flatnonzero(free[row] < MOST)
            mine, others = free[row, there], free[other, there]
            if max(int(asked.max()), int(mine.max())) > _LARGEST or (others > _LARGEST).any():
                continue
            smaller = asked[:, row, None] * others <= asked[:, other, None] * mine
            if bool((smaller | (room[:, there] == 0)).all()):
                rows.remove(row)
                break
    return rows
