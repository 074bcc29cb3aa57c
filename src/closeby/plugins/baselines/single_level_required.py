"""single-level-required: upstream's topology-aware workload scheduling (KEP-5732), with a key that helps.

Upstream knows one topology key for a group, required or nothing. Here each gang requires the finest level of
which some domain would hold it if it were empty: what a careful user would ask for. The gang then waits for
a domain of that level. Of those that hold it now the one that is fullest afterwards wins (PlacementScore of
NodeResourcesFit with MostAllocated, and the count of pods, which is the same for all as a gang starts whole).
Inside the domain pods are placed one by one by the scores of nodes, of equal ones any, without regard to the
levels below.
"""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from msgspec import Struct

from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition
from closeby.scheduling.confines import confines, slots_of
from closeby.scheduling.extension import (
    Candidate,
    Counts,
    Handle,
    Ints,
    PartView,
    PlacementGenerate,
    PreFilter,
    Scope,
    Score,
    Scores,
)
from closeby.scheduling.nodes_view import Nodes
from closeby.scheduling.state import CycleState
from closeby.scheduling.ties import lots
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree


class SingleLevelArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """``resources``: whose use makes a domain full; upstream's are CPU and memory. ``seed``: of the draws."""

    resources: tuple[str, ...] = ("cpu", "memory")
    seed: int = 0


class SingleLevelRequired(PreFilter, PlacementGenerate, Score):
    """Confines each gang to one domain of the finest level that can hold it at all."""

    name: ClassVar[str] = "single-level-required"
    Arguments = SingleLevelArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    close_by_default = True

    def __init__(self, arguments: SingleLevelArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._resources = arguments.resources
        self._seed = arguments.seed

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        """Remembers what the gang's pods ask for; never refuses."""
        state.data[self.name] = pods
        return None

    def scores(self, pod: Pod) -> bool:
        """Only for members of a gang."""
        return pod.group is not None

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """A draw that only matters among nodes that all others score alike."""
        return 1e-6 * lots(self._seed, pod, nodes)

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Domains of the required level that hold the part, the fullest first."""
        if part.levels is None:
            return None
        tree = part.levels.tree
        pods: object = state.data.get(self.name)
        asked = pods if isinstance(pods, tuple) else ()
        level = part.levels.required
        if level is None:
            level = self._finest(tree, asked[0], part.needed) if asked else ROOT_LEVEL
        domains = [domain for outer in confines(part, tree) for domain in _holding(part, tree, level, outer)]
        fullness = [self._fullness(tree, domain, asked[: part.needed]) for domain in domains]
        order = sorted(range(len(domains)), key=lambda index: (-fullness[index], domains[index]))
        return [Candidate(slots=slots_of(tree, domains[index])) for index in order]

    def _finest(self, tree: Tree, pod: Pod, needed: int) -> int:
        """The finest level of which an empty domain holds so many such pods; the whole cluster if none."""
        room = self._empty_room(pod)[tree.slot_at]
        for level in range(tree.node_level, ROOT_LEVEL, -1):
            sums = room if level == tree.node_level else np.add.reduceat(room, tree.bounds[level][:-1])
            if int(sums[tree.labelled[level]].max(initial=0)) >= needed:
                return level
        return ROOT_LEVEL

    def _empty_room(self, pod: Pod) -> Counts:
        """Pods like this one that each node would hold if nothing ran there; shape (slots,)."""
        cluster = self.handle.cluster
        demand = cluster.demand(pod.spec)
        room = np.full(cluster.capacity, np.iinfo(np.int64).max)
        for row, amount in zip(demand.rows, demand.amounts, strict=True):
            np.minimum(room, cluster.allocatable[row, : cluster.capacity] // amount, out=room)
        return np.where(cluster.alive[: cluster.capacity], room, 0)

    def _fullness(self, tree: Tree, domain: Domain, pods: tuple[Pod, ...]) -> float:
        """Used part of a domain's resources once the pods are there, in percent."""
        nodes = Nodes(self.handle.cluster, _slots(tree, domain))
        shares = []
        for resource in self._resources:
            offered = int(nodes.allocatable(resource).sum())
            if offered:
                asked = sum(dict(pod.spec.requests).get(resource, 0) for pod in pods)
                shares.append(100 * (int(nodes.requested(resource).sum()) + asked) / offered)
        return sum(shares) / len(shares) if shares else 0.0


def _holding(part: PartView, tree: Tree, level: int, outer: Domain) -> list[Domain]:
    """Domains of a level inside another with room for the part; the other itself if it is no coarser."""
    if level <= outer.level:
        return [outer]
    first, end = tree.within(outer, level)
    usable = (part.room(tree, level)[first:end] >= part.needed) & tree.labelled[level][first:end]
    return [Domain(level, first + index) for index in np.flatnonzero(usable).tolist()]


def _slots(tree: Tree, domain: Domain) -> Ints:
    return slots_of(tree, domain)
