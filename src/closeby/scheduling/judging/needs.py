"""Room without which a work item that waits can't be placed, and whether it is there now.

A refused item is worth another attempt only once what it needs at the least is there. That is asked of the
class table, which follows the cluster anyway, and costs microseconds where an attempt costs a hundred. Items
with equal needs wait for the same thing.
"""

from collections.abc import Hashable, Sequence

from msgspec import Struct

from closeby.objects.pods import Pod
from closeby.scheduling.judging.classes import ClassTable, Share
from closeby.scheduling.judging.reserved import Bar
from closeby.topology.constraints import Levels
from closeby.topology.registry import Topologies
from closeby.topology.tree import ROOT_LEVEL, Tree


class Want(Struct, frozen=True, eq=False):
    """So many pods like this one."""

    pod: Pod
    class_key: Hashable
    count: int


class Need(Struct, frozen=True, kw_only=True, eq=False):
    """What an item needs at the least: of each kind of its pods, so many fit in one domain of a level.

    That much is needed, whatever else decides: while it is not there, every attempt ends in a refusal.
    """

    #: Items whose needs have equal keys wait for the same; None for an item with which none can be compared.
    key: Hashable
    wants: tuple[Want, ...]
    #: The level's topology as it was; None when the pods may lie anywhere.
    tree: Tree | None = None
    level: int = ROOT_LEVEL


def need_of(
    table: ClassTable, demand: Sequence[Share], levels: Levels | None = None, *, alone: bool = False
) -> Need:
    """The need of pods that must all find a place; ``levels`` is the constraint on all of them together.

    ``alone``: no other item waits for quite the same.
    """
    wants = tuple(
        Want(share.pods[0], table.key_of(share.pods[0]), len(share.pods)) for share in demand if share.pods
    )
    kinds = tuple((want.class_key, want.count) for want in wants)
    if levels is None or levels.required is None:
        return Need(key=None if alone else kinds, wants=wants)
    key = None if alone else (kinds, levels.tree.name, levels.required)
    return Need(key=key, wants=wants, tree=levels.tree, level=levels.required)


class Rooms:
    """Answers whether there is the room that a need names, remembering what it worked out."""

    def __init__(self, table: ClassTable, topologies: Topologies, bar: Bar) -> None:
        self._table = table
        self._topologies = topologies
        self._bar = bar
        #: Class, and topology and level if they matter -> the most pods that fit in one such domain.
        self._known: dict[Hashable, int] = {}
        self._stamp: tuple[int, ...] = ()

    def lack(self, need: Need, barred: bool = False) -> bool:
        """Whether the room is not there, so that there is no use in trying.

        ``barred``: for an item that must keep off the nodes that are reserved now.
        """
        stamp = self._table.stamp
        if stamp != self._stamp:
            self._known.clear()
            self._stamp = stamp
        name = None if need.tree is None else need.tree.name
        for want in need.wants:
            key = want.class_key, name, need.level, barred
            room = self._known.get(key)
            if room is None:
                applied, self._bar.applies = self._bar.applies, barred
                room = self._known[key] = self._most(want.pod, need)
                self._bar.applies = applied
            if room < want.count:
                return True
        return False

    def forget(self) -> None:
        """A topology changed."""
        self._known.clear()

    def _most(self, pod: Pod, need: Need) -> int:
        """Pods like this one that fit in the roomiest domain."""
        pod_class = self._table.of(pod)
        tree = None if need.tree is None else self._topologies.tree(need.tree.name)
        if tree is None or need.tree is None or tree.levels != need.tree.levels:
            return pod_class.total
        counts = self._table.counts(pod_class, tree).of(need.level)
        return int(counts[tree.labelled[need.level]].max(initial=0))
