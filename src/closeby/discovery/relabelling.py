"""Which labels a node is to get or lose, by what was found now and what we wrote before.

A source that does not find a node, or one of its levels, says nothing: a host may be off, a cable out, a
scan cut short. So a label that we wrote stays until it was missed several times in a row. What we wrote, and
how often it was missed, stands in an annotation of the node, one per source: nobody need run all the time.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.discovery.findings import FoundNode
from closeby.discovery.labelling import quality_text, uplinks_known
from closeby.objects.decoding.label_keys import HOSTNAME
from closeby.topology.node_groups import QOS_ANNOTATION
from closeby.topology.presets import KUBERNETES_NETWORK

#: With the name of the source behind it.
ANNOTATION_PREFIX: Final = "discovery.closeby.dev/"

#: Domains (with those below) of labels that a kubelet may not change at will.
_RESERVED: Final = ("kubernetes.io", "k8s.io")


class Wrote(Struct, frozen=True, omit_defaults=True):
    """A label or annotation of ours."""

    value: str
    #: Rounds in a row that did not find it.
    missed: int = 0


class Relabelling(Struct, frozen=True):
    """What changes at a node; None removes a label or an annotation. Nothing else is touched."""

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]

    def __bool__(self) -> bool:
        """Whether anything changes."""
        return bool(self.labels or self.annotations)


class NodeNow(Struct, frozen=True):
    """A node of the cluster."""

    name: str
    uid: str
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


_ours: Final = msgspec.json.Decoder(dict[str, Wrote])


def relabel(
    source: str,
    node: NodeNow,
    found: FoundNode | None,
    misses: int,
    *,
    with_quality: bool | None = False,
    missed: Mapping[str, int] = {},
) -> Relabelling:
    """What makes ``node`` carry what was found; ``found`` is None where it was not found at all.

    Labels that were found are set, whoever wrote them before; those that somebody else wrote alike stay
    theirs. Those that this source wrote earlier and did not find for ``misses`` rounds in a row are removed,
    unless somebody else has changed them since. The QoS annotation is treated as a label is, where it is
    wanted; ``with_quality`` None wants it where uplinks are known and nobody else has written one.

    ``missed`` says of labels in ``found`` that stand for others (see ``renaming``) for how many rounds.
    """
    key = ANNOTATION_PREFIX + source
    before = _read(node.annotations.get(key, ""))
    wanted = {} if found is None else dict(found.labels)
    written = node.annotations.get(QOS_ANNOTATION)
    free = written is None or (QOS_ANNOTATION in before and before[QOS_ANNOTATION].value == written)
    if found is not None and (free and uplinks_known(found) if with_quality is None else with_quality):
        quality = quality_text(found)
        if quality is not None:
            wanted[QOS_ANNOTATION] = quality
    now = {**node.labels, QOS_ANNOTATION: written}
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if now.get(name) != value}
    ours = {
        name: Wrote(value, missed.get(name, 0))
        for name, value in wanted.items()
        if name in changes or (name in before and before[name].value == value)
    }
    for name, wrote in before.items():
        if name in wanted or now.get(name) != wrote.value or not _may_go(name):
            continue
        if wrote.missed + 1 < misses:
            ours[name] = Wrote(wrote.value, wrote.missed + 1)
        else:
            changes[name] = None
    annotations = {QOS_ANNOTATION: changes.pop(QOS_ANNOTATION)} if QOS_ANNOTATION in changes else {}
    text = msgspec.json.encode(dict(sorted(ours.items()))).decode() if ours else None
    if ours != before and (text is not None or key in node.annotations):
        annotations[key] = text
    return Relabelling(changes, annotations)


def written(source: str, node: NodeNow) -> dict[str, Wrote]:
    """The labels of a node that ``source`` wrote and nobody has changed since."""
    before = _read(node.annotations.get(ANNOTATION_PREFIX + source, ""))
    return {name: wrote for name, wrote in before.items() if node.labels.get(name) == wrote.value}


def match_hosts(hosts: Iterable[str], nodes: Iterable[NodeNow]) -> dict[str, str]:
    """Node per host, for the hosts that are nodes; of several hosts that would be one node the best match.

    A host is the node of that name, else the only one with that hostname label or with that name before the
    first dot; capitals do not count. Where both tell a domain it must be the same.
    """
    names: set[str] = set()
    others: dict[str, set[str]] = {}
    #: Of those that tell no domain themselves.
    short: dict[str, set[str]] = {}
    for node in nodes:
        names.add(node.name)
        hostname = node.labels.get(HOSTNAME, "").lower()
        for alias in (hostname, node.name.partition(".")[0]):
            others.setdefault(alias, set()).add(node.name)
        for alias in (hostname, node.name):
            if "." not in alias:
                short.setdefault(alias, set()).add(node.name)
    found: dict[str, tuple[int, str]] = {}
    for host in hosts:
        called = host.lower()
        known = others.get(called) or short.get(called.partition(".")[0], set())
        if called in names:
            node_name, unlike = called, int(host != called)
        elif len(known) == 1:
            node_name, unlike = next(iter(known)), 2
        else:
            continue
        found[node_name] = min(found.get(node_name, (3, "")), (unlike, host))
    return {host: node_name for node_name, (_, host) in found.items()}


def _may_go(name: str) -> bool:
    """Whether it may be taken away because the node's annotation says that we wrote it.

    A kubelet writes annotations of its own node, but not labels of Kubernetes' own (the admission plugin
    NodeRestriction): it must not have us do that.
    """
    if name == QOS_ANNOTATION or name.startswith(KUBERNETES_NETWORK):
        return True
    domain = name.rpartition("/")[0]
    return not any(domain == own or domain.endswith(f".{own}") for own in _RESERVED)


def _read(text: str) -> dict[str, Wrote]:
    """What an annotation says; one that somebody garbled says nothing, so no label is taken for ours."""
    try:
        return _ours.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
