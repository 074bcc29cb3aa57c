"""The members of one gang, in which order they are placed, and at which priority a work item is decided."""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Final

from msgspec import Struct

from closeby.objects.groups import PodGroup
from closeby.objects.pods import SYSTEM_CLASSES, Pod, PodSpec, PriorityClass
from closeby.objects.reasons import Condition, Reason
from closeby.objects.words import NaturalKey, natural_key
from closeby.objects.workloads import pod_field
from closeby.reading.common.trees import children_of
from closeby.reading.dialects.volcano import GROUP_SOURCE as VOLCANO
from closeby.scheduling.events import PriorityClassChanged, PriorityClassDeleted

#: Sort key of the members of one gang.
MemberOrder = tuple[int, int, float, NaturalKey, str, str]


class Members:
    """The pods that name one gang, waiting and placed, by uid."""

    __slots__ = ("_in_order", "_ordered", "done", "placed", "ranks", "version", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[str, Pod] = {}
        self.placed: dict[str, Pod] = {}
        #: Members that did their work and whose object is still there, by uid.
        self.done: dict[str, Pod] = {}
        #: uid -> rank of each placed member that has one.
        self.ranks: dict[str, int] = {}
        #: Grows whenever members come, go, get a node or lose it.
        self.version = 0
        #: The waiting members in order, and the same as it was asked for since members came or went.
        self._ordered: list[Pod] = []
        self._in_order: tuple[Pod, ...] | None = None

    def copy(self) -> "Members":
        """The same members in the same order."""
        twin = Members()
        for name in ("waiting", "placed", "done", "ranks"):
            setattr(twin, name, dict(getattr(self, name)))
        twin._ordered = list(self._ordered)
        return twin

    def add(self, pod: Pod, placed: bool, rank: int | None) -> None:
        """Note a member that waits or holds a node."""
        self.remove(pod.uid)
        if placed:
            self.placed[pod.uid] = pod
            if rank is not None:
                self.ranks[pod.uid] = rank
        else:
            self.waiting[pod.uid] = pod
            insort(self._ordered, pod, key=member_order)

    def settle(self, pods: Sequence[Pod], ranks: Iterable[int]) -> None:
        """Waiting members got their nodes and ranks."""
        self.version += 1
        for pod, rank in zip(pods, ranks, strict=True):
            self.placed[pod.uid] = self.waiting.pop(pod.uid)
            self.ranks[pod.uid] = rank
        self._ordered = [pod for pod in self._ordered if pod.uid in self.waiting]
        self._in_order = None

    def remove(self, uid: str) -> None:
        """Forget a member."""
        self.version += 1
        self._in_order = None
        if (pod := self.waiting.pop(uid, None)) is not None:
            del self._ordered[bisect_left(self._ordered, member_order(pod), key=member_order)]
        self.placed.pop(uid, None)
        self.ranks.pop(uid, None)

    def labelled_ranks(self, pods: Iterable[Pod], taken: Iterable[int]) -> dict[str, int]:
        """By uid, the ranks that labels of these members say, as far as the gang may have given them.

        None of them is in ``taken``, given twice, or beyond the number of members.
        """
        count = len(self.waiting) + len(self.placed) + len(self.done)
        taken, found = set(taken), dict[str, int]()
        for pod in sorted((one for one in pods if one.labelled_rank is not None), key=member_order):
            rank = pod.labelled_rank
            if rank is not None and rank < count and rank not in taken:
                found[pod.uid] = rank
                taken.add(rank)
        return found

    def in_order(self) -> tuple[Pod, ...]:
        """The waiting members in the order of ``member_order``; the same tuple as long as none changes."""
        if self._in_order is None:
            self._in_order = tuple(self._ordered)
        return self._in_order


def member_order(pod: Pod) -> MemberOrder:
    """Members in the order of their workload's spec: by part, job and index, then by name with numbers as
    numbers.
    """
    if pod.index is not None:
        return pod.part, pod.job, float(pod.index), (), pod.name, pod.uid
    return pod.part, pod.job, inf, natural_key(pod.name), pod.name, pod.uid


_CLASS_FIELD: Final = "spec.priorityClassName"


class Turn(Struct, frozen=True):
    """What of a work item is decided next."""

    priority: int
    #: The pods that take part, in their order.
    pods: tuple[Pod, ...]
    #: Whether pods of less priority wait behind these.
    behind: bool = False
    #: Whether these are members that a start was written down for, and no others: they go before all others.
    begun: bool = False


class PriorityInput(Struct, frozen=True):
    """What the turn of a gang depends on."""

    group: PodGroup | None
    waiting: tuple[Pod, ...]
    #: Members that hold a node, or have done their work.
    others: tuple[Pod, ...] = ()
    #: uids of waiting members that a start which was written down still has to bind; a member whose binding
    #: was refused is not one of them.
    planned: Collection[str] = ()
    #: uids of waiting members that are kept out of the queue.
    gated: Collection[str] = ()


class Priorities:
    """The priority classes, and the namespaces whose groups are trusted."""

    def __init__(self) -> None:
        self._trusted: Collection[str] | None = None
        self._classes: dict[str, PriorityClass] = {one.name: one for one in SYSTEM_CLASSES}
        #: Another number whenever classes change.
        self.version = 0
        #: The priority of a pod that names no class.
        self._default = 0

    def trust(self, namespaces: Collection[str] | None) -> None:
        """The class that a group names counts in these namespaces; None means all, as in the beginning."""
        self._trusted = namespaces

    def take(self, event: PriorityClassChanged | PriorityClassDeleted) -> None:
        """A priority class appeared, changed or is gone."""
        self.version += 1
        match event:
            case PriorityClassChanged(priority_class):
                self._classes[priority_class.name] = priority_class
            case PriorityClassDeleted(name):
                self._classes.pop(name, None)
        defaults = (entry.value for entry in self._classes.values() if entry.global_default)
        self._default = max(defaults, default=0)

    def of(self, pod: Pod) -> int:
        """A pod's priority: the number that admission wrote, else its class (in files), else the default."""
        return self.of_spec(pod.spec)

    def of_spec(self, spec: PodSpec) -> int:
        """The priority of all pods with this spec."""
        if spec.priority is not None:
            return spec.priority
        named = self._classes.get(spec.priority_class_name)
        return self._default if named is None else named.value

    def preempts(self, pod: Pod) -> bool:
        """Whether a pod may preempt others, by its own policy or that of its class."""
        return not self.forbids(pod)

    def forbids(self, pod: Pod) -> str:
        """Whose ``preemptionPolicy: Never`` keeps a pod from preempting: ``PriorityClass/…`` or ``pod``."""
        named, own = self._classes.get(pod.spec.priority_class_name), pod.spec.preemption_policy
        # Admission writes the policy of the class into the pod.
        if named is not None and named.preemption_policy == "Never" and own in ("", "Never"):
            return f"PriorityClass/{named.name}"
        return "pod" if own == "Never" else ""

    def named(self, priority: int, names: Iterable[str]) -> str:
        """The first by name of these classes that gives this priority; empty if none does."""
        known = (self._classes.get(name) for name in sorted(names))
        return next((one.name for one in known if one is not None and one.value == priority), "")

    def turn(self, gang: PriorityInput) -> Turn:
        """Which pods of a gang (an application has no group) are decided next, and at which priority."""
        group, waiting = gang.group, gang.waiting
        if group is None and len(waiting) == 1:
            return Turn(self.of(waiting[0]), waiting)
        asked = None if group is None else self._asked(group)
        granted = None if group is None else self.granted(group)
        if granted is not None:
            priority, least = granted, -inf
        else:
            priority = self._admitted(gang)
            if asked is not None:
                priority = min(priority, asked)
            least = priority
        chosen = self._from(waiting, least, gang.gated)
        if gang.planned and group is not None and not group.subgroups:
            # A start that was begun is carried on by the members that it needs, and by no others.
            planned = tuple(pod for pod in waiting if pod.uid in gang.planned)
            if len(planned) + len(gang.others) >= group.min_member:
                chosen = planned
        # The owner of the group may raise its minimum and add pods while the start is carried on. These were
        # never decided, so the plan gives them no precedence: the gang has its ordinary place then.
        begun = bool(chosen and gang.planned) and all(pod.uid in gang.planned for pod in chosen)
        return Turn(priority, chosen, behind=len(chosen) < len(waiting), begun=begun)

    def limits(self, gang: PriorityInput) -> tuple[Condition, ...]:
        """A condition where the gang's class says more than its members' priority, and does not count."""
        group = gang.group
        asked = None if group is None else self._asked(group)
        if group is None or asked is None or self._trusts(group):
            return ()
        admitted = self._admitted(gang)
        if asked <= admitted:
            return ()
        field = _CLASS_FIELD if group.priority is None else "spec.priority"
        said = group.priority_class_name or asked
        owner = group.owner or (gang.waiting or gang.others)[0].owner
        template = pod_field(owner, _CLASS_FIELD, volcano=group.source == VOLCANO)
        return (
            Condition(
                reason=Reason.PRIORITY_LIMITED,
                object=f"PodGroup/{group.key}",
                field=field,
                message=f"{said} is priority {asked}, but its pods were admitted with priority {admitted}, "
                f"which counts",
                remedy=f"set {template}",
            ),
        )

    def granted(self, group: PodGroup) -> int | None:
        """The priority that a trusted group gives its members, whatever theirs is; None if it gives none."""
        return self._asked(group) if self._trusts(group) else None

    # Inside

    def _trusts(self, group: PodGroup) -> bool:
        return self._trusted is None or group.namespace in self._trusted

    def _asked(self, group: PodGroup) -> int | None:
        """The priority that the group's object names; None where it names none that exists."""
        if group.priority is not None:
            return group.priority
        named = self._classes.get(group.priority_class_name)
        return None if named is None else named.value

    def _admitted(self, gang: PriorityInput) -> int:
        """The priority that the members' own priorities give the gang."""
        members = (*gang.waiting, *gang.others) if gang.others else gang.waiting
        if _alike(members):
            return self.of(members[0])
        waiting = [pod for pod in gang.waiting if pod.uid not in gang.gated] or list(gang.waiting)
        members = (*waiting, *gang.others)
        own = [(pod.subgroup, self.of(pod)) for pod in members]
        highest = max(priority for _, priority in own[: len(waiting)] or own)
        return highest if gang.group is None else min(highest, sufficient(gang.group, own))

    def _from(self, waiting: tuple[Pod, ...], least: float, gated: Collection[str]) -> tuple[Pod, ...]:
        if least == -inf or _alike(waiting):
            return waiting
        return tuple(pod for pod in waiting if self.of(pod) >= least or pod.uid in gated)


def _alike(pods: tuple[Pod, ...]) -> bool:
    """Whether all pods have one spec, as in most gangs, so that all have one priority."""
    specs = [pod.spec for pod in pods]
    return not specs or specs.count(specs[0]) == len(specs)


def sufficient(group: PodGroup, members: Sequence[tuple[str | None, int]]) -> int:
    """The greatest priority such that the members of that priority or more suffice for the gang to start.

    Without subgroups that is the ``minMember``-th highest. ``members`` (at least one) are given by subgroup
    and priority. A gang whose members have not all appeared has the lowest priority of those that have.
    """
    every = [priority for _, priority in members]
    needed = _highest(every, max(group.min_member, 1))
    if not group.subgroups or any(one.blocking for one in group.conditions):
        return min(every) if needed is None else int(needed)
    by_leaf: dict[str | None, list[int]] = {}
    for subgroup, priority in members:
        by_leaf.setdefault(subgroup, []).append(priority)
    of_tree = _of_tree(group, by_leaf)
    if needed is None or of_tree is None:
        return min(every)
    return int(min(needed, of_tree))


def _of_tree(group: PodGroup, by_leaf: Mapping[str | None, Sequence[int]]) -> float | None:
    """``sufficient`` by the minima of the subgroups alone; None where too few members have appeared."""
    children = children_of(group.subgroups)

    def needed(name: str | None, own: int, required: int | None) -> float | None:
        below = children.get(name)
        if not below:
            return inf if own <= 0 else _highest(by_leaf.get(name, ()), own)
        found = [needed(one.name, one.min_member, one.min_subgroups) for one in below]
        enough = len(below) if required is None else required
        return inf if enough <= 0 else _highest([one for one in found if one is not None], enough)

    return needed(None, 0, group.min_subgroups)


def _highest(numbers: Iterable[float], place: int) -> float | None:
    """The ``place``-th highest number (from 1); None where there are fewer."""
    ordered = sorted(numbers, reverse=True)
    return ordered[place - 1] if place <= len(ordered) else None
