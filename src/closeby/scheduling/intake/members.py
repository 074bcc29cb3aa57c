"""The members of one gang: who waits, who holds a node, and in which order those that wait are placed."""

from collections.abc import Iterable, Sequence
from math import inf

from closeby.objects.natural import natural_key
from closeby.objects.pods import Pod

#: Sort key of the members of one gang.
MemberOrder = tuple[float, tuple[tuple[int, str], ...], str]


class Members:
    """The pods that name one gang, waiting and placed, by uid."""

    __slots__ = ("_keys", "_ordered", "done", "placed", "ranks", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[str, Pod] = {}
        self.placed: dict[str, Pod] = {}
        #: Members that did their work and are still heard of, by uid.
        self.done: dict[str, Pod] = {}
        #: uid -> rank of each placed member that has one.
        self.ranks: dict[str, int] = {}
        self._keys: dict[str, MemberOrder] = {}
        #: The waiting members in order; None when that must be worked out again.
        self._ordered: list[Pod] | None = []

    def add(self, pod: Pod, placed: bool, rank: int | None) -> None:
        """Note a member that waits or holds a node."""
        if pod.uid in self._keys:
            self.remove(pod.uid)
        key = member_order(pod)
        self._keys[pod.uid] = key
        if placed:
            self.placed[pod.uid] = pod
            if rank is not None:
                self.ranks[pod.uid] = rank
            return
        self.waiting[pod.uid] = pod
        ordered = self._ordered
        if ordered is not None and (not ordered or self._keys[ordered[-1].uid] < key):
            ordered.append(pod)
        else:
            self._ordered = None

    def settle(self, pods: Sequence[Pod], ranks: Iterable[int]) -> None:
        """Waiting members got their nodes and ranks."""
        for pod in pods:
            self.placed[pod.uid] = self.waiting.pop(pod.uid)
        self.ranks.update(zip([pod.uid for pod in pods], ranks, strict=True))
        self._ordered = None

    def remove(self, uid: str) -> None:
        """Forget a member."""
        if self.waiting.pop(uid, None) is not None:
            self._ordered = None
        self.placed.pop(uid, None)
        self.ranks.pop(uid, None)
        self._keys.pop(uid, None)

    def in_order(self) -> tuple[Pod, ...]:
        """The waiting members by index, then by name with numbers as numbers."""
        if self._ordered is None:
            uids = sorted(self.waiting, key=self._keys.__getitem__)
            self._ordered = [self.waiting[uid] for uid in uids]
        return tuple(self._ordered)


def member_order(pod: Pod) -> MemberOrder:
    """Members by index, then by name with numbers as numbers."""
    if pod.index is not None:
        return float(pod.index), (), pod.name
    return inf, natural_key(pod.name), pod.uid
