"""Small clusters drawn as text, and an engine that holds them.

A drawing has one line per group of nodes: the path of label values, then the nodes with what they have free::

    zone-a rack-1 : a1=2 a2=2
    zone-a rack-2 : a3=4

The amounts are of ``example.com/gpu`` unless the world is made with another resource; ``-`` in the path
stands for a missing label.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from closeby.objects.groups import PodGroup, Strategy, SubGroup, TopologyConstraint
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import ReasonToken
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    NodeUpserted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.outcomes import Outcome, bindings_of
from closeby.scheduling.reasons.facts import Shortfall

GPU = "example.com/gpu"

#: The example tree of the KAI topology-aware scheduling design: 32 GPUs in three zones.
THREE_ZONES = """
zone-a rack-a1 : na1=2 na2=2 na3=2
zone-a rack-a2 : na4=4
zone-a rack-a3 : na5=2 na6=2 na7=2
zone-b rack-b1 : nb1=4 nb2=4
zone-b rack-b2 : nb3=2
zone-c rack-c1 : nc1=2 nc2=4
"""


def draw(drawing: str, levels: Sequence[str] = ("zone", "rack"), resource: str = GPU) -> list[Node]:
    """Nodes of a drawing."""
    nodes = []
    for line in drawing.strip().splitlines():
        path, _, members = line.partition(":")
        labels = {level: value for level, value in zip(levels, path.split(), strict=True) if value != "-"}
        for member in members.split():
            name, _, amount = member.partition("=")
            nodes.append(node(name, labels, {resource: int(amount)}))
    return nodes


def node(
    name: str,
    labels: Mapping[str, str] = {},
    allocatable: Mapping[str, int] = {},
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
) -> Node:
    """A node that also carries its host name label."""
    return Node(
        name=name,
        labels={**labels, HOSTNAME: name},
        allocatable=allocatable,
        taints=tuple(taints),
        unschedulable=unschedulable,
    )


def fabric(*levels: str, name: str = "fabric") -> Topology:
    """A topology of plain label keys, coarse to fine."""
    return Topology(name=name, levels=tuple(TopologyLevel(level) for level in levels))


def spec(**requests: int) -> PodSpec:
    """Needs by resource; ``gpu`` stands for the drawing's resource."""
    return PodSpec(
        requests=tuple(sorted((GPU if key == "gpu" else key, amount) for key, amount in requests.items()))
    )


def pods(
    group: str | None,
    count: int,
    needs: PodSpec | None = None,
    subgroup: str | None = None,
    prefix: str | None = None,
    on: str | None = None,
    **fields: Any,
) -> list[Pod]:
    """``count`` equal pods of a gang (None: plain pods), named prefix-0, prefix-1, …; ``on`` a node.

    ``fields`` are further fields that all of them have.
    """
    shared = needs if needs is not None else spec(gpu=1)
    prefix = prefix or subgroup or group or "pod"
    return [
        Pod(
            namespace="default",
            name=f"{prefix}-{index}",
            uid=f"default/{prefix}-{index}",
            spec=shared,
            group=group,
            subgroup=subgroup,
            node_name=on,
            phase="Pending" if on is None else "Running",
            **fields,
        )
        for index in range(count)
    ]


def gang(
    name: str = "train",
    min_member: int = 1,
    required: str | None = None,
    preferred: str | None = None,
    topology: str | None = "fabric",
    strategy: Strategy = Strategy.BINPACK,
    subgroups: Iterable[SubGroup] = (),
) -> PodGroup:
    """A gang with an optional constraint."""
    asks = required is not None or preferred is not None
    return PodGroup(
        namespace="default",
        name=name,
        min_member=min_member,
        constraint=TopologyConstraint(topology=topology, required=required, preferred=preferred)
        if asks
        else None,
        strategy=strategy,
        subgroups=tuple(subgroups),
    )


def subgroup(
    name: str,
    min_member: int = 1,
    required: str | None = None,
    preferred: str | None = None,
    parent: str | None = None,
    topology: str = "fabric",
) -> SubGroup:
    """A subgroup with an optional constraint."""
    asks = required is not None or preferred is not None
    return SubGroup(
        name=name,
        min_member=min_member,
        parent=parent,
        constraint=TopologyConstraint(topology=topology, required=required, preferred=preferred)
        if asks
        else None,
    )


class World:
    """An engine with nodes and topologies, and short ways to ask what it did."""

    def __init__(self, engine: Engine, nodes: Iterable[Node], *topologies: Topology) -> None:
        self.engine = engine
        self.where: dict[str, str] = {}
        self.rank: dict[str, int | None] = {}
        engine.handle(*(NodeUpserted(one) for one in nodes), *(TopologyChanged(one) for one in topologies))

    def run(self, *groups: PodGroup, members: Iterable[Pod] = ()) -> "World":
        """Add gangs and pods, and decide."""
        decisions = self.engine.handle(
            *(GroupChanged(group) for group in groups), *(PodUpserted(pod) for pod in members), Tick()
        )
        for binding in bindings_of(decisions):
            self.where[binding.pod.name] = binding.node
            self.rank[binding.pod.name] = binding.rank
        self.engine.validate_state()
        return self

    def tell(self, *events: Event) -> "World":
        """Pass events on without deciding."""
        self.engine.handle(*events)
        self.engine.validate_state()
        return self

    def reason(self, name: str) -> ReasonToken | None:
        """Why a gang or pod waits by the newest decision; None when it was placed."""
        return self.outcome(name).reason

    def left(self, name: str) -> dict[str, ReasonToken]:
        """Pods that got no node by the newest decision about a gang or pod, with the reason of each."""
        return {entry.pod.name: entry.reason for entry in self.outcome(name).leftover}

    def outcome(self, name: str) -> Outcome:
        """The newest decision about a gang or pod of the default namespace."""
        outcome = self.engine.outcome(f"default/{name}")
        assert outcome is not None, f"nothing was decided about {name}"
        return outcome

    def shortfall(self, name: str) -> Shortfall:
        """Why a gang or pod of the default namespace waits, as facts."""
        found = self.outcome(name).shortfall
        assert found is not None, f"{name} does not wait for room"
        return found

    def used(self, prefix: str = "", by: str = HOSTNAME) -> dict[str, int]:
        """Pods per node (or per value of another label), of the pods whose name starts with ``prefix``."""
        counts: dict[str, int] = {}
        for pod, chosen in self.where.items():
            slot = self.engine.cluster.slot(chosen)
            if pod.startswith(prefix) and slot is not None:
                place = self.engine.cluster.node_at(slot).labels.get(by, "-")
                counts[place] = counts.get(place, 0) + 1
        return dict(sorted(counts.items()))


def world(
    nodes: str | Iterable[Node],
    *topologies: Topology,
    levels: Sequence[str] = ("zone", "rack"),
    plugins: Iterable[PluginEntry] = (),
    explain: bool = False,
) -> World:
    """A world with the built-in plugins; its topology is ``fabric`` of the drawing's levels unless given."""
    configuration = Configuration(plugins=tuple(plugins))
    engine = Engine(lambda handle: profile_for(configuration, handle), explain=explain)
    drawn = draw(nodes, levels) if isinstance(nodes, str) else nodes
    return World(engine, drawn, *(topologies or (fabric(*levels, HOSTNAME),)))
