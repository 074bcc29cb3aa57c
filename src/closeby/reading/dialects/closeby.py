"""closeby's own PodGroup (``closeby.dev/v1alpha1``). The schema is ours, so unknown fields are errors."""

from typing import Final

import msgspec

from closeby.objects.bounds import quoted
from closeby.objects.groups import Layer, OnPartial, PodGroup
from closeby.objects.quantities import parse_duration
from closeby.objects.reasons import Reason
from closeby.reading.common.layers import LayerWire, read_layers
from closeby.reading.common.plans import read_plan, read_ranks
from closeby.reading.common.podgroups import (
    ConstraintWire,
    DisruptionWire,
    SubGroupWire,
    constraint_of,
    disruption_of,
    new_group,
    with_condition,
    with_strategy,
    with_subgroups,
)
from closeby.reading.common.trees import checked
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import BY_NATURE, GANG, MANAGED_BY, MIRROR_OF, POD_GROUPER
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Meta, ObjectWire, Wire, object_id
from closeby.reading.dialects.places import PlacesWire, with_places


class OwnConstraintWire(ConstraintWire, forbid_unknown_fields=True):
    """``topologyConstraint``."""


class OwnSubGroupWire(SubGroupWire, forbid_unknown_fields=True):
    """``subGroups[]``."""

    topology_constraint: OwnConstraintWire | None = None
    layers: list[LayerWire] | None = None


class OwnPlacementWire(Wire, forbid_unknown_fields=True):
    """``placement``."""

    strategy: str | None = None
    on_partial: str | None = None
    completion_timeout: str | None = None


class OwnDisruptionWire(DisruptionWire, forbid_unknown_fields=True):
    """``disruptionMode``."""


class OwnSpecWire(Wire, forbid_unknown_fields=True):
    """``spec``."""

    min_member: int | None = None
    topology_constraint: OwnConstraintWire | None = None
    sub_groups: list[OwnSubGroupWire] | None = None
    min_sub_group: int | None = None
    layers: list[LayerWire] | None = None
    placement: OwnPlacementWire | None = None
    priority_class_name: str | None = None
    disruption_mode: OwnDisruptionWire | None = None
    places_for: PlacesWire | None = None


class OwnPodGroupWire(ObjectWire, forbid_unknown_fields=True):
    """The object."""

    api_version: str = ""
    kind: str = ""
    spec: OwnSpecWire | None = None
    status: dict[str, object] | None = None


#: Owners whose completions the pod-grouper takes off the minimum.
_COUNTED_DOWN: Final = {"Job", "JobSet"}
_KNOWN: Final = {
    "": OwnPodGroupWire.__struct_encode_fields__,
    "spec": OwnSpecWire.__struct_encode_fields__,
    "spec.disruptionMode": OwnDisruptionWire.__struct_encode_fields__,
    "spec.placement": OwnPlacementWire.__struct_encode_fields__,
    "spec.layers": LayerWire.__struct_encode_fields__,
    "spec.subGroups": OwnSubGroupWire.__struct_encode_fields__,
    "spec.topologyConstraint": OwnConstraintWire.__struct_encode_fields__,
    "spec.subGroups.layers": LayerWire.__struct_encode_fields__,
    "spec.subGroups.topologyConstraint": OwnConstraintWire.__struct_encode_fields__,
}


