"""Takes documents one by one, has each read by its reader, and keeps what comes out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.errors import FieldError
from closeby.objects.applications import AppGroup, NetworkTopology
from closeby.objects.bounds import quoted
from closeby.objects.groups import GangTemplates, PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodDisruptionBudget, PriorityClass, ResourceClaim, RuntimeClass
from closeby.objects.reasons import MOST_CONDITIONS, Condition, Problem, Reason, invalid
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import ClusterQueue, HyperNode, LocalQueue, ResourceFlavor, Topology
from closeby.objects.volumes import StorageObject
from closeby.objects.words import plural
from closeby.objects.workloads import TrainingRuntime, TrainJob, Workload
from closeby.reading.common.plans import completed
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.result import Manifests
from closeby.reading.decoding.wire import object_id
from closeby.reading.dialects.hypernodes import HyperTree
from closeby.reading.dialects.trainer import job_sets_of
from closeby.reading.known_fields import FieldCheck, conditions_of
from closeby.reading.node_parts import NodeParts, is_part
from closeby.reading.registry import (
    NOTED,
    OWN_GROUP,
    READERS,
    Record,
    groups_meant,
    irrelevant,
    meant,
    own_kinds,
)
from closeby.reading.resolving import Resolving

_OF_MANY_DIALECTS: Final = PodGroup | Topology | AppGroup | NetworkTopology


class _Kept(Struct, frozen=True):
    """A record and where it was read."""

    record: Record
    file: str
    document: int
    position: Path

    @property
    def place(self) -> str:
        item = f", {field_path(self.position)}" if self.position else ""
        return f"{self.file}, document {self.document}{item}"


class Collection:
    """Objects by kind, namespace and name, with the place each was read at."""

    def __init__(self) -> None:
        self._reading = DocumentReading()
        self._known_fields = FieldCheck()
        self._node_parts = NodeParts()
        self._kept: dict[tuple[str, str, str], _Kept] = {}
        self._others: Counter[str] = Counter()
        self._unknown: Counter[tuple[str, str]] = Counter()
        #: The first document of each unknown kind.
        self._first: dict[tuple[str, str], Document] = {}
        self._notices: list[Condition] = []
        self._errors: list[Problem] = []

    def fail(self, error: Problem) -> None:
        """Notes what can't be read."""
        self._errors.append(error)

    def add(self, document: Document) -> None:
        """Reads one document; whatever is wrong with it is noted, never raised."""
        try:
            self._read(document)
        except FieldError as problem:
            self._errors.append(document.error(problem, _called(document)))
        except RecursionError:
            self._errors.append(document.error(FieldError((), "is nested too deeply", "flatten it")))

    def manifests(self) -> Manifests:
        """All that was read."""
        kept = [entry.record for entry in self._kept.values()]
        kept += self._made_of_train_jobs(kept)
        notices = [
            *self._notices,
            *(_unknown_kind(self._first[key], number) for key, number in self._unknown.items()),
        ]
        pods, shared = self._with_own_uids()
        claims = tuple(one for one in kept if isinstance(one, ResourceClaim))
        resolving = Resolving((one for one in kept if isinstance(one, RuntimeClass)), claims, pods)
        nodes, alone, contradictions = self._node_parts.merged(
            (entry.record, entry.place) for entry in self._kept.values() if isinstance(entry.record, Node)
        )
        hypernodes = [one for one in kept if isinstance(one, HyperNode)]
        tree = HyperTree(hypernodes)
        made = (tree.topology,) if tree.topology is not None else ()
        notices += [*alone, *shared, *(wrong for one in hypernodes for wrong in one.conditions)]
        return Manifests(
            nodes=tuple(tree.labelled(one) for one in nodes) if hypernodes else tuple(nodes),
            pods=tuple(resolving.pod(one) for one in pods),
            groups=_gangs([one for one in kept if isinstance(one, PodGroup)]),
            topologies=(*(one for one in kept if isinstance(one, Topology)), *made),
            priority_classes=tuple(one for one in kept if isinstance(one, PriorityClass)),
            flavors=tuple(one for one in kept if isinstance(one, ResourceFlavor)),
            cluster_queues=tuple(one for one in kept if isinstance(one, ClusterQueue)),
            local_queues=tuple(one for one in kept if isinstance(one, LocalQueue)),
            workloads=tuple(resolving.workload(one) for one in kept if isinstance(one, Workload)),
            gang_templates=tuple(one for one in kept if isinstance(one, GangTemplates)),
            app_groups=tuple(one for one in kept if isinstance(one, AppGroup)),
            network_topologies=tuple(one for one in kept if isinstance(one, NetworkTopology)),
            namespaces=tuple(one for one in kept if isinstance(one, Namespace)),
            services=tuple(one for one in kept if isinstance(one, PodOwner)),
            storage=tuple(one for one in kept if isinstance(one, StorageObject)),
            resource_claims=claims,
            budgets=tuple(one for one in kept if isinstance(one, PodDisruptionBudget)),
            others=dict(sorted(self._others.items())),
            notices=(
                *self._reading.all_notices(),
                *sorted(notices, key=lambda one: (one.object, one.message)),
            ),
            shared=self._reading.shared(),
            errors=(*self._errors, *contradictions),
        )

    def _made_of_train_jobs(self, kept: Sequence[Record]) -> list[Record]:
        """The JobSets that TrainJobs amount to with their runtimes."""
        found: list[Record] = []
        workloads = [one for one in kept if isinstance(one, Workload)]
        runtimes = [one for one in kept if isinstance(one, TrainingRuntime)]
        for job in (one for one in kept if isinstance(one, TrainJob)):
            try:
                for made in job_sets_of([job], runtimes, workloads, self._reading):
                    if isinstance(made, Workload):
                        found.append(made)
                    else:
                        self._notices.append(made)
            except FieldError as problem:
                entry = self._kept["TrainJob", job.namespace, job.name]
                place = Document(file=entry.file, number=entry.document, position=entry.position)
                self._errors.append(place.error(problem, object_id("TrainJob", job.namespace, job.name)))
        return found

    def _read(self, document: Document) -> None:
        group, kind = document.group, document.kind
        entry = READERS.get((group, kind))
        if entry is not None:
            version = document.api_version.rpartition("/")[2]
            if not entry.versions or version in entry.versions:
                record = entry.read(document, self._reading)
                if record is not None:
                    self._keep(document, record)
                else:
                    self._others[kind] += 1
                unknown = self._known_fields.unknown(document)
                if unknown:
                    namespace = getattr(record, "namespace", "")
                    owner = object_id(document.kind, namespace, record.name) if record else _called(document)
                    for key, condition in conditions_of(document, unknown, owner).items():
                        self._reading.note(key, condition)
                return
        elif group == OWN_GROUP:
            remedy = f"known kinds: {', '.join(own_kinds())}"
            raise FieldError(("kind",), f"{quoted(kind)} is not a kind of {OWN_GROUP}", remedy)
        elif (group, kind) in NOTED:
            self._others[kind] += 1
            self._notices.append(_noted(document, NOTED[group, kind]))
            return
        elif irrelevant(group, kind) and meant(group, kind) is None:
            self._others[kind] += 1
            return
        self._unknown[document.api_version, kind] += 1
        self._first.setdefault((document.api_version, kind), document)

    def _keep(self, document: Document, record: Record) -> None:
        kind, namespace, name = key = _key(document, record)
        kept = _Kept(record, document.file, document.number, document.position)
        before = self._kept.get(key)
        if isinstance(record, Node) and is_part(record):
            self._node_parts.add(document, record, kept.place)
            self._kept.setdefault(key, kept)
            return
        if before is None or (isinstance(before.record, Node) and is_part(before.record)):
            self._kept[key] = kept
            return
        if not _same(before.record, record):
            message = f"is already defined differently in {before.place}"
            raise FieldError(("metadata", "name"), message, "keep one of the two, or rename one")
        self._notices.append(
            Condition(
                reason=Reason.INVALID_SPEC,
                object=object_id(kind.rpartition("/")[2], namespace, name),
                message=f"is given twice, in {before.place} and in {kept.place}",
                remedy="the second is ignored",
            )
        )

    def _with_own_uids(self) -> tuple[list[Pod], list[Condition]]:
        """The pods, each with a uid of its own: in copies of a manifest it is forgotten, and would make two
        pods one. The one that runs, or else the first by name, keeps it.
        """
        found = [(entry.record, entry) for entry in self._kept.values() if isinstance(entry.record, Pod)]
        number = Counter(pod.uid for pod, _ in found)
        if len(number) == len(found):
            return [pod for pod, _ in found], []
        sharing = [one for one in found if number[one[0].uid] > 1]
        sharing.sort(key=lambda one: (one[0].node_name is None, one[0].namespace, one[0].name))
        owners: dict[str, tuple[Pod, _Kept]] = {}
        copies: dict[str, Condition] = {}
        for pod, entry in sharing:
            first, place = owners.setdefault(pod.uid, (pod, entry))
            if first is not pod:
                copies[pod.key] = _copied(pod, entry, first, place)
        pods = [msgspec.structs.replace(pod, uid=pod.key) if pod.key in copies else pod for pod, _ in found]
        return pods, list(_first(list(copies.values())))


