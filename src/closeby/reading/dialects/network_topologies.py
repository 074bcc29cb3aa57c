"""Reads ``NetworkTopology`` of the network-aware scheduling KEP, in the KEP's own shape and as published.

The KEP's controller writes costs between nodes into ``status.weights[]``; published, in the group
``networktopology.diktyo.x-k8s.io``, are costs between regions and zones in ``spec.weights[]``. closeby's own
controller writes both into the KEP's status, those of regions and zones in the published ``topologyList``.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from msgspec import Struct

from closeby.objects.applications import NetworkTopology
from closeby.objects.bounds import quoted
from closeby.objects.labels import HOSTNAME, REGION, ZONE
from closeby.objects.quantities import QuantityText
from closeby.reading.common.findings import Findings
from closeby.reading.common.spelling import KnownFields, check_spelling
from closeby.reading.decoding.documents import Document
from closeby.reading.decoding.reading import DocumentReading
from closeby.reading.decoding.wire import ObjectWire, Wire, WithSpec, namespace_of, object_id
from closeby.reading.dialects.link_costs import CostDraft, LinkDraft, check_algorithm, weight_sets

_KEYS: Final = (REGION, ZONE, HOSTNAME)


class SpecWire(Wire):
    """What is read of the KEP's ``spec``; the rest is for its controller."""

    topology_algorithm: str | None = None


class NodeCostWire(Wire, gc=False):
    """``costList[]`` of the KEP; the zones beside the nodes say nothing that the nodes' labels do not."""

    origin: str = ""
    destination: str = ""
    cost: int | None = None


class ItemsWire(Wire):
    """``costList`` as the KEP's example nests it."""

    items: list[NodeCostWire] | None = None


class CostWire(Wire, gc=False):
    """``costList[]`` of the published ``topologyList``."""

    destination: str = ""
    network_cost: int | None = None
    bandwidth_capacity: QuantityText | None = None
    bandwidth_allocated: QuantityText | None = None


class OriginWire(Wire):
    """``originList[]``."""

    origin: str = ""
    cost_list: list[CostWire] | None = None


class KeyWire(Wire):
    """``topologyList[]``: the costs between the values of one node label."""

    topology_key: str = ""
    origin_list: list[OriginWire] | None = None


class KepWeightWire(Wire):
    """``status.weights[]``."""

    algorithm_name: str = ""
    cost_list: list[NodeCostWire] | ItemsWire | None = None
    topology_list: list[KeyWire] | None = None


class StatusWire(Wire):
    """``status``."""

    weights: list[KepWeightWire] | None = None


class KepTopologyWire(ObjectWire):
    """The KEP's object."""

    spec: SpecWire | None = None
    status: StatusWire | None = None


class WeightWire(Wire):
    """``spec.weights[]`` as published."""

    name: str = ""
    topology_list: list[KeyWire] | None = None


class PublishedSpecWire(SpecWire):
    """``spec`` as published."""

    weights: list[WeightWire] | None = None


_COST: Final = KnownFields(
    dict.fromkeys(("destination", "networkCost", "bandwidthCapacity", "bandwidthAllocated")),
    renamed={"cost": "networkCost"},
)
_ORIGIN: Final = KnownFields({"origin": None, "costList": _COST}, renamed={"costs": "costList"})
_KEY: Final = KnownFields({"topologyKey": None, "originList": _ORIGIN}, renamed={"originCosts": "originList"})
_KEP: Final = KnownFields(
    {
        "spec": KnownFields({"topologyAlgorithm": None}, renamed={"weights": "status.weights"}),
        "status": KnownFields(
            {
                "weights": KnownFields(
                    {
                        "algorithmName": None,
                        # Entries are many and read by the million, so their names are not looked at.
                        "costList": None,
                        "topologyList": _KEY,
                    },
                    renamed={"name": "algorithmName"},
                )
            },
            renamed={"properties": "weights"},
        ),
    }
)
_WEIGHT: Final = KnownFields({"name": None, "topologyList": _KEY}, renamed={"costList": "topologyList"})
_PUBLISHED: Final = KnownFields(
    {
        "spec": KnownFields(
            {"configmapName": None, "topologyAlgorithm": None, "weights": _WEIGHT},
            unread=frozenset({"configmapName"}),
        )
    }
)


