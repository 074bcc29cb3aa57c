"""From JSON text, or from values that were read from YAML, to documents; Lists are taken apart."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw, Struct

from closeby.errors import FieldError
from closeby.objects.reasons import Problem
from closeby.reading.decoding.documents import Document, LineFinder, no_line, whole_number
from closeby.reading.decoding.errors import Path

Found = Iterator[Document | Problem]

#: A pair of escapes for one character beyond 16 bits, one half of such a pair, or any other escape.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
#: What half a character begins with.
_HALF: Final = re.compile(rb"\\u[dD]")
#: In a stream of objects an indented brace is inside of one, and this is where one begins.
_OBJECT_START = re.compile(r"^[{\[]", re.MULTILINE)
_HEAD_REMEDY = "begin it like apiVersion: v1 and kind: Pod"
_LIST_REMEDY = "make it the items of an object with apiVersion: v1 and kind: List"


class _Head(Struct, rename="camel"):
    """Enough of a document to know what it is."""

    api_version: object = None
    kind: object = None
    items: Raw = Raw()


class _ListHead(Struct, rename="camel"):
    """As ``_Head``, of what is probably a List, whose items are separated in the same pass."""

    api_version: object = None
    kind: object = None
    items: list[Raw] | None = None


def json_documents(file: str, data: bytes) -> Found:
    """The documents of a JSON text (UTF-8): one object, or several one after another."""
    data = _with_whole_characters(data)
    try:
        listed = msgspec.json.decode(data, type=_ListHead)
    except (msgspec.DecodeError, RecursionError):
        pass
    else:
        if listed.items:
            typed = _typed(Document(file=file, number=1, raw=data), listed.api_version, listed.kind)
            if isinstance(typed, Document) and _is_list(typed, True):
                yield from _entries(typed, listed.items)
                return
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError:
        yield _not_an_object(Document(file=file, number=1, raw=data))
        return
    except (msgspec.DecodeError, RecursionError):
        yield from _one_by_one(file, data)
        return
    yield from _from_json(file, 1, data, head)


def value_documents(file: str, number: int, value: object, find_line: LineFinder) -> Found:
    """The documents in a value that was read from document ``number`` of a YAML text."""
    document = Document(file=file, number=number, value=value, find_line=find_line)
    if not isinstance(value, Mapping):
        yield _not_an_object(document)
        return
    items = value.get("items")
    typed = _typed(document, value.get("apiVersion"), value.get("kind"))
    if not isinstance(typed, Document) or not _is_list(typed, "items" in value):
        yield typed
        return
    if items is not None and not isinstance(items, list):
        yield typed.error(FieldError(("items",), "must be a list", ""))
        return
    yield from _values(typed, ((item, find_line) for item in items or ()))


def listed_documents(
    file: str, number: int, head: Mapping[str, object], items: Iterable[tuple[object, LineFinder]]
) -> Found | None:
    """As ``value_documents``, of a List whose items come one by one, each with what finds its lines.

    None where ``head``, which is the List without its items, is no List.
    """
    document = Document(file=file, number=number, value=head)
    typed = _typed(document, head.get("apiVersion"), head.get("kind"))
    if not isinstance(typed, Document) or not _is_list(typed, True):
        return None
    return _values(typed, items)


def _values(typed: Document, items: Iterable[tuple[object, LineFinder]]) -> Found:
    for i, (item, find_line) in enumerate(items):
        entry = Document(
            file=typed.file, number=typed.number, value=item, position=("items", i), find_line=find_line
        )
        if isinstance(item, Mapping):
            yield _item(typed, entry, item.get("apiVersion"), item.get("kind"))
        else:
            yield _not_an_object(entry)


def _one_by_one(file: str, data: bytes) -> Found:
    """The objects of a text that is not one JSON object; after a place that is not JSON it goes on with the
    next line that begins an object.
    """
    text = data.decode()
    decoder = json.JSONDecoder(parse_int=whole_number)
    number, start = 0, _skip(text, 0)
    while start < len(text):
        number += 1
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            message = f"is not JSON: {error.msg} (column {error.colno})"
            yield Problem(file=file, document=number, line=error.lineno, message=message)
            start = _next_object(text, max(start + 1, error.pos))
            continue
        except RecursionError:
            message = "is nested too deeply"
            yield Problem(file=file, document=number, message=message, remedy="flatten it")
            start = _next_object(text, start + 1)
            continue
        yield from value_documents(file, number, value, no_line)
        start = _skip(text, end)


def _next_object(text: str, start: int) -> int:
    found = _OBJECT_START.search(text, start)
    return len(text) if found is None else found.start()


def _with_whole_characters(data: bytes) -> bytes:
    """Half a character, which JSON can escape and no text can hold, becomes U+FFFD as it does in kubectl."""
    # A single byte is found ten times as fast, and most texts have none.
    if b"\\" not in data or not _HALF.search(data):
        return data
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], data)


def _skip(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _from_json(file: str, number: int, data: bytes, head: _Head) -> Found:
    document = Document(file=file, number=number, raw=data)
    typed = _typed(document, head.api_version, head.kind)
    if not isinstance(typed, Document) or not _is_list(typed, len(head.items) > 0):
        yield typed
        return
    try:
        items = msgspec.json.decode(head.items, type=list[Raw] | None) if len(head.items) else None
    except msgspec.ValidationError:
        yield typed.error(FieldError(("items",), "must be a list", ""))
        return
    yield from _entries(typed, items or ())


def _entries(typed: Document, items: Sequence[Raw]) -> Found:
    """The entries of a List."""
    for i, item in enumerate(items):
        entry = Document(file=typed.file, number=typed.number, raw=item, position=("items", i))
        try:
            inner = msgspec.json.decode(item, type=_Head)
        except msgspec.ValidationError:
            yield _not_an_object(entry)
        else:
            yield _item(typed, entry, inner.api_version, inner.kind)


def _item(parent: Document, entry: Document, api_version: object, kind: object) -> Document | Problem:
    """An entry of a List; in a list of one kind (PodList) the entries need not say what they are."""
    if kind is None and api_version is None and parent.kind != "List":
        return _typed(entry, parent.api_version, parent.kind.removesuffix("List"))
    return _typed(entry, api_version, kind)


def _typed(document: Document, api_version: object, kind: object) -> Document | Problem:
    """The document with its type, or what is wrong with that."""
    for name, text in (("apiVersion", api_version), ("kind", kind)):
        path: Path = (name,)
        if text is None or text == "":
            return document.error(
                FieldError(path, "is missing, so this is not a Kubernetes object", _HEAD_REMEDY)
            )
        if not isinstance(text, str):
            return document.error(FieldError(path, "must be text", _HEAD_REMEDY))
    return msgspec.structs.replace(document, api_version=api_version, kind=kind)


def _is_list(document: Document, has_items: bool) -> bool:
    return document.kind == "List" or (document.kind.endswith("List") and has_items)


def _not_an_object(document: Document) -> Problem:
    is_array = isinstance(document.value, list) or bytes(document.raw or b"").lstrip().startswith(b"[")
    remedy = _LIST_REMEDY if is_array and not document.position else _HEAD_REMEDY
    return document.error(FieldError((), "is not a mapping, so it is not a Kubernetes object", remedy))
