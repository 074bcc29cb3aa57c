"""Fields that no API server knows: a slip of the pen that `kubectl apply` would refuse.

The names come from the schemas of Kubernetes 1.34 to 1.37 and of the peers' kinds, by version
(`known_fields.json`, which `make fields` makes). A kind with a strict reader of its own is not in the table.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path as FilePath
from typing import Any, Final

import msgspec
from msgspec import Struct

from closeby.objects.bounds import shown, some
from closeby.objects.reasons import MOST_CONDITIONS, Condition, invalid
from closeby.objects.words import similar
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.errors import Path, field_path

#: Types that contain themselves.
_RECURSIVE: Final = ("JSONSchemaProps", ".CompositePodGroupTemplate")
#: After so many documents of a kind its type is built, which takes longer than to look at these, and by which
#: thousands of others are checked faster.
_BUILT_AFTER: Final = 20


class FieldTable(Struct, frozen=True):
    """Types and their fields; a field's type is ``Name``, ``[Name`` (list), ``{Name`` (map) or None (any)."""

    #: ``group/version/Kind`` to its type; the newest version of a kind is last.
    kinds: dict[str, str]
    types: dict[str, dict[str, str | None]]
    #: Of each project the oldest and the newest release whose fields are all known.
    releases: dict[str, tuple[str, str]]


@cache
def table() -> FieldTable:
    """The table, read once."""
    return msgspec.json.decode(FilePath(__file__).with_suffix(".json").read_bytes(), type=FieldTable)


@cache
def type_of(group: str, version: str, kind: str) -> str | None:
    """The type of a kind, by that of its newest version where the version is not known."""
    kinds = table().kinds
    newest = [one for key, one in kinds.items() if key.startswith(f"{group}/") and key.endswith(f"/{kind}")]
    return kinds.get(f"{group}/{version}/{kind}", newest[-1] if newest else None)


class UnknownField(Struct, frozen=True):
    """A field that the type at its place does not have."""

    path: Path
    #: The fields that it has.
    known: tuple[str, ...]


class FieldCheck:
    """Checks the documents of one input."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def unknown(self, document: Document) -> list[UnknownField]:
        """The fields of a document that is otherwise readable which its kind does not have."""
        called = type_of(document.group, document.api_version.rpartition("/")[2], document.kind)
        if called is None:
            return []
        self._seen[called] += 1
        if self._seen[called] > _BUILT_AFTER and _decodes(document, called):
            return []
        return list(_walk(document.plain(), called, ()))


def conditions_of(document: Document, found: list[UnknownField], owner: str) -> dict[str, Condition]:
    """What to say about the unknown fields of a document, whose object ``owner`` names.

    By a key that the same slip in other objects of the kind shares; the same slip in several parts of an
    object is said of the first one.
    """
    said: dict[str, Condition] = {}
    left_out = 0
    for one in found:
        key = f"{document.kind} {field_path(part for part in one.path if isinstance(part, str))}"
        if key in said:
            continue
        if len(said) < MOST_CONDITIONS:
            said[key] = _condition(one, owner)
        else:
            left_out += 1
    if left_out:
        more = invalid(
            owner, "", f"{left_out} more fields are not known", "fix those named before, to see which"
        )
        said[f"{owner} fields"] = more
    return said


def _condition(unknown: UnknownField, owner: str) -> Condition:
    close = similar(str(unknown.path[-1]), unknown.known)
    remedy = f"did you mean {close}?" if close else f"known fields: {some(unknown.known, 20)}"
    return invalid(owner, shown(field_path(unknown.path)), "is not a known field; it is ignored", remedy)


def _walk(value: object, called: str, path: Path) -> Iterator[UnknownField]:
    if not isinstance(value, Mapping):
        return
    fields = table().types[called]
    for key, inner in value.items():
        if key not in fields:
            yield UnknownField((*path, str(key)), tuple(sorted(fields)))
            continue
        kind = fields[key]
        if kind is None:
            continue
        if kind[0] == "[":
            for i, one in enumerate(inner if isinstance(inner, list) else ()):
                yield from _walk(one, kind[1:], (*path, key, i))
        elif kind[0] == "{":
            for name, one in inner.items() if isinstance(inner, Mapping) else ():
                yield from _walk(one, kind[1:], (*path, key, str(name)))
        else:
            yield from _walk(inner, kind, (*path, key))


def _decodes(document: Document, called: str) -> bool:
    """Whether all fields are known; False also where a value has another type than its schema says."""
    try:
        if document.raw is not None:
            _decoder(called).decode(document.raw)
        else:
            msgspec.convert(document.value, _shape(called))
    except msgspec.ValidationError:
        return False
    return True


@cache
def _decoder(called: str) -> msgspec.json.Decoder[Any]:
    # Nothing is made of values that are not looked into.
    return msgspec.json.Decoder(_shape(called, msgspec.Raw))


@cache
def _shape(called: str, leaf: Any = Any) -> Any:
    """A type that refuses unknown fields, apart from those below a type that contains itself; ``leaf`` is the
    type of what is not looked into.
    """
    fields = []
    for i, (key, kind) in enumerate(table().types[called].items()):
        shape: Any = leaf
        if kind is not None and not kind.endswith(_RECURSIVE):
            shape = _shape(kind.lstrip("[{"), leaf)
            if kind[0] == "[":
                shape = list[shape]
            elif kind[0] == "{":
                shape = dict[str, shape]
            shape = shape | None
        fields.append((f"f{i}", shape, msgspec.field(name=key, default=None)))
    return msgspec.defstruct("Known", fields, forbid_unknown_fields=True, gc=False)
