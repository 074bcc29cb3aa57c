"""A plan of preemption as it is written down, and read again after a restart.

A gang's plan is in the status of closeby's PodGroup. A plain pod's is in its own status: its node is the
nominated one, and a condition names the victims. No other client may write either.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from closeby.objects.pods import Pod
from closeby.objects.recorded import (
    MOST_NAMES,
    ClearedNode,
    PlannedMember,
    PreemptionStatus,
    PreemptionVictim,
)
from closeby.objects.words import plural
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import EvictionCost, Preemption, name_of

#: Type of the condition of a plain pod: True while its plan is in force.
PREEMPTING: Final = "closeby.dev/Preempting"
#: Its reasons.
EVICTING: Final = "Evicting"
PLACED: Final = "Placed"
GIVEN_UP: Final = "GivenUp"


class PodPlan(Struct, frozen=True, kw_only=True):
    """What the status of a waiting pod says of preemption."""

    #: ``status.nominatedNodeName``.
    node: str
    #: Of the plan; empty where the pod is nominated without one of its own.
    id: str = ""
    #: RFC 3339.
    made: str = ""
    #: uids of the victims.
    victims: tuple[str, ...] = ()
    #: Whether closeby wrote the nominated node; others may too.
    ours: bool = False


def status_of(plan: Preemption, id_: str, made: str, pods: Mapping[str, Pod]) -> PreemptionStatus:
    """The plan as it is written; ``pods`` by uid, of which members have their names unless they are many."""
    namespace = name_of(plan.item).partition("/")[0]
    by_node: dict[str, list[PlannedMember]] = {}
    named = len(plan.places) + len(plan.victims) <= MOST_NAMES
    for uid, node in plan.places:
        name = pods[uid].name if named and uid in pods else ""
        by_node.setdefault(node, []).append(PlannedMember(name=name, uid=uid))
    cost = plan.cost
    return PreemptionStatus(
        id=id_,
        made=made,
        topology=plan.topology or "",
        level=plan.level,
        domain=tuple(value or "" for value in plan.path),
        nodes=tuple(ClearedNode(name=node, pods=tuple(members)) for node, members in by_node.items()),
        victims=tuple(
            PreemptionVictim(uid=pod.uid, name=pod.name if named and pod.namespace == namespace else "")
            for pod in plan.victims
        ),
        cost=cost.status,
    )


def gang_plan(key: str, status: PreemptionStatus, state: SchedulingState) -> Preemption:
    """The plan of a gang that an earlier process wrote down, with the victims that are still there."""
    cost = status.cost
    return Preemption(
        item=key,
        preemptor=key,
        is_gang=True,
        priority=state.turn(key).priority if state.waits(key) or state.placed(key) else 0,
        topology=status.topology or None,
        level=status.level,
        path=tuple(value or None for value in status.domain),
        places=tuple((pod.uid, node.name) for node in status.nodes for pod in node.pods),
        victims=_known((one.uid for one in status.victims), state.pods),
        cost=EvictionCost(
            pdb_violations=cost.pdb_violations,
            highest=float("-inf") if cost.highest_priority is None else cost.highest_priority,
            gangs_broken=cost.gangs_broken,
            lost=cost.lost_accelerator_seconds,
            accelerators=cost.accelerators,
            outside=cost.outside,
            seconds=cost.seconds_to_end,
            pods=cost.pods,
        ),
    )


def pod_plan(pod: Pod, written: PodPlan, state: SchedulingState) -> Preemption:
    """The plan of a pod that an earlier process wrote down, with the victims that are still there."""
    victims = _known(written.victims, state.pods)
    highest = max((state.priorities.of(one) for one in victims), default=None)
    return Preemption(
        item=state.item_key(pod),
        preemptor=pod.key,
        is_gang=False,
        priority=state.priorities.of(pod),
        node=written.node,
        places=((pod.uid, written.node),),
        victims=victims,
        cost=EvictionCost(highest=float("-inf") if highest is None else highest, pods=len(written.victims)),
    )


def message_of(id_: str, node: str, victims: Iterable[str]) -> str:
    """The message of the condition of a plain pod."""
    uids = tuple(victims)
    return f"plan {id_} evicts {plural(len(uids), 'pod')} so that it fits on {node}: {', '.join(uids)}"


def read_message(message: str) -> tuple[str, tuple[str, ...]] | None:
    """The plan's name and the victims' uids; None where it is not such a message."""
    words = message.split(" ", 2)
    if len(words) < 3 or words[0] != "plan":
        return None
    return words[1], tuple(filter(None, message.rpartition(": ")[2].split(", ")))


def _known(uids: Iterable[str], pods: Mapping[str, Pod]) -> tuple[Pod, ...]:
    found = (pods[uid] for uid in uids if uid in pods)
    return tuple(sorted(found, key=lambda pod: (pod.namespace, pod.name)))
