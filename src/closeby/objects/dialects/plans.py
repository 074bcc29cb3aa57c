"""The plan of a gang's start, as it is written down before the first binding: which pod goes to which node.

closeby's own PodGroup keeps it in ``status.plan``. Other dialects' schemas have no place for it, so there it
is JSON in an annotation.
"""

from collections.abc import Iterable, Mapping

import msgspec

from closeby.objects.decoding.wire import Wire
from closeby.objects.dialects.keys import PLAN
from closeby.objects.pods import Pod


class PlannedPod(Wire, gc=False):
    """``nodes[].pods[]``."""

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


class CompactPlan(Wire):
    """The plan in an annotation."""

    #: RFC 3339.
    made: str | None = None
    #: uids by node.
    nodes: dict[str, list[str]] = msgspec.field(default_factory=dict)


def planned_nodes(pods: Iterable[tuple[Pod, str]]) -> list[PlannedNode]:
    """``nodes`` of a plan, by node and in the order given."""
    by_node: dict[str, PlannedNode] = {}
    for pod, node in pods:
        by_node.setdefault(node, PlannedNode(name=node, pods=[])).pods.append(
            PlannedPod(name=pod.name, uid=pod.uid)
        )
    return list(by_node.values())


def compact(plan: PlanWire) -> str:
    """As an annotation, which must be short: the uids by node, and nothing else (some 6,000 members fit)."""
    nodes = {node.name: [pod.uid for pod in node.pods] for node in plan.nodes}
    return msgspec.json.encode(CompactPlan(made=plan.made, nodes=nodes)).decode()


def read_plan(value: object) -> Mapping[str, str]:
    """uid -> node. What can't be read is no plan: it is a record of ours, and never a user's mistake."""
    try:
        plan = msgspec.convert(value, PlanWire | None)
    except msgspec.ValidationError:
        return {}
    return _by_uid(plan)


def read_annotation(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """uid -> node, out of an object's annotations."""
    text = annotations.get(PLAN)
    if text is None:
        return {}
    try:
        plan = msgspec.json.decode(text, type=CompactPlan)
    except msgspec.DecodeError:
        return {}
    return {uid: node for node, uids in plan.nodes.items() for uid in uids}


def _by_uid(plan: PlanWire | None) -> Mapping[str, str]:
    return {} if plan is None else {pod.uid: node.name for node in plan.nodes for pod in node.pods if pod.uid}
