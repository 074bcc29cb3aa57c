"""Reads ``AppGroup`` of the network-aware scheduling KEP, in the KEP's own shape and as it was published.

The KEP lists ``spec.Pods[]`` with ``name`` and ``dependencies[].name``; the group
``appgroup.diktyo.x-k8s.io`` lists ``spec.workloads[]`` with ``workload.selector`` and
``dependencies[].workload``.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field

from closeby.objects.applications import AppGroup
from closeby.reading.common.findings import Findings
from closeby.reading.common.spelling import KnownFields, check_spelling
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec, namespace_of, object_id
from closeby.reading.dialects.app_graphs import Call, CallWire, Drafts, GraphDraft, judged


class KepCallWire(CallWire):
    """``dependencies[]`` in the KEP."""

    name: str = ""


class KepPodWire(Wire):
    """``Pods[]``. The KEP's example writes ``dependencies: {podAffinity: P2}`` too."""

    name: str = ""
    dependencies: list[KepCallWire] | dict[str, str | list[str]] | None = None


class SpecWire(Wire):
    """What both shapes have in ``spec``."""

    num_members: int | None = None
    topology_sorting_algorithm: str | None = None


class KepSpecWire(SpecWire):
    """``spec`` in the KEP, which writes ``Pods`` with a capital against the custom of Kubernetes."""

    pods: list[KepPodWire] | None = field(name="Pods", default=None)
    lower_pods: list[KepPodWire] | None = field(name="pods", default=None)


class WorkloadWire(Wire, gc=False):
    """``workload``: what the published shape calls a Deployment or the like by."""

    kind: str = ""
    name: str = ""
    selector: str = ""
    namespace: str = ""


class PublishedCallWire(CallWire):
    """``dependencies[]`` as published."""

    workload: WorkloadWire | None = None


class EntryWire(Wire):
    """``workloads[]``."""

    workload: WorkloadWire | None = None
    dependencies: list[PublishedCallWire] | None = None


class PublishedSpecWire(SpecWire):
    """``spec`` as published."""

    workloads: list[EntryWire] | None = None


_CALL: Final[dict[str, KnownFields | None]] = dict.fromkeys(("weight", "minBandwidth", "maxNetworkCost"))
_SPEC: Final[dict[str, KnownFields | None]] = dict.fromkeys(("numMembers", "topologySortingAlgorithm"))
_KEP_POD: Final = KnownFields(
    {
        "name": None,
        "type": None,
        "dependencies": KnownFields({"name": None, "type": None, "podAffinity": None, **_CALL}),
    }
)
_KEP: Final = KnownFields(
    {
        "spec": KnownFields(
            {"Pods": _KEP_POD, "pods": _KEP_POD, **_SPEC},
            renamed={"workloads": "Pods", "Workloads": "Pods"},
        )
    }
)
_WORKLOAD: Final = KnownFields(dict.fromkeys(("kind", "name", "selector", "apiVersion", "namespace")))
_ENTRY: Final = KnownFields(
    {"workload": _WORKLOAD, "dependencies": KnownFields({"workload": _WORKLOAD, **_CALL})}
)
_PUBLISHED: Final = KnownFields(
    {"spec": KnownFields({"workloads": _ENTRY, **_SPEC}, renamed={"Pods": "workloads", "pods": "workloads"})}
)
_POD_AFFINITY: Final = "podAffinity"


class _Object(Struct, frozen=True):
    """What is known of an AppGroup before its graph is."""

    group: AppGroup
    findings: Findings


