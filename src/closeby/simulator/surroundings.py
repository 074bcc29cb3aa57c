"""All objects of manifests but gangs and pods: as events in a fixed order, and what is wrong with them."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from closeby.cluster.claim_needs import claim_made
from closeby.objects.bounds import quoted, shown, some
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import SYSTEM_CLASSES, Pod, PriorityClass
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Condition, Reason, invalid
from closeby.objects.selectors import PodOwner
from closeby.objects.topologies import TopologyLevel
from closeby.objects.volumes import (
    PersistentVolumeClaim,
    StorageClass,
    StorageObject,
    default_class,
    storage_key,
    with_class,
)
from closeby.objects.words import guess, natural_key, plural, similar
from closeby.objects.workloads import pod_field
from closeby.reading.manifests import Manifests
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    BudgetChanged,
    Event,
    NetworkTopologyChanged,
    PriorityClassChanged,
    SelectionChanged,
    StorageChanged,
    TopologyChanged,
)
from closeby.topology.constraints import write_command, writes_one
from closeby.topology.families import ZONES
from closeby.topology.finding import Carried, beside, found_topologies, likely_levels
from closeby.topology.registry import CONFIGURED_KEYS


class Surroundings(Struct, frozen=True, kw_only=True, eq=False):
    """What there is for gangs and pods to come to."""

    #: By natural name; an engine takes them before the events.
    nodes: tuple[Node, ...]
    #: Topologies, networks, applications, priority classes and PodDisruptionBudgets.
    events: tuple[Event, ...]
    #: What was left aside in the manifests, and what is wrong with networks and the nodes' network labels.
    conditions: tuple[Condition, ...]


def surroundings_of(manifests: Manifests, pods: Iterable[Pod]) -> Surroundings:
    """The surroundings that manifests tell of, whatever the order of their objects.

    ``pods`` are all that there are, also those made of workloads.
    """
    nodes = tuple(sorted(manifests.nodes, key=lambda node: natural_key(node.name)))
    network = found_topologies(nodes, declared=any(one.usable for one in manifests.topologies))
    events: tuple[Event, ...] = (
        *(TopologyChanged(one, network.ignored.get(one.name, {})) for one in network.topologies),
        # An object of the same name is explicit, so it replaces the one read from labels.
        *(TopologyChanged(one) for one in sorted(manifests.topologies, key=lambda one: one.name)),
        *(
            NetworkTopologyChanged(one)
            for one in sorted(manifests.network_topologies, key=lambda one: one.key)
        ),
        *(AppGroupChanged(one) for one in sorted(manifests.app_groups, key=lambda one: one.key)),
        *(
            StorageChanged(one)
            for one in sorted(
                storage_of(manifests, pods), key=lambda one: (type(one).__name__, storage_key(one))
            )
        ),
        *(PriorityClassChanged(one) for one in sorted(manifests.priority_classes, key=lambda one: one.name)),
        *(SelectionChanged(one) for one in sorted(manifests.namespaces, key=lambda one: one.name)),
        *(SelectionChanged(one) for one in sorted(_owners(manifests), key=lambda one: one.key)),
        *(BudgetChanged(one) for one in sorted(manifests.budgets, key=lambda one: one.key)),
    )
    conditions = (
        *manifests.notices,
        *network.conditions,
        *(condition for one in manifests.network_topologies for condition in one.conditions),
    )
    return Surroundings(nodes=nodes, events=events, conditions=conditions)


def _owners(manifests: Manifests) -> Iterator[PodOwner]:
    """What default spread goes by; a Deployment stands for its ReplicaSet."""
    yield from manifests.services
    for one in manifests.workloads:
        if one.selector is not None:
            yield PodOwner(kind=one.kind, namespace=one.namespace, name=one.name, selector=one.selector)


def conditions_of(engine: Engine, noted: Iterable[Condition] = ()) -> tuple[Condition, ...]:
    """What is wrong with topologies, measurements and nodes, and what was ``noted`` before, in order.

    To be asked before anything is decided: overcommitment is that of the pods that came with their nodes.
    """
    found = (
        *noted,
        *(condition for topology in engine.topologies for condition in topology.conditions),
        *(condition for plugin in engine.profile.plugins for condition in plugin.conditions()),
        *_levels_without_nodes(engine),
        *_undeclared_levels(engine),
        *_other_families(engine),
        *_on_unknown_nodes(engine),
        *_overcommitted(engine),
    )
    return tuple(sorted(found, key=lambda one: (natural_key(one.object), one.field, one.reason, one.message)))


def _levels_without_nodes(engine: Engine) -> Iterator[Condition]:
    """One condition per level of a Topology object of which no node carries the label."""
    topologies = engine.topologies
    for topology in topologies:
        tree = topologies.tree(topology.name)
        if tree is None or not tree.size or topology.source == CONFIGURED_KEYS or topology.found is not None:
            continue
        for number, level in enumerate(tree.levels):
            if tree.carried[number]:
                continue
            finer = number + 1 < len(tree.levels)
            alone = "; each node is alone in its domains of finer levels" if finer else ""
            meant = _label_meant(level.node_label, engine.cluster.nodes, topology.levels)
            yield Condition(
                reason=Reason.TOPOLOGY_LEVEL_NOT_FOUND,
                object=f"Topology/{topology.name}",
                field=f"spec.levels[{number}].nodeLabel",
                message=f"no node carries label {shown(level.node_label)}, so it has no domains{alone}",
                remedy=f"{meant}label the nodes: kubectl label nodes NODE {shown(level.node_label)}=VALUE",
            )


def _undeclared_levels(engine: Engine) -> Iterator[Condition]:
    """Says which labels of nodes look like a topology, where none is declared and zones at most are known."""
    if any(one.found is None or one.found.preset != ZONES.name for one in engine.topologies):
        return
    keys = likely_levels(node for node in engine.cluster.nodes if node is not None)
    if keys:
        yield Condition(
            reason=Reason.TOPOLOGY_NOT_FOUND,
            object="Topology",
            message=f"no object declares one, and labels of nodes look like its levels: {some(keys)}",
            remedy=writes_one(",".join(keys)),
        )


def _other_families(engine: Engine) -> Iterator[Condition]:
    """Says which labels nodes carry beside those by which the topology is known, and how to choose them."""
    topologies = list(engine.topologies)
    main = next((one.found.preset for one in topologies if one.found is not None and one.found.main), None)
    if main is None or any(one.found is None and one.usable for one in topologies):
        return
    carried = Carried.none()
    for node in engine.cluster.nodes:
        if node is not None:
            carried.count(node)
    for name, number in beside(carried, main):
        where = f"{number:,} of {plural(carried.nodes, 'node')}"
        yield Condition(
            reason=Reason.TOPOLOGY_NOT_FOUND,
            object="Topology",
            message=f"labels of {name}, on {where}, do not count beside those of {main}",
            remedy=f"to choose them, add what `{write_command(name)}` prints (-f PATH for nodes of files)",
        )


def _label_meant(label: str, nodes: Iterable[Node | None], levels: Iterable[TopologyLevel]) -> str:
    """The label of nodes that was probably meant: its last word is much like that of the one given."""
    carried = {key for node in nodes if node is not None for key in node.labels}
    carried -= {level.node_label for level in levels}
    prefix, _, word = label.rpartition("/")
    # Of two with the same last word the one with the same prefix.
    last = {
        key.rpartition("/")[2]: key
        for key in sorted(carried, key=lambda key: (key.startswith(f"{prefix}/"), key))
    }
    close = similar(word, last, 0.75)
    return "" if close is None else f"did you mean {shown(last[close])}? If not, "


def _on_unknown_nodes(engine: Engine) -> Iterator[Condition]:
    """One condition per unknown node that pods are bound to."""
    for node, pods in engine.state.on_unknown_nodes.items():
        names = sorted((pod.key for pod in pods.values()), key=natural_key)
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        bound = f"{len(names)} pods are bound" if len(names) > 1 else "a pod is bound"
        message = f"{bound} to this node, which is not there: {shown}"
        yield invalid(f"Node/{node}", "", message, "add the node, or leave these pods out")


def _overcommitted(engine: Engine) -> Iterator[Condition]:
    """One condition per node on which more is used than there is."""
    cluster = engine.cluster
    over = cluster.requested > cluster.allocatable
    for slot in np.flatnonzero(over.any(axis=0) & cluster.alive).tolist():
        lacks = [
            f"{format_amount(resource, int(cluster.requested[row, slot]))} {resource} of "
            f"{format_amount(resource, int(cluster.allocatable[row, slot]))}"
            for resource, row in cluster.row_of.items()
            if over[row, slot]
        ]
        yield Condition(
            reason=Reason.INSUFFICIENT_RESOURCES,
            object=f"Node/{cluster.node_at(slot).name}",
            field="status.allocatable",
            message=f"its pods take more than it has: {', '.join(sorted(lacks))}",
            remedy="it counts as having nothing of that left",
        )


def unknown_classes(
    pods: Iterable[Pod], groups: Iterable[PodGroup], classes: Iterable[PriorityClass]
) -> tuple[Condition, ...]:
    """Of each priority class that waiting pods or gangs name and that is not there: one condition.

    No API server admits such a pod. Where there are no classes at all, they were not collected, and the
    number that a pod has from its admission counts.
    """
    given = tuple(classes)
    known = {one.name for one in (*given, *SYSTEM_CLASSES)}
    found: dict[str, list[tuple[str, str]]] = {}
    for pod in pods:
        name = pod.spec.priority_class_name
        if not name or name in known or pod.node_name is not None or pod.finished:
            continue
        if given or pod.spec.priority is None:
            kind, _, owner = pod.owner.partition("/")
            called = f"{kind}/{pod.namespace}/{owner}" if owner else f"Pod/{pod.key}"
            field = pod_field(called, "spec.priorityClassName") if owner else "spec.priorityClassName"
            found.setdefault(name, []).append((called, field.partition(" of ")[0]))
    for group in groups:
        if group.priority_class_name and group.priority_class_name not in known and group.priority is None:
            entry = (f"PodGroup/{group.key}", "spec.priorityClassName")
            found.setdefault(group.priority_class_name, []).append(entry)
    return tuple(_unknown_class(name, places, sorted(known)) for name, places in sorted(found.items()))


def without_nodes(nodes: Sequence[Node], pods: Iterable[Pod]) -> tuple[Condition, ...]:
    """Says that the input has no node, where pods wait or there are none."""
    there = [pod for pod in pods if not pod.finished]
    if nodes or (there and all(pod.node_name is not None for pod in there)):
        return ()
    return (invalid("Node", "", "the input has no nodes", "add what kubectl get nodes -o yaml prints"),)


def other_schedulers(pods: Iterable[Pod], wanted: str | None, default: str) -> tuple[Condition, ...]:
    """Says that no pending pod names the scheduler that is ``wanted``, and which ones they name."""
    if wanted is None:
        return ()
    waiting = (pod for pod in pods if pod.node_name is None and not pod.terminating and not pod.finished)
    named = sorted({pod.spec.scheduler_name or default for pod in waiting})
    if not named or wanted in named:
        return ()
    return (
        invalid(
            f"Scheduler/{wanted}",
            "spec.schedulerName",
            f"no pending pod names the scheduler {quoted(wanted)}; there are: {some(named)}",
            "give one of these to --scheduler-name",
        ),
    )


def _unknown_class(name: str, places: Sequence[tuple[str, str]], known: Sequence[str]) -> Condition:
    object_, field = places[0]
    objects = len({one for one, _ in places})
    more = f" (named by {objects} objects)" if objects > 1 else ""
    meant = guess(name, known)
    return invalid(
        object_,
        field,
        f"PriorityClass {quoted(name)} is not in the input{more}, and no API server takes a pod with "
        "a class that does not exist",
        f"{meant}add what kubectl get priorityclasses -o yaml prints",
    )


def storage_of(manifests: Manifests, pods: Iterable[Pod]) -> tuple[StorageObject, ...]:
    """All objects about volumes, with the claims of pods that wait and the default class.

    Of a whole cluster what is there: its controllers have done this.
    """
    if manifests.whole:
        return manifests.storage
    claims = {one.key: one for one in manifests.storage if isinstance(one, PersistentVolumeClaim)}
    for pod in pods:
        if pod.node_name is None and not pod.finished:
            for one in pod.spec.claims:
                if one.request is not None:
                    made = claim_made(pod, one)
                    claims.setdefault(made.key, made)
    default = default_class(one for one in manifests.storage if isinstance(one, StorageClass))
    others = (one for one in manifests.storage if not isinstance(one, PersistentVolumeClaim))
    return (*others, *(with_class(one, default) for one in claims.values()))
