"""The topology trees with what is free, what is used and who runs where (kind TopologyReport)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import UNSET, Struct, UnsetType

from closeby.cluster.columns import Cluster, main_resources, offered, taking_pods
from closeby.objects.arrays import Amounts
from closeby.objects.labels import API_VERSION, HOSTNAME
from closeby.objects.natural import natural_key
from closeby.objects.pods import gang_key
from closeby.quality.placements import NODE_LEVEL, level_names
from closeby.report.documents.common import ConditionEntry, condition_entries
from closeby.report.documents.fits import FitEntry, GangSize, fit_entry, in_units
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
    conditions: tuple[ConditionEntry, ...] = ()
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
        conditions=condition_entries(run.conditions),
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
