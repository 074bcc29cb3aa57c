"""Short ways for tests to read manifests that stand in the test."""

import textwrap
from collections.abc import Mapping
from typing import Any

import msgspec

from closeby.objects.pods import Pod
from closeby.reading.manifests import Manifests, read_manifests


def read(text: str) -> Manifests:
    """What a YAML or JSON text says."""
    return read_manifests(["-"], stdin=lambda: textwrap.dedent(text))


def read_good(text: str) -> Manifests:
    """What a text without errors says."""
    manifests = read(text)
    assert manifests.errors == ()
    return manifests


def read_objects(*objects: Mapping[str, Any]) -> Manifests:
    """What some objects say that are given as plain values."""
    return read_manifests(
        ["-"], stdin=lambda: msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": objects})
    )


def read_pod(spec: dict[str, Any], **metadata: Any) -> Pod:
    """The one pod with this ``spec``."""
    manifests = read_objects(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": spec}
    )
    assert manifests.errors == ()
    (pod,) = manifests.pods
    return pod


def error_of(text: str) -> str:
    """The one error of a text, as a person reads it."""
    (error,) = read(text).errors
    return str(error)
