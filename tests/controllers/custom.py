"""AppGroups and NetworkTopologies written as YAML, as a controller hears of them."""

import textwrap

import msgspec
import yaml

from closeby.controllers.statuses import SeenStatus, seen
from closeby.kube.state.decoding import Decoded, Decoder
from closeby.kube.watch.changes import upserted
from closeby.kube.watch.resources import Resource
from closeby.objects.applications import AppGroup, NetworkTopology
from closeby.objects.reasons import Condition

KEP = "scheduling.sigs.k8s.io"
PUBLISHED_APP = "appgroup.diktyo.x-k8s.io"
PUBLISHED_NETWORK = "networktopology.diktyo.x-k8s.io"


def resource(group: str, kind: str) -> Resource:
    """A kind; the published ones have no status subresource."""
    return Resource(
        group=group,
        version="v1alpha1",
        kind=kind,
        plural=f"{kind.lower()}s",
        namespaced=True,
        status=group == KEP,
    )


def app_group(content: str, group: str = KEP) -> tuple[SeenStatus, AppGroup | Condition]:
    """The AppGroup ``default/a1`` with this ``spec`` (and ``status``)."""
    it, record = _read(content, resource(group, "AppGroup"))
    assert isinstance(record, AppGroup | Condition)
    return it, record


def network(content: str, group: str = KEP) -> tuple[SeenStatus, NetworkTopology | Condition]:
    """The NetworkTopology ``default/a1`` with this ``spec`` (and ``status``)."""
    it, record = _read(content, resource(group, "NetworkTopology"))
    assert isinstance(record, NetworkTopology | Condition)
    return it, record


def _read(content: str, kind: Resource) -> tuple[SeenStatus, object]:
    meta = {"name": "a1", "namespace": "default", "uid": "u1", "resourceVersion": "7", "generation": 3}
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
    body |= yaml.safe_load(textwrap.dedent(content)) or {}
    change = upserted(msgspec.Raw(msgspec.json.encode(body)))
    read = Decoder().read(kind, change)
    return seen(kind, change), read.record if isinstance(read, Decoded) else read