def read_pod_group(document: Document, reading: DocumentReading) -> PodGroup:
    """A gang. Without ``minMember`` it needs one pod, or what its subgroups need.

    Raises:
        FieldError: a value that can't be read, or a field that does not exist.
    """
    wire = document.decode(OwnPodGroupWire, _KNOWN)
    spec = wire.spec or OwnSpecWire()
    group = msgspec.structs.replace(
        new_group(document, reading, wire.meta),
        min_member=1 if spec.min_member is None else spec.min_member,
        min_subgroups=spec.min_sub_group,
        priority_class_name=spec.priority_class_name or "",
        disruption=disruption_of(spec.disruption_mode),
    )
    mode = spec.disruption_mode
    if mode is not None and mode.all is not None and mode.single is not None:
        message, remedy = "both modes are given, so all members go together", "leave one of them out"
        group = with_condition(
            group, Reason.INVALID_SPEC, "spec.disruptionMode", message, remedy, blocking=False
        )
    subgroups = spec.sub_groups or ()
    parents = [one.parent or None for one in subgroups]
    layered = bool(spec.layers) or any(one.layers for one in subgroups)
    asking = [
        msgspec.structs.replace(one, topology_constraint=_asking(one.topology_constraint, bool(one.layers)))
        for one in subgroups
    ]
    group = with_subgroups(group, _asking(spec.topology_constraint, layered), asking, parents)
    group = _with_layers(group, spec)
    if spec.placement:
        group = with_strategy(group, spec.placement.strategy, "spec.placement.strategy")
        group = _with_policy(group, spec.placement)
    owners = {one.kind for one in wire.meta.owner_references or ()}
    by_the_grouper = wire.meta.label_map.get(MANAGED_BY) == POD_GROUPER
    group = msgspec.structs.replace(
        group,
        plan=read_plan((wire.status or {}).get("plan")),
        ranks=read_ranks((wire.status or {}).get("ranks")),
        mirrors=wire.meta.label_map.get(MIRROR_OF, ""),
        counts_finished=not (by_the_grouper and owners & _COUNTED_DOWN),
        by_nature=_by_nature(wire.meta),
    )
    if spec.places_for is not None:
        group = with_places(group, spec.places_for, reading)
    return checked(group, given_minimum=spec.min_member is not None)


def _asking(constraint: OwnConstraintWire | None, layered: bool) -> OwnConstraintWire | None:
    """The constraint, or None where it only names the topology of layers."""
    return None if layered and constraint_of(constraint) is None else constraint


def _with_layers(group: PodGroup, spec: OwnSpecWire) -> PodGroup:
    """The group and its subgroups with their layers, in the topology that their constraints name."""
    owner = object_id("PodGroup", group.namespace, group.name)
    layers, problems = read_layers(spec.layers, owner, "spec.layers")
    subgroups = []
    for i, (one, wire) in enumerate(zip(group.subgroups, spec.sub_groups or (), strict=True)):
        own, more = read_layers(wire.layers, owner, f"spec.subGroups[{i}].layers")
        own = _in_topology(own, wire.topology_constraint, f"spec.subGroups[{i}]")
        own = _in_topology(own, spec.topology_constraint, "spec")
        subgroups.append(msgspec.structs.replace(one, layers=own))
        problems += more
    layers = _in_topology(layers, spec.topology_constraint, "spec")
    return msgspec.structs.replace(
        group, layers=layers, subgroups=tuple(subgroups), conditions=(*group.conditions, *problems)
    )


def _in_topology(
    layers: tuple[Layer, ...], constraint: OwnConstraintWire | None, owner: str
) -> tuple[Layer, ...]:
    """Layers that name no topology themselves are levels of the one that the constraint of a field names."""
    topology = None if constraint is None else constraint.topology
    if not topology or any(layer.topology for layer in layers):
        return layers
    replace, field = msgspec.structs.replace, f"{owner}.topologyConstraint.topology"
    return tuple(
        replace(layer, topology=topology, written=replace(layer.written, topology=field)) for layer in layers
    )


def _by_nature(meta: Meta) -> str:
    """The kind of the workload that is a gang by nature, as the pod-grouper found."""
    if meta.annotation_map.get(GANG) != BY_NATURE:
        return ""
    return meta.controller.partition("/")[0] or "workload"


def _with_policy(group: PodGroup, placement: OwnPlacementWire) -> PodGroup:
    """What is to become of a start that does not come to its end."""
    policy, timeout = placement.on_partial, placement.completion_timeout
    if policy:
        if policy in set(OnPartial):
            group = msgspec.structs.replace(group, on_partial=OnPartial(policy))
        else:
            group = with_condition(
                group,
                Reason.INVALID_SPEC,
                "spec.placement.onPartial",
                f"{quoted(policy)} is not a policy, so members that are bound keep their nodes",
                f"use {' or '.join(OnPartial)}",
                blocking=False,
            )
    if timeout:
        seconds = parse_duration(timeout)
        if seconds:
            group = msgspec.structs.replace(group, completion_timeout=seconds)
        else:
            group = with_condition(
                group,
                Reason.INVALID_SPEC,
                "spec.placement.completionTimeout",
                f"{quoted(timeout)} is not a span of time greater than zero, "
                f"so {group.completion_timeout:g} s count",
                "write one such as 5m or 1h30m",
                blocking=False,
            )
    return group
