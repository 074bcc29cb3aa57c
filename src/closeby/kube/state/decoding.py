"""Reads a live object with the readers of manifests, so that both become the very same records."""

from collections import OrderedDict
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from closeby.errors import FieldError
from closeby.kube.watch.changes import Upserted
from closeby.kube.watch.resources import ABOUT_OWNERS, Resource
from closeby.objects.labels import TASK_SPEC
from closeby.objects.pods import Pod
from closeby.objects.process import Contained, brief
from closeby.objects.reasons import Condition, Reason
from closeby.reading.common.exclusive import unmet
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import field_path
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.workloads import read_selecting
from closeby.reading.dialects.gangs import read_ask
from closeby.reading.registry import READERS, Entry, Record

#: Objects after which the pool of equal specs starts over, so that specs of objects that are gone are let go.
_POOLED: Final = 200_000
#: Objects of at least so many bytes are read again only when more than their status changed, and of how many
#: that is known. Reading a megabyte takes some 200 ms.
_LARGE: Final = 16 << 10
_LARGE_KEPT: Final = 64
#: Kinds of which no reader reads the status. (The costs of a NetworkTopology are in its status.)
_BY_SPEC: Final = frozenset({"AppGroup"})
#: Of workloads only the selector is needed: their pods are there.
_SELECTING: Final = Entry(read_selecting)


class _Meta(Struct, frozen=True, rename="camel"):
    """What may be read of ``metadata``."""

    uid: str = ""
    labels: msgspec.Raw = msgspec.Raw()
    annotations: msgspec.Raw = msgspec.Raw()
    creation_timestamp: msgspec.Raw = msgspec.Raw()


class _Object(Struct, frozen=True):
    metadata: _Meta
    spec: msgspec.Raw = msgspec.Raw()


_parts: Final = msgspec.json.Decoder(_Object).decode


class Decoded(Struct, frozen=True):
    """An object as a record (None if it says nothing that closeby uses), and what is worth telling of it."""

    record: Record | None
    notices: tuple[Condition, ...] = ()


class Decoder:
    """Reads objects one by one; equal specs of pods become one object, as when a manifest is read."""

    def __init__(self, together: DocumentReading | None = None, *, selectors: bool = False) -> None:
        """``together`` gathers what is worth telling of all objects, each thing once; else each object tells
        its own. With ``selectors`` nothing else is read of the kinds that own pods (``ABOUT_OWNERS``).
        """
        self._selecting: frozenset[str] = ABOUT_OWNERS if selectors else frozenset()
        self._together = together
        #: Of one object, as long as nothing is noted about it.
        self._alone = DocumentReading()
        self._read = 0
        #: By kind and name of large objects: a digest of what was read, and what came of it.
        self._large: OrderedDict[tuple[Resource, str], tuple[bytes, Decoded]] = OrderedDict()

    def read(self, resource: Resource, change: Upserted) -> Decoded | Condition:
        """The record, or what is wrong with the object."""
        with Contained() as reading:
            if resource.kind in _BY_SPEC and len(change.raw) >= _LARGE and self._together is None:
                return self._read_large(resource, change)
            return self._read_it(resource, change)
        # One object that a reader stumbles over must not keep closeby from all the others.
        why = "" if reading.error is None else brief(reading.error)
        message = f"reading it failed unexpectedly, which is a fault of closeby: {why}"
        return _problem(resource, change, (), message, Reason.UNSUPPORTED)

    def _read_large(self, resource: Resource, change: Upserted) -> Decoded | Condition:
        """The same, unless nothing but the status differs from what was read last."""
        try:
            found = _parts(change.raw)
        except msgspec.DecodeError:
            return self._read_it(resource, change)
        meta, digest = found.metadata, sha256(found.spec)
        digest.update(b"\0".join((meta.uid.encode(), meta.labels, meta.annotations, meta.creation_timestamp)))
        key, now = (resource, change.key), digest.digest()
        before = self._large.pop(key, None)
        if before is not None and before[0] == now:
            self._large[key] = before
            return before[1]
        read = self._read_it(resource, change)
        if isinstance(read, Decoded):
            self._large[key] = now, read
            if len(self._large) > _LARGE_KEPT:
                self._large.popitem(last=False)
        return read

    def _read_it(self, resource: Resource, change: Upserted) -> Decoded | Condition:
        entry = (
            _SELECTING if resource.kind in self._selecting else READERS.get((resource.group, resource.kind))
        )
        if entry is None or (entry.versions and resource.version not in entry.versions):
            return _problem(resource, change, (), f"{resource.api_version} is not read", Reason.UNSUPPORTED)
        reading = self._reading()
        document = Document(
            file="cluster",
            number=1,
            api_version=resource.api_version,
            kind=resource.kind,
            raw=change.raw,
        )
        try:
            record = entry.read(document, reading)
        except FieldError as error:
            return _problem(resource, change, error.path, error.message, remedy=error.remedy)
        except (msgspec.DecodeError, RecursionError) as error:
            return _problem(resource, change, (), f"can't be read: {error}")
        return Decoded(record) if self._together or reading.silent else Decoded(record, reading.all_notices())

    def _reading(self) -> DocumentReading:
        self._read += 1
        reading = self._together or self._alone
        if self._read > _POOLED:
            self._read = 0
            reading.pool = DocumentReading().pool
        if self._together is None and not reading.silent:
            # What was noted about the object before is no concern of the next.
            self._alone = DocumentReading()
            self._alone.pool = reading.pool
        return self._together or self._alone


def _problem(
    resource: Resource,
    change: Upserted,
    path: tuple[str | int, ...],
    message: str,
    reason: Reason = Reason.INVALID_SPEC,
    remedy: str = "",
) -> Condition:
    return Condition(
        reason=reason,
        object=f"{resource.kind}/{change.key}",
        field=field_path(path),
        message=message,
        remedy=remedy,
        blocking=True,
    )


def in_its_task(pod: Pod) -> Pod:
    """A member of a Volcano job is in the subgroup of its task, for which the PodGroup may have a minimum."""
    if pod.group is None or pod.subgroup is not None:
        return pod
    task = pod.annotations.get(TASK_SPEC) or pod.labels.get(TASK_SPEC)
    return msgspec.structs.replace(pod, subgroup=task) if task else pod


def held_for_its_gang(pod: Pod) -> Pod:
    """A pod whose annotations ask for a gang's placement, and that names no gang, waits until it does.

    Placed alone it would break what it requires.
    """
    if pod.group is not None:
        return pod
    if pod.workload_ref is not None:
        called = pod.workload_ref.name
        lack = f"spec.workloadRef, as no pod-grouper (closeby controllers) reads Workload {called}"
        return held(pod, lack)
    key = unmet(pod)
    if key is not None:
        return held(pod, f"{key}, without a PodGroup")
    ask = read_ask(pod.annotations, f"Pod/{pod.key}")
    if not ask.required and not any(one.blocking for one in ask.conditions):
        return pod
    return held(pod, "annotations that require a placement, without a PodGroup")


def held(pod: Pod, lack: str) -> Pod:
    """The pod so that it waits, as closeby can't honour this."""
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, unsupported=(*pod.spec.unsupported, lack))
    )