def _copied(pod: Pod, entry: _Kept, first: Pod, place: _Kept) -> Condition:
    return invalid(
        object_id("Pod", pod.namespace, pod.name),
        "metadata.uid",
        f"{quoted(pod.uid)} ({entry.place}) is also the uid of Pod/{first.key} ({place.place}); both are "
        "placed, as different pods",
        "remove it from the copy",
    )


def _first(conditions: Sequence[Condition]) -> Sequence[Condition]:
    """So many that they can be read; the last one counts the others."""
    more = len(conditions) - MOST_CONDITIONS
    if more <= 0:
        return conditions
    last = conditions[MOST_CONDITIONS - 1]
    told = msgspec.structs.replace(last, message=f"{last.message}; {plural(more, 'more pod')} likewise")
    return (*conditions[: MOST_CONDITIONS - 1], told)


def _key(document: Document, record: Record) -> tuple[str, str, str]:
    """What makes an object unique. Gangs, topologies, app groups and network topologies of all dialects share
    one space of names each: a reference does not say the dialect.
    """
    kind = document.kind
    if isinstance(record, Workload):
        kind = f"{document.group}/{kind}"
    elif isinstance(record, PodGroup) and record.mirrors:
        kind = f"{record.mirrors} mirror/{kind}"
    return kind, getattr(record, "namespace", ""), record.name


