"""Kueue (``kueue.x-k8s.io``): flavors, queues, and what pod templates and pod sets of Workloads ask for."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted
from closeby.objects.groups import ConstraintSource, TopologyConstraint
from closeby.objects.labels import is_label_key
from closeby.objects.nodes import Taint, keeps_off
from closeby.objects.pods import PodSpec
from closeby.objects.reasons import Condition, Reason, few, invalid
from closeby.objects.topologies import ClusterQueue, LocalQueue, ResourceFlavor, ResourceGroup, Topology
from closeby.objects.words import guess
from closeby.reading.common.podgroups import PlacementAsk
from closeby.reading.decoding.affinity import TolerationWire, tolerations_of
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import (
    KUEUE_GROUP,
    KUEUE_POD_GROUP,
    KUEUE_PREFERRED,
    KUEUE_REQUIRED,
    KUEUE_SLICE,
    KUEUE_SLICE_SIZE,
    KUEUE_SLICES,
    KUEUE_UNCONSTRAINED,
    QUEUE_NAME,
)
from closeby.reading.decoding.nodes import TaintWire
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec, namespace_of
from closeby.reading.dialects.slices import OF_FLAVOR, SliceWire, Wording, group_problem, read_slices

#: A gang of plain pods: its name (label) and its size (annotation).
POD_GROUP_NAME: Final = KUEUE_POD_GROUP
POD_GROUP_SIZE: Final = "kueue.x-k8s.io/pod-group-total-count"
#: Gates by which Kueue holds pods until it admits them, and until it has chosen their domain.
GATES: Final = frozenset(
    {"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job"}
)
#: Sets of flavors that pods may get together, best first.
Choices: TypeAlias = tuple[tuple[ResourceFlavor, ...], ...]
#: Choices of flavors that are tried for one workload.
MOST_CHOICES: Final = 64
#: How to add what a queue refers to.
GET_QUEUES: Final = "kubectl get localqueues,clusterqueues,resourceflavors.kueue.x-k8s.io -A -o yaml"


class FlavorSpecWire(Wire):
    """``spec`` of a ResourceFlavor."""

    node_labels: dict[str, str] | None = None
    node_taints: list[TaintWire] | None = None
    tolerations: list[TolerationWire] | None = None
    topology_name: str | None = None


class FlavorNameWire(Wire, gc=False):
    """``flavors[]``."""

    name: str = ""


class ResourceGroupWire(Wire):
    """``resourceGroups[]``."""

    covered_resources: list[str] | None = None
    flavors: list[FlavorNameWire] | None = None


class ClusterQueueSpecWire(Wire):
    """``spec`` of a ClusterQueue."""

    resource_groups: list[ResourceGroupWire] | None = None


class TopologyRequestWire(Wire):
    """``spec.podSets[].topologyRequest`` of a Workload."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: list[SliceWire] | None = None
    pod_set_group_name: str | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None


_REQUEST: Final = frozenset(TopologyRequestWire.__struct_encode_fields__)
#: The fields of a ``topologyRequest``, by the annotations from which Kueue fills them.
_FIELDS: Final = {
    KUEUE_REQUIRED: "required",
    KUEUE_PREFERRED: "preferred",
    KUEUE_UNCONSTRAINED: "unconstrained",
    KUEUE_SLICE: "podSetSliceRequiredTopology",
    KUEUE_SLICE_SIZE: "podSetSliceSize",
    KUEUE_SLICES: "podsetSliceRequiredTopologyConstraints",
    KUEUE_GROUP: "podSetGroupName",
}


class LocalQueueSpecWire(Wire):
    """``spec`` of a LocalQueue."""

    cluster_queue: str = ""


def read_flavor(document: Document, reading: DocumentReading) -> ResourceFlavor:
    """A flavor.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[FlavorSpecWire])
    spec = wire.spec or FlavorSpecWire()
    return ResourceFlavor(
        name=reading.name(document, wire.meta),
        node_labels=tuple(sorted((spec.node_labels or {}).items())),
        tolerations=tolerations_of(spec.tolerations, ("spec", "tolerations")),
        taints=tuple(Taint(one.key, one.value or "", one.effect) for one in spec.node_taints or ()),
        topology_name=spec.topology_name or None,
    )


def read_cluster_queue(document: Document, reading: DocumentReading) -> ClusterQueue:
    """A cluster queue.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[ClusterQueueSpecWire])
    groups = (wire.spec.resource_groups if wire.spec else None) or []
    return ClusterQueue(
        name=reading.name(document, wire.meta),
        groups=tuple(
            ResourceGroup(
                tuple(one.name for one in group.flavors or ()), tuple(group.covered_resources or ())
            )
            for group in groups
        ),
    )


