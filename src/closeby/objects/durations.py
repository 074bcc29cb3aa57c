"""Spans of time as Kubernetes writes them (Go's ``time.Duration``): ``90s``, ``5m``, ``1h30m``, ``250ms``."""

import re
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|us|µs|ns|m|s)")


def parse_duration(text: str) -> float | None:
    """Seconds; None when this is not a span of time, or a negative one."""
    if text == "0":
        return 0.0
    total, end = 0.0, 0
    for part in _PART.finditer(text):
        if part.start() != end:
            return None
        total += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    return total if text and end == len(text) else None
