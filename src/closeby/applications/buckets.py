"""Buckets of tasks that belong on one node, and the order to place them in (Volcano task-topology).

Tasks are taken by what must be said first: those that run, then by the user's order of roles, by the rank of
their role, by name with numbers as numbers. Each joins the bucket that draws it most; of several that draw it
alike, the one whose tasks of its own subgroup do, since subgroups may have to be in different domains.
"""

from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Final, TypeVar

from msgspec import Struct

from closeby.objects.groups import RoleRules
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.words import natural_key

#: A Mi in bytes. Loads count in parts of a thousandth of a CPU as small as a byte is of a Mi, to stay exact.
_MI: Final = 1 << 20


class Buckets(Struct, frozen=True, kw_only=True):
    """The buckets of one gang."""

    #: The tasks of each bucket, in the order in which the buckets were made; tasks that run come first.
    members: tuple[tuple[Pod, ...], ...]
    #: All waiting tasks as they should be placed: the bucket with most of them first, of equals the older;
    #: tasks out of bucket last.
    order: tuple[Pod, ...]
    #: uid -> index of the bucket, for tasks that are in one.
    bucket_of: Mapping[str, int]


#: A role in a leaf subgroup.
_Kind = tuple[str, str]
#: A bucket as a kind sees it, the smallest is the one to join: tasks there that repel the role minus tasks
#: that draw it, the same among tasks of its subgroup, load, index, and the bucket's version, which tells
#: whether it has changed since.
_Entry = tuple[int, int, int, int, int]


def make_buckets(
    rules: RoleRules, waiting: Sequence[Pod], running: Sequence[tuple[Pod, int]] = ()
) -> Buckets:
    """Sort a gang's tasks into buckets; ``running`` holds those that have a node, with its slot.

    The order of the arguments has no influence.
    """
    ranks = rules.ranks()
    filling = _Filling(rules, {_kind(pod) for pod in (*waiting, *(pod for pod, _ in running))})
    of_slot: dict[int, int] = {}
    slots = {pod.uid: slot for pod, slot in running}
    for pod in _sorted(rules, ranks, [pod for pod, _ in running]):
        if pod.role in ranks:
            slot = slots[pod.uid]
            if slot not in of_slot:
                of_slot[slot] = filling.new_bucket()
            filling.put(of_slot[slot], pod, load=0)
    tasks = _sorted(rules, ranks, waiting)
    #: By identity: equal pods share their spec, and hashing one costs more than adding it up.
    loads: dict[int, int] = {}
    outside: list[Pod] = []
    pending: list[list[Pod]] = [[] for _ in filling.members]
    ranked = {role for role, _ in filling.kinds if role and role in ranks}
    for pod in tasks:
        if pod.role not in ranked:
            outside.append(pod)
            continue
        load = loads.get(id(pod.spec))
        if load is None:
            load = loads[id(pod.spec)] = load_of(pod.spec)
        bucket = filling.best(_kind(pod))
        if bucket is None:
            bucket = filling.new_bucket()
            pending.append([])
        filling.put(bucket, pod, load)
        pending[bucket].append(pod)
    biggest_first = sorted(pending, key=len, reverse=True)
    return Buckets(
        members=tuple(tuple(members) for members in filling.members),
        order=tuple(pod for bucket in (*biggest_first, outside) for pod in bucket),
        bucket_of={pod.uid: index for index, members in enumerate(filling.members) for pod in members},
    )


def load_of(spec: PodSpec) -> int:
    """Thousandths of a CPU, Mi of memory and thousandths of all else, summed; times 2**20."""
    total = 0
    for resource, amount in spec.requests:
        factor = _MI if resource == "cpu" else 1 if resource == "memory" else 1000 * _MI
        total += amount * factor
    return total


