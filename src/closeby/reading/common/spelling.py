"""Finds misspelt and outdated field names in objects whose schema is not ours.

Unknown fields are ignored, since peers add fields; but a field that is called almost like a known
one, or as it was once called, holds what its author wanted to be heeded.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from closeby.objects.words import similar
from closeby.reading.common.findings import Findings
from closeby.reading.decoding.errors import Path, field_path

_ALIKE: Final = 0.85


class KnownFields(Struct, frozen=True):
    """The fields of a mapping, or of each mapping in a list."""

    #: Name to the shape of what is below; None where nothing of interest does.
    fields: Mapping[str, "KnownFields | None"]
    #: Names that are wrong for certain, to the right ones.
    renamed: Mapping[str, str] = {}
    #: Right names of which nothing is read.
    unread: frozenset[str] = frozenset()


def check_spelling(value: object, shape: KnownFields, findings: Findings) -> None:
    """Notes every wrong name in ``value`` (plain Python); what can't be meant otherwise is blocking."""
    _walk(value, shape, findings, ())


def _walk(value: object, shape: KnownFields, findings: Findings, path: Path) -> None:
    if isinstance(value, list):
        for i, entry in enumerate(value):
            _walk(entry, shape, findings, (*path, i))
    if not isinstance(value, Mapping):
        return
    names = tuple(shape.fields)
    for key, inner in value.items():
        right: str | None = key if key in shape.fields else shape.renamed.get(key)
        certain = right is not None
        if right is None:
            right, certain = _meant(str(key), names)
        if right is None:
            continue
        if right != key:
            _note(findings, (*path, str(key)), right, blocking=certain and right not in shape.unread)
        below = shape.fields.get(right)
        if below is not None:
            _walk(inner, below, findings, (*path, str(key)))


def _note(findings: Findings, path: Path, right: str, *, blocking: bool) -> None:
    kind = ".".join(part for part in path if isinstance(part, str))
    message = f"{path[-1]} is not a field here"
    remedy = f"the right field is {right}" if blocking else f"it is ignored; the right field is {right}"
    findings.add(field_path(path), message, remedy, blocking=blocking, kind=f"name {kind}")


@lru_cache(maxsize=4096)
def _meant(key: str, names: tuple[str, ...]) -> tuple[str | None, bool]:
    """The known name that was meant, and whether that is certain."""
    same = [name for name in names if name.casefold() == key.casefold()]
    if same:
        return same[0], True
    return similar(key, names, _ALIKE), False
