"""A run over manifests as a scene of one moment."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from closeby.applications.registry import workload_name
from closeby.cluster.columns import main_resources
from closeby.lab.pictures.moments import Moments
from closeby.lab.pictures.scene import CPU, GPU, Scene, Tenant, amount_text, with_segments, within_text
from closeby.lab.pictures.segmented import segmented_run
from closeby.objects.arrays import Floats, Ints
from closeby.objects.nodes import is_gpu
from closeby.objects.pods import Pod, gang_key
from closeby.objects.words import plural
from closeby.quality.gangs import gpus_of, node_gpus
from closeby.quality.placements import Placements, level_names, placements, spans
from closeby.simulator.runs import Run
from closeby.topology.tree import Tree

#: What has a colour, by whether some of it are gangs and whether some are none.
_COLOURED = {
    frozenset(): "gangs",
    frozenset({True}): "gangs",
    frozenset({False}): "services",
    frozenset({True, False}): "gangs and services",
}


def snapshot(run: Run) -> Scene:
    """Who holds what after a run, in the topology in which most gangs are.

    In GPUs if any node has some, else in cpu. Gangs and services come by name, then single pods, each on
    its own even where several belong to one owner.
    """
    cluster = run.engine.cluster
    resource = next(iter(main_resources(cluster)), CPU)
    unit = 1000.0 if resource == CPU else 1.0
    slots = cluster.capacity
    row = cluster.row_of.get(resource)
    capacity = np.zeros(slots) if row is None else cluster.allocatable[row, :slots] / unit
    groups = _groups(run)
    kinds = {members[0].group is not None for key, members in groups if key is not None}
    pods = [pod for _, members in groups for pod in members]
    amounts = [dict(pod.spec.requests).get(resource, 0) / unit for pod in pods]
    offsets = np.concatenate(([0], np.cumsum([len(members) for _, members in groups]))).astype(np.intp)
    at = np.asarray([cluster.placement(pod.uid) for pod in pods], dtype=np.intp)
    tree, others = _tree(run)
    name = GPU if is_gpu(resource) else resource
    segments = segmented_run(run, groups)
    return Scene(
        tree=tree,
        nodes=tuple("" if node is None else node.name for node in cluster.nodes[:slots]),
        capacity=capacity,
        usable=np.asarray(
            [node is not None and node.ready and not node.unschedulable for node in cluster.nodes[:slots]],
            dtype=np.bool_,
        ),
        resource=name,
        whole=is_gpu(resource),
        tenants=with_segments(
            _tenants(groups, name, np.asarray(amounts), placements(tree, offsets, at), at), segments
        ),
        since=np.zeros(len(groups)),
        until=np.ones(len(groups)),
        offsets=offsets,
        slots=at,
        amounts=np.asarray(amounts, dtype=np.float64),
        links_of_pods=np.asarray([_links(members) for _, members in groups], dtype=np.intp),
        links_of_nodes=node_gpus(cluster)[:slots].astype(np.intp),
        moments=Moments(unit="s", seconds=1.0, stops=np.zeros(1), happened=1),
        segments=segments,
        coloured=_COLOURED[frozenset(kinds)],
        left_out=others,
    )


def _groups(run: Run) -> list[tuple[str | None, list[Pod]]]:
    """The pods that hold a node: of each gang and each service of an application by rank, else by name; then
    single pods."""
    gangs: dict[str, list[Pod]] = {}
    alone: list[tuple[str | None, list[Pod]]] = []
    for pod in run.pods:
        if run.engine.cluster.placement(pod.uid) is None:
            continue
        application = run.engine.applications.of(pod)
        if pod.group is not None:
            gangs.setdefault(gang_key(pod), []).append(pod)
        elif application is not None:
            # Each service on its own, so that the map shows which of them is where.
            gangs.setdefault(f"{application.key}/{workload_name(pod)}", []).append(pod)
        else:
            alone.append((None, [pod]))
    found: list[tuple[str | None, list[Pod]]] = []
    for key, members in gangs.items():
        ranks = [_rank(run, pod) for pod in members]
        order = sorted(
            range(len(members)), key=lambda index: (ranks[index] is None, ranks[index] or 0, index)
        )
        found.append((key, [members[index] for index in order]))
    return found + alone


def _links(members: Sequence[Pod]) -> int:
    """Links of each pod of a gang, as the measures count them; only gangs have rings of ranks."""
    return 0 if members[0].group is None else min(max(1, gpus_of(pod.spec)) for pod in members)


def _rank(run: Run, pod: Pod) -> int | None:
    binding = run.bindings.get(pod.uid)
    return pod.rank if binding is None else binding.rank


def _tree(run: Run) -> tuple[Tree, tuple[str, ...]]:
    """The topology to draw, and what is said about others that are not."""
    topologies = run.engine.topologies
    lying = Counter(place.topology for place in run.places.values())
    trees = [tree for name in topologies.usable() if (tree := topologies.tree(name)) is not None]
    if not trees:
        return topologies.flat(), ("No topology is declared, so all nodes are side by side.",)
    trees.sort(key=lambda tree: (-lying[tree.name], -len(tree.levels), tree.name))
    others = ", ".join(tree.name for tree in trees[1:])
    note = f"Topology {trees[0].name}, which holds most gangs, is drawn; not drawn: {others}."
    return trees[0], (note,) if others else ()


def _tenants(
    groups: Sequence[tuple[str | None, list[Pod]]],
    resource: str,
    amounts: Floats,
    found: Placements,
    slots: Ints,
) -> tuple[Tenant, ...]:
    names = level_names(found.tree)
    used = spans(found).tolist()
    tenants = []
    first = 0
    for (group, members), span in zip(groups, used, strict=True):
        mine = amounts[first : first + len(members)]
        # Only those with a colour are named.
        mine_at = slots[first : first + len(members)]
        within = "" if group is None else within_text(found.tree, mine_at)
        first += len(members)
        tenants.append(
            Tenant(
                name=members[0].key if group is None else group,
                has_colour=group is not None,
                size=float(mine.sum()),
                asks=_asks(mine, resource),
                waited="",
                span=dict(zip(names, span, strict=True)),
                within=within,
            )
        )
    return tuple(tenants)


def _asks(amounts: Floats, resource: str) -> str:
    """``8 pods × 8 GPUs``, or ``8 pods, 60 GPUs`` where they differ."""
    pods = plural(len(amounts), "pod")
    if (amounts == amounts[0]).all():
        return f"{pods} × {amount_text(float(amounts[0]), resource)}" if amounts[0] else pods
    return f"{pods}, {amount_text(float(amounts.sum()), resource)}"
