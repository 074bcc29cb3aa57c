"""What the readers of all PodGroup dialects share."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import quoted
from closeby.objects.groups import Layer, LayerMode, PodGroup, Strategy, SubGroup, TopologyConstraint
from closeby.objects.reasons import Condition, Reason
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import (
    PLACEMENT_STRATEGY,
    PLAN,
    members_apart,
    wish_conditions,
)
from closeby.reading.decoding.podspecs import Present
from closeby.reading.decoding.preemption_requests import delay_problems, preemption_delay, protection_request
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Meta, Wire, namespace_of, object_id

STRATEGY_FIELD: Final = f'metadata.annotations["{PLACEMENT_STRATEGY}"]'


class ConstraintWire(Wire):
    """``topologyConstraint`` (KAI topology-aware scheduling design)."""

    topology: str | None = None
    required_topology_level: str | None = None
    preferred_topology_level: str | None = None


class SubGroupWire(Wire):
    """``subGroups[]``."""

    name: str = ""
    min_member: int | None = None
    parent: str | None = None
    topology_constraint: ConstraintWire | None = None
    min_sub_group: int | None = None


class DisruptionWire(Wire):
    """``disruptionMode``: one of two."""

    all: Present | None = None
    single: Present | None = None


def disruption_of(mode: DisruptionWire | None) -> str:
    """What of a gang is evicted together, as in ``PodGroup.disruption``."""
    if mode is None:
        return ""
    return "all" if mode.all is not None else "single" if mode.single is not None else ""


def new_group(document: Document, reading: DocumentReading, meta: Meta) -> PodGroup:
    """A group with what every dialect takes from ``metadata``: name, annotations, strategy, age.

    Raises:
        FieldError: there is no name.
    """
    namespace, name = namespace_of(meta), reading.name(document, meta)
    annotations = meta.annotation_map
    owner = object_id("PodGroup", namespace, name)
    group = PodGroup(
        namespace=namespace,
        name=name,
        uid=meta.uid or "",
        created=meta.created,
        annotations={key: value for key, value in annotations.items() if key != PLAN},
        members_apart=members_apart(annotations),
        protected_by=protection_request(annotations, meta.label_map),
        preemption_delay=preemption_delay(annotations),
        owner=meta.controller,
        source=document.api_version,
        conditions=wish_conditions(annotations, owner)
        + wish_conditions(meta.label_map, owner, "metadata.labels")
        + delay_problems(annotations, owner),
    )
    return with_strategy(group, annotations.get(PLACEMENT_STRATEGY), STRATEGY_FIELD)


def with_subgroups(
    group: PodGroup,
    constraint: ConstraintWire | None,
    subgroups: Sequence[SubGroupWire],
    parents: Sequence[str | None],
) -> PodGroup:
    """The group with its constraint and its tree; ``parents`` by name, one for each subgroup."""
    group = msgspec.structs.replace(
        group,
        constraint=constraint_of(constraint),
        subgroups=tuple(
            SubGroup(
                name=one.name,
                min_member=1 if one.min_member is None else one.min_member,
                parent=parent,
                constraint=constraint_of(one.topology_constraint),
                min_subgroups=one.min_sub_group,
            )
            for one, parent in zip(subgroups, parents, strict=True)
        ),
    )
    group = _with_level_check(group, constraint, "spec.topologyConstraint")
    for i, one in enumerate(subgroups):
        group = _with_level_check(group, one.topology_constraint, f"spec.subGroups[{i}].topologyConstraint")
    return group


def with_strategy(group: PodGroup, text: str | None, field: str, *, owner: str = "") -> PodGroup:
    """The group with its strategy, or with a blocking condition if it is unknown."""
    if not text:
        return group
    try:
        return msgspec.structs.replace(group, strategy=Strategy(text))
    except ValueError:
        remedy = f"use {' or '.join(Strategy)}"
        message = f"{quoted(text)} is not a strategy"
        return with_condition(group, Reason.INVALID_SPEC, field, message, remedy, owner=owner)


def with_condition(
    group: PodGroup,
    reason: Reason,
    field: str,
    message: str,
    remedy: str,
    *,
    blocking: bool = True,
    owner: str = "",
) -> PodGroup:
    """The group with one more condition; ``owner`` names the object at fault where it is not the group."""
    condition = Condition(
        reason=reason,
        object=owner or object_id("PodGroup", group.namespace, group.name),
        field=field,
        message=message,
        remedy=remedy,
        blocking=blocking,
    )
    return msgspec.structs.replace(group, conditions=(*group.conditions, condition))


def constraint_of(wire: ConstraintWire | None) -> TopologyConstraint | None:
    """The constraint, or None where no level is asked for."""
    if wire is None or not (wire.required_topology_level or wire.preferred_topology_level):
        return None
    return TopologyConstraint(
        topology=wire.topology or None,
        required=wire.required_topology_level or None,
        preferred=wire.preferred_topology_level or None,
    )


def _with_level_check(group: PodGroup, wire: ConstraintWire | None, field: str) -> PodGroup:
    """Says so where a topology is named but no level of it, which asks for nothing."""
    if wire is None or not wire.topology or constraint_of(wire) is not None:
        return group
    message = f"names topology {wire.topology} but no level, so it asks for nothing"
    remedy = "add requiredTopologyLevel or preferredTopologyLevel"
    return with_condition(group, Reason.INVALID_SPEC, field, message, remedy, blocking=False)


class PlacementAsk(Struct, frozen=True, kw_only=True):
    """A wish for closeness, for none at all, or nothing."""

    constraint: TopologyConstraint | None = None
    #: Coarse to fine; of the pods of one template, where it is written there.
    layers: tuple[Layer, ...] = ()
    #: Pod sets with this name are together where the constraint says so.
    together: str = ""
    #: The author says that the pods may be anywhere.
    unconstrained: bool = False
    conditions: tuple[Condition, ...] = ()

    @property
    def given(self) -> bool:
        """Whether anything about placement was said, understood or not."""
        placed = self.constraint is not None or bool(self.layers)
        return placed or self.unconstrained or bool(self.conditions)

    @property
    def wanted(self) -> tuple[object, ...]:
        """What is asked for, wherever it is written."""
        return self.constraint, self.layers, self.together, self.unconstrained

    @property
    def required(self) -> bool:
        """Whether it asks for something without which a placement would be wrong."""
        layered = any(layer.mode is LayerMode.REQUIRED for layer in self.layers)
        return layered or (self.constraint is not None and self.constraint.required is not None)
