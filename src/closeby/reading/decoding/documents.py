"""One document of a manifest, before anyone knows what it says; decoding it into a structure on the wire."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from closeby.errors import FieldError
from closeby.objects.reasons import Problem
from closeby.reading.decoding.errors import Path, explain, field_path

T = TypeVar("T")

#: Finds the line of a field in the document's text.
LineFinder = Callable[[Path], int | None]


#: Longer digits are no plausible number, and slow to read.
LONGEST_NUMBER = 40


@cache
def _decoder(shape: Hashable) -> Callable[[bytes | msgspec.Raw], Any]:
    return msgspec.json.Decoder(cast(type, shape)).decode


def whole_number(digits: str) -> int | float:
    """Digits of a JSON text; too many of them are read like a number with a fraction, maybe as infinite."""
    return int(digits) if len(digits) <= LONGEST_NUMBER else float(digits)


def no_line(path: Path) -> int | None:
    """For texts without tracked lines."""
    return None


class Document(Struct, frozen=True, kw_only=True):
    """``raw`` (JSON) or ``value`` (plain Python) holds the content."""

    file: str
    #: Counted from 1.
    number: int
    api_version: str = ""
    kind: str = ""
    raw: bytes | msgspec.Raw | None = None
    value: object = None
    #: Where it is in its document: ``("items", 3)`` for an entry of a List.
    position: Path = ()
    find_line: LineFinder = no_line

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def decode(self, shape: type[T], known: Mapping[str, Sequence[str]] | None = None) -> T:
        """The document as ``shape``.

        Raises:
            FieldError: a field has the wrong type, or is unknown where the schema is ours (``known``).
        """
        try:
            if self.raw is not None:
                found: T = _decoder(cast(Hashable, shape))(self.raw)
                return found
            return msgspec.convert(self.value, shape)
        except msgspec.ValidationError as error:
            raise explain(error, self.plain(), known or {}) from error

    def plain(self) -> object:
        """The content in plain Python."""
        if self.raw is None:
            return self.value
        try:
            return msgspec.json.decode(self.raw)
        except msgspec.ValidationError:
            # A number beyond all floats, which msgspec refuses and Python takes for infinite.
            return json.loads(bytes(self.raw), parse_int=whole_number)

    def error(self, problem: FieldError, name: str = "") -> Problem:
        """``problem`` placed in its file."""
        path = (*self.position, *problem.path)
        return Problem(
            file=self.file,
            document=self.number,
            line=self.find_line(path),
            object=name or (field_path(self.position) if self.position else ""),
            field=field_path(problem.path),
            message=problem.message,
            remedy=problem.remedy,
        )
