"""The topology trees with what is free, what is used and who runs where (kind TopologyReport).

Also how many gangs of one size each level could take, now and if nothing ran there. A node takes as many
pods as its scarcest resource allows, a domain the sum of its nodes' pods, and a level one gang for each time
that a domain of it holds all pods of one. That is exact for pods of one size that ask for nothing else, such
as affinity, volumes or ports.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from closeby.cluster.columns import EVERYTHING, Cluster, main_resources, offered, taking_pods
from closeby.objects.arrays import Amounts, Bools, Counts
from closeby.objects.labels import API_VERSION, HOSTNAME
from closeby.objects.nodes import NO_EXECUTE, NO_SCHEDULE, Node, admission_tolerations, tolerated
from closeby.objects.pods import PodSpec, Toleration, gang_key
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import natural_key
from closeby.quality.placements import NODE_LEVEL, level_names
from closeby.simulator.runs import Run
from closeby.topology.constraints import write_command
from closeby.topology.tree import ROOT_LEVEL, Domain, Tree
from closeby.topology.uplinks import Uplinks
from closeby.whatif.records import DomainPath


class LevelEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One level, coarse to fine; the last one is the single node."""

    name: str
    #: The label of nodes whose values are its domains.
    node_label: str
    #: How many domains it has.
    domains: int


class TenantEntry(Struct, frozen=True, kw_only=True):
    """A gang with pods in a domain."""

    #: `namespace/name` of the gang.
    gang: str
    #: How many of its pods are there.
    pods: int


class UplinksEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """What leads from a domain to the next coarser one, and what most of its siblings have; null: unknown."""

    #: Cables that lead there.
    cables: int | None
    #: Cables that most siblings have.
    usual_cables: int | None
    #: Bits per second of all cables together.
    bandwidth: int | None
    #: Bits per second that most siblings have.
    usual_bandwidth: int | None
    #: How many edges that way counts as: 1, more where siblings are connected better.
    cost: float


class DomainEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One domain. Amounts are cores, bytes, devices; ``free`` leaves out nodes that take no new pods.

    Equal paths are different domains where a label is missing: such a node is alone.
    """

    #: Its label values, the coarsest level first.
    path: DomainPath
    #: None for the whole cluster.
    level: str | None
    #: False where the node lacks this level's label.
    labelled: bool
    #: Nodes in it.
    nodes: int
    #: Nodes that are cordoned or not ready.
    unavailable: int
    #: What its nodes offer to pods, by resource.
    capacity: Mapping[str, float]
    #: What pods there ask for.
    used: Mapping[str, float]
    #: What is left on nodes that take new pods.
    free: Mapping[str, float]
    #: Gangs with pods there.
    gangs: tuple[TenantEntry, ...]
    #: Pods that belong to no gang.
    single_pods: int
    #: None where no node says anything of them.
    uplinks: UplinksEntry | None = None


class UnlabelledEntry(Struct, frozen=True, kw_only=True):
    """A node that lacks labels of levels."""

    #: Its name.
    node: str
    #: The labels that it lacks.
    missing: tuple[str, ...]


class TopologyEntry(Struct, frozen=True, kw_only=True, rename="camel"):
    """One topology."""

    name: str
    #: The API version of the object that it was read from, or which labels of nodes make it; empty where
    #: there is none.
    source: str
    #: Its levels, coarse to fine.
    levels: tuple[LevelEntry, ...]
    #: Its domains, each parent before its children.
    domains: tuple[DomainEntry, ...]
    #: Nodes that lack labels of levels.
    unlabelled: tuple[UnlabelledEntry, ...]
    #: Names of other topologies with the same levels: they are one.
    also_called: tuple[str, ...] = ()
    #: The command that prints it as a Topology object; only there where the nodes' labels make it.
    command: str | UnsetType = UNSET


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


class TopologyReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """All topologies asked for."""

    api_version: str = API_VERSION
    kind: str = "TopologyReport"
    #: The resources that matter most here: the GPUs if there are any, else cpu and memory.
    main_resources: tuple[str, ...]
    #: The topologies.
    topologies: tuple[TopologyEntry, ...]
    #: With `--fits`: how many gangs of that size there is room for; one entry per accelerator.
    fits: tuple[FitEntry, ...] | UnsetType = UNSET
    #: What is wrong or noteworthy about objects that were read.
    conditions: tuple[Condition, ...] = ()
    #: Documents that could not be read and were skipped.
    errors: tuple[str, ...] = ()


def topology_report(
    run: Run,
    *,
    names: Sequence[str] | None = None,
    levels: Sequence[int] | None = None,
    level_name: str | None = None,
    gangs: Sequence[GangSize] = (),
    tolerate: bool = True,
    errors: Iterable[str] = (),
) -> TopologyReport:
    """The trees called ``names`` (None: all; without any topology one flat tree of all nodes, named "").

    ``levels`` keeps only domains of these levels, -1 being the whole cluster and 0 the coarsest;
    ``level_name`` only those of one level, by label, alias or short name. ``gangs``: sizes of which to say
    how many there is room for; ``tolerate``: their pods have the tolerations of ExtendedResourceToleration.
    """
    topologies = run.engine.topologies
    wanted = topologies.distinct() if names is None else names
    trees = [tree for tree in (topologies.tree(name) for name in wanted) if tree is not None]
    if names is None and not trees:
        trees = [topologies.flat()]
    view = _Columns(run)
    shown = {tree.name: _chosen(tree, levels, level_name) for tree in trees}
    called = {tree.name: level_names(tree) for tree in trees}
    cluster = run.engine.cluster
    return TopologyReport(
        main_resources=main_resources(cluster),
        topologies=tuple(_topology(run, tree, view, shown[tree.name]) for tree in trees),
        fits=tuple(
            fit_entry(cluster, trees, gang, shown, called, run.engine.exclusive_nodes, tolerate=tolerate)
            for gang in gangs
        )
        or UNSET,
        conditions=tuple(dict.fromkeys(run.conditions)),
        errors=tuple(errors),
    )


class _Columns:
    """Amounts and tenants per slot."""

    def __init__(self, run: Run) -> None:
        cluster = run.engine.cluster
        size = cluster.capacity
        self.resources = offered(cluster)
        rows = [cluster.row_of[name] for name in self.resources]
        slots = np.arange(size)
        self.capacity = cluster.allocatable[rows][:, :size]
        self.used = cluster.requested[rows][:, :size]
        self.usable = taking_pods(cluster)[:size]
        free = [cluster.free(row, slots) for row in rows]
        self.free = np.asarray(free, dtype=np.int64).reshape(len(rows), size) * self.usable
        self.tenants: dict[int, Counter[str]] = {}
        for pod, slot in cluster.placed_pods():
            gang = "" if pod.group is None else gang_key(pod)
            self.tenants.setdefault(slot, Counter())[gang] += 1


def _chosen(tree: Tree, levels: Sequence[int] | None, level_name: str | None) -> tuple[int, ...]:
    every = tuple(range(ROOT_LEVEL, tree.node_level + 1))
    if level_name is not None:
        found = tree.node_level if level_name == NODE_LEVEL else tree.level_named(level_name)
        return () if found is None else (found,)
    return every if levels is None else tuple(level for level in every if level in levels)


def _topology(run: Run, tree: Tree, view: _Columns, levels: tuple[int, ...]) -> TopologyEntry:
    declared = run.engine.topologies.declared(tree.name)
    host = tree.host_level.node_label if tree.host_level is not None else HOSTNAME
    labels = (*(level.node_label for level in tree.levels), host)
    names = level_names(tree)
    uplinks = run.engine.topologies.uplinks(tree.name)
    return TopologyEntry(
        name=tree.name,
        source="" if declared is None else declared.source,
        levels=tuple(
            LevelEntry(name=name, node_label=label, domains=int(tree.labelled[index].sum()))
            for index, (name, label) in enumerate(zip(names, labels, strict=True))
        ),
        domains=tuple(
            _domain(tree, view, domain, names, uplinks.get(domain)) for domain in _in_tree_order(tree, levels)
        ),
        unlabelled=tuple(_unlabelled(run.engine.cluster, tree)),
        also_called=run.engine.topologies.also_called(tree.name),
        command=UNSET if declared is None or declared.found is None else write_command(declared.found.preset),
    )


def _in_tree_order(tree: Tree, levels: tuple[int, ...]) -> Iterator[Domain]:
    """Each domain before those inside it."""
    domains = [
        (tree.span(domain)[0], domain.level, domain)
        for level in levels
        for domain in (Domain(level, index) for index in range(tree.count(level)))
    ]
    yield from (domain for _, _, domain in sorted(domains))


def _domain(
    tree: Tree, view: _Columns, domain: Domain, names: tuple[str, ...], uplinks: Uplinks | None
) -> DomainEntry:
    first, end = tree.span(domain)
    slots = tree.slot_at[first:end]
    tenants: Counter[str] = Counter()
    for slot in slots.tolist():
        tenants.update(view.tenants.get(slot, {}))
    single = tenants.pop("", 0)
    return DomainEntry(
        path=tree.path(domain),
        level=None if domain.level == ROOT_LEVEL else names[domain.level],
        labelled=tree.is_labelled(domain),
        nodes=len(slots),
        unavailable=int((~view.usable[slots]).sum()),
        capacity=_amounts(view.resources, view.capacity[:, slots]),
        used=_amounts(view.resources, view.used[:, slots]),
        free=_amounts(view.resources, view.free[:, slots]),
        gangs=tuple(
            TenantEntry(gang=gang, pods=pods)
            for gang, pods in sorted(tenants.items(), key=lambda item: (-item[1], natural_key(item[0])))
        ),
        single_pods=single,
        uplinks=None
        if uplinks is None
        else UplinksEntry(
            cables=uplinks.cables,
            usual_cables=uplinks.usual_cables,
            bandwidth=uplinks.bandwidth,
            usual_bandwidth=uplinks.usual_bandwidth,
            cost=round(uplinks.cost, 3),
        ),
    )


def _amounts(resources: Sequence[str], amounts: Amounts) -> dict[str, float]:
    totals = amounts.sum(axis=1).tolist()
    return {name: in_units(name, total) for name, total in zip(resources, totals, strict=True)}


def _unlabelled(cluster: Cluster, tree: Tree) -> Iterator[UnlabelledEntry]:
    declared = tree.levels if tree.host_level is None else (*tree.levels, tree.host_level)
    for position, slot in enumerate(tree.slot_at.tolist()):
        missing = []
        for level, entry in enumerate(declared):
            index = position if level == tree.node_level else tree.owners_at[level].one(position)
            if not tree.labelled[level][index]:
                missing.append(entry.node_label)
        if missing:
            yield UnlabelledEntry(node=cluster.node_at(slot).name, missing=tuple(missing))


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
