"""Reads Kubernetes' own workload objects: Job, Deployment, ReplicaSet, ReplicationController, StatefulSet.

Also what else says which pods belong together: Service and Namespace.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from closeby.errors import FieldError
from closeby.objects.labels import NAMESPACE_NAME
from closeby.objects.selectors import LabelSelector, Namespace, PodOwner
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.claims import ClaimWire, selector_of, templates_of
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.owners import MOST_PODS, Owner, StatusWire, count, finished, numbered
from closeby.reading.decoding.pods import TemplateWire
from closeby.reading.decoding.podspecs import Present
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.selectors import LabelSelectorWire, Refusal, label_selector, map_selector
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec, namespace_of

#: Two indices are shorter.
_LONGEST_INTERVAL: Final = 24


class OrdinalsWire(Wire):
    """``ordinals`` of a StatefulSet."""

    start: int | None = None


class ReplicatedSpecWire(Wire):
    """``spec`` of Deployment, ReplicaSet, ReplicationController and StatefulSet."""

    replicas: int | None = None
    template: TemplateWire | None = None
    pod_management_policy: str | None = None
    ordinals: OrdinalsWire | None = None
    #: A label selector; of a ReplicationController labels that must be there.
    selector: dict[str, object] | None = None
    volume_claim_templates: list[ClaimWire] | None = None


class ServiceSpecWire(Wire):
    """``spec`` of a Service."""

    selector: dict[str, str] | None = None


class SchedulingPolicyWire(Wire):
    """``scheduling.schedulingPolicy``, one of two."""

    basic: Present | None = None
    gang: Present | None = None


class JobSchedulingWire(Wire):
    """``scheduling`` (Kubernetes 1.37): the PodGroup that the Job's controller creates."""

    scheduling_policy: SchedulingPolicyWire | None = None
    scheduling_constraints: Present | None = None
    resource_claims: list[Present] | None = None


class JobSpecWire(Wire):
    """``spec`` of a Job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    pod_replacement_policy: str | None = None
    pod_failure_policy: Present | None = None
    template: TemplateWire | None = None
    scheduling: JobSchedulingWire | None = None


class JobStatusWire(StatusWire):
    """``status`` of a Job; indices are written like ``0,2-5``."""

    active: int | None = None
    succeeded: int | None = None
    completed_indexes: str | None = None
    failed_indexes: str | None = None


class JobWire(ObjectWire):
    """A Job."""

    spec: JobSpecWire | None = None
    status: JobStatusWire | None = None


def read_replicated(document: Document, reading: DocumentReading) -> Workload:
    """A Deployment, ReplicaSet or ReplicationController.

    Raises:
        FieldError: a value that can't be read.
    """
    return _replicated(document, reading, indexed=False)


def read_stateful_set(document: Document, reading: DocumentReading) -> Workload:
    """A StatefulSet; its pods are numbered, and made one after another unless its policy is ``Parallel``.

    Raises:
        FieldError: a value that can't be read.
    """
    return _replicated(document, reading, indexed=True)


def read_namespace(document: Document, reading: DocumentReading) -> Namespace:
    """A Namespace, with the label that the API server gives it.

    Raises:
        FieldError: a value that can't be read.
    """
    meta = document.decode(ObjectWire).meta
    name = reading.name(document, meta)
    return Namespace(name=name, labels={**meta.label_map, NAMESPACE_NAME: name})


def read_service(document: Document, reading: DocumentReading) -> PodOwner:
    """A Service, of which the selector is read.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[ServiceSpecWire])
    selector = map_selector(wire.spec.selector if wire.spec else None)
    return PodOwner(
        kind="Service",
        namespace=namespace_of(wire.meta),
        name=reading.name(document, wire.meta),
        selector=selector,
    )


class SelectingSpecWire(Wire):
    """``spec`` of a ReplicaSet or StatefulSet."""

    selector: LabelSelectorWire | None = None


def read_selecting(document: Document, reading: DocumentReading) -> PodOwner:
    """What a ReplicaSet, StatefulSet or ReplicationController selects, and nothing else of it.

    Raises:
        FieldError: a value that can't be read.
    """
    if document.group:
        wire = document.decode(WithSpec[SelectingSpecWire])
        meta = wire.meta
        selector = selector_of(wire.spec.selector if wire.spec else None, ("spec", "selector"))
    else:
        older = document.decode(WithSpec[ServiceSpecWire])
        meta, selector = older.meta, map_selector(older.spec.selector if older.spec else None)
    return PodOwner(
        kind=document.kind, namespace=namespace_of(meta), name=reading.name(document, meta), selector=selector
    )


