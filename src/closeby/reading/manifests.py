"""Reads Kubernetes manifests, YAML or JSON, as ``kubectl get -o yaml`` prints them and people write them.

``read_manifests`` never raises for bad input: what can't be read is in ``Manifests.errors`` with its file,
document, field and remedy, and the caller decides whether the rest is used.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

from closeby.errors import YamlError
from closeby.objects.process import collector_paused
from closeby.objects.reasons import Problem
from closeby.reading.collection import Collection
from closeby.reading.decoding.documents import Document, LineFinder
from closeby.reading.decoding.result import Manifests
from closeby.reading.decoding.sources import STDIN, STDIN_NAME, find_files, not_utf8, read_file, unpacked
from closeby.reading.decoding.splitting import Found, json_documents, listed_documents, value_documents
from closeby.reading.decoding.yaml_lines import (
    BlockReader,
    DeclinedError,
    Lines,
    ListText,
    item_value,
    list_text,
)
from closeby.reading.decoding.yaml_values import YamlDocument, yaml_documents

__all__ = ["Manifests", "Problem", "read_manifests"]

#: A line that begins so always begins a document (YAML 1.2, section 9.1.2), even inside of text.
_DOCUMENT_START: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
#: A line that is neither blank nor a comment nor a directive.
_CONTENT: Final = re.compile(r"^[ \t]*[^\s#%]", re.MULTILINE)
_JSON_START: Final = re.compile(rb"\s*[{\[]")
#: How a table of `kubectl get` begins, what it says of nothing, and how `kubectl describe` begins.
_PRINTED: Final = re.compile(
    rb"\s*(?:(?:NAMESPACE|NAME|LAST SEEN) {3,}[A-Z]|No resources found"
    rb"|Name: {3,}\S.*\n(?:Namespace|Labels|Roles): )"
)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"

#: Objects from one word about progress to the next.
_OFTEN: Final = 100

#: Gives what came through the pipe.
ReadStdin = Callable[[], bytes | str | Problem]


def _read_stdin() -> bytes | Problem:
    remedy = "pipe manifests into it"
    if sys.stdin is None:
        # The shell closed it (`<&-`).
        return Problem(file=STDIN_NAME, message="can't be read: it is closed", remedy=remedy)
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        message = f"can't be read: {error.strerror or error}"
        return Problem(file=STDIN_NAME, message=message, remedy=remedy)


def read_manifests(
    paths: Sequence[str], stdin: ReadStdin = _read_stdin, progress: Callable[[int], None] | None = None
) -> Manifests:
    """Everything that the files, folders (with all below them) and ``-`` (what ``stdin`` gives) say.

    YAML may hold several documents, JSON several objects; Lists of any kind are taken apart. A file that is
    named twice is read once. In JSON the last of two equal keys counts, in YAML two equal keys are an error.
    ``progress`` hears now and then how many objects were read.
    """
    collection = Collection()
    files, errors = find_files(paths)
    for error in errors:
        collection.fail(error)
    read = 0
    # The records are many, live long and hold no cycles: looking for garbage among them triples the time.
    with collector_paused():
        for file in files:
            for found in _documents(file, stdin):
                if isinstance(found, Problem):
                    collection.fail(found)
                else:
                    collection.add(found)
                    read += 1
                if progress is not None and read % _OFTEN == 0:
                    progress(read)
        return collection.manifests()


def _documents(file: str, stdin: ReadStdin) -> Found:
    content = stdin() if file == STDIN else read_file(file)
    if isinstance(content, Problem):
        yield content
        return
    name = STDIN_NAME if file == STDIN else file
    data = content.encode() if isinstance(content, str) else content
    plain = unpacked(data)
    data = b"" if isinstance(plain, str) else plain.removeprefix(_BYTE_ORDER_MARK)
    wrong = (plain, "check that it is the right file") if isinstance(plain, str) else _unusable(data)
    if wrong is not None:
        yield Problem(file=name, message=wrong[0], remedy=wrong[1])
        return
    if file.endswith((".json", ".json.gz")):
        yield from json_documents(name, data)
        return
    if _JSON_START.match(data):
        # JSON is YAML too, but as JSON it is read thirty times as fast.
        found = list(json_documents(name, data))
        if any(isinstance(one, Problem) and one.line is not None for one in found):
            as_yaml = list(_yaml_documents(name, data))
            # What was meant is what more of it can be read as.
            found = found if _readable(found) > _readable(as_yaml) else as_yaml
        yield from found
        return
    yield from _yaml_documents(name, data)


def _unusable(data: bytes) -> tuple[str, str] | None:
    """What is wrong with a file before anything in it is read, and the remedy."""
    if not data or data.isspace():
        return "is empty", "save it again, and see what the command that wrote it said"
    if _PRINTED.match(data):
        remedy = "save the objects instead: kubectl get … -o yaml"
        return "is what kubectl prints for people, and no manifest", remedy
    position = not_utf8(data)
    return None if position is None else (f"is not UTF-8 (byte {position})", "save it as UTF-8")


def _readable(found: Iterable[Document | Problem]) -> int:
    return sum(isinstance(one, Document) for one in found)


def _yaml_documents(file: str, data: bytes) -> Found:
    number = 0
    reader = BlockReader()
    for line, piece in _pieces(data.decode()):
        quickly = _quickly(file, number + 1, line, piece, reader)
        if quickly is not None:
            number += 1
            yield from quickly
            continue
        for value in _values(file, number + 1, line, piece):
            if isinstance(value, Problem):
                number += 1
                yield value
            elif value.value is not None:
                number += 1
                yield from value_documents(file, number, value.value, value.line)


def _quickly(file: str, number: int, line: int, piece: str, reader: BlockReader) -> Found | None:
    """The documents of a piece that is written as Kubernetes' tools write; None where it is not."""
    listed = list_text(piece, reader)
    if listed is not None and isinstance(listed.head, dict):
        items = _items(line, listed, reader)
        found = listed_documents(file, number, listed.head, items)
        if found is not None:
            return _or_whole(found, file, number, line, piece)
    try:
        return value_documents(file, number, reader.value(piece), Lines(piece, line))
    except DeclinedError:
        return None