def read_kep(document: Document, reading: DocumentReading) -> AppGroup:
    """An AppGroup in the KEP's shape; one that can't be used comes with blocking conditions.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[KepSpecWire])
    spec = wire.spec or KepSpecWire()
    start = _start(document, reading, wire, spec)
    check_spelling(document.plain(), _KEP, start.findings)
    name = "pods" if spec.pods is None and spec.lower_pods is not None else "Pods"
    drafts = []
    for i, pod in enumerate(spec.pods or spec.lower_pods or ()):
        place = f"spec.{name}[{i}]"
        calls = _kep_calls(pod, f"{place}.dependencies", start.findings)
        drafts.append(GraphDraft(name=pod.name, place=place, field=f"{place}.name", calls=calls))
    return judged(start.group, Drafts(f"spec.{name}", drafts), start.findings)


def read_published(document: Document, reading: DocumentReading) -> AppGroup:
    """An AppGroup as published; one that can't be used comes with blocking conditions.

    Workloads are called by their selector, which is what their pods carry.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[PublishedSpecWire])
    spec = wire.spec or PublishedSpecWire()
    start = _start(document, reading, wire, spec)
    check_spelling(document.plain(), _PUBLISHED, start.findings)
    entries = spec.workloads or []
    names = _names(entries, start.findings)
    selectors = {_called(entry.workload) for entry in entries}
    drafts = []
    for i, entry in enumerate(entries):
        place = f"spec.workloads[{i}]"
        calls = []
        for j, call in enumerate(entry.dependencies or ()):
            called = call.workload or WorkloadWire()
            target = called.selector
            if target not in selectors:
                target = names.get(called.name) or target or called.name
            at = f"{place}.dependencies[{j}]"
            calls.append(Call(workload=target, place=at, field=f"{at}.workload.selector", wire=call))
        drafts.append(
            GraphDraft(
                name=_called(entry.workload), place=place, field=f"{place}.workload.selector", calls=calls
            )
        )
    return judged(start.group, Drafts("spec.workloads", drafts), start.findings)


def _start(document: Document, reading: DocumentReading, wire: ObjectWire, spec: SpecWire) -> _Object:
    meta = wire.meta
    namespace, name = namespace_of(meta), reading.name(document, meta)
    group = AppGroup(
        namespace=namespace,
        name=name,
        uid=meta.uid or "",
        algorithm=spec.topology_sorting_algorithm or "",
        num_members=spec.num_members,
        created=meta.created,
        source=document.api_version,
    )
    return _Object(group, Findings(object_id("AppGroup", namespace, name)))


def _kep_calls(pod: KepPodWire, place: str, findings: Findings) -> list[Call]:
    """The dependencies of a pod, in either of the KEP's two ways to write them."""
    if isinstance(pod.dependencies, list):
        return [
            Call(workload=one.name, place=f"{place}[{i}]", field=f"{place}[{i}].name", wire=one)
            for i, one in enumerate(pod.dependencies)
        ]
    calls = []
    for key, value in (pod.dependencies or {}).items():
        if key != _POD_AFFINITY:
            message = f"{key} is not a way to name dependencies"
            remedy = "it is ignored; list them as `- name: ...`, or name them under podAffinity"
            findings.add(f"{place}.{key}", message, remedy)
            continue
        for name in [value] if isinstance(value, str) else value:
            at = f"{place}.{key}"
            calls.append(Call(workload=name, place=at, field=at, wire=KepCallWire()))
    return calls


def _called(workload: WorkloadWire | None) -> str:
    return (workload.selector or workload.name) if workload else ""


def _names(entries: Sequence[EntryWire], findings: Findings) -> dict[str, str]:
    """Workload names to selectors; a name that stands for two selectors means the first."""
    names: dict[str, str] = {}
    seen: dict[tuple[str, str, str], tuple[int, str]] = {}
    for i, entry in enumerate(entries):
        one = entry.workload
        if one is None or not one.name:
            continue
        names.setdefault(one.name, _called(one))
        first, selector = seen.setdefault((one.kind, one.namespace, one.name), (i, _called(one)))
        if selector != _called(one):
            message = f"{one.name} is already workload {first}, with selector {selector}"
            remedy = "give each workload once; a dependency that gives only the name means the first"
            findings.add(f"spec.workloads[{i}].workload.name", message, remedy)
    return names
