"""Moments as people and Kubernetes write them: RFC 3339, in UTC."""

from datetime import UTC, datetime
from typing import Literal


def utc(seconds: float, precision: Literal["seconds", "milliseconds", "microseconds"] = "seconds") -> str:
    """Such as ``2026-11-21T20:10:00Z``, of seconds since the epoch; MicroTime has ``microseconds``."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision)
    return text.replace("+00:00", "Z")


def time_of_day(seconds: float) -> str:
    """Such as ``20:10:00Z``."""
    return utc(seconds).partition("T")[2]
