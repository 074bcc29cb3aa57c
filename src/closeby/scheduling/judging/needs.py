"""Room without which a work item that waits can't be placed, and whether it is there now.

A refused item is worth another attempt only once what it needs at the least is there. That is asked of the
class table, which follows the cluster anyway, and costs microseconds where an attempt costs a hundred. Items
with equal needs wait for the same thing.
"""

from collections.abc import Hashable, Sequence

from msgspec import Struct

from closeby.cluster.columns import Cluster
from closeby.objects.pods import Pod
from closeby.scheduling.judging.classes import ClassTable
from closeby.scheduling.judging.holds import Hold, Holds
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.constraints import Levels
from closeby.topology.registry import Topologies
from closeby.topology.tree import ROOT_LEVEL, Tree

#: For filters that don't look at the state of a cycle.
_BLANK = CycleState()


class Want(Struct, frozen=True, eq=False):
    """So many pods like this one."""

    pod: Pod
    #: Pods with equal ones are judged alike for as long as they wait.
    class_key: Hashable
    count: int


class Need(Struct, frozen=True, kw_only=True, eq=False):
    """What an item needs at the least: of each kind of its pods, so many fit in one domain of a level.

    That much is needed, whatever else decides: while it is not there, every attempt ends in a refusal.
    """

    #: Items whose needs have equal keys wait for the same; None for an item with which none can be compared.
    key: Hashable
    wants: tuple[Want, ...]
    #: The level's topology as it was; None when the pods may go anywhere.
    tree: Tree | None = None
    level: int = ROOT_LEVEL
    #: Of an item that is not all or nothing, in place of ``wants``: a place for any one of these is enough.
    some: tuple[Want, ...] = ()

    @property
    def by_namespaces(self) -> bool:
        """Whether labels of namespaces say that its pods let each other go where they could not before."""
        if sum(want.count for want in self.wants) < 2:
            return False
        affinities = (want.pod.spec.pod_affinity for want in self.wants)
        terms = (term for one in affinities if one is not None for term in one.required)
        return any(term.namespace_selector is not None for term in terms)


def need_of(
    table: ClassTable, demand: Sequence[Share], levels: Levels | None = None, *, alone: bool = False
) -> Need:
    """The need of pods that must all find a place; ``levels`` is the constraint on all of them together.

    ``alone``: no other item waits for quite the same. Nor does one for pods with claims: each may change.
    """
    alone = alone or any(pod.spec.claims for share in demand for pod in share.pods[:1])
    wants = tuple(
        Want(share.pods[0], table.waiting_key(share.pods[0]), len(share.pods))
        for share in demand
        if share.pods
    )
    kinds = tuple((want.class_key, want.count) for want in wants)
    if levels is None or levels.required is None:
        return Need(key=None if alone else kinds, wants=wants)
    key = None if alone else (kinds, levels.tree.name, levels.required)
    return Need(key=key, wants=wants, tree=levels.tree, level=levels.required)


def need_of_pod(table: ClassTable, pod: Pod) -> Need:
    """The need of a plain pod."""
    want = Want(pod, table.waiting_key(pod), 1)
    return Need(key=None if pod.spec.claims else ((want.class_key, 1),), wants=(want,))


def need_of_any(table: ClassTable, pods: Sequence[Pod]) -> Need:
    """The need of pods of which each is placed for itself: that one of them finds a place."""
    kinds = {table.waiting_key(pod): pod for pod in reversed(pods)}
    return Need(key=None, wants=(), some=tuple(Want(pod, key, 1) for key, pod in kinds.items()))


class RoomIndex:
    """Answers whether there is the room that a need names, remembering what it worked out."""

    def __init__(self, cluster: Cluster, table: ClassTable, topologies: Topologies, holds: Holds) -> None:
        self._cluster = cluster
        self._table = table
        self._topologies = topologies
        self._holds = holds
        #: Class, what its pods keep off, and topology and level if they matter -> the most pods that fit in
        #: one such domain.
        self._known: dict[Hashable, int] = {}
        self._stamp: tuple[int, ...] = ()

    def lack(self, need: Need, off: tuple[Hold, ...] | None = None) -> bool:
        """Whether the room is not there, so that there is no use in trying.

        ``off``: for an item that must keep off these nodes; None: for the one in hand.
        """
        self._notice()
        if need.some:
            return not any(self.takes(want, off) for want in need.some)
        name = None if need.tree is None else need.tree.name
        off = self._holds.off if off is None else off
        keys = tuple([one.key for one in off])
        for want in need.wants:
            key = self._table.key_of(want.pod), name, need.level, keys
            room = self._known.get(key)
            if room is None:
                with self._holds.instead(off):
                    room = self._known[key] = self._most(want.pod, need)
            if room < want.count:
                return True
        return False

    def takes(self, want: Want, off: tuple[Hold, ...] | None = None) -> bool:
        """Whether any node may take a pod like this one now; False is certain until something leaves."""
        self._notice()
        off = self._holds.off if off is None else off
        key = self._table.key_of(want.pod), tuple([one.key for one in off])
        known = self._known.get(key)
        if known is not None:
            return known > 0
        with self._holds.instead(off):
            pod_class = self._table.of(want.pod)
        narrowing = [plugin for plugin in pod_class.blind_filters if plugin.only_narrows]
        if not narrowing or not pod_class.total:
            self._known[key] = pod_class.total
            return pod_class.total > 0
        # What was placed may be taken back, or placed elsewhere, without the cluster seeming to have changed.
        nodes, allowed = Nodes(self._cluster), pod_class.fits > 0
        for plugin in narrowing:
            allowed = allowed & plugin.filter(_BLANK, want.pod, nodes)
        return bool(allowed.any())

    def forget(self) -> None:
        """A topology changed."""
        self._known.clear()

    def _notice(self) -> None:
        stamp = self._table.stamp
        if stamp != self._stamp:
            self._known.clear()
            self._stamp = stamp

    def _most(self, pod: Pod, need: Need) -> int:
        """Pods like this one that fit in the roomiest domain."""
        pod_class = self._table.of(pod)
        tree = None if need.tree is None else self._topologies.tree(need.tree.name)
        if tree is None or need.tree is None or tree.levels != need.tree.levels:
            return pod_class.total
        counts = self._table.counts(pod_class, tree).of(need.level)
        return int(counts[tree.labelled[need.level]].max(initial=0))
