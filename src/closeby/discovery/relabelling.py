"""Which labels a node is to get or lose, by what was found now and what we wrote before.

A source that does not find a node, or one of its levels, says nothing: a host may be off, a cable out, a
scan cut short. So a label that we wrote stays until it was missed several times in a row. What we wrote, and
how often it was missed, stands in an annotation of the node, one per source: no process need run all the
time. Labels of other writers are theirs, unless the user says otherwise.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.discovery.findings import FoundNode
from closeby.discovery.labelling import quality_text, uplinks_known
from closeby.objects.labels import HOSTNAME
from closeby.topology.families import KUBERNETES_NETWORK, QOS_ANNOTATION

#: With the name of the source behind it.
ANNOTATION_PREFIX: Final = "discovery.closeby.dev/"

#: Domains (with those below) of labels that a kubelet may not change at will.
_RESERVED: Final = ("kubernetes.io", "k8s.io")
#: Nodes without which a scan is taken as cut short: more than this share of those that we labelled.
MOST_MISSED: Final = 0.5


class Rules(Struct, frozen=True, kw_only=True):
    """How nodes are labelled."""

    #: Rounds in a row after which what is found no more goes.
    misses: int = 3
    #: Whether nodes get the QoS annotation; None: where uplinks are known and no other tool wrote one.
    with_quality: bool | None = False
    #: Whether labels of other writers with other values are taken over.
    overwrite: bool = False


class Wrote(Struct, frozen=True, omit_defaults=True):
    """A label or annotation of ours."""

    value: str
    #: Rounds in a row that did not find it.
    missed: int = 0


class Relabelling(Struct, frozen=True):
    """What changes at a node; None removes a label or an annotation. Nothing else is touched."""

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    #: Labels that were found, and have another value of another writer: they stay.
    foreign: tuple[str, ...] = ()

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
    rules: Rules,
    *,
    missed: Mapping[str, int] = {},
) -> Relabelling:
    """What makes ``node`` carry what was found; ``found`` is None where it was not found at all.

    Labels of other writers stay as they are and theirs, those of another source too. Those that this
    source wrote earlier and did not find for ``rules.misses`` rounds in a row are removed, unless another
    writer else has changed them since. The QoS annotation is treated as a label is, where it is wanted; who
    wants it in any case replaces that of another writer.

    ``missed`` says of labels in ``found`` that stand for others (see ``renaming``) for how many rounds.
    """
    key = ANNOTATION_PREFIX + source
    before = _read(node.annotations.get(key, ""))
    wanted = {} if found is None else dict(found.labels)
    now: dict[str, str | None] = {**node.labels, QOS_ANNOTATION: node.annotations.get(QOS_ANNOTATION)}
    theirs = {name for name, value in now.items() if value is not None and _other(before.get(name), value)}
    foreign: tuple[str, ...] = ()
    if not rules.overwrite:
        foreign = tuple(sorted(name for name in wanted if name in theirs and now[name] != wanted[name]))
        wanted = {name: value for name, value in wanted.items() if name not in foreign}
    with_quality = rules.with_quality
    if found is not None and with_quality is None:
        with_quality = QOS_ANNOTATION not in theirs and uplinks_known(found)
    quality = quality_text(found) if found is not None and with_quality else None
    if quality is not None:
        wanted[QOS_ANNOTATION] = quality
    changes: dict[str, str | None] = {name: value for name, value in wanted.items() if now.get(name) != value}
    ours = {
        name: Wrote(value, missed.get(name, 0))
        for name, value in wanted.items()
        if name in changes or (name in before and before[name].value == value)
    }
    for name, wrote in before.items():
        if name in wanted or now.get(name) != wrote.value or not _may_go(name):
            continue
        if wrote.missed + 1 < rules.misses:
            ours[name] = Wrote(wrote.value, wrote.missed + 1)
        else:
            changes[name] = None
    annotations = {QOS_ANNOTATION: changes.pop(QOS_ANNOTATION)} if QOS_ANNOTATION in changes else {}
    text = msgspec.json.encode(dict(sorted(ours.items()))).decode() if ours else None
    if ours != before and (text is not None or key in node.annotations):
        annotations[key] = text
    return Relabelling(changes, annotations, foreign)


def cut_short(source: str, nodes: Iterable[NodeNow], found: Container[str]) -> tuple[int, int] | None:
    """How many of the nodes that ``source`` labelled were not found, and of how many, if these are so many
    that the scan rather than the nodes is to blame; None if not.
    """
    labelled = [node.name for node in nodes if written(source, node)]
    lost = sum(name not in found for name in labelled)
    return (lost, len(labelled)) if lost > MOST_MISSED * len(labelled) else None


def reserved(name: str) -> bool:
    """Whether a label is of Kubernetes' own, and not of the Topograph label standard."""
    if name.startswith(KUBERNETES_NETWORK):
        return False
    domain = name.rpartition("/")[0]
    return any(domain == own or domain.endswith(f".{own}") for own in _RESERVED)


def written(source: str, node: NodeNow) -> dict[str, Wrote]:
    """The labels of a node that ``source`` wrote and that are unchanged since."""
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
    return name == QOS_ANNOTATION or not reserved(name)


def _other(wrote: Wrote | None, value: str) -> bool:
    """Whether another writer wrote this value."""
    return wrote is None or wrote.value != value


def _read(text: str) -> dict[str, Wrote]:
    """What an annotation says; a garbled one says nothing, so no label is taken for ours."""
    try:
        return _ours.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
