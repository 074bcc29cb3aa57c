"""Which victims the end of a plan leaves behind, although their gang can't do without those that went."""

from collections.abc import Collection, Iterable

from closeby.objects.pods import Pod
from closeby.scheduling.gangs.rosters import missing, roster
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Preemption


def stranded(
    plan: Preemption,
    evicted: Collection[str],
    gangs: Iterable[str],
    planned: Collection[str],
    state: SchedulingState,
) -> list[Pod]:
    """Victims of a plan that hold their nodes for nothing.

    Args:
        plan: a plan that is in force no more.
        evicted: uids of pods that leave, whether the watch has said so or not.
        gangs: keys of the gangs that lost members to the plan.
        planned: uids of the victims of plans that are in force; those plans see to them.
        state: all pods and gangs.
    """
    found = []
    for key in gangs:
        group = state.groups.get(key)
        if group is None or group.disruption == "single":
            continue
        staying = [pod for pod in state.placed(key) if pod.uid not in evicted]
        members = roster(group, (), [(pod, 0) for pod in staying], state.done(key))
        if missing(group, members) is not None:
            found += staying
    left = {pod.uid for pod in plan.victims}.difference(planned)
    return [pod for pod in found if pod.uid in left and state.priorities.of(pod) < plan.priority]