def read_local_queue(document: Document, reading: DocumentReading) -> LocalQueue:
    """A local queue.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[LocalQueueSpecWire])
    return LocalQueue(
        namespace=namespace_of(wire.meta),
        name=reading.name(document, wire.meta),
        cluster_queue=wire.spec.cluster_queue if wire.spec else "",
    )


def ask(annotations: Mapping[str, str], owner: str, part: str = "metadata.annotations") -> PlacementAsk:
    """What annotations ask for; ``owner`` and ``part`` name the object and the field in conditions."""
    return _ask(annotations, Wording(owner, part))


def ask_of(request: Mapping[str, Any], owner: str, part: str) -> PlacementAsk:
    """What a ``topologyRequest`` of a Workload's pod set asks for, which stands at ``part``."""
    written = Wording(owner, part, _FIELDS)
    try:
        wire = msgspec.convert(request, TopologyRequestWire)
    except msgspec.ValidationError as error:
        condition = invalid(owner, part, f"can't be read: {error}", "write it as Kueue does", blocking=True)
        return PlacementAsk(conditions=(condition,))
    slices = [msgspec.to_builtins(one) for one in wire.podset_slice_required_topology_constraints or ()]
    said = {
        KUEUE_REQUIRED: wire.required,
        KUEUE_PREFERRED: wire.preferred,
        KUEUE_UNCONSTRAINED: None if wire.unconstrained is None else str(wire.unconstrained).lower(),
        KUEUE_SLICE: wire.pod_set_slice_required_topology,
        KUEUE_SLICE_SIZE: None if wire.pod_set_slice_size is None else str(wire.pod_set_slice_size),
        KUEUE_SLICES: msgspec.json.encode(slices).decode() if slices else None,
        KUEUE_GROUP: wire.pod_set_group_name,
    }
    found = _ask({key: value for key, value in said.items() if value is not None}, written)
    unknown = few(
        _unread(owner, part, name) for name in sorted(request.keys() - _REQUEST) if request[name] is not None
    )
    return msgspec.structs.replace(found, conditions=found.conditions + unknown)


def numbering_of(request: Mapping[str, Any]) -> tuple[str, str, int]:
    """By which labels the pods of a pod set are numbered: of the pod, of its group; and how many groups."""
    try:
        wire = msgspec.convert(request, TopologyRequestWire)
    except msgspec.ValidationError:
        return "", "", 0
    return wire.pod_index_label or "", wire.sub_group_index_label or "", wire.sub_group_count or 0


def _unread(owner: str, part: str, name: str) -> Condition:
    hard = "required" in name.lower()
    return Condition(
        reason=Reason.UNSUPPORTED,
        object=owner,
        field=f"{part}.{name}",
        message="asks for what is not supported yet",
        remedy="remove it to be placed without it" if hard else "it is ignored",
        blocking=hard,
    )


def _ask(annotations: Mapping[str, str], written: Wording) -> PlacementAsk:
    closeness = _closeness(annotations, written)
    layers, problems = read_slices(annotations, written)
    found = msgspec.structs.replace(closeness, layers=layers, conditions=closeness.conditions + problems)
    if KUEUE_GROUP not in annotations:
        return found
    wrong = group_problem(annotations, placed=closeness.constraint is not None)
    if wrong is None:
        return msgspec.structs.replace(found, together=annotations[KUEUE_GROUP])
    condition = invalid(written.owner, written.at(KUEUE_GROUP), *wrong, blocking=True)
    return msgspec.structs.replace(found, conditions=(*found.conditions, condition))


def _closeness(annotations: Mapping[str, str], written: Wording) -> PlacementAsk:
    """Required, preferred and unconstrained exclude one another, and a level is named by its label."""
    given = [key for key in (KUEUE_REQUIRED, KUEUE_PREFERRED, KUEUE_UNCONSTRAINED) if key in annotations]

    def refuse(key: str, message: str, remedy: str) -> PlacementAsk:
        condition = invalid(written.owner, written.at(key), message, remedy, blocking=True)
        return PlacementAsk(conditions=(condition,))

    if not given:
        return PlacementAsk()
    key, value = given[0], annotations[given[0]]
    if len(given) > 1:
        names = " and ".join(map(written.called, given))
        return refuse(key, f"{names} exclude one another", "keep one of them")
    if key == KUEUE_UNCONSTRAINED:
        if value != "true":
            return refuse(key, f"{quoted(value)} is not true", 'write "true", or take it out')
        return PlacementAsk(unconstrained=True)
    if not is_label_key(value):
        return refuse(key, f"{quoted(value)} is not a label key", "name the nodeLabel of a topology's level")
    field = written.at(key)
    source = ConstraintSource(
        owner=written.owner,
        required=field,
        preferred=field,
        topology=OF_FLAVOR,
    )
    constraint = (
        TopologyConstraint(required=value, written=source)
        if key == KUEUE_REQUIRED
        else TopologyConstraint(preferred=value, written=source)
    )
    return PlacementAsk(constraint=constraint)


