"""What is missing where equal pods do not all fit: by resource, or by the way in which it is split up."""

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.cluster.resources import COMMON
from closeby.objects.pods import Pod
from closeby.objects.quantities import format_amount
from closeby.objects.reasons import Reason
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.whatif.questions import Question, joined

Counts = NDArray[np.int64]
Ints = NDArray[np.intp]


class MissingRoom(Struct, frozen=True):
    """What lacks on some nodes."""

    #: By resource: what is asked for in all beyond what is free on nodes that may be used; only above 0.
    amounts: dict[str, int]
    #: Where every resource is enough in sum: what no node has left for one more pod, all at once. Empty where
    #: something else than resources stands against one more.
    split: dict[str, int]


def lack_of(
    question: Question, fits: Counts, slots: Ints, needed: int, *, alone: bool = False
) -> MissingRoom:
    """What ``needed`` pods lack on some nodes, of which ``fits`` find room by slot.

    ``alone``: they must all lie on one node.
    """
    cluster, pod = question.trials.engine.cluster, question.waiting[0]
    usable = slots[usable_slots(question, pod, slots)]
    asked = {resource: amount for resource, amount in pod.spec.requests if amount}
    amounts: dict[str, int] = {}
    for resource, amount in asked.items():
        free = cluster.free(cluster.row_of[resource], usable)
        there = int(free.max(initial=0)) if alone else int(free.sum())
        if amount * needed > there:
            amounts[resource] = amount * needed - there
    return MissingRoom(amounts, {} if amounts else _split(question, asked | {"pods": 1}, fits, usable))


def usable_slots(question: Question, pod: Pod, slots: Ints) -> NDArray[np.bool_]:
    """Which of these slots nothing but want of resources keeps such a pod from."""
    engine = question.trials.engine
    usable: NDArray[np.bool_] = engine.cluster.alive[slots].copy()
    nodes = Nodes(engine.cluster, slots)
    for plugin in engine.profile.filters:
        if plugin.reason is not Reason.INSUFFICIENT_RESOURCES and plugin.concerns(pod):
            usable &= plugin.filter(CycleState(), pod, nodes)
    return usable


def _split(question: Question, asked: dict[str, int], fits: Counts, usable: Ints) -> dict[str, int]:
    cluster = question.trials.engine.cluster
    lacking = {
        resource: cluster.free(cluster.row_of[resource], usable) - fits[usable] * amount < amount
        for resource, amount in asked.items()
    }
    for resource, nowhere in lacking.items():
        if nowhere.all():
            return {resource: asked[resource]}
    somewhere = {resource: asked[resource] for resource, nodes in lacking.items() if nodes.any()}
    covered = np.zeros(len(usable), dtype=np.bool_)
    for nodes in lacking.values():
        covered |= nodes
    return somewhere if covered.all() else {}


def lack_text(lack: MissingRoom) -> str:
    """``4 nvidia.com/gpu``; ``enough in sum, but no node has 4 nvidia.com/gpu left``."""
    if lack.amounts:
        return joined(_amounts(lack.amounts))
    if not lack.split:
        return "enough in sum, but no node takes one more"
    each = {resource: amount for resource, amount in lack.split.items() if resource != "pods"}
    if not each:
        return "enough in sum, but no node may hold one more pod"
    also = " and may hold one more pod" if len(each) < len(lack.split) else ""
    at_once = " at once" if len(each) > 1 else ""
    return f"enough in sum, but no node has {joined(_amounts(each))} left{at_once}{also}"


def _amounts(amounts: dict[str, int]) -> list[str]:
    """What is scarce first, if there is such a thing: cores and memory seldom are beside devices."""
    order = sorted(amounts, key=lambda resource: (resource in COMMON, resource))
    return [f"{format_amount(resource, amounts[resource])} {resource}" for resource in order]