def _gangs(groups: Sequence[PodGroup]) -> tuple[PodGroup, ...]:
    """The gangs, with what their mirrors keep."""
    mirrors = {one.key: one for one in groups if one.mirrors}
    return tuple(completed(one, mirrors.get(one.key)) for one in groups if not one.mirrors)


def _same(one: Record, other: Record) -> bool:
    if isinstance(one, _OF_MANY_DIALECTS) and isinstance(other, _OF_MANY_DIALECTS):
        return one == msgspec.structs.replace(other, source=one.source)
    return one == other


def _called(document: Document) -> str:
    """``Kind/namespace/name`` of a document that can't be read, as far as it says."""
    try:
        content = document.plain()
    except RecursionError:
        return document.kind
    metadata = content.get("metadata") if isinstance(content, Mapping) else None
    fields = metadata if isinstance(metadata, Mapping) else {}
    name = fields.get("name") or fields.get("generateName")
    namespace = fields.get("namespace") or ""
    if not name:
        return f"{document.kind} at {field_path(document.position)}" if document.position else document.kind
    return object_id(document.kind, str(namespace), str(name))


def _noted(document: Document, message: str) -> Condition:
    return Condition(
        reason=Reason.UNSUPPORTED,
        object=_called(document),
        message=f"{document.kind} {message}",
        remedy="it is ignored",
    )


def _api_version(group: str, written: Document) -> str:
    """The API version of a group that was meant: its newest that is known, else the version as written.

    With the kind, where only its case is wrong.
    """
    known = {kind.casefold(): (kind, entry) for (of, kind), entry in READERS.items() if of == group}
    kind, entry = known.get(written.kind.casefold(), (written.kind, None))
    versions = () if entry is None else entry.versions
    version = written.api_version.rpartition("/")[2]
    if versions and version not in versions:
        version = versions[-1]
    called = f"{group}/{version}" if versions or written.group else f"the group {group}"
    return called if kind == written.kind else f"{called} {kind}"


def _unknown_kind(first: Document, number: int) -> Condition:
    api_version, group, kind = first.api_version, first.group, first.kind
    entry = READERS.get((group, kind))
    right = meant(group, kind) if entry is None else None
    what = f"{api_version} {kind} is a kind that closeby does not know"
    if entry is not None:
        versions = ", ".join(f"{group}/{version}" for version in entry.versions)
        what = f"{api_version} is a version of {kind} that closeby does not know; it knows {versions}"
    if number > 1:
        what += f" ({number} objects)"
    ignored = "it is ignored" if number == 1 else "they are ignored"
    groups = groups_meant(group, kind) if entry is None and right is None else ()
    if right is None and not groups:
        return Condition(reason=Reason.UNSUPPORTED, object=kind, message=what, remedy=ignored)
    field = "kind" if right is not None else "apiVersion"
    line = first.find_line((*first.position, field))
    place = f"{first.file}, document {first.number}" + (f", line {line}" if line else "")
    return invalid(
        _called(first),
        field,
        f"{what}; {ignored} ({place})",
        f"did you mean {right or ' or '.join(_api_version(one, first) for one in groups)}?",
    )
