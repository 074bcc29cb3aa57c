"""single-level-required: upstream's topology-aware workload scheduling (KEP-5732), with a key that helps.

Upstream knows one topology key for a group, required or nothing. Here each gang requires the finest level of
which some domain would hold it if it were empty: what a careful user would ask for. The gang then waits for
a domain of that level. Of those that hold it now the one that is fullest afterwards wins (PlacementScore of
NodeResourcesFit with MostAllocated, and the count of pods, which is the same for all as a gang starts whole).
Inside the domain pods are placed one by one by the scores of nodes, of equal ones any, without regard to the
levels below.
"""

from collections.abc import Hashable, Iterable
from typing import ClassVar

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import EVERYTHING
from closeby.objects.arrays import Counts, Scores
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.scheduling.extension import (
    Candidate,
    Handle,
    PartView,
    PlacementGenerate,
    PreFilter,
    Scope,
    Score,
)
from closeby.scheduling.plugin_helpers import confines, lots
from closeby.scheduling.plugin_view import CycleState, NodeChanges, Nodes
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
    requires_by_itself = True

    def __init__(self, arguments: SingleLevelArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._resources = arguments.resources
        self._seed = arguments.seed
        #: Requests and number of pods -> the finest level, by the tree and the nodes that were there last.
        self._known: dict[Hashable, int] = {}
        self._changes = NodeChanges(handle.cluster)
        self._known_for: Tree | None = None

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        """Remembers what the gang's pods ask for; refuses where no domain of its level can have room."""
        state.data[self.name] = pods
        group, tree = state.group, state.tree
        if group is None or tree is None or group.constraint or group.subgroups or state.anchors:
            return None
        needed = min(group.min_member, len(pods))
        level = self._finest(tree, pods[0], needed)
        if any(pod.spec != pods[0].spec for pod in pods):
            return None
        cluster = self.handle.cluster
        room = cluster.room(cluster.demand(pods[0].spec))
        if level == ROOT_LEVEL or self._roomiest(tree, level, room) >= needed:
            return None
        name = tree.level_names[level]
        return Condition(
            reason=Reason.TOPOLOGY_PLACEMENT_FAILED,
            object=f"PodGroup/{group.key}",
            message=f"no {name} of topology {tree.name} has room for all {needed} pods now",
            blocking=True,
        )

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
        return [Candidate(slots=tree.slots_in(domains[index])) for index in order]

    def _finest(self, tree: Tree, pod: Pod, needed: int) -> int:
        """The finest level of which an empty domain holds so many such pods; the whole cluster if none."""
        changed = self._changes.take()
        if self._known_for is not tree or changed is None or len(changed):
            self._known_for = tree
            self._known.clear()
        key = pod.spec.requests, needed
        known = self._known.get(key)
        if known is None:
            cluster = self.handle.cluster
            room = cluster.room(cluster.demand(pod.spec), without=EVERYTHING)
            levels = range(tree.node_level, ROOT_LEVEL, -1)
            fitting = (level for level in levels if self._roomiest(tree, level, room) >= needed)
            known = self._known[key] = next(fitting, ROOT_LEVEL)
        return known

    def _roomiest(self, tree: Tree, level: int, room: Counts) -> int:
        """Pods in the domain of a level that holds most; ``room`` of each node has shape (slots,)."""
        return int(tree.sums(level, room[tree.slot_at])[tree.labelled[level]].max(initial=0))

    def _fullness(self, tree: Tree, domain: Domain, pods: tuple[Pod, ...]) -> float:
        """Used part of a domain's resources once the pods are there, in percent."""
        nodes = Nodes(self.handle.cluster, tree.slots_in(domain))
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
