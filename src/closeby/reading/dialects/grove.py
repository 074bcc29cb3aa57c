"""Grove's ``PodCliqueSet`` (``grove.io``): cliques of equal pods, some of them scaled together, that each ask
for a domain; and its ``ClusterTopologyBinding``, which names the levels.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted
from closeby.objects.groups import ConstraintSource, PodGroup, SubGroup, TopologyConstraint
from closeby.objects.topologies import Topology
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.common.trees import checked
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.owners import Owner, at_most, count, numbered, with_role
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.podspecs import PodSpecWire, Present
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.topologies import LevelWire, topology_of
from closeby.reading.decoding.wire import Meta, Wire, WithSpec, object_id

_CLIQUES: Final = ("spec", "template", "cliques")
_GROUPS: Final = ("spec", "template", "podCliqueScalingGroups")


class PackWire(Wire, gc=False):
    """``pack``."""

    required: str | None = None
    preferred: str | None = None


class ConstraintWire(Wire, gc=False):
    """``topologyConstraint``; ``packDomain`` is the older word for ``pack.required``."""

    topology_name: str | None = None
    pack: PackWire | None = None
    pack_domain: str | None = None


class CliqueSpecWire(Wire):
    """``cliques[].spec``."""

    replicas: int | None = None
    min_available: int | None = None
    pod_spec: PodSpecWire | None = None


class CliqueWire(Wire):
    """``cliques[]``."""

    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    topology_constraint: ConstraintWire | None = None
    resource_sharing: list[Present] | None = None
    spec: CliqueSpecWire | None = None


class ScalingGroupWire(Wire):
    """``podCliqueScalingGroups[]``."""

    name: str = ""
    clique_names: list[str] | None = None
    replicas: int | None = None
    min_available: int | None = None
    topology_constraint: ConstraintWire | None = None
    resource_sharing: list[Present] | None = None


class TemplateSpecWire(Wire):
    """``template``."""

    cliques: list[CliqueWire] | None = None
    pod_clique_scaling_groups: list[ScalingGroupWire] | None = None
    priority_class_name: str | None = None
    topology_constraint: ConstraintWire | None = None
    resource_sharing: list[Present] | None = None


class SpecWire(Wire):
    """``spec``."""

    replicas: int | None = None
    template: TemplateSpecWire | None = None


class BindingLevelWire(Wire, gc=False):
    """``levels[]`` of a ClusterTopologyBinding."""

    domain: str = ""
    key: str = ""


class BindingSpecWire(Wire):
    """``spec`` of a ClusterTopologyBinding."""

    levels: list[BindingLevelWire] | None = None


class _Clique(Struct, frozen=True):
    """A clique of one replica of its set, or of its scaling group: its pods and their part of the gang."""

    pods: PodSet
    subgroup: SubGroup


def read_topology_binding(document: Document, reading: DocumentReading) -> Topology:
    """The levels that Grove's users name by their domains.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[BindingSpecWire])
    levels = [
        LevelWire(one.key, one.domain or None) for one in (wire.spec.levels if wire.spec else None) or ()
    ]
    return topology_of(document, reading.name(document, wire.meta), levels)


def read_pod_clique_set(document: Document, reading: DocumentReading) -> Workload:
    """A PodCliqueSet. Replica 1 is the gang ``name-1``, with a subgroup for each clique and, above its
    cliques, for each replica of a scaling group. Replicas beyond a scaling group's minimum are gangs of their
    own; where the set has a constraint, which holds for them too, they are subgroups that may come later.

    Raises:
        FieldError: a value that can't be read.
    """
    return _Reading(document, reading).workload()


