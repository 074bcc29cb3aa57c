"""What closeby writes down of a gang: the plan of its start (which pod goes to which node), and the ranks.

Both are trusted only in the status of closeby's own PodGroup, which only closeby may write. A PodGroup of
another dialect has a mirror: a PodGroup of closeby of the same name, whose status keeps them.
"""

from collections.abc import Iterable, Mapping

import msgspec

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.recorded import MOST_NAMES
from closeby.reading.decoding.wire import Wire


class PlannedPod(Wire, gc=False, omit_defaults=False):
    """``nodes[].pods[]``; the definition requires a name, be it empty."""

    name: str = ""
    uid: str = ""


class PlannedNode(Wire):
    """``nodes[]``."""

    name: str = ""
    pods: list[PlannedPod] = msgspec.field(default_factory=list)


class PlanWire(Wire):
    """``plan``."""

    topology: str | None = None
    level: str | None = None
    domain: list[str] | None = None
    #: RFC 3339.
    made: str | None = None
    nodes: list[PlannedNode] = msgspec.field(default_factory=list)


def planned_nodes(pods: Iterable[tuple[Pod, str]]) -> list[PlannedNode]:
    """``nodes`` of a plan, by node and in the order given; of very many pods without their names."""
    planned = tuple(pods)
    by_node: dict[str, PlannedNode] = {}
    for pod, node in planned:
        by_node.setdefault(node, PlannedNode(name=node, pods=[])).pods.append(
            PlannedPod(name=pod.name if len(planned) <= MOST_NAMES else "", uid=pod.uid)
        )
    return list(by_node.values())


def read_plan(value: object) -> Mapping[str, str]:
    """uid -> node. What can't be read is not a plan: it is a record of ours, and never a user's mistake."""
    try:
        plan = msgspec.convert(value, PlanWire | None)
    except msgspec.ValidationError:
        return {}
    return _by_uid(plan)


def rank_list(ranks: Mapping[str, int]) -> list[str]:
    """``status.ranks``: the uid of the member that has each rank; empty where none has it."""
    found = [""] * (max(ranks.values(), default=-1) + 1)
    for uid, rank in ranks.items():
        found[rank] = uid
    return found


def read_ranks(value: object) -> Mapping[str, int]:
    """uid -> rank. What can't be read is not a rank."""
    try:
        uids = msgspec.convert(value, list[str] | None) or []
    except msgspec.ValidationError:
        return {}
    return {uid: rank for rank, uid in enumerate(uids) if uid}


def completed(group: PodGroup, mirror: PodGroup | None) -> PodGroup:
    """A PodGroup of another dialect with what its mirror keeps."""
    if mirror is None or mirror.mirrors != group.source.partition("/")[0]:
        return group
    return msgspec.structs.replace(group, plan=mirror.plan, ranks=mirror.ranks)


def _by_uid(plan: PlanWire | None) -> Mapping[str, str]:
    return {} if plan is None else {pod.uid: node.name for node in plan.nodes for pod in node.pods if pod.uid}
