"""The plans that an earlier process wrote down, of gangs and pods that this scheduler schedules."""

from collections.abc import Iterator, Mapping

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.preempting.evicting import PlanUnderway
from closeby.kube.preempting.notes import preemptor_of
from closeby.kube.preempting.records import PodPlan, gang_plan, pod_plan, status_of
from closeby.kube.state.ownership import OwnGangs
from closeby.scheduling.intake.scheduling_state import SchedulingState


def written_plans(
    state: SchedulingState, objects: GangObjects, own: OwnGangs, nominated: Mapping[str, PodPlan]
) -> tuple[PlanUnderway, ...]:
    """All of them, as far as their victims are still there; ``nominated``: what pods say, by uid."""
    return (*_gangs(state, objects, own, nominated), *_pods(state, objects, nominated))


def _gangs(
    state: SchedulingState, objects: GangObjects, own: OwnGangs, nominated: Mapping[str, PodPlan]
) -> Iterator[PlanUnderway]:
    for key, group in tuple(state.groups.items()):
        record = objects.record_of(group)
        if record is None or record.preemption is None or key not in own:
            continue
        plan = gang_plan(key, record.preemption, state)
        carried = PlanUnderway(plan, record.preemption, preemptor_of(plan, state, objects))
        carried.nominated = {uid for uid, _ in plan.places if uid in nominated and not nominated[uid].id}
        yield carried


def _pods(
    state: SchedulingState, objects: GangObjects, nominated: Mapping[str, PodPlan]
) -> Iterator[PlanUnderway]:
    for uid, written in nominated.items():
        pod = state.pods.get(uid)
        if pod is None or pod.node_name is not None or not written.id:
            continue
        plan = pod_plan(pod, written, state)
        status = status_of(plan, written.id, written.made, state.pods)
        carried = PlanUnderway(plan, status, preemptor_of(plan, state, objects))
        carried.nominated = {uid}
        yield carried
