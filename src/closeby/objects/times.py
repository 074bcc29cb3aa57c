"""Moments as people and Kubernetes write them."""

from datetime import UTC, datetime


def utc(seconds: float) -> str:
    """Seconds since the epoch as RFC 3339 in whole seconds, such as ``2026-11-21T20:10:00Z``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