class Queues(Struct, frozen=True):
    """The way from a local queue to the flavor whose nodes have a topology."""

    local: Mapping[tuple[str, str], LocalQueue]
    cluster: Mapping[str, ClusterQueue]
    flavors: Mapping[str, ResourceFlavor]
    #: Levels (their labels) that several unequal topologies have, so that only the queue says which is meant.
    shared_levels: Collection[str] = ()

    def choices(self, namespace: str, queue: str, pod: PodSpec, *, placed: bool) -> Choices:
        """The flavors that a pod set may get, in Kueue's order; none where a part of the way is unknown.

        A choice is one flavor of each resource group of which the pods request a resource. Kueue passes over
        flavors whose labels contradict the pods' node selector, whose taints they do not tolerate, and those
        without a topology where pods are ``placed`` by one (``flavorassigner.go``,
        ``checkFlavorForPodSets`` and ``tas_flavorassigner.go``); pods that are not take flavors with a
        topology only where the queue has no others.
        """
        local = self.local.get((namespace, queue))
        cluster = self.cluster.get(local.cluster_queue) if local else None
        if cluster is None:
            return ()
        known = [flavor for name in cluster.flavors if (flavor := self.flavors.get(name))]
        with_topology = placed or all(flavor.topology_name for flavor in known)
        requested = {name for name, _ in pod.requests}
        found = []
        for group in cluster.groups:
            if group.resources and requested and requested.isdisjoint(group.resources):
                continue
            flavors = [flavor for name in group.flavors if (flavor := self.flavors.get(name))]
            like = [one for one in flavors if bool(one.topology_name) == with_topology] or flavors
            keys = {key for flavor in flavors for key, _ in flavor.node_labels}
            suiting = [one for one in like if _suits(one, pod, keys)]
            found.append(suiting or like[:1])
        # A flavor of several groups is taken for all of them.
        chosen = islice(product(*filter(None, found)), MOST_CHOICES)
        return tuple(dict.fromkeys(tuple(dict.fromkeys(one)) for one in chosen if one))

    def missing(self, namespace: str, queue: str) -> str:
        """What is missing on the way to a flavor with a topology, for a message."""
        local = self.local.get((namespace, queue))
        if local is None:
            return f"LocalQueue {namespace}/{queue} is not in the input"
        cluster = self.cluster.get(local.cluster_queue)
        if cluster is None:
            return f"ClusterQueue {local.cluster_queue} is not in the input"
        unknown = [name for name in cluster.flavors if name not in self.flavors]
        if unknown:
            return f"ResourceFlavor {unknown[0]} is not in the input"
        return f"no flavor of ClusterQueue {cluster.name} names a topology"


def _suits(flavor: ResourceFlavor, pod: PodSpec, keys: Collection[str]) -> bool:
    """Whether nothing written rules a flavor out; ``keys``: labels of its resource group's flavors."""
    labels = dict(flavor.node_labels)
    tolerations = (*pod.tolerations, *flavor.tolerations)
    return all(labels.get(key) == value for key, value in pod.node_selector if key in keys) and not any(
        keeps_off(taint, tolerations) for taint in flavor.taints
    )


def queues_of(
    local: Iterable[LocalQueue],
    cluster: Iterable[ClusterQueue],
    flavors: Iterable[ResourceFlavor],
    topologies: Iterable[Topology] = (),
) -> Queues:
    """The queues by their names."""
    shapes = {tuple(level.node_label for level in one.levels) for one in topologies}
    labels = Counter(label for shape in shapes for label in shape)
    return Queues(
        {(queue.namespace, queue.name): queue for queue in local},
        {queue.name: queue for queue in cluster},
        {flavor.name: flavor for flavor in flavors},
        frozenset(label for label, number in labels.items() if number > 1),
    )


def unknown_references(users: Iterable[tuple[str, str, str]], queues: Queues) -> Iterator[Condition]:
    """One condition for each name of a queue or flavor that no object of the input has.

    ``users``: object, namespace and the name of the queue. Nothing is said where the input holds no object of
    that kind.
    """
    found: dict[tuple[str, str], str] = {}
    for user, namespace, queue in users:
        if queues.local and (namespace, queue) not in queues.local:
            found.setdefault((namespace, queue), user)
    field = f'metadata.labels["{QUEUE_NAME}"]'
    for (namespace, queue), user in sorted(found.items()):
        near = [name for other, name in queues.local if other == namespace]
        yield _unknown(user, field, f"LocalQueue {namespace}/{queue}", queue, near)
    for local in queues.local.values():
        if queues.cluster and local.cluster_queue not in queues.cluster:
            user, name = f"LocalQueue/{local.namespace}/{local.name}", local.cluster_queue
            yield _unknown(user, "spec.clusterQueue", f"ClusterQueue {name}", name, queues.cluster)
    for cluster in queues.cluster.values():
        for name in cluster.flavors:
            if queues.flavors and name not in queues.flavors:
                user, field = f"ClusterQueue/{cluster.name}", "spec.resourceGroups[*].flavors[*].name"
                yield _unknown(user, field, f"ResourceFlavor {name}", name, queues.flavors)


def _unknown(user: str, field: str, what: str, name: str, known: Iterable[str]) -> Condition:
    return invalid(
        user, field, f"{what} is not in the input", f"{guess(name, known)}add what {GET_QUEUES} prints"
    )