def read_job(document: Document, reading: DocumentReading) -> Workload:
    """A Job. Pods at a time: ``parallelism``, but not more than are still to complete.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(JobWire)
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or JobSpecWire()
    status = wire.status or JobStatusWire()
    names = numbered(owner.name, 0 if finished(status) else pods_of_job(spec, ("spec",)))
    unsupported = _unread_scheduling(spec.scheduling, owner)
    pods = owner.pod_set(owner.name, names, spec.template, ("spec", "template"), unsupported=unsupported)
    # The server writes 1 for the completions of a Job that gives neither number.
    completions = 1 if spec.completions is None and spec.parallelism is None else spec.completions
    done = (*_indices(status.completed_indexes, completions), *_indices(status.failed_indexes, completions))
    pods = msgspec.structs.replace(
        pods,
        indexed=spec.completion_mode == "Indexed",
        completions=completions,
        completed=status.succeeded or 0,
        done=frozenset(done),
        kept=("Succeeded",),
        replaced=replaces_at_once(spec),
        until_first=completions is None,
        active=status.active or 0,
    )
    return owner.workload((pods,), suspended=bool(spec.suspend))


def pods_of_job(spec: JobSpecWire, path: tuple[str | int, ...]) -> int:
    """How many pods a Job runs at a time when none has completed.

    Raises:
        FieldError: a number makes no sense; ``path`` says where the Job's ``spec`` stands.
    """
    parallelism = count(spec.parallelism, (*path, "parallelism"))
    return min(parallelism, count(spec.completions, (*path, "completions"), default=parallelism))


def replaces_at_once(spec: JobSpecWire) -> bool:
    """Whether a Job does not wait for the end of a pod that is being deleted.

    One with a ``podFailurePolicy`` waits by default.
    """
    default = "TerminatingOrFailed" if spec.pod_failure_policy is None else "Failed"
    return (spec.pod_replacement_policy or default) != "Failed"


def _indices(text: str | None, completions: int | None) -> Iterator[int]:
    """Indices of a status; what its controller can't have written counts as not written."""
    after = 0
    for interval in text.split(",") if text and completions else ():
        first, _, last = interval.partition("-")
        if len(interval) < _LONGEST_INTERVAL and first.isdecimal() and (last or first).isdecimal():
            end = min(int(last or first) + 1, completions or 0, MOST_PODS)
            yield from range(max(after, int(first)), end)
            after = max(after, end)


def _unread_scheduling(wire: JobSchedulingWire | None, owner: Owner) -> list[str]:
    """The parts of ``scheduling`` that make the Job's pods wait: all but the policy ``basic``."""
    if wire is None:
        return []
    policy = wire.scheduling_policy or SchedulingPolicyWire()
    found = {
        "schedulingPolicy.gang": policy.gang,
        "schedulingConstraints": wire.scheduling_constraints,
        "resourceClaims": wire.resource_claims or None,
    }
    return [f"Job/{owner.name} spec.scheduling.{name}" for name, part in found.items() if part is not None]


def _replicated(document: Document, reading: DocumentReading, *, indexed: bool) -> Workload:
    wire = document.decode(WithSpec[ReplicatedSpecWire])
    owner = Owner(document, reading, wire.meta)
    spec = wire.spec or ReplicatedSpecWire()
    first = spec.ordinals.start if indexed and spec.ordinals else None
    first = count(first, ("spec", "ordinals", "start"), default=0)
    names = numbered(owner.name, count(spec.replicas, ("spec", "replicas")), first)
    claims = templates_of(spec.volume_claim_templates, ("spec", "volumeClaimTemplates")) if indexed else ()
    pods: PodSet = owner.pod_set(owner.name, names, spec.template, ("spec", "template"), claims=claims)
    at_start = 1 if indexed and spec.pod_management_policy != "Parallel" else None
    pods = msgspec.structs.replace(
        pods, indexed=indexed, first_index=first, at_start=at_start, replaced=not indexed
    )
    workload = owner.workload((pods,))
    selector = _selector(document, spec, reading, workload.id)
    return msgspec.structs.replace(workload, selector=selector)


def _selector(
    document: Document, spec: ReplicatedSpecWire, reading: DocumentReading, called: str
) -> LabelSelector | None:
    if spec.selector is None:
        return None
    plain = document.kind == "ReplicationController"
    value = {"matchLabels": spec.selector} if plain else spec.selector
    try:
        wire = msgspec.convert(value, LabelSelectorWire)
    except msgspec.ValidationError as error:
        raise FieldError(("spec", "selector"), "is not a label selector", "correct it") from error
    refused: list[Refusal] = []
    selector = label_selector(wire, ("spec", "selector"), refused)
    for path, message, remedy in refused:
        reading.refused(field_path(path), message, remedy, called)
    return selector
