"""Writes to the nodes of a cluster where they are, as discovery found it."""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from closeby.discovery.findings import FoundNode
from closeby.discovery.relabelling import NodeNow, Relabelling, Rules, cut_short, match_hosts, relabel
from closeby.discovery.renaming import KeptNames, keep_names
from closeby.kube.client.errors import UNREADABLE, ApiError
from closeby.kube.client.transport import MERGE_PATCH, Request, Transport
from closeby.kube.watch.resources import NODES

#: Only names, labels and annotations are needed of nodes.
_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_PAGE: Final = 500
_GONE: Final = (404, 409)


class LabelledNode(Struct, frozen=True, kw_only=True):
    """What became of one round."""

    #: Nodes that were found and carry their labels now.
    found: int
    #: Names of nodes that were changed, be it only that a miss was noted.
    changed: tuple[str, ...] = ()
    #: Names of nodes that lost labels.
    cleared: tuple[str, ...] = ()
    #: Hosts that are no node of this cluster.
    strangers: tuple[str, ...] = ()
    #: By node: labels that were found, and which another client has written otherwise.
    foreign: Mapping[str, tuple[str, ...]] = {}
    #: Of the nodes that carry our labels, how many were not found, and of how many, where that was no miss:
    #: with so many the scan is to blame.
    cut_short: tuple[int, int] | None = None
    #: Why a node could not be written, by its name.
    refused: Mapping[str, ApiError] = {}


class _Meta(Struct):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Item(Struct):
    metadata: _Meta


class _ListMeta(Struct, rename={"next": "continue"}):
    next: str = ""


class _List(Struct):
    metadata: _ListMeta
    items: list[_Item]


_read_list: Final = msgspec.json.Decoder(_List).decode


async def label_nodes(
    transport: Transport,
    source: str,
    hosts: Mapping[str, FoundNode],
    rules: Rules,
) -> LabelledNode | ApiError:
    """One round: labels the nodes that are ``hosts``, and counts misses of the others (see ``relabel``).

    When too many are missing (see ``cut_short``) nodes that were not found stay as they are. Only what
    changes is written, node by node. An error is one of reading: nothing was written then.
    """
    nodes = await _nodes(transport)
    if isinstance(nodes, ApiError):
        return nodes
    matched = match_hosts(hosts, nodes)
    found = keep_names(
        source, nodes, {node: hosts[host] for host, node in sorted(matched.items())}, rules.misses
    )
    short = cut_short(source, nodes, found)
    considered = [node for node in nodes if short is None or node.name in found]
    wanted = [(node, _change(source, node, found.get(node.name), rules)) for node in considered]
    changes = {node.name: (node, change) for node, change in wanted if change}
    answers = await asyncio.gather(*(_write(transport, *change) for change in changes.values()))
    errors = {name: error for name, error in zip(changes, answers, strict=True) if error is not None}
    done = [name for name in changes if name not in errors]
    return LabelledNode(
        found=len(found),
        changed=tuple(done),
        cleared=tuple(name for name in done if None in changes[name][1].labels.values()),
        strangers=tuple(sorted(hosts.keys() - matched.keys())),
        foreign={node.name: change.foreign for node, change in wanted if change.foreign},
        cut_short=short,
        # A node that has left meanwhile, or another one of its name, is for the next round.
        refused={name: error for name, error in errors.items() if error.code not in _GONE},
    )


def _change(source: str, node: NodeNow, kept: KeptNames | None, rules: Rules) -> Relabelling:
    if kept is None:
        return relabel(source, node, None, rules)
    return relabel(source, node, kept.found, rules, missed=kept.missed)


async def _nodes(transport: Transport) -> list[NodeNow] | ApiError:
    found: list[NodeNow] = []
    query = {"limit": str(_PAGE)}
    while True:
        request = Request(path=NODES.collection(), query=query, headers={"Accept": _METADATA}, longest=None)
        body = await transport.send(request)
        if isinstance(body, ApiError):
            return body
        try:
            page = _read_list(body)
        except msgspec.DecodeError as error:
            return ApiError(None, UNREADABLE, f"the list of nodes: {error}")
        metas = (item.metadata for item in page.items)
        found += [NodeNow(one.name, one.uid, one.labels or {}, one.annotations or {}) for one in metas]
        if not page.metadata.next:
            return found
        query = {**query, "continue": page.metadata.next}


async def _write(transport: Transport, node: NodeNow, change: Relabelling) -> ApiError | None:
    metadata: dict[str, object] = {"uid": node.uid}
    if change.labels:
        metadata["labels"] = change.labels
    if change.annotations:
        metadata["annotations"] = change.annotations
    answer = await transport.send(
        Request(
            method="PATCH",
            path=NODES.item("", node.name),
            body=msgspec.json.encode({"metadata": metadata}),
            content_type=MERGE_PATCH,
        )
    )
    return answer if isinstance(answer, ApiError) else None
