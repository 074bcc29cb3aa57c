"""The topologies that the pod-grouper checks constraints against, those of objects and of node labels."""

from closeby.kube.decoding import Decoded
from closeby.kube.label_topologies import LabelTopologies
from closeby.kube.names import SharedNames
from closeby.kube.resources import NODES, Resource
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.reasons import Condition
from closeby.objects.topologies import Topology
from closeby.scheduling.events import TopologyChanged, TopologyRemoved
from closeby.topology.constraints import resolve
from closeby.topology.labels import LabelTable
from closeby.topology.registry import Topologies


class KnownTopologies:
    """Their names and levels, without a single node in them."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._labels = LabelTopologies()
        self._labelled: frozenset[str] = frozenset()
        self._names = SharedNames(TopologyRemoved)
        self._topologies = Topologies(LabelTable(), ())

    def heard(self, resource: Resource, key: str, read: object) -> None:
        """A node or a Topology appeared, changed or is gone (anything but a record)."""
        record = read.record if isinstance(read, Decoded) else None
        if resource == NODES:
            node = record if isinstance(record, Node) else None
            if node is None:
                self._nodes.pop(key, None)
            else:
                self._nodes[key] = node
            self._labels.see(key, node)
        elif isinstance(record, Topology):
            self._names.put(key, resource, TopologyChanged(record))
        else:
            self._names.drop(key, resource)

    def news(self) -> bool:
        """Whether any topology differs from what it was at the last call."""
        found = self._labels.news(self._nodes.values())
        if found is not None:
            names = frozenset(one.topology.name for one in found)
            for one in found:
                self._names.put(one.topology.name, None, one)
            for gone in sorted(self._labelled - names):
                self._names.drop(gone, None)
            self._labelled = names
        different = False
        for event in self._names.news():
            different = True
            match event:
                case TopologyChanged(topology):
                    self._topologies.declare(topology)
                case TopologyRemoved(name):
                    self._topologies.withdraw(name)
        return different

    def conditions(self, group: PodGroup, owner: str) -> tuple[Condition, ...]:
        """What is wrong with the constraints of a gang; ``owner`` names its PodGroup."""
        found: tuple[Condition, ...] = ()
        if group.constraint is not None:
            found += resolve(group.constraint, self._topologies, owner, "spec.topologyConstraint").conditions
        for i, one in enumerate(group.subgroups):
            if one.constraint is not None:
                field = f"spec.subGroups[{i}].topologyConstraint"
                found += resolve(one.constraint, self._topologies, owner, field).conditions
        return found
