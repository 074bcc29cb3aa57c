"""What the readers of workload objects share: pod sets, their sizes, and whether the work is over."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from closeby.errors import FieldError
from closeby.objects.bounds import quoted
from closeby.objects.groups import PodGroup
from closeby.objects.pods import PodClaim
from closeby.objects.reasons import MOST_CONDITIONS
from closeby.objects.workloads import PodSet, Workload
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path, field_path
from closeby.reading.decoding.keys import members_apart, unread_wishes, wish_path
from closeby.reading.decoding.pods import Identity, TemplateWire, read_template
from closeby.reading.decoding.preemption_requests import preemption_delay, protection_request
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import Meta, Wire, namespace_of, object_id

#: A workload that asks for more pods than any cluster has is a slip, and would fill the memory.
MOST_PODS: Final = 1_000_000

#: A Job's last two are said before its pods are gone; none is made from then on.
_FINISHED: Final = frozenset(
    {"Complete", "Completed", "Succeeded", "Failed", "SuccessCriteriaMet", "FailureTarget"}
)


class ConditionWire(Wire, gc=False):
    """``status.conditions[]``."""

    type: str = ""
    status: str = ""


class CountsWire(Wire, gc=False):
    """What a status says of some pods, or jobs."""

    name: str = ""
    active: int | None = None
    ready: int | None = None
    succeeded: int | None = None
    failed: int | None = None


class StatusWire(Wire):
    """``status``, with the pods of each role or the jobs of each replicated job."""

    conditions: list[ConditionWire] | None = None
    replica_statuses: dict[str, CountsWire | None] | None = None
    replicated_jobs_status: list[CountsWire] | None = None
    jobs_status: list[Any] | None = None


#: What pods wait for whose controller gives them claims that no template shows.
CLAIMS: Final = "spec.volumes[*].persistentVolumeClaim"


class Owner:
    """A workload under construction: what its pod sets need to know of it."""

    def __init__(self, document: Document, reading: DocumentReading, meta: Meta) -> None:
        """Raises ``FieldError`` when the object has no name."""
        self._document = document
        self._reading = reading
        self.meta = meta
        self.namespace = namespace_of(meta)
        self.name = reading.name(document, meta)
        annotations = unread_wishes(meta.annotation_map)
        labels = unread_wishes(meta.label_map, labels=True)
        paths = [wish_path(wish, "metadata.annotations") for wish in annotations if wish.hard]
        paths += [wish_path(wish, "metadata.labels") for wish in labels if wish.hard]
        #: Unsupported hard constraints of the workload; its pods wait because of them.
        self._unsupported = tuple(f"{document.kind}/{self.name} {path}" for path in paths)
        #: What no webhook of its kind accepts; its pods wait because of it.
        self._refused: list[str] = []

    def refuse(self, path: Path, message: str) -> None:
        """Notes what makes its controller refuse the workload."""
        self._refused.append(f"{field_path(path)} of {self._document.kind}/{self.name} {message}")

    def distinct(self, names: Sequence[str], path: Path, field: str = "name") -> None:
        """Refuses a name that two parts of a list at ``path`` have."""
        for i, name in enumerate(names):
            first = names.index(name)
            if first < i:
                at = field_path((*path, first))
                self.refuse((*path, i, field), f"is {quoted(name)}, as that of {at}")

    def pod_set(
        self,
        name: str,
        pod_names: Sequence[str],
        template: TemplateWire | None,
        path: Path,
        *,
        inherited: Mapping[str, str] | None = None,
        unsupported: Sequence[str] = (),
        claims: Sequence[PodClaim] = (),
    ) -> PodSet:
        """Equal pods of a template that stands at ``path``.

        ``inherited`` are annotations of objects between the workload and its pods; ``unsupported`` names
        hard constraints that stand outside of the template; ``claims`` are those that the workload gives to
        its pods.

        Raises:
            FieldError: a value of the template can't be read.
        """
        kind = self._document.kind
        called = object_id(kind, self.namespace, self.name)
        identity = Identity(self.namespace, f"{kind}/{self.name}", called)
        pod = read_template(template, self._reading, identity, path)
        unread = [wish for wish in unread_wishes(inherited or {}) if wish.hard]
        more = (
            *self._unsupported,
            *unsupported,
            *(wish_path(wish, "metadata.annotations") for wish in unread),
        )
        if more or claims:
            spec = msgspec.structs.replace(
                pod.spec,
                unsupported=(*pod.spec.unsupported, *more),
                claims=(*pod.spec.claims, *claims),
            )
            pod = msgspec.structs.replace(pod, spec=self._reading.pool.intern(spec))
        return PodSet(
            name=name,
            replicas=len(pod_names),
            template=pod,
            pod_names=tuple(pod_names),
            template_annotations={**(inherited or {}), **pod.annotations},
            template_labels=pod.labels,
            path=field_path(path),
        )

    def gang(self, pod_sets: Sequence[PodSet], minimum: int | None, priority_class: str | None) -> PodGroup:
        """A gang of all its pods, called like it; without ``minimum`` it needs them all."""
        return PodGroup(
            namespace=self.namespace,
            name=self.name,
            min_member=sum(one.replicas for one in pod_sets) if minimum is None else minimum,
            priority_class_name=priority_class or "",
            created=self.meta.created,
            annotations=self.meta.annotation_map,
            members_apart=members_apart(self.meta.annotation_map),
            protected_by=protection_request(self.meta.annotation_map, self.meta.label_map),
            preemption_delay=preemption_delay(self.meta.annotation_map),
            source=self._document.api_version,
        )

    def workload(
        self, pod_sets: Sequence[PodSet], *, suspended: bool = False, gang: PodGroup | None = None
    ) -> Workload:
        """The finished record."""
        if self._refused:
            pod_sets = [self._waiting(one) for one in pod_sets]
        return Workload(
            kind=self._document.kind,
            namespace=self.namespace,
            name=self.name,
            api_version=self._document.api_version,
            uid=self.meta.uid or "",
            labels=self.meta.label_map,
            annotations=self.meta.annotation_map,
            created=self.meta.created,
            pod_sets=tuple(pod_sets),
            suspended=suspended,
            over=self.meta.deletion_timestamp is not None,
            owner=self.meta.controller,
            gang=gang,
        )

    def _waiting(self, pods: PodSet) -> PodSet:
        spec = pods.template.spec
        spec = msgspec.structs.replace(spec, invalid=(*spec.invalid, *self._refused[:MOST_CONDITIONS]))
        template = msgspec.structs.replace(pods.template, spec=self._reading.pool.intern(spec))
        return msgspec.structs.replace(pods, template=template)


def with_role(pods: PodSet) -> PodSet:
    """The pods have the role that their set is called, unless their template names another."""
    if pods.template.role:
        return pods
    template = msgspec.structs.replace(pods.template, role=pods.name)
    return msgspec.structs.replace(pods, template=template)


def count(number: int | None, path: Path, default: int = 1) -> int:
    """A number of pods.

    Raises:
        FieldError: it is negative, or beyond all sense.
    """
    result = default if number is None else number
    if result < 0:
        raise FieldError(path, f"{result} is negative", "give zero or more")
    return at_most(result, path)


def at_most(pods: int, path: Path) -> int:
    """``pods``, if they are not too many.

    Raises:
        FieldError: they are.
    """
    if pods > MOST_PODS:
        raise FieldError(path, f"{pods} pods are more than {MOST_PODS:,}", "give fewer")
    return pods


def finished(status: StatusWire | None) -> bool:
    """Whether a status says that the work is over, so that no pods will be made any more."""
    conditions = (status.conditions if status else None) or ()
    return any(one.type in _FINISHED and one.status == "True" for one in conditions)


def numbered(prefix: str, number: int, first: int = 0) -> tuple[str, ...]:
    """``prefix-0``, ``prefix-1``, ..."""
    return tuple(f"{prefix}-{i}" for i in range(first, first + number))
