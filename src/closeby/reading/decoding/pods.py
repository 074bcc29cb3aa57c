"""Reads ``Pod`` and pod templates."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.labels import TASK_SPEC
from closeby.objects.pods import Pod, PodResourceClaim, PriorityClass, RuntimeClass, WorkloadRef
from closeby.objects.reasons import MOST_CONDITIONS, invalid
from closeby.reading.decoding.affinity import TolerationWire, tolerations_of
from closeby.reading.decoding.bandwidth import LIMITS, read_bandwidth_limits
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.keys import (
    CHECKPOINTED,
    EXPECTED_END,
    KAI_PREEMPTION_DELAY,
    POD_GROUP,
    ROLE,
    SUBGROUP,
    unread_wishes,
    wish_path,
)
from closeby.reading.decoding.podspecs import PodSpecWire, claims_of
from closeby.reading.decoding.preemption_requests import delay_problems
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.requests import read_amounts, whole_amounts
from closeby.reading.decoding.resizing import ResizeStatusWire, hold_what_it_has
from closeby.reading.decoding.wire import ObjectWire, Quantities, Wire, namespace_of, seconds

KAI_SUBGROUP: Final = "kai.scheduler/subgroup-name"

#: Where a pod may name its group, the first one given counts: annotation (True) or label.
_GROUP_KEYS: Final = (
    ("pod-group-name", True),
    (POD_GROUP, False),
    ("scheduling.x-k8s.io/pod-group", False),
    ("pod-group.scheduling.sigs.k8s.io", False),
    ("scheduling.k8s.io/group-name", True),
)
_LWS_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
#: Indices given by controllers, as label or annotation.
_INDEX_KEYS: Final = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "training.kubeflow.org/replica-index",
    _LWS_INDEX,
    "volcano.sh/task-index",
    "kueue.x-k8s.io/pod-group-pod-index",
)
_ANY_INDEX: Final = frozenset(_INDEX_KEYS)
#: A JobSet counts its jobs within their replicated job, and through all of them in the order of the spec.
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_GLOBAL_INDEX: Final = "jobset.sigs.k8s.io/job-global-index"
#: Indices of the job or replica that a pod belongs to.
_JOB_KEYS: Final = (_JOB_INDEX, "leaderworkerset.sigs.k8s.io/group-index")
_TRAINING_ROLE_KEYS: Final = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
_RAY_NODE: Final = "ray.io/node-type"
#: What says which part of its workload a pod is, and of which job.
_PART_KEYS: Final = frozenset((*_JOB_KEYS, *_TRAINING_ROLE_KEYS, _RAY_NODE, _LWS_INDEX))
#: Roles of training jobs in the order of their ranks; roles that are not here come last.
_TRAINING_ROLES: Final = {"launcher": 0, "master": 0, "chief": 0, "worker": 1}
#: Where a pod's role stands: what Volcano writes, closeby's own label, and what other controllers write.
_ROLE_LABELS: Final = (
    TASK_SPEC,
    ROLE,
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    "jobset.sigs.k8s.io/replicatedjob-name",
)
_ROLE_KEYS: Final = frozenset(_ROLE_LABELS)
_LONGEST_NUMBER: Final = 10
#: Seconds; Kubernetes takes no longer one.
_LONGEST_DEADLINE: Final = 2**31 - 1
#: Seconds that a pod without one has to terminate.
_USUAL_GRACE: Final = 30


class DeviceClaimStatusWire(Wire, gc=False):
    """``resourceClaimStatuses[]``."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatusWire(ResizeStatusWire, gc=False):
    """``status``."""

    phase: str | None = None
    start_time: datetime | None = None
    resource_claim_statuses: list[DeviceClaimStatusWire] | None = None


class PodWire(ObjectWire):
    """A pod."""

    spec: PodSpecWire | None = None
    status: PodStatusWire | None = None


