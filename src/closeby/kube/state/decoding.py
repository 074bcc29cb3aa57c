"""Reads a live object with the readers of manifests, so that both become the very same records."""

from typing import Final

import msgspec
from msgspec import Struct

from closeby.kube.watch.changes import Upserted
from closeby.kube.watch.resources import Resource
from closeby.objects.decoding.documents import Document
from closeby.objects.decoding.errors import FieldError, field_path
from closeby.objects.decoding.reading import Reading
from closeby.objects.decoding.registry import READERS, Record
from closeby.objects.reasons import Condition, Reason
from closeby.objects.unexpected import Contained, brief

#: Objects after which the pool of equal specs is begun anew, so that specs nobody has any more are let go.
_POOLED: Final = 200_000


class Decoded(Struct, frozen=True):
    """An object as a record (None if it says nothing that closeby uses), and what is worth telling of it."""

    record: Record | None
    notices: tuple[Condition, ...] = ()


class Decoder:
    """Reads objects one by one; equal specs of pods become one object, as when a manifest is read."""

    def __init__(self, together: Reading | None = None) -> None:
        """``together`` gathers what is worth telling of all objects, each thing once; else each object tells
        its own.
        """
        self._together = together
        self._pool = Reading().pool
        self._read = 0

    def read(self, resource: Resource, change: Upserted) -> Decoded | Condition:
        """The record, or what is wrong with the object."""
        with Contained() as reading:
            return self._read_it(resource, change)
        # One object that a reader stumbles over must not keep closeby from all the others.
        why = "" if reading.error is None else brief(reading.error)
        message = f"reading it failed unexpectedly, which is a fault of closeby: {why}"
        return _problem(resource, change, (), message, Reason.UNSUPPORTED)

    def _read_it(self, resource: Resource, change: Upserted) -> Decoded | Condition:
        entry = READERS.get((resource.group, resource.kind))
        if entry is None or (entry.versions and resource.version not in entry.versions):
            return _problem(resource, change, (), f"{resource.api_version} is not read", Reason.UNSUPPORTED)
        self._read += 1
        if self._read > _POOLED:
            self._read = 0
            self._pool = Reading().pool
        reading = self._together or Reading()
        reading.pool = self._pool
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
        return Decoded(record, () if self._together else reading.all_notices())


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