class _Reading:
    """One PodCliqueSet."""

    def __init__(self, document: Document, reading: DocumentReading) -> None:
        wire = document.decode(WithSpec[SpecWire])
        self._owner = Owner(document, reading, wire.meta)
        self._id = object_id("PodCliqueSet", self._owner.namespace, self._owner.name)
        self._spec = wire.spec or SpecWire()
        self._template = self._spec.template or TemplateSpecWire()
        self._cliques = {one.name: (i, one) for i, one in enumerate(self._template.cliques or ())}
        self._refuse_names()
        self._topology = _topology_of(self._template.topology_constraint, None)
        self._pod_sets = {name: self._pods_of(i, one) for name, (i, one) in self._cliques.items()}
        self._made: list[PodSet] = []
        self._gangs: dict[str, PodGroup] = {}

    def workload(self) -> Workload:
        replicas = count(self._spec.replicas, ("spec", "replicas"))
        # Before any of them is made: small numbers multiply.
        at_most(replicas * self._size_of_replica(), ("spec", "template"))
        for replica in range(replicas):
            self._replica(f"{self._owner.name}-{replica}")
        return msgspec.structs.replace(self._owner.workload(self._made), gangs=self._gangs)

    def _refuse_names(self) -> None:
        """What Grove's webhook refuses: a name of two cliques or groups, or a clique that is not there."""
        self._owner.distinct([one.name for one in self._template.cliques or ()], _CLIQUES)
        self._owner.distinct([one.name for one in self._groups()], _GROUPS)
        taken: list[str] = []
        for i, group in enumerate(self._groups()):
            for j, name in enumerate(group.clique_names or ()):
                path = (*_GROUPS, i, "cliqueNames", j)
                if name not in self._cliques:
                    self._owner.refuse(path, f"is {quoted(name)}, and no clique is called so")
                elif name in taken:
                    self._owner.refuse(path, f"is {quoted(name)}, which is in a scaling group already")
                taken.append(name)

    def _size_of_replica(self) -> int:
        """At least the pods of a replica; each part counts as a pod even if it has none."""
        pods = {
            name: max(1, count(one.spec.replicas if one.spec else None, (*_CLIQUES, i, "spec", "replicas")))
            for name, (i, one) in self._cliques.items()
        }
        grouped = {name for group in self._groups() for name in group.clique_names or ()}
        total = 1 + sum(number for name, number in pods.items() if name not in grouped)
        for i, group in enumerate(self._groups()):
            each = 1 + sum(pods.get(name, 0) for name in group.clique_names or ())
            total += each * count(group.replicas, (*_GROUPS, i, "replicas"))
        return total

    def _replica(self, name: str) -> None:
        constraint = self._constraint(
            self._template.topology_constraint, ("spec", "template"), self._topology
        )
        grouped = {clique for one in self._groups() for clique in one.clique_names or ()}
        found = [
            self._clique(one, name, one, None, self._topology) for one in self._cliques if one not in grouped
        ]
        inner: list[SubGroup] = []
        later: list[_Clique] = []
        for i, group in enumerate(self._groups()):
            path = (*_GROUPS, i)
            own = self._constraint(group.topology_constraint, path, self._topology)
            topology = _topology_of(group.topology_constraint, self._topology)
            least = count(group.min_available, (*path, "minAvailable"))
            scaled = f"{group.name}-scaled"
            number = count(group.replicas, (*path, "replicas"))
            if constraint is not None and number > least:
                inner.append(SubGroup(name=scaled, min_member=0, min_subgroups=0))
            for j in range(number):
                part = f"{group.name}-{j}"
                members = [
                    self._clique(one, f"{name}-{part}", f"{part}-{one}", part, topology)
                    for one in group.clique_names or ()
                    if one in self._cliques
                ]
                if j < least or constraint is not None:
                    parent = None if j < least else scaled
                    inner.append(SubGroup(name=part, min_member=0, parent=parent, constraint=own))
                    (found if j < least else later).extend(members)
                else:
                    alone = [_Clique(one.pods, _without_parent(one.subgroup)) for one in members]
                    self._gang(f"{name}-{part}", own, (), alone)
        self._gang(name, constraint, inner, found, later)

    def _groups(self) -> Sequence[ScalingGroupWire]:
        return self._template.pod_clique_scaling_groups or ()

    def _pods_of(self, index: int, clique: CliqueWire) -> PodSet:
        """The pods of a clique, without names."""
        path = (*_CLIQUES, index)
        spec = clique.spec or CliqueSpecWire()
        meta = Meta(labels=clique.labels, annotations=clique.annotations)
        template = TemplateWire(metadata=meta, spec=spec.pod_spec)
        sharing = self._template.resource_sharing or clique.resource_sharing
        sharing = sharing or [share for one in self._groups() for share in one.resource_sharing or ()]
        # The controller gives the pods claims that no template shows.
        shared = [f"PodCliqueSet/{self._owner.name} spec.template.*.resourceSharing"] if sharing else []
        pods = self._owner.pod_set(clique.name, (), template, (*path, "spec"), unsupported=shared)
        return with_role(msgspec.structs.replace(pods, path=field_path((*path, "spec", "podSpec"))))

    def _clique(
        self, name: str, above: str, called: str, parent: str | None, topology: str | None
    ) -> _Clique:
        """A clique below ``above``, whose pods are the subgroup ``called``."""
        index, wire = self._cliques[name]
        path: Path = (*_CLIQUES, index)
        spec = wire.spec or CliqueSpecWire()
        replicas = count(spec.replicas, (*path, "spec", "replicas"))
        least = (
            replicas
            if spec.min_available is None
            else count(spec.min_available, (*path, "spec", "minAvailable"))
        )
        pods = msgspec.structs.replace(
            self._pod_sets[name],
            name=called,
            replicas=replicas,
            pod_names=numbered(f"{above}-{name}", replicas),
            part=index,
            indexed=True,
        )
        constraint = self._constraint(wire.topology_constraint, path, topology)
        return _Clique(pods, SubGroup(name=called, min_member=least, parent=parent, constraint=constraint))

    def _gang(
        self,
        name: str,
        constraint: TopologyConstraint | None,
        inner: Sequence[SubGroup],
        needed: Sequence[_Clique],
        later: Sequence[_Clique] = (),
    ) -> None:
        cliques = (*needed, *later)
        self._made += [msgspec.structs.replace(one.pods, gang=name) for one in cliques]
        group = self._owner.gang([one.pods for one in cliques], None, self._template.priority_class_name)
        subgroups = (*inner, *(one.subgroup for one in cliques))
        least = sum(one.subgroup.min_member for one in needed)
        self._gangs[name] = checked(
            msgspec.structs.replace(
                group, name=name, min_member=least, constraint=constraint, subgroups=subgroups
            )
        )

    def _constraint(
        self, wire: ConstraintWire | None, path: Path, topology: str | None
    ) -> TopologyConstraint | None:
        pack = (wire.pack if wire else None) or PackWire()
        required = pack.required or (wire.pack_domain if wire else None) or None
        if wire is None or not (required or pack.preferred):
            return None
        field = field_path((*path, "topologyConstraint"))
        return TopologyConstraint(
            topology=_topology_of(wire, topology),
            required=required,
            # One that is as coarse asks for nothing more.
            preferred=pack.preferred if pack.preferred != required else None,
            written=ConstraintSource(
                owner=self._id,
                required=f"{field}.pack.required",
                preferred=f"{field}.pack.preferred",
                topology=f"{field}.topologyName",
            ),
        )


def _topology_of(wire: ConstraintWire | None, above: str | None) -> str | None:
    return (wire.topology_name if wire else None) or above


def _without_parent(one: SubGroup) -> SubGroup:
    return msgspec.structs.replace(one, parent=None)
