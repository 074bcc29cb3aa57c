"""What the status of an AppGroup should say (network-aware scheduling KEP), worked out from what is known.

The KEP's shape and the published one call the same things by different names; the published one has no list
of pods and no conditions.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from closeby.applications.registry import unknown_dependencies, workload_name
from closeby.applications.sorts import TopologyOrder, topology_order
from closeby.controllers.statuses import VALID, SeenStatus, WantedStatus, validity
from closeby.kube.writing.writer import StatusCondition
from closeby.objects.applications import AppGroup
from closeby.objects.pods import Pod
from closeby.objects.quantities import utc
from closeby.objects.reasons import Condition

#: Says that there are too many pods to list them all.
PODS_LISTED: Final = "PodsListed"
#: What ``podsScheduled`` may take, in bytes: etcd refuses objects of more than 1.5 MiB.
LONGEST_LIST: Final = 500_000
_REFERENCE: Final = ("apiVersion", "kind", "name", "namespace", "selector")


class Member(Struct, frozen=True, gc=False):
    """A pod of an application, cut down to what the status tells of it."""

    name: str
    #: As its label names it, else the pod's own name.
    workload: str
    #: None while it waits, and once it is finished.
    node: str | None
    running: bool
    #: Seconds since the epoch; None when unknown.
    created: float | None


class Calculation(Struct, frozen=True):
    """An order, and when it was worked out, in seconds since the epoch."""

    order: TopologyOrder
    time: float


def member(pod: Pod) -> Member:
    """What there is to tell of a pod. One that is about to end still has its node, but runs no more."""
    return Member(
        name=pod.name,
        workload=workload_name(pod),
        node=None if pod.finished else pod.node_name,
        running=pod.phase == "Running" and not pod.terminating,
        created=pod.created,
    )


def calculated(group: AppGroup, before: Calculation | None, now: float) -> Calculation | None:
    """The order of an application, with the time of ``before`` if it is the same; None if there is none."""
    if not group.usable:
        return None
    order = topology_order(group)
    if before is not None and before.order == order:
        return before
    return Calculation(order, now)


def problems_of(
    group: AppGroup | Condition, calculation: Calculation | None, members: Iterable[Member] = ()
) -> tuple[Condition, ...]:
    """All that is wrong with the spec of an application, or the one reason why it can't be read.

    With its pods, once there are some, also dependencies on what none of them is.
    """
    if isinstance(group, Condition):
        return (group,)
    carried = {one.workload for one in members}
    unknown = unknown_dependencies(group, carried) if carried else ()
    return (*group.conditions, *(calculation.order.conditions if calculation else ()), *unknown)


def app_group_status(
    it: SeenStatus,
    group: AppGroup | Condition,
    calculation: Calculation | None,
    members: Iterable[Member],
    longest: int = LONGEST_LIST,
) -> WantedStatus:
    """The status that ``it`` should have; ``longest`` bounds the list of pods, in bytes."""
    pods = sorted(members, key=lambda one: (one.workload, one.name))
    created = [one.created for one in pods if one.created is not None]
    fields: dict[str, object] = {
        "runningPods" if it.is_kep else "runningWorkloads": sum(one.running for one in pods),
        "scheduleStartTime": it.status.get("scheduleStartTime") or (utc(min(created)) if created else None),
        **_order(it, calculation),
    }
    if not it.is_kep:
        return WantedStatus(fields=fields)
    listed, told = _listed(pods, longest)
    fields["podsScheduled"] = listed or None
    return WantedStatus(
        fields=fields,
        conditions=(validity(problems_of(group, calculation, pods), it.generation), *told),
        types=frozenset((VALID, PODS_LISTED)),
    )


def _order(it: SeenStatus, calculation: Calculation | None) -> dict[str, object]:
    """``topologyOrder``, and when it was worked out: a time that stands there stays as long as the order."""
    if calculation is None:
        return {"topologyOrder": None, "topologyCalculationTime": None}
    index = calculation.order.index
    order: list[dict[str, object]]
    if it.is_kep:
        order = [{"podName": name, "index": place} for name, place in index.items()]
    else:
        references = _references(it.spec)
        # The published plugin looks an entry up by halves, so it has to be sorted by what pods carry.
        order = [
            {"workload": references.get(name, {"selector": name}), "index": index[name]}
            for name in sorted(index)
        ]
    time = it.status.get("topologyCalculationTime") if it.status.get("topologyOrder") == order else None
    return {"topologyOrder": order, "topologyCalculationTime": time or utc(calculation.time)}


def _references(spec: Mapping[str, object]) -> Mapping[str, Mapping[str, object]]:
    """The published shape's way to name each workload, by what it is called in the order."""
    found: dict[str, Mapping[str, object]] = {}
    entries = _mappings(spec.get("workloads"))
    calls = (call for entry in entries for call in _mappings(entry.get("dependencies")))
    for entry in (*entries, *calls):
        workload = entry.get("workload")
        if not isinstance(workload, dict):
            continue
        reference = {key: workload[key] for key in _REFERENCE if key in workload}
        for key in ("selector", "name"):
            name = workload.get(key)
            if isinstance(name, str) and name:
                found.setdefault(name, reference)
                break
    return found


def _mappings(value: object) -> Sequence[Mapping[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _listed(
    pods: Sequence[Member], longest: int
) -> tuple[list[dict[str, object]], tuple[StatusCondition, ...]]:
    """``podsScheduled``, as far as it may be long, and what is to be said if that is not all."""
    placed = [one for one in pods if one.node is not None]
    entries: list[dict[str, object]] = []
    size = 0
    for one in placed:
        entry: dict[str, object] = {"name": one.workload, "replicaID": one.name, "hostname": one.node}
        size += len(msgspec.json.encode(entry)) + 1
        if size > longest:
            message = f"{len(entries):,} of {len(placed):,} pods with a node are listed; the others are not"
            return entries, (
                StatusCondition(type=PODS_LISTED, status="False", reason="TooManyPods", message=message),
            )
        entries.append(entry)
    return entries, ()
