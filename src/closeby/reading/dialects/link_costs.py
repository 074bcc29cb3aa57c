"""Judges the costs of a NetworkTopology, in whichever shape they were written."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from closeby.errors import QuantityError
from closeby.objects.applications import LinkCost, WeightSet
from closeby.objects.bounds import quoted
from closeby.objects.labels import HOSTNAME, REGION, ZONE
from closeby.objects.quantities import QuantityText, Rounding
from closeby.reading.common.findings import Findings
from closeby.reading.decoding.bandwidth import bits_per_second

ALGORITHMS: Final = ("Dijkstra", "BellmanFord")
#: Sums along any path stay exact below it.
GREATEST_COST: Final = 10**12


class LinkDraft(Struct, frozen=True, gc=False):
    """One cost as written, between two values of the node label ``key``."""

    key: str
    origin: str
    destination: str
    cost: int | None
    #: Path of the entry, and the name of its cost's field.
    place: str
    cost_field: str
    capacity: QuantityText | None = None
    allocated: QuantityText | None = None


class CostDraft(Struct, frozen=True, kw_only=True):
    """One set of costs as written; ``field`` is the path of its name."""

    name: str
    field: str
    links: Iterable[LinkDraft]


#: The costs of one kind, by origin and destination.
_Links = dict[tuple[str, str], LinkCost]


def weight_sets(drafts: Iterable[CostDraft], findings: Findings) -> tuple[WeightSet, ...]:
    """The sets by name, in the order in which they are written; sets of one name are one set.

    Of two costs from one place to another the greater counts.
    """
    sets: dict[str, dict[str, _Links]] = {}
    for draft in drafts:
        if not draft.name:
            findings.add(draft.field, "is missing", "name the set, so that weightsName can choose it")
        elif draft.name in sets:
            message = f"{draft.name} is the name of an earlier set"
            findings.add(draft.field, message, "the costs of both count; give each set a name of its own")
        links = sets.setdefault(draft.name, {})
        for one in draft.links:
            _add(links.setdefault(one.key, {}), one, findings)
    return tuple(
        WeightSet(
            name=name,
            node_costs=tuple(links.get(HOSTNAME, {}).values()),
            zone_costs=tuple(links.get(ZONE, {}).values()),
            region_costs=tuple(links.get(REGION, {}).values()),
        )
        for name, links in sets.items()
    )


def check_algorithm(name: str, findings: Findings) -> None:
    """Reports an unknown algorithm."""
    if name and name not in ALGORITHMS:
        message = f"{quoted(name)} is not an algorithm, so Dijkstra is used"
        findings.add("spec.topologyAlgorithm", message, f"use {' or '.join(ALGORITHMS)}")


def _add(links: _Links, draft: LinkDraft, findings: Findings) -> None:
    if not draft.origin or not draft.destination:
        remedy = "it is ignored; name its origin and its destination"
        findings.add(draft.place, "names no two places", remedy, kind="places")
        return
    if draft.cost is None or not 0 <= draft.cost <= GREATEST_COST:
        wrong = "is missing" if draft.cost is None else f"is {draft.cost}, not from 0 to {GREATEST_COST:,}"
        remedy = "the cost is unknown; give a whole number in that range"
        findings.add(_field(draft), f"the cost {_way(draft)} {wrong}", remedy, kind="cost")
        return
    if draft.origin == draft.destination:
        if draft.cost:
            message = f"the cost {_way(draft)} is {draft.cost}, but no place has a cost to itself"
            findings.add(_field(draft), message, "it is ignored; drop it", kind="self")
        return
    before = links.get((draft.origin, draft.destination))
    if before is not None and before.cost != draft.cost:
        message = f"the cost {_way(draft)} is given as {before.cost} and as {draft.cost}"
        remedy = f"{max(before.cost, draft.cost)} counts; give it once"
        findings.add(_field(draft), message, remedy, kind="twice")
    if before is None or before.cost < draft.cost:
        links[draft.origin, draft.destination] = LinkCost(
            origin=draft.origin,
            destination=draft.destination,
            cost=draft.cost,
            bandwidth_capacity=_bits(draft.capacity, "down", f"{draft.place}.bandwidthCapacity", findings),
            bandwidth_allocated=_bits(draft.allocated, "up", f"{draft.place}.bandwidthAllocated", findings),
        )


def _field(draft: LinkDraft) -> str:
    return f"{draft.place}.{draft.cost_field}"


def _way(draft: LinkDraft) -> str:
    return f"from {draft.origin} to {draft.destination}"


def _bits(text: QuantityText | None, rounding: Rounding, field: str, findings: Findings) -> int | None:
    if text is None:
        return None
    try:
        return bits_per_second(text, rounding)
    except QuantityError as error:
        kind = field.rpartition(".")[2]
        findings.add(field, error.message, f"it is ignored; {error.remedy}", kind=kind)
        return None
