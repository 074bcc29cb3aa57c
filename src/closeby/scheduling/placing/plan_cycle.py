"""One cycle for a gang whose start was begun and cut off: its pods go where the plan that was written down
before the first binding puts them, as far as that still holds.

A binding can't be undone, so what was begun is rolled forward. Members whose place is taken, or whose binding
was refused, are left to the ordinary cycle, which puts them beside those that are bound.
"""

from collections.abc import Mapping, Sequence

from closeby.objects.pods import Pod
from closeby.scheduling.gangs.confinement import split_part
from closeby.scheduling.gangs.rosters import tree_of
from closeby.scheduling.placing.tools import Attempt, Tools
from closeby.scheduling.placing.waiting_gangs import WaitingGang
from closeby.scheduling.state import CycleState


def follow_plan(tools: Tools, gang: WaitingGang, planned: Mapping[str, str]) -> Attempt | None:
    """Place members where ``planned`` (uid -> node) puts them; None when the plan helps nobody.

    While nothing is bound the plan counts as a whole or not at all, as a better place costs nothing then.
    """
    state = CycleState(gang.group, tree_of(gang.constraints), gang.members.anchors)
    if tools.pre_filter(state, gang.waiting) is not None:
        return None
    statement = tools.statement(state)
    for pod in gang.waiting:
        slot = tools.cluster.slot(planned[pod.uid]) if pod.uid in planned else None
        if slot is not None and tools.allows(state, pod, slot):
            statement.assume_one(pod, slot)
    placed = tuple(state.placed)
    whole = len(placed) == len(gang.group.plan)
    if placed and (whole or gang.members.total_running):
        where = {pod.uid: slot for pod, slot in placed}
        if split_part(gang.parts(everyone=True), where) is None and tools.permit(state, placed) is None:
            statement.commit()
            return Attempt(placed=placed, tree=state.tree)
    statement.discard()
    return None


def rest_of(waiting: Sequence[Pod], placed: Sequence[Pod]) -> tuple[Pod, ...]:
    """The members that the plan did not help."""
    found = {pod.uid for pod in placed}
    return tuple(pod for pod in waiting if pod.uid not in found)