class TemplateWire(ObjectWire):
    """``template`` of a controller: a pod without a status."""

    spec: PodSpecWire | None = None


class Identity(Struct, frozen=True):
    """Who a pod is; ``called`` is its name in messages."""

    namespace: str
    name: str
    called: str


def read_pod(document: Document, reading: DocumentReading) -> Pod:
    """A pod with its own name.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(PodWire)
    meta = wire.meta
    name, namespace = reading.name(document, meta), namespace_of(meta)
    called = f"Pod/{namespace}/{name}"
    for part, entries in (("annotations", meta.annotations), ("labels", meta.labels)):
        found = unread_wishes(entries or {}, labels=part == "labels")
        soft = [wish for wish in found if not wish.hard]
        for wish in soft[:MOST_CONDITIONS]:
            reading.unread(wish, called, f"metadata.{part}")
        if len(soft) > MOST_CONDITIONS:
            reading.unread_too(len(soft) - MOST_CONDITIONS, called, f"metadata.{part}")
    deadline = wire.spec.active_deadline_seconds if wire.spec else None
    started = wire.status.start_time if wire.status else None
    pod = _pod(wire, reading, Identity(namespace, name, called), ("spec",))
    if deadline is not None or EXPECTED_END in pod.annotations:
        ends = _ends(started, deadline, pod.annotations.get(EXPECTED_END), reading, called)
        pod = msgspec.structs.replace(pod, ends=ends)
    if wire.meta.deletion_timestamp is not None:
        pod = msgspec.structs.replace(pod, deleted_by=seconds(wire.meta.deletion_timestamp))
    if CHECKPOINTED in pod.annotations:
        checkpointed = _moment(CHECKPOINTED, pod.annotations[CHECKPOINTED], reading, called)
        pod = msgspec.structs.replace(pod, checkpointed=checkpointed)
    return pod


def read_template(wire: TemplateWire | None, reading: DocumentReading, owner: Identity, path: Path) -> Pod:
    """The pod that a template describes, called after its owner (``Kind/name``) until it gets a name.

    The reader of its owner reports its unsupported wishes.

    Raises:
        FieldError: a value that can't be read; ``path`` says where the template stands.
    """
    pod = _pod(_own_copy(wire or TemplateWire()), reading, owner, (*path, "spec"))
    return msgspec.structs.replace(pod, owner=owner.name)


def _own_copy(wire: TemplateWire) -> TemplateWire:
    """A template that may be read again, by which two sets of pods are made: reading takes from a spec what
    belongs to one pod, and from its volumes the names of claims.
    """
    if wire.spec is None:
        return wire
    volumes = wire.spec.volumes and [msgspec.structs.replace(one) for one in wire.spec.volumes]
    return msgspec.structs.replace(wire, spec=msgspec.structs.replace(wire.spec, volumes=volumes))


def _pod(wire: PodWire | TemplateWire, reading: DocumentReading, identity: Identity, path: Path) -> Pod:
    meta = wire.meta
    labels, annotations = meta.label_map, meta.annotation_map
    spec_wire = wire.spec or PodSpecWire()
    node_name = spec_wire.node_name or None
    status = wire.status if isinstance(wire, PodWire) else None
    if node_name is not None and status is not None:
        hold_what_it_has(spec_wire, status)
    group_field = spec_wire.scheduling_group.pod_group_name if spec_wire.scheduling_group else None
    refers = spec_wire.workload_ref
    deadline, grace = spec_wire.active_deadline_seconds, spec_wire.termination_grace_period_seconds
    grace = _USUAL_GRACE if grace is None else min(max(grace, 0), _LONGEST_DEADLINE)
    unmet, claims = _resource_claims(spec_wire, status)
    try:
        volume_claims = claims_of(spec_wire, identity.name) if spec_wire.volumes else ()
        read = reading.pool.read(spec_wire)
    except FieldError as error:
        raise FieldError((*path, *error.path), error.message, error.remedy) from error
    spec = read.needs
    for place, message, remedy in read.refused:
        reading.refused(field_path((*path, *place)), message, remedy, identity.called)
    hard = [wish_path(wish, "metadata.annotations") for wish in unread_wishes(annotations) if wish.hard]
    hard += [wish_path(wish, "metadata.labels") for wish in unread_wishes(labels, labels=True) if wish.hard]
    hard += unmet
    if volume_claims:
        spec = reading.pool.intern(msgspec.structs.replace(spec, claims=volume_claims))
    if hard:
        spec = reading.pool.intern(msgspec.structs.replace(spec, unsupported=(*spec.unsupported, *hard)))
    limits = None
    if annotations and not LIMITS.isdisjoint(annotations):
        part = field_path((*path[:-1], "metadata", "annotations"))
        limits = read_bandwidth_limits(annotations, spec.requests, reading, identity.called, part)
    for problem in delay_problems(annotations, identity.called) if annotations else ():
        reading.note(f"{KAI_PREEMPTION_DELAY}={annotations[KAI_PREEMPTION_DELAY]}", problem)
    divided = not _PART_KEYS.isdisjoint(labels)
    started = None if status is None else status.start_time
    return Pod(
        namespace=identity.namespace,
        name=identity.name,
        uid=meta.uid or f"{identity.namespace}/{identity.name}",
        spec=spec,
        labels=labels,
        annotations=annotations,
        node_name=node_name,
        phase=(status and status.phase) or "Pending",
        started=None if started is None else seconds(started),
        created=meta.created,
        terminating=meta.deletion_timestamp is not None,
        group=_group(labels, annotations) or group_field,
        workload_ref=None
        if refers is None
        else WorkloadRef(refers.name, refers.pod_group, refers.pod_group_replica_key or ""),
        resource_claims=claims,
        subgroup=labels.get(SUBGROUP) or labels.get(KAI_SUBGROUP),
        part=_part(labels) if divided else 0,
        job=_job(labels) if divided else 0,
        index=_index(labels, annotations),
        owner=meta.controller,
        role=_role(labels, annotations),
        bandwidth_limits=limits,
        lasts=None if deadline is None else _lasts(deadline, grace),
        grace=grace,
    )


def _resource_claims(
    spec: PodSpecWire, status: PodStatusWire | None
) -> tuple[list[str], tuple[PodResourceClaim, ...]]:
    """Where claims stand, for each of which the pod waits until it is allocated, and those with a name.

    A claim that a controller was to make, and that the status names as not needed, is none.
    """
    if not spec.resource_claims:
        return [], ()
    unmet, named = [], []
    made = {one.name: one for one in (status and status.resource_claim_statuses) or ()}
    for i, one in enumerate(spec.resource_claims or ()):
        name = one.resource_claim_name
        if name is None and one.name in made:
            name = made[one.name].resource_claim_name
            if name is None:
                continue
        unmet.append(f"spec.resourceClaims[{i}]")
        if name:
            named.append(PodResourceClaim(unmet[-1], name))
    return unmet, tuple(named)


def _ends(
    started: datetime | None,
    deadline: int | None,
    expected: str | None,
    reading: DocumentReading,
    called: str,
) -> float | None:
    """When a pod is done, by its deadline and by what its owner expects."""
    ends = []
    if started is not None and deadline is not None and 0 < deadline <= _LONGEST_DEADLINE:
        ends.append(seconds(started) + deadline)
    if expected is not None and (moment := _moment(EXPECTED_END, expected, reading, called)) is not None:
        ends.append(moment)
    return min(ends, default=None)


def _lasts(deadline: int, grace: int) -> float | None:
    """By when a pod is gone, in seconds from its start; None where it may take any time."""
    if not 0 < deadline <= _LONGEST_DEADLINE:
        return None
    return float(deadline + grace)


def _moment(key: str, text: str, reading: DocumentReading, called: str) -> float | None:
    """The time that an annotation of a pod says."""
    try:
        return seconds(msgspec.convert(text, datetime))
    except msgspec.ValidationError:
        field = field_path((key,), "metadata.annotations")
        message, remedy = f"{quoted(text)} is not a time", "write it like 2030-01-31T12:00:00Z"
        reading.note(f"{key}={text}", invalid(called, field, message, remedy))
        return None


def _group(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str | None:
    for key, annotated in _GROUP_KEYS:
        name = (annotations if annotated else labels).get(key)
        if name:
            return name
    return None


def _role(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    role = annotations.get(TASK_SPEC)
    if role or _ROLE_KEYS.isdisjoint(labels):
        return role or ""
    return next((labels[key] for key in _ROLE_LABELS if labels.get(key)), "")


def _index(labels: Mapping[str, str], annotations: Mapping[str, str]) -> int | None:
    if _ANY_INDEX.isdisjoint(labels) and _ANY_INDEX.isdisjoint(annotations):
        return None
    for key in _INDEX_KEYS:
        text = labels.get(key) or annotations.get(key)
        if text is not None:
            return _number(text)
    return None


def _job(labels: Mapping[str, str]) -> int:
    found = (_number(labels.get(key)) for key in _JOB_KEYS)
    return next((number for number in found if number is not None), 0)


def _part(labels: Mapping[str, str]) -> int:
    """Where its replicated job or its role stands in the spec; 0 for the only one."""
    through, within = _number(labels.get(_GLOBAL_INDEX)), _number(labels.get(_JOB_INDEX))
    if through is not None and within is not None:
        # The jobs of one replicated job are counted one after another, so all its pods have one difference.
        return max(0, through - within)
    role = next((labels[key] for key in _TRAINING_ROLE_KEYS if key in labels), None)
    if role is not None:
        return part_of_role(role)
    if _LWS_INDEX in labels:
        return int(labels[_LWS_INDEX] != "0")
    return int(labels.get(_RAY_NODE, "head") != "head")


def part_of_role(role: str) -> int:
    """Where the pods of a role stand among those of a training job, whose spec has roles in no order."""
    return _TRAINING_ROLES.get(role.lower(), 2)


def _number(text: str | None) -> int | None:
    """A number that a controller wrote; anything else counts as not written."""
    if text is None or not text.isdecimal() or len(text) > _LONGEST_NUMBER:
        return None
    return int(text)


class PriorityClassWire(ObjectWire):
    """A named priority."""

    value: int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


def read_priority_class(document: Document, reading: DocumentReading) -> PriorityClass:
    """A priority class.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(PriorityClassWire)
    return PriorityClass(
        name=reading.name(document, wire.meta),
        value=wire.value,
        global_default=bool(wire.global_default),
        preemption_policy=wire.preemption_policy or "",
    )


class OverheadWire(Wire):
    """``overhead`` of a runtime class."""

    pod_fixed: Quantities | None = None


class RuntimeSchedulingWire(Wire):
    """``scheduling`` of a runtime class."""

    node_selector: dict[str, str] | None = None
    tolerations: list[TolerationWire] | None = None


class RuntimeClassWire(ObjectWire):
    """A runtime class."""

    overhead: OverheadWire | None = None
    scheduling: RuntimeSchedulingWire | None = None


def read_runtime_class(document: Document, reading: DocumentReading) -> RuntimeClass:
    """A runtime class.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(RuntimeClassWire)
    fixed = wire.overhead.pod_fixed if wire.overhead else None
    scheduling = wire.scheduling or RuntimeSchedulingWire()
    return RuntimeClass(
        name=reading.name(document, wire.meta),
        overhead=whole_amounts(read_amounts(fixed, ("overhead", "podFixed")), ("overhead", "podFixed")),
        node_selector=tuple(sorted((scheduling.node_selector or {}).items())),
        tolerations=tolerations_of(scheduling.tolerations, ("scheduling", "tolerations")),
    )
