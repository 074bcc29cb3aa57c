"""What sources of a network share: bounded reading of texts, and decoding with the place of a problem."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import msgspec

from closeby.errors import UnreadableError, YamlError
from closeby.reading.decoding.errors import Path as FieldPath
from closeby.reading.decoding.errors import explain, field_path
from closeby.reading.decoding.sources import STDIN, STDIN_NAME, not_utf8, unpacked
from closeby.reading.decoding.yaml_values import YamlDocument, yaml_document

T = TypeVar("T")

#: More than any of these files has (a description of 100,000 hosts takes some 40 MB as JSON).
MOST_BYTES: Final = 64 << 20
#: YAML is slower to read, and such files are never written by hand at that size.
MOST_YAML_BYTES: Final = 4 << 20
_LINE: Final = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
_BYTE: Final = re.compile(r" \(byte ([0-9]+)\)$")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 60


def read_text(path: str, most: int = MOST_BYTES) -> str:
    """The text of a file, or of standard input for ``-``; at most ``most`` bytes are ever held.

    Raises:
        UnreadableError: it can't be read, is longer, or is not UTF-8.
    """
    name = STDIN_NAME if path == STDIN else path
    try:
        data = _read_stdin(most + 1) if path == STDIN else _read_file(path, most + 1)
    except OSError as error:
        message = f"can't be read: {error.strerror or error}"
        raise UnreadableError(name, message, "check the path") from error
    plain = unpacked(data, most) if len(data) <= most else f"is longer than {most >> 20} MiB"
    if isinstance(plain, str):
        raise UnreadableError(name, plain, "check that it is the right file")
    data = plain.removeprefix(_BYTE_ORDER_MARK)
    position = not_utf8(data)
    if position is not None:
        line = data.count(b"\n", 0, position) + 1
        raise UnreadableError(name, f"is not UTF-8 (byte {position})", "save it as UTF-8", line=line)
    return data.decode()


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1; one at a time, since a text may be nothing but line ends."""
    for number, found in enumerate(_LINE.finditer(text), 1):
        yield number, found[1]


def read_json(file: str, text: str) -> object:
    """The value of a JSON text; the last of two equal keys counts.

    Raises:
        UnreadableError: it is not JSON.
    """
    try:
        value: object = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        found = _BYTE.search(str(error))
        line = text.encode().count(b"\n", 0, int(found[1])) + 1 if found else None
        message = f"is not JSON: {_BYTE.sub('', str(error)).removeprefix('JSON is malformed: ')}"
        raise UnreadableError(file, message, "check that it is the right file", line=line) from error
    except RecursionError as error:
        raise UnreadableError(file, "is nested too deeply", "check that it is the right file") from error
    return value


def read_yaml(file: str, text: str) -> YamlDocument:
    """The only document of a YAML text.

    Raises:
        UnreadableError: it is not YAML, or holds more or less than one document.
    """
    try:
        document = yaml_document(text)
    except YamlError as error:
        raise UnreadableError(file, error.message, error.remedy, line=1 + error.line) from error
    if document is None:
        raise UnreadableError(file, "holds no YAML document", "check that it is the right file")
    return document


def decode(
    file: str,
    value: object,
    shape: type[T],
    path: FieldPath = (),
    *,
    line: Callable[[FieldPath], int] | None = None,
) -> T:
    """``value``, which stands at ``path`` of the file, as ``shape``; ``line`` finds the line of a field.

    Raises:
        UnreadableError: a field has the wrong type, is missing, or is not known where the shape forbids it.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        found = explain(error, value, {})
        at = (*path, *found.path)
        number = None if line is None else line(at)
        raise UnreadableError(file, found.message, found.remedy, line=number, field=field_path(at)) from error


def shown(text: str) -> str:
    """Text of the input, quoted, and cut where it is long."""
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")


def _read_file(path: str, most: int) -> bytes:
    with Path(path).open("rb") as stream:
        return _read(stream, most)


def _read_stdin(most: int) -> bytes:
    if sys.stdin is None:
        raise OSError("it is closed")
    return _read(sys.stdin.buffer, most)


def _read(stream: BinaryIO, most: int) -> bytes:
    return stream.read(most)
