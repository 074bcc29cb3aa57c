"""Upstream Kubernetes' PodGroup (``scheduling.k8s.io`` v1alpha2, v1alpha3, v1beta1) and Workload (v1alpha1).

Source: the gang scheduling and topology-aware workload scheduling KEPs, with the names of ``types.go``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from closeby.objects.bounds import quoted
from closeby.objects.groups import GangTemplate, GangTemplates, PodGroup, TopologyConstraint
from closeby.objects.pods import Pod, WorkloadRef
from closeby.objects.reasons import Condition, Reason
from closeby.reading.common.findings import Findings
from closeby.reading.common.podgroups import DisruptionWire, disruption_of, new_group, with_condition
from closeby.reading.common.trees import checked
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.podspecs import Present
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec, namespace_of, object_id
from closeby.reading.dialects.gangs import read_ask

#: The version of which a Workload says how its pods are grouped, and how to get those of a cluster.
WORKLOAD_VERSION: Final = "scheduling.k8s.io/v1alpha1"
GET_WORKLOADS: Final = "kubectl get workloads.scheduling.k8s.io -A -o yaml"
_ONE_POLICY: Final = ("must be exactly one of basic and gang", "write gang: {minCount: N} or basic: {}")


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
    preemption_policy: str | None = None
    #: In v1alpha2 it is a word.
    disruption_mode: DisruptionWire | str | None = None


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
        preemption_policy=spec.preemption_policy or "",
        disruption=_disruption(spec.disruption_mode),
    )
    if (policy.basic is None) == (policy.gang is None):
        group = with_condition(group, Reason.INVALID_SPEC, "spec.schedulingPolicy", *_ONE_POLICY)
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
        message = "resource claims are not supported yet"
        remedy = "leave the pods to a scheduler that allocates them"
        group = with_condition(group, Reason.UNSUPPORTED, "spec.resourceClaims", message, remedy)
    return checked(group)


#: The words of v1alpha2.
_DISRUPTION_WORDS: Final = {"PodGroup": "all", "Pod": "single"}


def _disruption(mode: DisruptionWire | str | None) -> str:
    """What of the gang is evicted together."""
    if mode is None:
        return ""
    if isinstance(mode, str):
        return _DISRUPTION_WORDS.get(mode, "")
    return disruption_of(mode)


class WorkloadGroupWire(Wire):
    """``podGroups[]`` of a Workload."""

    name: str = ""
    policy: PolicyWire | None = None


class WorkloadSpecWire(Wire):
    """``spec`` of a Workload."""

    pod_groups: list[WorkloadGroupWire] | None = None


def read_workload(document: Document, reading: DocumentReading) -> GangTemplates | None:
    """A Workload of Kubernetes 1.35. Later ones are templates of PodGroups, which say what counts.

    Raises:
        FieldError: a value that can't be read.
    """
    if document.api_version != WORKLOAD_VERSION:
        return None
    wire = document.decode(WithSpec[WorkloadSpecWire])
    namespace, name = namespace_of(wire.meta), reading.name(document, wire.meta)
    found = Findings(object_id("Workload", namespace, name))
    templates = []
    for i, one in enumerate((wire.spec.pod_groups if wire.spec else None) or ()):
        field, policy = f"spec.podGroups[{i}].policy", one.policy or PolicyWire()
        if (policy.basic is None) == (policy.gang is None):
            found.add(field, *_ONE_POLICY, blocking=True)
        elif policy.gang is not None and (policy.gang.min_count or 0) < 1:
            found.add(f"{field}.gang.minCount", "must be at least 1", "give the gang's size", blocking=True)
        templates.append(GangTemplate(name=one.name, min_member=_minimum(policy)))
    ask = read_ask(wire.meta.annotation_map, object_id("Workload", namespace, name))
    return GangTemplates(
        namespace=namespace,
        name=name,
        templates=tuple(templates),
        created=wire.meta.created,
        constraint=ask.constraint,
        layers=ask.layers,
        annotations=wire.meta.annotation_map,
        conditions=(*found.conditions(), *ask.conditions),
    )


def referred_gangs(
    pods: Iterable[Pod], workloads: Mapping[str, GangTemplates]
) -> tuple[tuple[PodGroup, tuple[Pod, ...]], ...]:
    """The gangs of pods that refer to a Workload (by ``namespace/name``), each with its members.

    Where that is not there the gang waits for it.
    """
    members: dict[tuple[str, WorkloadRef], list[Pod]] = {}
    for pod in pods:
        if pod.workload_ref is not None and pod.group is None:
            members.setdefault((pod.namespace, pod.workload_ref), []).append(pod)
    return tuple(
        (_referred(namespace, ref, workloads.get(f"{namespace}/{ref.name}")), tuple(found))
        for (namespace, ref), found in members.items()
    )


def _referred(namespace: str, ref: WorkloadRef, workload: GangTemplates | None) -> PodGroup:
    template = None
    if workload is not None:
        template = next((one for one in workload.templates if one.name == ref.pod_group), None)
    group = PodGroup(
        namespace=namespace,
        name=ref.gang,
        min_member=1 if template is None else template.min_member,
        created=None if workload is None else workload.created,
        constraint=None if workload is None else workload.constraint,
        layers=() if workload is None else workload.layers,
        annotations={} if workload is None else workload.annotations,
        source=WORKLOAD_VERSION,
        conditions=() if workload is None else workload.conditions,
    )
    if template is not None:
        return group
    called = object_id("Workload", namespace, ref.name)
    lack, remedy = (
        (f"{called} does not exist", f"create it; for files, add what {GET_WORKLOADS} prints")
        if workload is None
        else (f"{called} has no pod group {quoted(ref.pod_group)}", "correct spec.workloadRef.podGroup")
    )
    return with_condition(
        group, Reason.GANG_INCOMPLETE, "spec.workloadRef", lack, remedy, owner=f"Pods of {called}"
    )


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
