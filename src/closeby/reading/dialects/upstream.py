"""Upstream Kubernetes' PodGroup (``scheduling.k8s.io`` v1alpha2, v1alpha3, v1beta1).

Source: the gang scheduling and topology-aware workload scheduling KEPs, with the names of ``types.go``.
"""

import msgspec

from closeby.objects.groups import PodGroup, TopologyConstraint
from closeby.objects.reasons import Condition, Reason
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.podspecs import Present
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec, namespace_of, object_id
from closeby.reading.dialects.podgroups import new_group, with_condition
from closeby.reading.dialects.trees import checked


class GangWire(Wire, gc=False):
    """``gang``."""

    min_count: int | None = None


class PolicyWire(Wire):
    """``schedulingPolicy``, one of two."""

    basic: Present | None = None
    gang: GangWire | None = None


class TopologyKeyWire(Wire, gc=False):
    """``topology[]``; ``level`` is the older spelling of ``key``."""

    key: str | None = None
    level: str | None = None


class ConstraintsWire(Wire):
    """``schedulingConstraints``."""

    topology: list[TopologyKeyWire] | None = None


class SpecWire(Wire):
    """``spec``."""

    scheduling_policy: PolicyWire | None = None
    scheduling_constraints: ConstraintsWire | None = None
    parent_composite_pod_group_name: str | None = None
    resource_claims: list[Present] | None = None
    priority_class_name: str | None = None
    priority: int | None = None


def read_pod_group(document: Document, reading: DocumentReading) -> PodGroup:
    """A gang, or (policy basic) a group without all-or-nothing: its minimum is 0.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[SpecWire])
    spec = wire.spec or SpecWire()
    policy = spec.scheduling_policy or PolicyWire()
    group = msgspec.structs.replace(
        new_group(document, reading, wire.meta),
        min_member=_minimum(policy),
        priority_class_name=spec.priority_class_name or "",
        priority=spec.priority,
    )
    if (policy.basic is None) == (policy.gang is None):
        message, remedy = "must be exactly one of basic and gang", "write gang: {minCount: N} or basic: {}"
        group = with_condition(group, Reason.INVALID_SPEC, "spec.schedulingPolicy", message, remedy)
    elif policy.gang is not None and (policy.gang.min_count or 0) < 1:
        field = "spec.schedulingPolicy.gang.minCount"
        group = with_condition(
            group, Reason.INVALID_SPEC, field, "must be at least 1", "give the gang's size"
        )
    group = _with_topology(group, spec.scheduling_constraints)
    if spec.parent_composite_pod_group_name:
        message = f"composite {spec.parent_composite_pod_group_name} is not supported yet"
        remedy = "use subGroups of a closeby.dev PodGroup"
        field = "spec.parentCompositePodGroupName"
        group = with_condition(group, Reason.UNSUPPORTED, field, message, remedy)
    if spec.resource_claims:
        message, remedy = "resource claims are not supported yet", "request devices as extended resources"
        group = with_condition(group, Reason.UNSUPPORTED, "spec.resourceClaims", message, remedy)
    return checked(group)


def read_composite(document: Document, reading: DocumentReading) -> None:
    """A CompositePodGroup is reported; the PodGroups that name it wait.

    Raises:
        FieldError: a value that can't be read.
    """
    meta = document.decode(ObjectWire).meta
    reading.notices.append(
        Condition(
            reason=Reason.UNSUPPORTED,
            object=object_id("CompositePodGroup", namespace_of(meta), reading.name(document, meta)),
            message="composite pod groups are not supported yet",
            remedy="use subGroups of a closeby.dev PodGroup",
        )
    )


def _minimum(policy: PolicyWire) -> int:
    if policy.gang is None:
        return 0
    return 1 if policy.gang.min_count is None else policy.gang.min_count


def _with_topology(group: PodGroup, constraints: ConstraintsWire | None) -> PodGroup:
    field = "spec.schedulingConstraints.topology"
    keys = (constraints.topology if constraints else None) or []
    if len(keys) > 1:
        message, remedy = "more than one topology key is not supported", "keep the narrowest"
        return with_condition(group, Reason.UNSUPPORTED, field, message, remedy)
    for one in keys:
        level = one.key or one.level
        if not level:
            return with_condition(group, Reason.INVALID_SPEC, f"{field}[0].key", "is missing", "name a label")
        group = msgspec.structs.replace(group, constraint=TopologyConstraint(required=level))
    return group
