"""Judges the dependency graph of an AppGroup, in whichever shape it was written."""

import difflib
import math
from typing import Final

import msgspec
from msgspec import Struct

from closeby.errors import QuantityError
from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from closeby.objects.bounds import quoted
from closeby.objects.quantities import QuantityText
from closeby.reading.common.findings import Findings
from closeby.reading.configuration import GREATEST_WEIGHT
from closeby.reading.decoding.bandwidth import bits_per_second
from closeby.reading.decoding.wire import Wire

#: Sorts that the KEP and its published controller know.
SORTS: Final = ("KahnSort", "TarjanSort", "ReverseKahn", "ReverseTarjan", "AlternateKahn", "AlternateTarjan")
#: Bound of ``maxNetworkCost`` in the published schema.
GREATEST_LIMIT: Final = 10_000


class CallWire(Wire):
    """The fields of every ``dependencies[]`` beside the name of the other workload."""

    weight: float | None = None
    min_bandwidth: QuantityText | None = None
    max_network_cost: int | None = None


class Call(Struct, frozen=True, kw_only=True):
    """One dependency as written; ``place`` and ``field`` are the paths of the entry and of the name in it."""

    workload: str
    place: str
    field: str
    wire: CallWire


class GraphDraft(Struct, frozen=True, kw_only=True):
    """One workload as written; ``place`` and ``field`` as in ``Call``."""

    name: str
    place: str
    field: str
    calls: list[Call]


class Drafts(Struct, frozen=True):
    """All workloads as written, and the path of their list."""

    field: str
    entries: list[GraphDraft]


def judged(group: AppGroup, drafts: Drafts, findings: Findings) -> AppGroup:
    """The finished record: ``group`` with its workloads, and with all that was found wrong.

    A workload that is listed twice has the dependencies of both entries.
    """
    calls: dict[str, dict[str, Dependency]] = {}
    firsts: dict[str, str] = {}
    if not drafts.entries:
        remedy = "list the workloads of the application with their dependencies"
        findings.add(drafts.field, "no workloads are given", remedy, blocking=True)
    for draft in drafts.entries:
        if not draft.name:
            findings.add(draft.field, "is missing", "name the workload as its pods do", blocking=True)
            continue
        if draft.name in firsts:
            message = f"{draft.name} is already given in {firsts[draft.name]}"
            findings.add(draft.field, message, "give it once; the dependencies of both count")
        firsts.setdefault(draft.name, draft.place)
        needs = calls.setdefault(draft.name, {})
        for call in draft.calls:
            _add_call(needs, call, findings)
    workloads = tuple(
        AppWorkload(name=name, dependencies=tuple(needs.values())) for name, needs in calls.items()
    )
    members = _members(group.num_members, len(workloads), findings)
    _check_algorithm(group.algorithm, findings)
    return msgspec.structs.replace(
        group, workloads=workloads, num_members=members, conditions=findings.conditions()
    )


def _add_call(needs: dict[str, Dependency], call: Call, findings: Findings) -> None:
    if not call.workload:
        remedy = "name the workload that is needed, or drop the entry"
        findings.add(call.field, "is missing", remedy, blocking=True)
        return
    new = Dependency(
        workload=call.workload,
        weight=_weight(call, findings),
        min_bandwidth=_bandwidth(call, findings),
        max_network_cost=_limit(call, findings),
    )
    before = needs.get(call.workload)
    if before is None:
        needs[call.workload] = new
        return
    message = f"{call.workload} is named twice among the dependencies of one workload"
    findings.add(call.field, message, "name it once; it counts once, with the stricter values of the two")
    limits = [one.max_network_cost for one in (before, new) if one.max_network_cost is not None]
    bandwidths = [one.min_bandwidth for one in (before, new) if one.min_bandwidth is not None]
    needs[call.workload] = Dependency(
        workload=call.workload,
        weight=max(before.weight, new.weight),
        min_bandwidth=max(bandwidths, default=None),
        max_network_cost=min(limits, default=None),
    )


def _weight(call: Call, findings: Findings) -> float:
    weight = call.wire.weight
    if weight is None:
        return 1.0
    if math.isfinite(weight) and 0 < weight <= GREATEST_WEIGHT:
        return weight
    message = f"{weight:g} is not a weight above 0 and up to {GREATEST_WEIGHT:,}"
    findings.add(f"{call.place}.weight", message, "it counts as 1; drop the dependency if it is not meant")
    return 1.0


def _bandwidth(call: Call, findings: Findings) -> int | None:
    text = call.wire.min_bandwidth
    if text is None:
        return None
    try:
        return bits_per_second(text, "up")
    except QuantityError as error:
        findings.add(f"{call.place}.minBandwidth", error.message, f"it is ignored; {error.remedy}")
        return None


def _limit(call: Call, findings: Findings) -> int | None:
    limit = call.wire.max_network_cost
    if limit is None or 0 <= limit <= GREATEST_LIMIT:
        return limit
    field = f"{call.place}.maxNetworkCost"
    if limit < 0:
        findings.add(field, f"{limit} is negative, so no node could meet it", "give 0 or more", blocking=True)
        return None
    message = f"{limit} is more than {GREATEST_LIMIT}, which the published schema refuses"
    findings.add(field, message, "it is heeded as written; leave it out where there is no limit")
    return limit


def _members(number: int | None, workloads: int, findings: Findings) -> int | None:
    field = "spec.numMembers"
    if number is None:
        return None
    if number < 1:
        findings.add(field, f"{number} is less than 1", "it is ignored; give the number of pods")
        return None
    if number < workloads:
        message = f"{number} is less than the {workloads} workloads, each of which has at least one pod"
        findings.add(field, message, "give the number of pods of the whole application")
    return number


def _check_algorithm(name: str, findings: Findings) -> None:
    if not name or name in SORTS:
        return
    folded = {sort.casefold(): sort for sort in SORTS}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    remedy = f"did you mean {folded[close[0]]}?" if close else f"use one of {', '.join(SORTS)}"
    findings.add(
        "spec.topologySortingAlgorithm", f"{quoted(name)} is not a sort, so KahnSort is used", remedy
    )