def _sorted(rules: RoleRules, ranks: Mapping[str, int], pods: Sequence[Pod]) -> list[Pod]:
    """By the user's order, by rank, by name with numbers as numbers."""
    places = {role: (rules.place(role), -ranks.get(role, 0)) for role in {pod.role for pod in pods}}
    return sorted(pods, key=lambda pod: (places[pod.role], natural_key(pod.name), pod.uid))


def _kind(pod: Pod) -> _Kind:
    return pod.role, pod.subgroup or ""


class _Filling:
    """Buckets as they fill.

    Each kind has a heap of all buckets as it sees them. Old entries stay in it until they come up; the log
    says which buckets changed since the kind was asked last. So a task costs a few heap steps, however many
    buckets there are.
    """

    def __init__(self, rules: RoleRules, kinds: set[_Kind]) -> None:
        self.kinds = sorted(kinds)
        self.members: list[list[Pod]] = []
        self._number = {kind: number for number, kind in enumerate(self.kinds)}
        #: role -> the roles that draw or repel it, with how much one task does.
        pulls, roles = rules.pulls(), {role for role, _ in kinds}
        self._pulls = {
            role: [(other, pull) for other, pull in pulls.get(role, {}).items() if other in roles]
            for role in roles
        }
        self._split = len({subgroup for _, subgroup in kinds}) > 1
        self._heaps: list[list[_Entry]] = [[] for _ in self.kinds]
        self._read: list[int] = [0] * len(self.kinds)
        self._log: list[int] = []
        #: Per bucket: tasks by role, tasks by kind, load, and how often it changed.
        self._of_role: list[dict[str, int]] = []
        self._of_kind: list[dict[_Kind, int]] = []
        self._loads: list[int] = []
        self._versions: list[int] = []

    def new_bucket(self) -> int:
        """Open an empty bucket; returns its index."""
        self.members.append([])
        self._of_role.append({})
        self._of_kind.append({})
        self._loads.append(0)
        self._versions.append(0)
        return len(self.members) - 1

    def put(self, bucket: int, pod: Pod, load: int) -> None:
        """Add a task to a bucket."""
        self.members[bucket].append(pod)
        kind, of_role, of_kind = _kind(pod), self._of_role[bucket], self._of_kind[bucket]
        of_role[pod.role] = of_role.get(pod.role, 0) + 1
        of_kind[kind] = of_kind.get(kind, 0) + 1
        self._loads[bucket] += load
        self._versions[bucket] += 1
        self._log.append(bucket)

    def best(self, kind: _Kind) -> int | None:
        """The bucket that a task of this kind joins; None when it needs a new one."""
        number = self._number[kind]
        heap = self._heaps[number]
        changed = set(self._log[self._read[number] :])
        self._read[number] = len(self._log)
        if len(changed) > len(heap):
            heap.extend(self._entry(kind, bucket) for bucket in changed)
            heapify(heap)
        else:
            for bucket in changed:
                heappush(heap, self._entry(kind, bucket))
        while heap:
            repulsion, _, _, bucket, version = heap[0]
            if version == self._versions[bucket]:
                return bucket if repulsion <= 0 else None
            heappop(heap)
        return None

    def _entry(self, kind: _Kind, bucket: int) -> _Entry:
        role, subgroup = kind
        of_role, of_kind = self._of_role[bucket], self._of_kind[bucket]
        repulsion = beside = 0
        for other, pull in self._pulls[role]:
            repulsion -= pull * of_role.get(other, 0)
            if self._split:
                beside -= pull * of_kind.get((other, subgroup), 0)
        return repulsion, beside, self._loads[bucket], bucket, self._versions[bucket]


#: slot -> number of tasks there; slots without any are not in it.
PerSlot = dict[int, int]
_Key = TypeVar("_Key")


class RolePlacements:
    """Counts by bucket, by role and by slot. ``take_back`` undoes ``place`` exactly."""

    def __init__(
        self, rules: RoleRules, buckets: Buckets, waiting: Sequence[Pod], running: Sequence[tuple[Pod, int]]
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
