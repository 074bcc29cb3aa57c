"""What all documents share: how conditions and places are shown, and how a record is written.

JSON and YAML have the same keys in the same order, byte for byte the same every time.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from closeby.objects.reasons import Condition
from closeby.scheduling.outcomes import Place

#: What single nodes are called among the levels, whatever alias a topology gives them.
NODE_LEVEL = "hostname"


class ConditionEntry(Struct, frozen=True, kw_only=True):
    """What is wrong or noteworthy about one object."""

    reason: str
    #: `Kind/namespace/name`, or `Kind/name` of an object without a namespace.
    object: str
    #: Path of the field; empty when the whole object is meant.
    field: str
    message: str
    #: What the user can do about it; empty when there is nothing to do.
    remedy: str
    #: True when it keeps something from being scheduled.
    blocking: bool


def condition_entries(conditions: Iterable[Condition]) -> tuple[ConditionEntry, ...]:
    """Conditions as the report shows them, each once."""
    return tuple(
        ConditionEntry(
            reason=str(one.reason),
            object=one.object,
            field=one.field,
            message=one.message,
            remedy=one.remedy,
            blocking=one.blocking,
        )
        for one in dict.fromkeys(conditions)
    )


def span_of(place: Place) -> dict[str, int]:
    """Distinct domains used, by short level name."""
    return dict(zip((*tuple(place.span)[:-1], NODE_LEVEL), place.span.values(), strict=True))


def level_of(place: Place) -> str | None:
    """Short name of the level of its domain."""
    return None if place.level is None else dict(zip(place.span, span_of(place), strict=True))[place.level]


def to_json(document: Struct) -> str:
    """Indented JSON, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def to_yaml(document: Struct) -> str:
    """YAML in block style; keys keep the order of the record."""
    return msgspec.yaml.encode(document).decode()
