"""Where the tasks of one gang are while it is being placed, and which of each bucket still wait."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from closeby.applications.buckets import Buckets
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.roles import RoleRules

#: slot -> number of tasks there; slots without any are not in it.
PerSlot = dict[int, int]
_Key = TypeVar("_Key")


class RolePlacements:
    """Counts by bucket, by role and by slot. ``take_back`` undoes ``place`` exactly."""

    def __init__(
        self,
        rules: RoleRules,
        buckets: Buckets,
        waiting: Sequence[Pod],
        running: Sequence[tuple[Pod, int]],
    ) -> None:
        self._rules = rules
        self._bucket_of = buckets.bucket_of
        self._tasks = {pod.uid for pod in waiting}
        #: Tasks that have a node: uid -> role and slot.
        self._placed: dict[str, tuple[str, int]] = {}
        self._of_bucket: dict[int, PerSlot] = {}
        self._of_role: dict[str, PerSlot] = {}
        #: Per bucket: runs of equal waiting tasks in their order, and how many of each run still wait.
        self._specs: list[list[PodSpec]] = []
        self._left: list[list[int]] = []
        self._run_of: dict[str, int] = {}
        for members in buckets.members:
            runs = groupby((pod for pod in members if pod.uid in self._tasks), key=_spec)
            self._specs.append([])
            self._left.append([])
            for number, (spec, equal) in enumerate(runs):
                uids = [pod.uid for pod in equal]
                self._specs[-1].append(spec)
                self._left[-1].append(len(uids))
                self._run_of.update(dict.fromkeys(uids, number))
        for pod, slot in running:
            self._note(pod, slot, 1)

    def awaits(self, pod: Pod) -> bool:
        """Whether it is a task of the gang that has no node yet."""
        return pod.uid in self._tasks and pod.uid not in self._placed

    def place(self, pod: Pod, slot: int) -> None:
        """A waiting task got a node."""
        self._note(pod, slot, 1)
        self._wait(pod, -1)

    def take_back(self, pod: Pod, slot: int) -> None:
        """Undo ``place``."""
        self._note(pod, slot, -1)
        self._wait(pod, 1)

    def bucket_on(self, bucket: int) -> Mapping[int, int]:
        """Tasks of a bucket by slot."""
        return self._of_bucket.get(bucket, {})

    def repelling(self, role: str) -> Iterator[Mapping[int, int]]:
        """Tasks that repel a role by slot, one mapping for each role, whatever bucket they are in."""
        return (slots for other, slots in self._of_role.items() if self._rules.repels(role, other))

    def beside(self, pod: Pod) -> Iterator[tuple[PodSpec, int]]:
        """The other tasks of a task's bucket that wait, as runs of equal ones in the order of placing."""
        bucket = self._bucket_of[pod.uid]
        own = -1 if pod.uid in self._placed else self._run_of.get(pod.uid, -1)
        for number, (spec, left) in enumerate(zip(self._specs[bucket], self._left[bucket], strict=True)):
            others = left - (number == own)
            if others:
                yield spec, others

    def placed(self) -> Iterator[tuple[str, str, int]]:
        """Uid, role and slot of every task that has a node."""
        return ((uid, role, slot) for uid, (role, slot) in self._placed.items())

    def figures(self) -> tuple[object, ...]:
        """All that changes, to be compared."""
        return (
            dict(self._placed),
            {bucket: dict(slots) for bucket, slots in self._of_bucket.items()},
            {role: dict(slots) for role, slots in self._of_role.items()},
            [list(left) for left in self._left],
        )

    def _note(self, pod: Pod, slot: int, sign: int) -> None:
        if sign > 0:
            self._placed[pod.uid] = pod.role, slot
        else:
            del self._placed[pod.uid]
        _count(self._of_role, pod.role, slot, sign)
        bucket = self._bucket_of.get(pod.uid)
        if bucket is not None:
            _count(self._of_bucket, bucket, slot, sign)

    def _wait(self, pod: Pod, sign: int) -> None:
        bucket = self._bucket_of.get(pod.uid)
        if bucket is not None:
            self._left[bucket][self._run_of[pod.uid]] += sign


def _spec(pod: Pod) -> PodSpec:
    return pod.spec


def _count(counts: dict[_Key, PerSlot], key: _Key, slot: int, change: int) -> None:
    """Add to a count; what is 0 is not kept."""
    slots = counts.setdefault(key, {})
    slots[slot] = slots.get(slot, 0) + change
    if not slots[slot]:
        del slots[slot]
    if not slots:
        del counts[key]
