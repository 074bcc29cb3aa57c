"""KAI-Scheduler: its PodGroup (``scheduling.run.ai/v2alpha2``) and the annotations of a workload.

Source: KAI topology-aware scheduling design; field names as implemented.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from closeby.objects.groups import ConstraintSource, PodGroup, TopologyConstraint
from closeby.objects.reasons import Condition, Reason
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import KAI_PREFERRED, KAI_REQUIRED, KAI_TOPOLOGY
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec
from closeby.reading.dialects.podgroups import (
    ConstraintWire,
    PlacementAsk,
    SubGroupWire,
    new_group,
    with_subgroups,
)
from closeby.reading.dialects.trees import checked

BATCH_MIN_MEMBER: Final = "kai.scheduler/batch-min-member"


class SpecWire(Wire):
    """``spec``; the design writes ``topologyConstraints``, the implementation ``topologyConstraint``."""

    min_member: int | None = None
    topology_constraint: ConstraintWire | None = None
    topology_constraints: ConstraintWire | None = None
    sub_groups: list[SubGroupWire] | None = None
    min_sub_group: int | None = None
    priority_class_name: str | None = None


def read_pod_group(document: Document, reading: DocumentReading) -> PodGroup:
    """A gang. With subgroups KAI ignores ``minMember`` of the group: the tree says what is needed.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    spec = wire.spec or SpecWire()
    constraint = spec.topology_constraint or spec.topology_constraints
    subgroups = spec.sub_groups or []
    group = msgspec.structs.replace(
        new_group(document, reading, wire.meta),
        min_member=1 if spec.min_member is None else spec.min_member,
        min_subgroups=spec.min_sub_group,
        priority_class_name=spec.priority_class_name or "",
    )
    group = with_subgroups(group, constraint, subgroups, _parents(subgroups))
    return checked(group, given_minimum=not subgroups)


def ask(annotations: Mapping[str, str], owner: str, part: str = "metadata.annotations") -> PlacementAsk:
    """What a workload's annotations ask for; ``owner`` and ``part`` name object and field in conditions."""
    topology, required, preferred = (
        annotations.get(key) or None for key in (KAI_TOPOLOGY, KAI_REQUIRED, KAI_PREFERRED)
    )
    if required or preferred:
        written = ConstraintSource(
            owner=owner,
            required=f'{part}["{KAI_REQUIRED}"]',
            preferred=f'{part}["{KAI_PREFERRED}"]',
            topology=f'{part}["{KAI_TOPOLOGY}"]',
        )
        return PlacementAsk(
            constraint=TopologyConstraint(
                topology=topology, required=required, preferred=preferred, written=written
            ),
        )
    if topology is None:
        return PlacementAsk()
    condition = Condition(
        reason=Reason.INVALID_SPEC,
        object=owner,
        field=f'{part}["{KAI_TOPOLOGY}"]',
        message=f"names topology {topology} but no level, so it asks for nothing",
        remedy=f"add {KAI_REQUIRED} or {KAI_PREFERRED}",
    )
    return PlacementAsk(conditions=(condition,))


def _parents(subgroups: list[SubGroupWire]) -> list[str | None]:
    """The parents by their true names: KAI looks them up in lower case."""
    names = {one.name.lower(): one.name for one in reversed(subgroups)}
    exact = {one.name for one in subgroups}
    return [
        None
        if not one.parent
        else one.parent
        if one.parent in exact
        else names.get(one.parent.lower(), one.parent)
        for one in subgroups
    ]
