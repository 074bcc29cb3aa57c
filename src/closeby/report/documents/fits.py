"""How many gangs of one size each level of a topology could take, now and if nothing ran there.

A node takes as many pods as its scarcest resource allows, a domain the sum of its nodes' pods, and a level
one gang for each time that a domain of it holds all pods of one. That is exact for pods of one size that ask
for nothing else, such as affinity, volumes or ports.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from closeby.cluster.columns import EVERYTHING, Cluster
from closeby.objects.arrays import Bools, Counts
from closeby.objects.nodes import NO_EXECUTE, NO_SCHEDULE, Node, admission_tolerations, tolerated
from closeby.objects.pods import PodSpec, Toleration
from closeby.objects.reasons import Reason
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree
from closeby.whatif.records import DomainPath


class GangSize(Struct, frozen=True):
    """A gang of equal pods. ``needs`` is the amount of each resource that one pod asks for, in its unit."""

    pods: int
    needs: Mapping[str, int]
    #: The resource that counts as the accelerator.
    resource: str


class PlaceFitEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one domain could take."""

    #: Its label values, the coarsest level first.
    path: DomainPath
    #: Pods that find room now.
    pods: int
    #: Pods that would find room if nothing ran there.
    pods_if_empty: int
    #: Whole gangs that find room now.
    gangs: int
    #: Whole gangs that would find room if nothing ran there.
    gangs_if_empty: int


class LevelFitEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one level could take: gangs that each are in one domain of it."""

    #: None for the whole cluster.
    level: str | None
    #: Its domains; a node without the level's label is none.
    domains: int
    #: Whole gangs that find room now.
    gangs: int
    #: Whole gangs that would find room if nothing ran there.
    gangs_if_empty: int
    #: Its domains in their order.
    places: tuple[PlaceFitEntry, ...]


class TopologyFitEntry(Struct, frozen=True, kw_only=True):
    """What one topology could take, by level, coarse to fine."""

    name: str
    #: Its levels that were asked for, coarse to fine.
    levels: tuple[LevelFitEntry, ...]


class FitEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many gangs of one size there is room for."""

    #: The resource that counts as the accelerator.
    resource: str
    #: Pods of a gang.
    pods: int
    #: What one pod asks for, by resource; cores, bytes, devices.
    needs: Mapping[str, float]
    #: Nodes that take none of these pods, whatever is free: cordoned, not ready, tainted, or in a domain that
    #: a gang has for itself.
    left_out: int
    #: How many of these by what keeps the pods off: ``cordoned``, ``not ready``, ``taint KEY`` or
    #: ``DomainExclusive``; of several the first.
    left_out_by: Mapping[str, int]
    #: Nodes that count although they are tainted, as ExtendedResourceToleration lets pods tolerate that.
    tolerated: int
    #: Where no other node takes such a pod even if nothing runs there: of each resource of which none has
    #: enough what the node with the most has, so that it is empty where one lacks this and another one that;
    #: else null.
    too_little: Mapping[str, float] | None
    #: The topologies that were asked for.
    topologies: tuple[TopologyFitEntry, ...]


def fit_entry(
    cluster: Cluster,
    trees: Sequence[Tree],
    gang: GangSize,
    levels: Mapping[str, Sequence[int]],
    names: Mapping[str, Sequence[str]],
    exclusive: Bools | None = None,
    *,
    tolerate: bool,
) -> FitEntry:
    """Room for gangs in some trees. By topology: ``levels`` to show, and ``names`` of all of them.

    ``exclusive``: nodes in domains that gangs have for themselves, (slots,). ``tolerate``: the pods have the
    tolerations of ExtendedResourceToleration.
    """
    own = admission_tolerations(gang.needs) if tolerate else ()
    kept_off = [None if node is None else _kept_off(node, own) for node in cluster.nodes]
    for slot in () if exclusive is None else np.flatnonzero(exclusive).tolist():
        kept_off[slot] = kept_off[slot] or Reason.DOMAIN_EXCLUSIVE
    usable = cluster.alive[: cluster.capacity] & np.asarray([not one for one in kept_off], dtype=np.bool_)
    causes = Counter(one for one in kept_off if one is not None)
    demand = cluster.demand(PodSpec(requests=tuple(gang.needs.items())))
    now = cluster.room(demand) * usable
    empty = cluster.room(demand, without=EVERYTHING) * usable
    largest = {name: _largest(cluster, name, usable) for name in gang.needs}
    return FitEntry(
        resource=gang.resource,
        pods=gang.pods,
        needs={name: in_units(name, amount) for name, amount in gang.needs.items()},
        left_out=causes.total(),
        left_out_by=dict(sorted(causes.items(), key=lambda one: (-one[1], one[0]))),
        tolerated=sum(
            node is not None and off is None and _kept_off(node) is not None
            for node, off in zip(cluster.nodes, kept_off, strict=True)
        ),
        too_little=None
        if empty.any()
        else {name: in_units(name, most) for name, most in largest.items() if most < gang.needs[name]},
        topologies=tuple(
            TopologyFitEntry(
                name=tree.name,
                levels=tuple(
                    _level(tree, level, names[tree.name], gang.pods, now, empty)
                    for level in levels[tree.name]
                ),
            )
            for tree in trees
        ),
    )


def _largest(cluster: Cluster, resource: str, usable: Bools) -> int:
    """The most of a resource that one of the nodes has."""
    row = cluster.row_of.get(resource)
    return 0 if row is None else int((cluster.allocatable[row, : cluster.capacity] * usable).max(initial=0))


def in_units(resource: str, amount: int) -> float:
    """Cores for cpu (which is counted in thousandths); whole numbers stay whole."""
    if resource != "cpu":
        return amount
    return amount // 1000 if amount % 1000 == 0 else amount / 1000


def _kept_off(node: Node, tolerations: Sequence[Toleration] = ()) -> str | None:
    """What keeps such pods off a node whatever is free there; None if nothing does."""
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    taints = (one for one in node.taints if one.effect in (NO_SCHEDULE, NO_EXECUTE))
    return next((f"taint {one.key}" for one in taints if not tolerated(tolerations, one)), None)


def _level(
    tree: Tree, level: int, names: Sequence[str], pods: int, now: Counts, empty: Counts
) -> LevelFitEntry:
    counts = [tree.sums(level, one[tree.slot_at]) for one in (now, empty)]
    labelled = [True] if level == ROOT_LEVEL else tree.labelled[level].tolist()
    places = tuple(
        PlaceFitEntry(
            path=tree.path(Domain(level, index)),
            pods=held,
            pods_if_empty=could,
            gangs=held // pods,
            gangs_if_empty=could // pods,
        )
        for index, (held, could, real) in enumerate(
            zip(counts[0].tolist(), counts[1].tolist(), labelled, strict=True)
        )
        if real
    )
    return LevelFitEntry(
        level=None if level == ROOT_LEVEL else names[level],
        domains=len(places),
        gangs=sum(place.gangs for place in places),
        gangs_if_empty=sum(place.gangs_if_empty for place in places),
        places=places,
    )
