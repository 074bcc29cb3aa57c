"""What plain manifests say, cut down to what the worlds use: all that the checker and the judge see."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

#: A manifest as plain values.
Document = dict[str, Any]

GPU = "example.com/gpu"
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
GROUP, SUBGROUP, INDEX = (
    "closeby.dev/pod-group",
    "closeby.dev/subgroup",
    "batch.kubernetes.io/job-completion-index",
)
APP, WORKLOAD = "appgroup.diktyo.x-k8s.io", "appgroup.diktyo.x-k8s.io.workload"
#: Name of the gang that waits.
TRAIN = "train"
#: What is evicted loses besides its work, in seconds, and the time by which its work is counted.
RESTART, NOW = 300, "2026-01-02T00:00:00Z"

_HARD = "requiredDuringSchedulingIgnoredDuringExecution"
_SUFFIXES = {"m": 0.001, "Gi": 2**30}


@dataclass(frozen=True)
class Term:
    """Of affinity or anti-affinity: pods that it selects by their labels, in one domain."""

    key: str
    selects: tuple[tuple[str, str], ...]

    def matches(self, pod: "Pod") -> bool:
        return all(pod.labels.get(key) == value for key, value in self.selects)


@dataclass(frozen=True)
class Spread(Term):
    """A hard topology spread."""

    skew: int = 1
    least_domains: int = 1


@dataclass(frozen=True)
class Node:
    """A node, and who may use it."""

    name: str
    labels: Mapping[str, str]
    offers: Mapping[str, int]
    taints: tuple[tuple[str, str, str], ...]
    usable: bool


@dataclass(frozen=True)
class Pod:
    """A pod, and what it asks of nodes."""

    name: str
    labels: Mapping[str, str]
    node: str | None
    needs: Mapping[str, int]
    selector: Mapping[str, str]
    tolerates: bool
    ports: tuple[int, ...]
    #: Zones of its volumes, one set for each; a node must be in all.
    zones: tuple[frozenset[str], ...]
    apart: tuple[Term, ...]
    near: tuple[Term, ...]
    spreads: tuple[Spread, ...]
    priority: int
    started: str

    @property
    def group(self) -> str | None:
        """Its gang; an application that is none counts as one that needs nobody."""
        return self.labels.get(GROUP, TRAIN if APP in self.labels else None)

    @property
    def subgroup(self) -> str | None:
        return self.labels.get(SUBGROUP)

    @property
    def index(self) -> int:
        """Its place in the order of its gang."""
        return int(self.labels.get(INDEX, 0))

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """The same for pods that no rule distinguishes but by their index."""
        labels = {key: value for key, value in self.labels.items() if key != INDEX}
        return (
            tuple(sorted(labels.items())),
            tuple(sorted(self.needs.items())),
            tuple(sorted(self.selector.items())),
            (self.tolerates, self.ports, self.zones, self.apart, self.near, self.spreads),
        )


@dataclass(frozen=True)
class Layer:
    """Segments of consecutive pods; ``starts`` are the first indices of segments that all members make."""

    level: str
    sizes: tuple[int, ...]
    required: bool
    exclusive: str
    most: int | None

    def segment(self, index: int) -> int:
        """The number of the segment of a pod."""
        for number, size in enumerate(self.sizes):
            if index < size:
                return number
            index -= size
        raise ValueError(f"index {index} beyond all segments")


@dataclass(frozen=True)
class Part:
    """A subgroup, or the gang as a whole (its name is empty)."""

    name: str
    minimum: int
    required: str | None
    preferred: str | None
    parent: str | None
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Gang:
    """A gang with its parts: first of all the whole."""

    name: str
    whole: Part
    parts: tuple[Part, ...]
    members: tuple[Pod, ...] = ()

    def inside(self, part: Part) -> list[Pod]:
        """The members of a part."""
        if not part.name:
            return list(self.members)
        below = {part.name, *(one.name for one in self.parts if one.parent == part.name)}
        return [pod for pod in self.members if pod.subgroup in below]

    @property
    def layered(self) -> bool:
        """Whether any of it goes in segments."""
        return any(part.layers for part in (self.whole, *self.parts))

    @property
    def exclusive(self) -> str:
        """Whom its segments keep out of their domains, if anybody."""
        layers = self.whole.layers
        return layers[0].exclusive if layers and layers[0].required and layers[0].exclusive != "none" else ""

    @property
    def minimum(self) -> int:
        """How many of its members it needs, those of its parts included."""
        return sum(part.minimum for part in self.leaves)

    @property
    def priority(self) -> int:
        """Whom it may evict has less."""
        return max(pod.priority for pod in self.members)

    @property
    def alike(self) -> bool:
        """Whether all that wait are equal, and no rule among pods distinguishes places."""
        waiting = [pod for pod in self.members if pod.node is None]
        free = not any(pod.spreads or pod.near or pod.apart or pod.ports or pod.zones for pod in waiting)
        return free and len({pod.kind for pod in waiting}) == 1 and bool(waiting[0].needs.get(GPU))

    @property
    def leaves(self) -> list[Part]:
        """The parts that have members themselves."""
        parents = {one.parent for one in self.parts}
        return [one for one in self.parts if one.name not in parents] or [self.whole]


@dataclass
class Facts:
    """A world as the judge sees it."""

    levels: tuple[str, ...] = ()
    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    gangs: dict[str, Gang] = field(default_factory=dict)
    #: Whether the gang that waits wants to be on few domains.
    packs: bool = True
    #: Workloads that call each other, and what a call costs between two zones.
    calls: tuple[tuple[str, str], ...] = ()
    costs: dict[frozenset[str], int] = field(default_factory=dict)

    @property
    def running(self) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.node is not None]

    @property
    def gang(self) -> Gang:
        """The one that waits."""
        return self.gangs[TRAIN]

    @property
    def begun(self) -> dict[str, str]:
        """The nodes of its members that run."""
        return {pod.name: pod.node for pod in self.gang.members if pod.node}

    def without_topology(self) -> "Facts":
        """The same, had the gang no constraint and no layers."""
        gang = self.gang
        parts = tuple(replace(one, required=None, layers=()) for one in gang.parts)
        bare = replace(gang, whole=replace(gang.whole, required=None, layers=()), parts=parts)
        return replace(self, gangs={**self.gangs, TRAIN: bare})

    def requiring(self, level: str) -> "Facts":
        """The same, if all of the gang had to be in one domain of a level."""
        gang = self.gang
        bound = replace(gang, whole=replace(gang.whole, required=level))
        return replace(self, gangs={**self.gangs, TRAIN: bound})

    def path(self, node: str, level: str) -> tuple[str, ...]:
        """The domain of a node, down to a level; where labels are missing it is in one of its own."""
        labels = self.nodes[node].labels
        depth = self.levels.index(level) + 1
        return tuple(labels.get(key) or f"alone {node}" for key in self.levels[:depth])

    def labelled(self, node: str, level: str) -> bool:
        return level in self.nodes[node].labels

    def domains(self, level: str) -> dict[tuple[str, ...], list[str]]:
        """The labelled nodes of each domain of a level."""
        found: dict[tuple[str, ...], list[str]] = {}
        for name in self.nodes:
            if self.labelled(name, level):
                found.setdefault(self.path(name, level), []).append(name)
        return found

    def by_value(self, key: str) -> dict[str, list[str]]:
        """The nodes of each value of a label."""
        found: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            if key in node.labels:
                found.setdefault(node.labels[key], []).append(name)
        return found

    def left(self, pods: Iterable[Pod]) -> dict[str, Counter[str]]:
        """What nodes have left beside pods that run."""
        left = {name: Counter(node.offers) for name, node in self.nodes.items()}
        for pod in pods:
            if pod.node in left:
                left[pod.node].subtract(pod.needs)
        return left

    def lets_in(self, pod: Pod, node: Node) -> bool:
        """Whether a node takes such a pod at all, were nothing else there."""
        return (
            node.usable
            and (pod.tolerates or not node.taints)
            and all(node.labels.get(key) == value for key, value in pod.selector.items())
            and all(node.labels.get(ZONE) in zones for zones in pod.zones)
            and all(one.key in node.labels for one in (*pod.spreads, *pod.near))
        )


def amount(text: str | int) -> int:
    """A quantity in thousandths."""
    text = str(text)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return round(float(text.removesuffix(suffix)) * factor * 1000)
    return int(text) * 1000


def facts_of(documents: Sequence[Document]) -> Facts:
    """What the manifests say."""
    by_kind: dict[str, list[Document]] = {}
    for one in documents:
        by_kind.setdefault(one["kind"], []).append(one)
    zones = dict(_zones_of_claims(by_kind))
    found = Facts()
    (fabric,) = by_kind["Topology"]
    found.levels = tuple(one["nodeLabel"] for one in fabric["spec"]["levels"])
    found.nodes = {one["metadata"]["name"]: _node(one) for one in by_kind["Node"]}
    found.pods = {one["metadata"]["name"]: _pod(one, zones) for one in by_kind["Pod"]}
    for one in by_kind.get("PodGroup", ()):
        name = one["metadata"]["name"]
        members = [pod for pod in found.pods.values() if pod.group == name]
        found.gangs[name] = _gang(one, sorted(members, key=lambda pod: pod.index))
        if name == TRAIN:
            spec = one["spec"]
            layers = [
                *spec.get("layers", ()),
                *(x for part in spec.get("subGroups", ()) for x in part.get("layers", ())),
            ]
            spreading = any(layer.get("arrangement") == "spread" for layer in layers)
            found.packs = not spreading and "placement" not in spec
    if TRAIN not in found.gangs:
        members = [pod for pod in found.pods.values() if pod.group == TRAIN]
        nobody = Part("", 0, None, None, None, ())
        found.gangs[TRAIN] = Gang(TRAIN, nobody, (), tuple(sorted(members, key=lambda pod: pod.index)))
    for one in by_kind.get("AppGroup", ()):
        found.calls = tuple(
            (each["name"], other["name"]) for each in one["spec"]["Pods"] for other in each["dependencies"]
        )
    for one in by_kind.get("NetworkTopology", ()):
        (weights,) = one["spec"]["weights"]
        (by_zone,) = weights["topologyList"]
        for each in by_zone["originList"]:
            for other in each["costList"]:
                found.costs[frozenset((each["origin"], other["destination"]))] = other["networkCost"]
    return found


def _node(document: Document) -> Node:
    spec, status = document["spec"], document["status"]
    ready = all(one["status"] == "True" for one in status["conditions"])
    return Node(
        document["metadata"]["name"],
        document["metadata"]["labels"],
        {key: amount(value) for key, value in status["allocatable"].items()},
        tuple((one["key"], one["value"], one["effect"]) for one in spec.get("taints", ())),
        ready and not spec.get("unschedulable"),
    )


def _pod(document: Document, zones: Mapping[str, frozenset[str]]) -> Pod:
    spec, meta = document["spec"], document["metadata"]
    (container,) = spec["containers"]
    affinity = spec.get("affinity", {})
    claims = [one["persistentVolumeClaim"]["claimName"] for one in spec.get("volumes", ())]
    return Pod(
        name=meta["name"],
        labels=meta["labels"],
        node=spec.get("nodeName"),
        needs={
            "pods": 1000,
            **{key: amount(value) for key, value in container["resources"]["requests"].items()},
        },
        selector=spec.get("nodeSelector", {}),
        tolerates=bool(spec.get("tolerations")),
        ports=tuple(one["hostPort"] for one in container.get("ports", ())),
        zones=tuple(zones[one] for one in claims if one in zones),
        apart=tuple(_term(one) for one in affinity.get("podAntiAffinity", {}).get(_HARD, ())),
        near=tuple(_term(one) for one in affinity.get("podAffinity", {}).get(_HARD, ())),
        spreads=tuple(
            Spread(
                one["topologyKey"], _selects(one["labelSelector"]), one["maxSkew"], one.get("minDomains", 1)
            )
            for one in spec.get("topologySpreadConstraints", ())
        ),
        priority=spec.get("priority", 0),
        started=document.get("status", {}).get("startTime", ""),
    )


def _selects(selector: Document) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(selector["matchLabels"].items()))


def _term(document: Document) -> Term:
    return Term(document["topologyKey"], _selects(document["labelSelector"]))


def _zones_of_claims(by_kind: Mapping[str, list[Document]]) -> Iterator[tuple[str, frozenset[str]]]:
    """For each claim the zones in which its volume is, or can be made."""
    volumes = {one["metadata"]["name"]: one["spec"] for one in by_kind.get("PersistentVolume", ())}
    classes = {one["metadata"]["name"]: one for one in by_kind.get("StorageClass", ())}
    for claim in by_kind.get("PersistentVolumeClaim", ()):
        spec = claim["spec"]
        if "volumeName" in spec:
            (term,) = volumes[spec["volumeName"]]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            (expression,) = term["matchExpressions"]
        else:
            (term,) = classes[spec["storageClassName"]]["allowedTopologies"]
            (expression,) = term["matchLabelExpressions"]
        yield claim["metadata"]["name"], frozenset(expression["values"])


def _gang(document: Document, members: Sequence[Pod]) -> Gang:
    spec = document["spec"]
    whole = _part("", spec, len(members))
    parts = tuple(
        _part(one["name"], one, sum(pod.subgroup == one["name"] for pod in members))
        for one in spec.get("subGroups", ())
    )
    return Gang(document["metadata"]["name"], whole, parts, tuple(members))


def _part(name: str, spec: Document, members: int) -> Part:
    constraint = spec.get("topologyConstraint", {})
    return Part(
        name,
        spec.get("minMember", 1),
        constraint.get("requiredTopologyLevel"),
        constraint.get("preferredTopologyLevel"),
        spec.get("parent"),
        tuple(_layer(one, members) for one in spec.get("layers", ())),
    )


def _layer(document: Document, members: int) -> Layer:
    size = document.get("size", 1)
    full = tuple(document.get("counts", ())) or (size,) * (members // size)
    rest = members - sum(full)
    return Layer(
        document["level"],
        (*full, rest) if rest else full,
        document.get("mode", "required") == "required",
        document.get("exclusive", "none"),
        document.get("maxDomains"),
    )
