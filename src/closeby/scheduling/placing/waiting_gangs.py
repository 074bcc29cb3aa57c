"""A gang that waits, with all that an attempt at it has to know.

Whoever tries it, follows its plan, or only imagines what would become of it works with the same record, made
in one place: what is imagined must be what would be tried.
"""

from collections.abc import Sequence

from msgspec import Struct

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, ReasonToken
from closeby.scheduling.gangs.parts import Part
from closeby.scheduling.gangs.rosters import Constraints, Roster, constraints_of, parts, roster
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.placing.tools import Placed, Tools


class WaitingGang(Struct, frozen=True, kw_only=True, eq=False):
    """A gang and its members, as they stand now."""

    group: PodGroup
    #: Members without a node that may be placed, in the order in which they are to be.
    waiting: tuple[Pod, ...]
    #: Members that hold a node and stay there, with its slot.
    running: tuple[Placed, ...]
    #: All of them by leaf.
    members: Roster
    constraints: Constraints

    def parts(self, *, everyone: bool) -> Part:
        """What has to find a place: the minimum, or ``everyone`` who waits."""
        return parts(self.group, self.members, self.constraints, everyone)


def waiting_gang(
    tools: Tools, state: SchedulingState, group: PodGroup, waiting: tuple[Pod, ...], *, in_order: bool = True
) -> WaitingGang:
    """The gang with these members to place; ``in_order`` lets plugins say in which order."""
    running = running_members(tools, state, group.key)
    if in_order:
        waiting = _in_order(tools, group, waiting, running)
    return WaitingGang(
        group=group,
        waiting=waiting,
        running=running,
        members=roster(group, waiting, running, state.done(group.key)),
        constraints=constraints_of(group, tools.topologies, tools.profile.close_by_default),
    )


def running_members(tools: Tools, state: SchedulingState, key: str) -> tuple[Placed, ...]:
    """The members of a gang that hold a node which is there, with its slot."""
    placed = ((pod, tools.cluster.placement(pod.uid)) for pod in state.placed(key))
    return tuple((pod, slot) for pod, slot in placed if slot is not None)


def gang_refusal(key: str, reason: ReasonToken, message: str, remedy: str = "") -> Condition:
    """Why the whole gang waits."""
    return Condition(reason=reason, object=f"PodGroup/{key}", message=message, remedy=remedy, blocking=True)


def _in_order(
    tools: Tools, group: PodGroup, waiting: tuple[Pod, ...], running: Sequence[Placed]
) -> tuple[Pod, ...]:
    """The members as the first plugin that knows better wants them placed."""
    for plugin in tools.profile.member_sorts:
        ordered = plugin.member_order(group, waiting, running)
        if ordered is not None:
            return ordered
    return waiting
