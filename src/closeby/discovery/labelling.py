"""From the places of nodes in a network to the labels that say so."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from closeby.discovery.findings import FoundNode, Link, LinkQuality, ScanFindings
from closeby.objects.labels import API_VERSION, HOSTNAME, is_label_name
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import natural_key
from closeby.topology.families import KUBERNETES_NETWORK, QOS_ANNOTATION
from closeby.topology.qos import format_bandwidth, format_latency

#: Of the Topograph label standard, closest first: switches of racks, spines, and what joins those.
DEFAULT_KEYS: Final = tuple(KUBERNETES_NETWORK + one for one in ("block", "datacenter", "zone"))
#: The name of the Topology object that is printed.
TOPOLOGY_NAME: Final = "network"

#: What a node may be called (RFC 1123's subdomains).
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253

#: Where a node is, closest first; None where nothing is known of a level.
Place = tuple[str | None, ...]


_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3


def find(
    places: Mapping[str, Place],
    keys: Sequence[str] | None = None,
    *,
    links: Iterable[Link] = (),
    warnings: Iterable[Condition] = (),
    quality: Mapping[str, LinkQuality] = {},
) -> ScanFindings:
    """What was found, with a label per level of each node.

    ``keys`` are the label keys, closest first, by default ``DEFAULT_KEYS``; as many levels count as there are
    keys, and coarser ones are left out. ``quality`` is by switch; each node gets that of its own switches.
    """
    depth = max((len(_trimmed(place)) for place in places.values()), default=0)
    used = keys_of(depth, keys)
    problems = list(warnings)
    if keys is None and depth > len(used):
        problems.append(_too_deep(depth, used))
    levels = level_names(used)
    nodes = {
        name: _node(_trimmed(places[name][: len(used)]), used, quality)
        for name in sorted(places, key=natural_key)
    }
    return ScanFindings(levels=levels, nodes=nodes, links=tuple(links), warnings=tuple(problems))


def keys_of(depth: int, keys: Sequence[str] | None) -> tuple[str, ...]:
    """The label keys of a network with so many levels, closest first."""
    return tuple(DEFAULT_KEYS if keys is None else keys)[:depth]


def level_names(keys: Sequence[str]) -> tuple[str, ...]:
    """What levels are called: the part of the key behind the slash, or the whole key where two share that."""
    short = [key.rpartition("/")[2] for key in keys]
    return tuple(key if short.count(name) > 1 else name for key, name in zip(keys, short, strict=True))


def topology_manifest(keys: Sequence[str], name: str = TOPOLOGY_NAME) -> dict[str, object]:
    """The Topology object (a manifest) of nodes that carry these labels, closest first."""
    labels = (*reversed(keys), HOSTNAME)
    return {
        "apiVersion": API_VERSION,
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": label} for label in labels]},
    }


def uplinks_known(node: FoundNode) -> bool:
    """Whether the source has cables between the node's switches."""
    return any(quality.uplinks is not None for quality in node.qos.values())


def node_manifests(findings: ScanFindings, *, with_quality: bool | None = False) -> list[dict[str, object]]:
    """A partial Node per host that has labels and could be a node by its name, in small letters.

    With the QoS annotation or without; ``with_quality`` None adds it where uplinks are known.
    """
    manifests: list[dict[str, object]] = []
    for name, node in findings.nodes.items():
        if not _could_be_node(name):
            continue
        metadata: dict[str, object] = {"name": name.lower(), "labels": dict(node.labels)}
        wanted = uplinks_known(node) if with_quality is None else with_quality
        quality = quality_text(node) if wanted else None
        if quality is not None:
            metadata["annotations"] = {QOS_ANNOTATION: quality}
        if node.labels:
            manifests.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    return manifests


def nameless(findings: ScanFindings) -> tuple[str, ...]:
    """Hosts that no node can be called."""
    return tuple(name for name in findings.nodes if not _could_be_node(name))


def quality_text(node: FoundNode) -> str | None:
    """The value of the QoS annotation (Topograph label standard); None where nothing is known.

    A switch has one value on all nodes, as the annotation wants it.
    """
    known: dict[str, dict[str, str | int]] = {}
    for name, quality in sorted(node.qos.items()):
        metrics: dict[str, str | int] = {}
        if quality.latency is not None:
            metrics["latency"] = format_latency(quality.latency)
        if quality.bandwidth is not None:
            metrics["bandwidth"] = format_bandwidth(quality.bandwidth)
        if quality.uplinks is not None:
            metrics["uplinks"] = quality.uplinks
        if metrics:
            known[label_value(name)] = metrics
    return msgspec.json.encode(known).decode() if known else None


def _node(place: Place, keys: Sequence[str], quality: Mapping[str, LinkQuality]) -> FoundNode:
    known = [(key, name) for key, name in zip(keys, place, strict=False) if name is not None]
    return FoundNode(
        path=place,
        labels={key: label_value(name) for key, name in known},
        qos={name: quality[name] for _, name in known if name in quality},
    )


def _could_be_node(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and _NODE_NAME.fullmatch(name.lower()) is not None


def _trimmed(place: Place) -> Place:
    while place and place[-1] is None:
        place = place[:-1]
    return place


def _too_deep(depth: int, keys: Sequence[str]) -> Condition:
    return Condition(
        reason=Reason.UNSUPPORTED,
        object="Topology/network",
        message=f"the network has {depth} levels and there are {len(keys)} label keys by default, so its "
        f"{'coarsest level is' if depth == len(keys) + 1 else 'coarsest levels are'} left out",
        remedy=f"name {depth} keys with --labels KEY,KEY,…, closest first",
    )


def label_value(name: str) -> str:
    """The name itself where it is a legal value, else ``x`` and its 64-bit FNV-1a hash in hexadecimal digits.

    The hash is Topograph's for names that are too long, so that both write the same value; Topograph leaves
    names with other characters as they are, and the server refuses them.
    """
    return name if is_label_name(name) else f"x{fnv1a_64(name.encode()):x}"


def fnv1a_64(data: bytes) -> int:
    """Fowler, Noll and Vo's hash, variant 1a, of 64 bits."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value
