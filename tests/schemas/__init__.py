"""JSON schemas of the documents that commands print, out of the records of these documents.

`make schemas` writes them. A record's docstring describes its object, and the comment `#:` before a field
describes that field.
"""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from closeby.discovery.diff import Difference
from closeby.discovery.findings import ScanFindings
from closeby.lab.documents.comparison import ComparisonReport
from closeby.lab.documents.simulation import SimulationReport
from closeby.objects.labels import API_VERSION
from closeby.report.documents.explanations import Explanation
from closeby.report.documents.scheduling import SchedulingReport
from closeby.report.documents.topologies import TopologyReport

#: By the name that the file has.
DOCUMENTS: Final[Mapping[str, type[Struct]]] = {
    "SchedulingReport": SchedulingReport,
    "Explanation": Explanation,
    "TopologyReport": TopologyReport,
    "SimulationReport": SimulationReport,
    "ComparisonReport": ComparisonReport,
    "Discovery": ScanFindings,
    "DiscoveryDiff": Difference,
}
FOLDER: Final = Path(__file__).parents[2] / "src" / "closeby" / "report" / "schemas"
#: What these fields mean everywhere.
_EVERYWHERE: Final = {
    "apiVersion": "Fields are added, never renamed or removed within one version.",
    "kind": "What this document is.",
    "namespace": "Its namespace.",
    "name": "Its name.",
    "reason": "Why it waits, or what is wrong: a reason token; null or empty when there is none.",
    "message": "The same as a sentence for people.",
}
#: Records of other rooms that a report shows as they are: what its schema calls them.
_CALLED: Final = {"Condition": "ConditionEntry", "SegmentPlace": "SegmentEntry"}
_FIELD: Final = re.compile(r"    (\w+): ")
_COMMENT: Final = re.compile(r"    #: ?(.*)")


def schema_of(document: type[Struct]) -> dict[str, Any]:
    """The JSON schema (2020-12) of what is printed of a document."""
    records = {record.__name__: record for record in _records(document)}
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(document),
    }
    for name, definition in schema["$defs"].items():
        if name in records:
            _describe(definition, records[name])
    return schema


def text_of(document: type[Struct]) -> str:
    """The schema as it stands in its file."""
    text = json.dumps(schema_of(document), indent=2, ensure_ascii=False) + "\n"
    if document.__module__.startswith("closeby.report."):
        for name, called in _CALLED.items():
            text = re.sub(rf'(#/\$defs/|"title": "|\n    "){name}"', rf'\1{called}"', text)
    return text


def _describe(definition: dict[str, Any], record: type[Struct]) -> None:
    """Adds what msgspec does not know: what fields mean, and which of them are always written."""
    said = _comments(record)
    definition["description"] = _prose(inspect.cleandoc(record.__doc__ or ""))
    required = []
    for field in msgspec.structs.fields(record):
        shape = definition["properties"][field.encode_name]
        default = shape.pop("default", None)
        meaning = said.get(field.name) or _EVERYWHERE.get(field.encode_name)
        if meaning:
            shape["description"] = _prose(meaning)
        if field.encode_name in ("apiVersion", "kind") and default is not None:
            shape["const"] = API_VERSION if field.encode_name == "apiVersion" else default
        left_out = record.__struct_config__.omit_defaults and not field.required
        if not left_out and not _may_be_unset(field.type):
            required.append(field.encode_name)
    definition["required"] = required


def _may_be_unset(annotation: Any) -> bool:
    return msgspec.UnsetType in getattr(annotation, "__args__", ())


def _comments(record: type[Struct]) -> dict[str, str]:
    """The comment before each field of a record, with those of the records that it extends."""
    found: dict[str, str] = {}
    for one in reversed(record.__mro__):
        if not issubclass(one, Struct) or one is Struct:
            continue
        lines: list[str] = []
        for line in inspect.getsource(one).splitlines():
            comment, field = _COMMENT.fullmatch(line), _FIELD.match(line)
            if comment is not None:
                lines.append(comment[1])
                continue
            if field is not None and lines:
                found[field[1]] = " ".join(lines)
            lines = []
    return found


def _prose(text: str) -> str:
    """Text of the source as a reader of JSON knows it."""
    return re.sub(r"\s+", " ", text.replace("``", "`").replace("`None`", "null")).strip()


def _records(document: type[Struct]) -> Iterator[type[Struct]]:
    """All records in a document."""
    seen: set[type] = set()
    left: list[types.Type] = [types.type_info(document)]
    while left:
        one = left.pop()
        if isinstance(one, types.StructType):
            if one.cls in seen:
                continue
            seen.add(one.cls)
            yield one.cls
            left.extend(field.type for field in one.fields)
        else:
            left.extend(_inside(one))


def _inside(one: types.Type) -> Iterable[types.Type]:
    for name in ("item_type", "key_type", "value_type"):
        inner = getattr(one, name, None)
        if inner is not None:
            yield inner
    for name in ("types", "item_types"):
        yield from getattr(one, name, ())