class _Start(Struct, frozen=True):
    """What is known before the costs are."""

    namespace: str
    name: str
    findings: Findings


def read_kep(document: Document, reading: DocumentReading) -> NetworkTopology:
    """A NetworkTopology in the KEP's shape; one whose costs are not calculated yet has no weight sets.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(KepTopologyWire)
    start = _start(document, reading, wire)
    check_spelling(document.plain(), _KEP, start.findings)
    drafts = []
    for i, weight in enumerate((wire.status.weights if wire.status else None) or ()):
        place = f"status.weights[{i}]"
        costs, field = weight.cost_list, f"{place}.costList"
        if isinstance(costs, ItemsWire):
            costs, field = costs.items, f"{field}.items"
        areas = _links(weight.topology_list, place, start.findings)
        links = chain(_node_links(costs or (), field), areas)
        drafts.append(CostDraft(name=weight.algorithm_name, field=f"{place}.algorithmName", links=links))
    if not drafts:
        remedy = "all costs are unknown until status.weights is filled"
        start.findings.add("status.weights", "no costs are given", remedy)
    return _topology(document, wire, start, wire.spec or SpecWire(), drafts)


def read_published(document: Document, reading: DocumentReading) -> NetworkTopology:
    """A NetworkTopology as published.

    Raises:
        FieldError: a value that can't be read.
    """
    wire = document.decode(WithSpec[PublishedSpecWire])
    start = _start(document, reading, wire)
    check_spelling(document.plain(), _PUBLISHED, start.findings)
    spec = wire.spec or PublishedSpecWire()
    drafts = []
    for i, weight in enumerate(spec.weights or ()):
        place = f"spec.weights[{i}]"
        links = _links(weight.topology_list, place, start.findings)
        drafts.append(CostDraft(name=weight.name, field=f"{place}.name", links=links))
    if not drafts:
        remedy = "all costs are unknown until spec.weights is filled"
        start.findings.add("spec.weights", "no costs are given", remedy)
    return _topology(document, wire, start, spec, drafts)


def _node_links(costs: Iterable[NodeCostWire], field: str) -> Iterator[LinkDraft]:
    for i, one in enumerate(costs):
        yield LinkDraft(HOSTNAME, one.origin, one.destination, one.cost, f"{field}[{i}]", "cost")


def _links(topology_list: list[KeyWire] | None, place: str, findings: Findings) -> Iterator[LinkDraft]:
    for j, one in enumerate(topology_list or ()):
        field = f"{place}.topologyList[{j}]"
        key = one.topology_key
        if key not in _KEYS:
            message = f"costs between values of {quoted(key)} are not supported" if key else "is missing"
            findings.add(f"{field}.topologyKey", message, f"they are ignored; use one of {', '.join(_KEYS)}")
            continue
        for k, origin in enumerate(one.origin_list or ()):
            at = f"{field}.originList[{k}]"
            for n, cost in enumerate(origin.cost_list or ()):
                yield LinkDraft(
                    key,
                    origin.origin,
                    cost.destination,
                    cost.network_cost,
                    f"{at}.costList[{n}]",
                    "networkCost",
                    cost.bandwidth_capacity,
                    cost.bandwidth_allocated,
                )


def _start(document: Document, reading: DocumentReading, wire: ObjectWire) -> _Start:
    namespace, name = namespace_of(wire.meta), reading.name(document, wire.meta)
    return _Start(namespace, name, Findings(object_id("NetworkTopology", namespace, name)))


def _topology(
    document: Document, wire: ObjectWire, start: _Start, spec: SpecWire, drafts: list[CostDraft]
) -> NetworkTopology:
    algorithm = spec.topology_algorithm or ""
    check_algorithm(algorithm, start.findings)
    sets = weight_sets(drafts, start.findings)
    return NetworkTopology(
        namespace=start.namespace,
        name=start.name,
        uid=wire.meta.uid or "",
        algorithm=algorithm,
        weight_sets=sets,
        source=document.api_version,
        conditions=start.findings.conditions(),
    )
