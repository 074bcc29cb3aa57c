"""Moments and spans of time as people and Kubernetes write them."""

import re
from datetime import UTC, datetime
from typing import Final, Literal

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|us|µs|ns|m|s)")

#: The first and the last second of dates. A time zone can take what is written beyond them.
_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC).timestamp()
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()

#: Characters of a span of time; what a tenant wrote may be far longer.
_LONGEST: Final = 128


def utc(seconds: float, precision: Literal["seconds", "milliseconds", "microseconds"] = "seconds") -> str:
    """Such as ``2026-11-21T20:10:00Z``, of seconds since the epoch; MicroTime has ``microseconds``.

    Of a moment before the first date, or after the last, that date.
    """
    text = datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), UTC).isoformat(timespec=precision)
    return text.replace("+00:00", "Z")


def time_of_day(seconds: float) -> str:
    """Such as ``20:10:00Z``."""
    return utc(seconds).partition("T")[2]


def parse_duration(text: str) -> float | None:
    """Seconds; None when this is not a span of time, or a negative one."""
    if text == "0":
        return 0.0
    if len(text) > _LONGEST:
        return None
    total, end = 0.0, 0
    while part := _PART.match(text, end):
        total += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    return total if text and end == len(text) else None
