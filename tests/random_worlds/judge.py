"""Whether the gang of a world fits at all, as OR-Tools' CP-SAT finds it, and on how few domains.

The model has what must hold in the end. Where rules depend on the order of pods, a way that it finds is
replayed.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ortools.sat.python import cp_model

from tests.random_worlds.checker import eligible, problems
from tests.random_worlds.facts import TRAIN, Facts, Node, Part, Pod, Spread, Term
from tests.random_worlds.orders import has_order

#: Of CP-SAT's own measure of work, which is the same on every machine.
EFFORT = 2.0
_MOST = 10_000

Domain = tuple[str, ...] | str


class Truth(StrEnum):
    """What is known of a gang."""

    FITS = "fits"
    NEVER = "never"
    #: It fits in the end, but no order of its pods was found in which each passes the filters.
    ORDER = "order"
    #: It fits with other members than the first ones of each part, which are what it needs.
    OTHERS = "others"
    #: The judge does not know.
    OPEN = "open"


@dataclass(frozen=True)
class Judgement:
    """What the judge found; ``where`` is a way to place the pods."""

    truth: Truth
    where: Mapping[str, str] = field(default_factory=dict)
    #: The fewest domains of the level that was asked about, where they are known.
    fewest: int | None = None


@dataclass
class _Unit:
    """Pods of a part and a finest segment that no rule distinguishes."""

    part: Part
    segments: tuple[int, ...]
    pods: list[Pod]
    #: Node -> how many of them go there.
    at: dict[str, cp_model.IntVar] = field(default_factory=dict)

    @property
    def pod(self) -> Pod:
        return self.pods[0]


def judge(
    facts: Facts,
    gone: frozenset[str] = frozenset(),
    fewest: str | None = None,
    inside: frozenset[str] | None = None,
) -> Judgement:
    """Whether all that the gang needs at least, and one pod more than it has, fits once some pods are gone.

    ``fewest``: minimise the number of domains of this level; ``inside``: on some nodes alone.
    """
    asked = _Asked(gone, fewest, inside)
    found = _solved(facts, asked, frozenset())
    elastic = any(len(facts.gang.inside(part)) > part.minimum for part in facts.gang.leaves)
    if not elastic or found.truth in (Truth.NEVER, Truth.OPEN):
        return found
    first = _solved(facts, asked, _needed(facts))
    return Judgement(Truth.OTHERS, found.where) if first.truth is Truth.NEVER else first


@dataclass(frozen=True)
class _Asked:
    gone: frozenset[str]
    fewest: str | None
    inside: frozenset[str] | None


def _solved(facts: Facts, asked: _Asked, needed: frozenset[str]) -> Judgement:
    model = _Model(facts, asked, needed)
    if asked.fewest is not None:
        model.minimise(asked.fewest)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = EFFORT
    status = solver.solve(model.model)
    if status == cp_model.INFEASIBLE:
        return Judgement(Truth.NEVER)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Judgement(Truth.OPEN)
    where = model.placement(solver)
    wrong = problems(facts, where, asked.gone)
    if wrong:
        raise AssertionError(f"the judge breaks a rule: {wrong}")
    proven = asked.fewest is not None and status == cp_model.OPTIMAL
    best = round(solver.objective_value) if proven else None
    fits = _ends_well(facts) or has_order(facts, where, asked.gone)
    return Judgement(Truth.FITS if fits else Truth.ORDER, where, best)


def _ends_well(facts: Facts) -> bool:
    """Whether a spread counts for the gang as a whole: it does among equal pods in segments."""
    gang = facts.gang
    waiting = {pod.kind for pod in gang.members if pod.node is None}
    return bool(gang.whole.layers) and len(waiting) == 1 and not gang.members[0].near


def _needed(facts: Facts) -> frozenset[str]:
    """The first members of each part that it needs beside those that run; begun segments come first."""
    found: list[str] = []
    for part in facts.gang.leaves:
        members = facts.gang.inside(part)
        order = list(range(len(members)))
        if part.layers:
            segment = part.layers[0].segment
            begun = {segment(at) for at, pod in enumerate(members) if pod.node is not None}
            order.sort(key=lambda at: (segment(at) not in begun, at))
        else:
            order.sort(key=lambda at: (members[at].node is None, at))
        found += [members[at].name for at in order[: part.minimum]]
    return frozenset(found)


class _Model:
    """The gang in whole numbers."""

    def __init__(self, facts: Facts, asked: _Asked, needed: frozenset[str]) -> None:
        """``needed``: these members must be placed."""
        self.facts, self.gang = facts, facts.gang
        self.model = cp_model.CpModel()
        self.inside = asked.inside
        self.old = [(pod, pod.node) for pod in facts.running if pod.name not in asked.gone and pod.node]
        self.begun = {pod.name: node for pod, node in self.old if pod.group == TRAIN}
        self._present: dict[tuple[int, str, str], cp_model.IntVar] = {}
        self._opened: dict[Term, dict[str, cp_model.IntVar]] = {}
        self.units = list(self._units(needed))
        self._rooms()
        self._parts()
        for unit in self.units:
            self._apart(unit)
            self._near(unit)
            for spread in unit.pod.spreads:
                self._spread(unit, spread)

    def placement(self, solver: cp_model.CpSolver) -> dict[str, str]:
        """The way that was found."""
        where = {}
        for unit in self.units:
            pods = iter(unit.pods)
            for node, count in unit.at.items():
                for _ in range(solver.value(count)):
                    where[next(pods).name] = node
        return where

    def minimise(self, level: str) -> None:
        """The number of domains of a level."""
        used = []
        for domain in {self.facts.path(name, level) for name in self.facts.nodes}:
            one = self.model.new_bool_var(f"used {domain}")
            begun = any(self.facts.path(node, level) == domain for node in self.begun.values())
            inside = sum(count for _, node, count in self._all() if self.facts.path(node, level) == domain)
            self.model.add(inside + int(begun) <= _MOST * one)
            used.append(one)
        self.model.minimize(sum(used))

    # What there is to decide

    def _units(self, needed: frozenset[str]) -> Iterable[_Unit]:
        owned = self._owned()
        by_key: dict[tuple[object, ...], _Unit] = {}
        for part in self.gang.leaves:
            for at, pod in enumerate(self.gang.inside(part)):
                if pod.node is not None:
                    continue
                segments = tuple(one.segment(at) for one in part.layers)
                key = part.name, segments, pod.kind, pod.name in needed
                by_key.setdefault(key, _Unit(part, segments, [])).pods.append(pod)
        for number, unit in enumerate(by_key.values()):
            for name, node in self.facts.nodes.items():
                if self.inside is not None and name not in self.inside:
                    continue
                if name not in owned and self._lets_in(unit.pod, node):
                    unit.at[name] = self.model.new_int_var(0, len(unit.pods), f"{number} on {name}")
            self.model.add(sum(unit.at.values()) <= len(unit.pods))
            if unit.pod.name in needed:
                self.model.add(sum(unit.at.values()) == len(unit.pods))
        return by_key.values()

    def _lets_in(self, pod: Pod, node: Node) -> bool:
        """Whether it may go there by all that never changes."""
        if not self.facts.lets_in(pod, node):
            return False
        for other, at in self.old:
            if at == node.name and set(other.ports) & set(pod.ports):
                return False
            if any(self._together(term, node.name, at) for term in pod.apart if term.matches(other)):
                return False
            if any(self._together(term, node.name, at) for term in other.apart if term.matches(pod)):
                return False
        return True

    def _together(self, term: Term, one: str, other: str) -> bool:
        value = self.facts.nodes[one].labels.get(term.key)
        return value is not None and value == self.facts.nodes[other].labels.get(term.key)

    def _owned(self) -> set[str]:
        """The nodes that others keep for themselves."""
        found: set[str] = set()
        for gang in self.facts.gangs.values():
            kind = gang.exclusive
            if gang.name == TRAIN or not (kind == "all" or kind == self.gang.exclusive == "kind"):
                continue
            level = gang.whole.layers[0].level
            homes = {self.facts.path(node, level) for pod, node in self.old if pod.group == gang.name}
            found |= {name for name in self.facts.nodes if self.facts.path(name, level) in homes}
        return found

    def _all(self) -> Iterable[tuple[Pod, str, cp_model.IntVar]]:
        for unit in self.units:
            for node, count in unit.at.items():
                yield unit.pod, node, count

    # Rules

    def _rooms(self) -> None:
        left = self.facts.left(pod for pod, _ in self.old)
        for name in self.facts.nodes:
            here = [(unit, unit.at[name]) for unit in self.units if name in unit.at]
            for resource in {key for unit, _ in here for key in unit.pod.needs}:
                asked = sum(unit.pod.needs.get(resource, 0) * count for unit, count in here)
                free = left[name][resource]
                if free < 0:
                    for unit, count in here:
                        if unit.pod.needs.get(resource):
                            self.model.add(count == 0)
                else:
                    self.model.add(asked <= free)
            ports = [count for unit, count in here if unit.pod.ports]
            if ports:
                self.model.add(sum(ports) <= 1)

    def _parts(self) -> None:
        self.model.add(sum(count for _, _, count in self._all()) >= 1)
        for part in (self.gang.whole, *self.gang.parts):
            own = {pod.name for pod in self.gang.inside(part)}
            units = [unit for unit in self.units if unit.pod.name in own]
            begun = [self.begun[name] for name in own if name in self.begun]
            self.model.add(
                sum(count for unit in units for count in unit.at.values()) >= part.minimum - len(begun)
            )
            if part.required is not None:
                self._one_domain(units, part.required, begun)
            for number in range(len(part.layers)):
                self._layer(part, number, units)

    def _one_domain(
        self, units: Sequence[_Unit], level: str, begun: Sequence[str]
    ) -> dict[Domain, cp_model.IntVar]:
        """All pods of units are in one domain of a level; for each whether it is that one."""
        homes = {self.facts.path(node, level) for node in begun}
        chosen: dict[Domain, cp_model.IntVar] = {}
        for domain in self.facts.domains(level):
            chosen[domain] = self.model.new_bool_var(f"in {domain}")
            if homes and domain not in homes:
                self.model.add(chosen[domain] == 0)
        self.model.add(sum(chosen.values()) <= 1)
        for unit in units:
            for node, count in unit.at.items():
                if self.facts.labelled(node, level):
                    self.model.add(count <= len(unit.pods) * chosen[self.facts.path(node, level)])
                else:
                    self.model.add(count == 0)
        return chosen

    def _layer(self, part: Part, number: int, units: Sequence[_Unit]) -> None:
        layer = part.layers[number]
        if not layer.required:
            return
        members = self.gang.inside(part)
        homes: dict[Domain, list[cp_model.IntVar]] = defaultdict(list)
        taken = self._taken(layer.level) if not number else set()
        for segment, size in enumerate(layer.sizes):
            own = [unit for unit in units if unit.segments[number] == segment]
            names = [pod.name for at, pod in enumerate(members) if layer.segment(at) == segment]
            begun = [self.begun[name] for name in names if name in self.begun]
            chosen = self._one_domain(own, layer.level, begun)
            if not begun:
                # It is placed as a whole or not at all.
                whole = self.model.new_bool_var(f"segment {segment} of {layer.level}")
                self.model.add(sum(count for unit in own for count in unit.at.values()) == size * whole)
                self.model.add(sum(chosen.values()) == whole)
            else:
                self.model.add(sum(chosen.values()) == 1)
            for domain, one in chosen.items():
                homes[domain].append(one)
                if domain in taken and not begun:
                    self.model.add(one == 0)
        if number:
            return
        if layer.exclusive == "kind":
            for ones in homes.values():
                self.model.add(sum(ones) <= 1)
        if layer.most is not None:
            used = []
            for domain, ones in homes.items():
                used.append(self.model.new_bool_var(f"used {domain}"))
                self.model.add(sum(ones) <= len(ones) * used[-1])
            self.model.add(sum(used) <= layer.most)

    def _taken(self, level: str) -> set[Domain]:
        """The domains that a segment can't have for itself, as others are there."""
        mine = self.gang.exclusive
        if not mine:
            return set()
        kinds = {gang.name for gang in self.facts.gangs.values() if gang.exclusive == "kind"}
        return {
            self.facts.path(node, level)
            for pod, node in self.old
            if pod.group != TRAIN and (mine == "all" or pod.group in kinds)
        }

    # Pods about pods

    def _inside(self, term: Term, value: str, pods: Iterable[Pod] | None = None) -> list[cp_model.IntVar]:
        """How many pods that a term selects are on each node of a domain."""
        nodes = self.facts.by_value(term.key)[value]
        return [count for pod, node, count in self._all() if node in nodes and term.matches(pod)]

    def _there(self, unit: _Unit, key: str, value: str) -> cp_model.IntVar:
        """Whether any pod of a unit is in a domain."""
        place = id(unit), key, value
        if place not in self._present:
            one = self._present[place] = self.model.new_bool_var(f"there {place}")
            nodes = self.facts.by_value(key)[value]
            inside = sum(unit.at[node] for node in nodes if node in unit.at)
            self.model.add(inside <= len(unit.pods) * one)
            self.model.add(inside >= one)
        return self._present[place]

    def _apart(self, unit: _Unit) -> None:
        for term in unit.pod.apart:
            for value in self.facts.by_value(term.key):
                most = int(term.matches(unit.pod))
                self.model.add(sum(self._inside(term, value)) <= most).only_enforce_if(
                    self._there(unit, term.key, value)
                )

    def _near(self, unit: _Unit) -> None:
        """A domain has a pod that the term selects, or is the one that the very first pod opens."""
        for term in unit.pod.near:
            there = {
                self.facts.nodes[node].labels.get(term.key) for pod, node in self.old if term.matches(pod)
            }
            first = self._firsts(term, bool(there - {None}))
            for value in self.facts.by_value(term.key):
                if value in there:
                    continue
                free = [
                    count
                    for pod, node, count in self._all()
                    if self.facts.nodes[node].labels.get(term.key) == value
                    and term.matches(pod)
                    and term not in pod.near
                ]
                opens = [first[value]] if term.matches(unit.pod) else []
                self.model.add(sum(free) + sum(opens) >= 1).only_enforce_if(
                    self._there(unit, term.key, value)
                )

    def _firsts(self, term: Term, known: bool) -> dict[str, cp_model.IntVar]:
        if term not in self._opened:
            values = self.facts.by_value(term.key)
            self._opened[term] = {value: self.model.new_bool_var(f"first {value}") for value in values}
            self.model.add(sum(self._opened[term].values()) <= int(not known))
        return self._opened[term]

    def _spread(self, unit: _Unit, spread: Spread) -> None:
        pod = unit.pod
        counts: dict[str, list[cp_model.IntVar]] = defaultdict(list)
        own: dict[str, list[cp_model.IntVar]] = defaultdict(list)
        known: dict[str, int] = {}
        for node in self.facts.nodes.values():
            if eligible(pod, node):
                known.setdefault(node.labels[spread.key], 0)
        for other, at in self.old:
            node = self.facts.nodes[at]
            if spread.matches(other) and eligible(pod, node):
                known[node.labels[spread.key]] += 1
        for other, at, count in self._all():
            node = self.facts.nodes[at]
            if spread.matches(other) and eligible(pod, node):
                counts[node.labels[spread.key]].append(count)
                if (other.spreads, other.selector) == (pod.spreads, pod.selector):
                    own[node.labels[spread.key]].append(count)
        least = self.model.new_int_var(0, _MOST, "least")
        if len(known) < spread.least_domains:
            self.model.add(least == 0)
        for value, number in known.items():
            self.model.add(least <= number + sum(counts[value]))
            self.model.add(number + sum(own[value]) - least <= spread.skew).only_enforce_if(
                self._there(unit, spread.key, value)
            )
