"""Which gangs a scheduler of this name schedules, and whose plan stands in a gang's status.

Several schedulers work in one cluster, and each sees all PodGroups. A gang is ours if one of its members
names our scheduler. The plan of a start promises nodes to pods that wait for the scheduler that made it; the
engine knows only those that wait for us.
"""

from closeby.objects.groups import PodGroup
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod, gang_key
from closeby.objects.words import plural
from closeby.scheduling.intake.scheduling_state import SchedulingState


def scheduler_of(pod: Pod) -> str:
    """The name of the scheduler that a pod asks for."""
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


class OurPods:
    """The pods of a scheduler that binds: those that name it."""

    def __init__(self, scheduler_name: str) -> None:
        self.scheduler_name = scheduler_name

    def wait(self, pod: Pod) -> bool:
        """Whether a pod without a node waits for us; asked of the pod as it was read."""
        return scheduler_of(pod) == self.scheduler_name

    def own(self, pod: Pod) -> bool:
        """Whether a pod is ours, wherever it is; asked of the pod as the engine knows it."""
        return scheduler_of(pod) == self.scheduler_name

    def for_engine(self, pod: Pod) -> Pod:
        """A pod as the engine is to know it."""
        return pod

    def no_members(self, count: int) -> str:
        """Why so many pods that name a gang of ours are no members of it, and what to do."""
        return not_yet_members(
            count,
            "of another scheduler",
            f"set spec.schedulerName in their template to {self.scheduler_name}",
        )


def not_yet_members(count: int, which: str, remedy: str) -> str:
    """Says that so many pods of a gang count once they are bound, and what to do instead."""
    are = "is no member before it is" if count == 1 else "are no members before they are"
    return f"{plural(count, 'pod')} {which} {are} bound; {remedy}"


class ForeignMembers:
    """Members of gangs that wait for another scheduler. The engine does not know them."""

    def __init__(self) -> None:
        self._gangs: dict[str, str] = {}
        self._waiting: dict[str, set[str]] = {}
        self._news: set[str] = set()

    def put(self, pod: Pod) -> None:
        """The pod waits for another scheduler."""
        key = None if pod.group is None else gang_key(pod)
        if key == self._gangs.get(pod.uid):
            return
        self.forget(pod.uid)
        if key is not None:
            self._gangs[pod.uid] = key
            self._waiting.setdefault(key, set()).add(pod.uid)
            self._news.add(key)

    def forget(self, uid: str) -> None:
        """The pod is gone, or waits no more; unknown ones are fine."""
        key = self._gangs.pop(uid, None)
        if key is not None:
            self._waiting[key].discard(uid)
            if not self._waiting[key]:
                del self._waiting[key]
            self._news.add(key)

    def news(self) -> set[str]:
        """The gangs of which other pods wait for another scheduler than at the last call."""
        found, self._news = self._news, set()
        return found

    def count(self, key: str) -> int:
        """How many members of the gang wait for another scheduler."""
        return len(self._waiting.get(key, ()))

    def wait_in(self, key: str) -> bool:
        """Whether a member of the gang waits for another scheduler."""
        return key in self._waiting

    def planned(self, group: PodGroup) -> bool:
        """Whether the gang's plan promises a node to a pod that waits for another scheduler."""
        waiting = self._waiting.get(group.key)
        return waiting is not None and not waiting.isdisjoint(group.plan)


class OwnGangs:
    """The gangs of one scheduler."""

    def __init__(self, ours: OurPods | str, state: SchedulingState, foreign: ForeignMembers) -> None:
        """``ours``: which pods are ours, or the name of a scheduler that binds."""
        self.pods = OurPods(ours) if isinstance(ours, str) else ours
        self._state = state
        self._foreign = foreign
        #: Those with a PodGroup that were ours when they were looked at last.
        self._owned: set[str] = set()

    def __contains__(self, key: str) -> bool:
        """Whether a member is ours; of a PodGroup without members, whether one was."""
        members = self._state.members.get(key)
        if members is None:
            return key in self._owned and not self._foreign.wait_in(key)
        ours = any(
            self.pods.own(pod)
            for pods in (members.waiting, members.placed, members.done)
            for pod in pods.values()
        )
        if ours and key in self._state.groups:
            self._owned.add(key)
        else:
            self._owned.discard(key)
        return ours

    def forget(self, key: str) -> None:
        """The PodGroup is gone."""
        self._owned.discard(key)

    def no_members(self, key: str) -> str:
        """Why pods that name the gang are no members of it, and what to do; empty where there are none."""
        count = self._foreign.count(key)
        return self.pods.no_members(count) if count else ""

    def planned_by_another(self, group: PodGroup) -> bool:
        """Whether the plan in the gang's status is one that another scheduler still carries out."""
        return self._foreign.planned(group)

    def may_write(self, group: PodGroup) -> bool:
        """Whether the gang's status is ours to write.

        Never while another scheduler's plan is in it; else if the gang is ours, or if no member of it is left
        and its plan names only pods that are gone.
        """
        if self.planned_by_another(group):
            return False
        return group.key in self or self._abandoned(group)

    def _abandoned(self, group: PodGroup) -> bool:
        key = group.key
        return bool(group.plan) and key not in self._state.members and not self._foreign.wait_in(key)
