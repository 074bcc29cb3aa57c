"""How many pods of an item find room where: the engine's own counts, now and if all that may go had gone.

Between the two, a count without some pods is worked out from the cluster's columns. Resources and host ports
count there; what else filters know can only lower it. So it tells what is in vain, and a trial what fits.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from closeby.cluster.columns import COMMON, Cluster
from closeby.objects.arrays import Bools, Counts, Ints
from closeby.objects.pods import Pod, PodSpec, conflict
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Reason
from closeby.objects.words import joined, natural_key
from closeby.objects.workloads import is_pinned
from closeby.scheduling.judging.figures import DomainCounts
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.services import DependencyCost
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree
from closeby.whatif.trials import Question

#: Kinds of pods that are looked at one by one; those of other kinds are thought to fit anywhere.
KINDS = 16


class EqualPods(NamedTuple):
    """Equal pods that wait, and how many such pods each slot holds."""

    pods: tuple[Pod, ...]
    #: With all filters that go by nodes.
    fits: Counts
    #: The same if all that may go had gone, such as the end of everything but pods of DaemonSets.
    empty: Counts
    #: Slots near enough to the replicas that are placed; everywhere for what has no limits.
    near: Bools
    #: The same by domain of the level that the item requires; -1 where it may not be.
    held: Counts
    could: Counts

    def most(self, room: Counts) -> Counts:
        """How many of them find room, by domain."""
        return np.minimum(room, len(self.pods))


class Room:
    """The counts for one item, by slot and by domain of the level that it requires."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._cluster = cluster = question.trials.engine.cluster
        levels, own = question.levels, question.own
        self.needed = question.needed
        self.level = ROOT_LEVEL if levels is None or levels.required is None else levels.required
        self.tree = question.trials.engine.topologies.flat() if levels is None else levels.tree
        kinds: dict[tuple[PodSpec, str | None], list[Pod]] = {}
        for pod in question.waiting:
            workload = question.application.workload_of(pod) if question.application else None
            kinds.setdefault((pod.spec, workload), []).append(pod)
        equal = [tuple(pods) for pods in kinds.values()]
        self._others = sum(map(len, equal[KINDS:]))
        now = [question.trials.engine.diagnosis.room(pods[0]) for pods in equal[:KINDS]]
        with question.trials.fork.trial.emptied(own, pinned=True) as emptied:
            then = [emptied.room(pods[0]) for pods in equal[:KINDS]]
        anchors = [slot for _, slot in own]
        self.equal = []
        for pods, fits, most in zip(equal[:KINDS], now, then, strict=True):
            empty = np.maximum(fits, most)
            by_domain = [domain_room(self.tree, self.level, anchors, one) for one in (fits, empty)]
            self.equal.append(EqualPods(pods, fits, empty, _near(question, pods[0]), *by_domain))
        self._owner = self.tree.owners_of_slots(np.arange(cluster.capacity), self.level).tolist()
        #: By slot: the pods that may go.
        self.on: dict[int, list[Pod]] = {}
        for pod in question.trials.pods:
            slot = cluster.placement(pod.uid)
            if slot is not None and not is_pinned(pod) and (pod.terminating or not question.owns(pod)):
                self.on.setdefault(slot, []).append(pod)
        rows = {row for pods in equal[:KINDS] for row in cluster.demand(pods[0].spec).rows}
        rows -= {cluster.row_of["pods"]}
        offered = {row: int(cluster.allocatable[row][cluster.alive].sum()) for row in rows}
        #: By row of what the item asks for: what one unit weighs, in whole numbers for exact sums.
        self._units = {row: prod(filter(None, offered.values())) // of for row, of in offered.items() if of}
        most = np.sum([one.most(one.held) for one in self.equal], axis=0) + self._others
        #: By domain how many pods of all kinds may find room; -1 where the item may not be.
        self._most = np.where(self.equal[0].held < 0, -1, most)

    @property
    def ever_fits(self) -> bool:
        """Whether some domain might hold what is needed, or more of it, if all that may go had gone."""
        could_hold = np.sum([one.most(one.could) for one in self.equal], axis=0) + self._others
        return bool((could_hold > self._most if self.question.has_parts else could_hold >= self.needed).any())

    def helps(self, gone: Sequence[Pod]) -> bool:
        """Whether the item might get more of what it needs without these pods.

        Without pods of the application itself limits are others, so that it always might.
        """
        if not self.question.has_parts:
            return self.may_hold(gone)
        return self._others > 0 or any(map(self.question.owns, gone)) or self.gain(gone) > 0

    def may_hold(self, gone: Iterable[Pod]) -> bool:
        """Whether some domain might hold what is needed without these pods."""
        return bool((self._most >= self.needed).any()) or any(
            sum(
                min(len(one.pods), int(one.held[domain]) + more)
                for one, more in zip(self.equal, won, strict=True)
            )
            >= self.needed - self._others
            for domain, won in self._won(gone).items()
            if domain >= 0 and self.equal[0].held[domain] >= 0
        )

    def gain(self, gone: Iterable[Pod], domain: int | None = None) -> int:
        """How many more of the pods might fit without these, in a domain or anywhere."""
        won = [more for at, more in self._won(gone).items() if domain is None or at == domain]
        return sum(min(len(one.pods), sum(more)) for one, *more in zip(self.equal, *won, strict=True))

    def _won(self, gone: Iterable[Pod]) -> dict[int, list[int]]:
        """By domain how many more of each kind might fit without these pods."""
        slots: dict[int, list[Pod]] = {}
        own = False
        for pod in gone:
            slot = self._cluster.placement(pod.uid)
            if slot is not None:
                own |= self.question.owns(pod)
                slots.setdefault(slot, []).append(pod)
        won: dict[int, list[int]] = {}
        for slot, pods in slots.items():
            of = won.setdefault(self._owner[slot], [0] * len(self.equal))
            for number, one in enumerate(self.equal):
                if own or one.near[slot]:  # Without pods of the application itself limits are others.
                    of[number] += self.won(one, slot, pods)
        return won

    def won(self, one: EqualPods, slot: int, gone: Sequence[Pod]) -> int:
        """How many more of equal pods a node might hold without these."""
        wanted = one.pods[0].spec.ports_and_disks
        if wanted:
            uids = {pod.uid for pod in gone}
            left = (pod for pod in self.on.get(slot, ()) if pod.uid not in uids)
            held = (port for pod in left for port in pod.spec.ports_and_disks)
            if any(conflict(port, each) for port in held for each in wanted):
                return 0
        demand = self._cluster.demand(one.pods[0].spec)
        room = min(int(one.empty[slot]), self._cluster.room_at(demand, slot, without=gone))
        return max(room - int(one.fits[slot]), 0)

    def domains_of(self, pods: Iterable[Pod]) -> set[int]:
        """The domains in which these pods hold a node."""
        slots = (self._cluster.placement(pod.uid) for pod in pods)
        return {self._owner[slot] for slot in slots if slot is not None}

    def best(self) -> list[int]:
        """The domains in which the item may be, those with the most room first."""
        order = np.argsort(-self._most, kind="stable")
        return [int(one) for one in order[self._most[order] >= 0]]

    def slots(self, domain: int) -> Ints:
        """The nodes of a domain."""
        return self.tree.slots_in(Domain(self.level, domain))

    def weight(self, pods: Iterable[Pod]) -> int:
        """How much pods hold of what the item asks for: of each the largest part of all that nodes offer."""
        demands = (self._cluster.demand(pod.spec) for pod in pods)
        weigh = self._units.get
        return sum(
            max((each * weigh(row, 0) for row, each in zip(one.rows, one.amounts, strict=True)), default=0)
            for one in demands
        )

    def worth_clearing(self, one: EqualPods, slots: Iterable[int], missing: int) -> list[int]:
        """Nodes on which room is won for equal pods, those first where least has to go for it."""
        ordered = []
        for slot in slots:
            won = min(int(one.empty[slot] - one.fits[slot]), missing) if one.near[slot] else 0
            if won > 0:
                name = natural_key(self._cluster.names[slot] or "")
                ordered.append((self.weight(self.on.get(slot, ())) / won, -won, name, slot))
        return [slot for *_, slot in sorted(ordered)]

    def usable(self, one: EqualPods, slots: Ints) -> Ints:
        """The slots of some that nothing but want of resources keeps such a pod from."""
        engine, pod = self.question.trials.engine, one.pods[0]
        slots = slots[engine.cluster.alive[slots]]
        for plugin in engine.profile.filters:
            if plugin.reason is not Reason.INSUFFICIENT_RESOURCES and plugin.concerns(pod):
                slots = slots[plugin.filter(CycleState(), pod, Nodes(engine.cluster, slots))]
        return slots


def domain_room(tree: Tree, level: int, anchors: Sequence[int], at: Counts) -> Counts:
    """What counts by slot come to in each domain of a level; -1 where an item as a whole may not be.

    That is where a domain does not carry its level's label, or where others hold the members that run.
    """
    room = DomainCounts(tree, at).of(level)
    if level == ROOT_LEVEL:
        return room
    room = np.where(tree.labelled[level], room, -1)
    if not anchors:
        return room
    owners = tree.owners_of_slots(np.asarray(anchors, dtype=np.intp), level)
    here = (owners == owners[0]).all() & (np.arange(len(room)) == owners[0])
    return np.where(here, room, -1)


def _near(question: Question, pod: Pod) -> Bools:
    engine = question.trials.engine
    nodes = Nodes(engine.cluster, np.arange(engine.cluster.capacity))
    near: Bools = np.ones(engine.cluster.capacity, dtype=np.bool_)
    for plugin in engine.profile.filters if question.application is not None else ():
        if isinstance(plugin, DependencyCost) and plugin.concerns(pod):
            near &= plugin.filter(CycleState(), pod, nodes)
    return near


# What lacks


def larger_than_any(cluster: Cluster, pod: Pod) -> str:
    """Of what a pod asks for more than any node has: ``16 nvidia.com/gpu, and the largest node has 8``."""
    too_much = []
    for resource, amount in pod.spec.requests:
        row = cluster.row_of.get(resource)
        largest = 0 if row is None else int((cluster.allocatable[row] * cluster.alive).max(initial=0))
        if 0 < largest < amount:
            asked, most = format_amount(resource, amount), format_amount(resource, largest)
            slip = f" (did you mean {asked}m?)" if resource == "cpu" and amount <= 1000 * largest else ""
            too_much.append(f"{asked} {resource}{slip}, and the largest node has {most}")
    return joined(too_much)


class Shortage(NamedTuple):
    """What is missing on some nodes."""

    #: By resource: what is asked for in all beyond what is free on nodes that may be used; only above 0.
    amounts: dict[str, int]
    #: Where every resource is enough in sum: what no node has left for one more pod, all at once. Empty where
    #: something else than resources stands against one more.
    split: dict[str, int]

    @property
    def text(self) -> str:
        """``4 nvidia.com/gpu``; ``enough in sum, but no node has 4 nvidia.com/gpu left``."""
        if self.amounts:
            return _amounts(self.amounts)
        if not self.split:
            return "enough in sum, but no node takes one more"
        each = {resource: amount for resource, amount in self.split.items() if resource != "pods"}
        if not each:
            return "enough in sum, but no node may hold one more pod"
        also = " and may hold one more pod" if len(each) < len(self.split) else ""
        at_once = " at once" if len(each) > 1 else ""
        return f"enough in sum, but no node has {_amounts(each)} left{at_once}{also}"


def _amounts(amounts: dict[str, int]) -> str:
    """What is scarce first, if there is such a thing: cores and memory seldom are beside devices."""
    order = sorted(amounts, key=lambda resource: (resource in COMMON, resource))
    return joined([f"{format_amount(resource, amounts[resource])} {resource}" for resource in order])


def shortage(room: Room, slots: Ints, *, alone: bool = False) -> Shortage:
    """What the pods of an item lack on some nodes; ``alone``: they must all be on one node."""
    cluster, one = room.question.trials.engine.cluster, room.equal[0]
    usable = room.usable(one, slots)
    asked = {resource: amount for resource, amount in one.pods[0].spec.requests if amount} | {"pods": 1}
    free = {resource: cluster.free(cluster.row_for(resource), usable) for resource in asked}
    amounts = {}
    for resource, amount in asked.items():
        there = int(free[resource].max(initial=0)) if alone else int(free[resource].sum())
        if resource != "pods" and amount * room.needed > there:
            amounts[resource] = amount * room.needed - there
    if amounts:
        return Shortage(amounts, {})
    lacking = {
        resource: free[resource] - one.fits[usable] * amount < amount for resource, amount in asked.items()
    }
    nowhere = next((resource for resource, nodes in lacking.items() if nodes.all()), None)
    if nowhere is not None:
        return Shortage({}, {nowhere: asked[nowhere]})
    split = {resource: asked[resource] for resource, nodes in lacking.items() if nodes.any()}
    covered = np.logical_or.reduce(list(lacking.values()))
    return Shortage({}, split if covered.all() else {})
