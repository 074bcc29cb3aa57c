"""KAI-Scheduler: its PodGroup (``scheduling.run.ai/v2alpha2``) and the annotations of a workload.

Source: KAI topology-aware scheduling design; field names as implemented.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from closeby.objects.bounds import quoted
from closeby.objects.groups import (
    ConstraintSource,
    Layer,
    LayerMode,
    PodGroup,
    Remainder,
    TopologyConstraint,
)
from closeby.objects.quantities import parse_duration
from closeby.objects.reasons import Condition, invalid
from closeby.reading.common.layers import WHOLE_NUMBER, size_of
from closeby.reading.common.podgroups import (
    ConstraintWire,
    PlacementAsk,
    SubGroupWire,
    new_group,
    with_subgroups,
)
from closeby.reading.common.trees import checked
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.keys import (
    KAI_PREFERRED,
    KAI_REQUIRED,
    KAI_SEGMENT,
    KAI_SEGMENT_PREFERRED,
    KAI_SEGMENT_REQUIRED,
    KAI_TOPOLOGY,
    with_queue,
)
from closeby.reading.decoding.preemption_requests import delay_problem, kai_request
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Wire, WithSpec

BATCH_MIN_MEMBER: Final = "kai.scheduler/batch-min-member"


class SpecWire(Wire):
    """``spec``; the design writes ``topologyConstraints``, the implementation ``topologyConstraint``."""

    min_member: int | None = None
    topology_constraint: ConstraintWire | None = None
    topology_constraints: ConstraintWire | None = None
    sub_groups: list[SubGroupWire] | None = None
    min_sub_group: int | None = None
    priority_class_name: str | None = None
    preemptibility: str | None = None
    preemption_delay: str | None = None
    queue: str | None = None


def read_pod_group(document: Document, reading: DocumentReading) -> PodGroup:
    """A gang. With subgroups KAI ignores ``minMember`` of the group: the tree says what is needed.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    spec = wire.spec or SpecWire()
    constraint = spec.topology_constraint or spec.topology_constraints
    subgroups = spec.sub_groups or []
    group = new_group(document, reading, wire.meta)
    group = msgspec.structs.replace(
        group,
        min_member=1 if spec.min_member is None else spec.min_member,
        min_subgroups=spec.min_sub_group,
        priority_class_name=spec.priority_class_name or "",
        annotations=with_queue(group.annotations, spec.queue),
        protected_by=kai_request("spec.preemptibility", spec.preemptibility) or group.protected_by,
    )
    group = _with_delay(group, spec.preemption_delay)
    group = with_subgroups(group, constraint, subgroups, _parents(subgroups))
    return checked(group, given_minimum=not subgroups)


def _with_delay(group: PodGroup, text: str | None) -> PodGroup:
    if text is None:
        return group
    delay = parse_duration(text)
    if delay is None:
        problem = delay_problem(text, f"PodGroup/{group.key}", "spec.preemptionDelay")
        return msgspec.structs.replace(group, conditions=(*group.conditions, problem))
    return msgspec.structs.replace(group, preemption_delay=delay)


def ask(annotations: Mapping[str, str], owner: str, part: str = "metadata.annotations") -> PlacementAsk:
    """What a workload's annotations ask for; ``owner`` and ``part`` name object and field in conditions."""
    topology, required, preferred = (
        annotations.get(key) or None for key in (KAI_TOPOLOGY, KAI_REQUIRED, KAI_PREFERRED)
    )
    layers, problems = _segments(annotations, owner, part)
    constraint = None
    if required or preferred:
        written = ConstraintSource(
            owner=owner,
            required=f'{part}["{KAI_REQUIRED}"]',
            preferred=f'{part}["{KAI_PREFERRED}"]',
            topology=f'{part}["{KAI_TOPOLOGY}"]',
        )
        constraint = TopologyConstraint(
            topology=topology, required=required, preferred=preferred, written=written
        )
    elif topology is not None and not layers and not problems:
        condition = invalid(
            owner,
            f'{part}["{KAI_TOPOLOGY}"]',
            f"names topology {topology} but no level, so it asks for nothing",
            f"add {KAI_REQUIRED} or {KAI_PREFERRED}",
        )
        return PlacementAsk(conditions=(condition,))
    return PlacementAsk(constraint=constraint, layers=layers, conditions=problems)


def _segments(
    annotations: Mapping[str, str], owner: str, part: str
) -> tuple[tuple[Layer, ...], tuple[Condition, ...]]:
    """Segments of pods by their index, of which the last may be smaller.

    A required level comes with a preferred one as two layers of one size.
    """
    size = annotations.get(KAI_SEGMENT)
    levels = {
        key: annotations[key] for key in (KAI_SEGMENT_REQUIRED, KAI_SEGMENT_PREFERRED) if annotations.get(key)
    }
    if size is None and not levels:
        return (), ()

    def refuse(key: str, message: str, remedy: str) -> tuple[tuple[Layer, ...], tuple[Condition, ...]]:
        return (), (invalid(owner, f'{part}["{key}"]', message, remedy, blocking=True),)

    if size is None:
        return refuse(next(iter(levels)), "segments have no size", f"add {KAI_SEGMENT}, or take it out")
    pods = size_of(size)
    if pods is None:
        return refuse(KAI_SEGMENT, f"{quoted(size)} is not a number of pods", WHOLE_NUMBER)
    if not levels:
        # KAI then divides the pods and asks nothing of their places.
        message = f"without {KAI_SEGMENT_REQUIRED} or {KAI_SEGMENT_PREFERRED} segments may be anywhere"
        return (), (invalid(owner, f'{part}["{KAI_SEGMENT}"]', message, "add one of them"),)
    return (
        tuple(
            Layer(
                level=level,
                size=pods,
                mode=LayerMode.REQUIRED if key == KAI_SEGMENT_REQUIRED else LayerMode.PREFERRED,
                remainder=Remainder.ALLOW,
                topology=annotations.get(KAI_TOPOLOGY) or None,
                written=ConstraintSource(
                    owner=owner,
                    required=f'{part}["{key}"]',
                    preferred=f'{part}["{KAI_SEGMENT_PREFERRED}"]',
                    topology=f'{part}["{KAI_TOPOLOGY}"]',
                    size=f'{part}["{KAI_SEGMENT}"]',
                ),
            )
            for key, level in levels.items()
        ),
        (),
    )


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