def _or_whole(quickly: Found, file: str, number: int, line: int, piece: str) -> Found:
    """The documents of a List that is read item by item; what is no item on its own is read with the rest."""
    done = 0
    try:
        for found in quickly:
            yield found
            done += 1
    except YamlError:
        for value in _values(file, number, line, piece):
            if isinstance(value, Problem):
                yield value
            else:
                yield from islice(value_documents(file, number, value.value, value.line), done, None)


def _items(line: int, listed: ListText, reader: BlockReader) -> Iterator[tuple[object, LineFinder]]:
    for start, end in listed.items:
        yield item_value(listed.text[start:end], reader), Lines(listed.text, line, (start, end))


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The documents of a text, each with the line it begins on (counted from 1).

    Cut before parsing, so that a document which is not YAML does not take those after it along.
    """
    line = 1
    several = text.startswith("---") or "\n---" in text
    found = _DOCUMENT_START.finditer(text) if several else ()
    starts = [0, *(match.start() for match in found), len(text)]
    for start, end in pairwise(starts):
        piece = text[start:end]
        if _CONTENT.search(piece.removeprefix("---")):
            yield line, piece
        line += piece.count("\n")


def _values(file: str, number: int, line: int, piece: str) -> Iterator[YamlDocument | Problem]:
    """The values of one piece, which begins on ``line``; several only where ``...`` ends a document."""
    try:
        yield from yaml_documents(piece, line)
    except YamlError as error:
        yield Problem(
            file=file, document=number, line=line + error.line, message=error.message, remedy=error.remedy
        )
