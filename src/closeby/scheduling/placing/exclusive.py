"""Domains that a gang has for itself: who must keep off their nodes, and which ones a gang may not have.

The gang holds its domains by the members that are there, also those that are being deleted, so that nothing
has to be written down.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

import numpy as np

from closeby.cluster.columns import Cluster
from closeby.objects.arrays import Bools, Ints
from closeby.objects.groups import Exclusive, Layer, PodGroup
from closeby.objects.pods import Pod, gang_key
from closeby.objects.words import path_text
from closeby.objects.workloads import exclusive_kind
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.intake.members import Members
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.judging.holds import Comer, Hold, HoldKind
from closeby.scheduling.placing.statement import running_members
from closeby.topology.registry import Topologies
from closeby.topology.tree import Domain, Tree

#: Pods of these owners are on each node, and take no domain from a gang.
ON_EACH_NODE: Final = ("DaemonSet/", "Node/")
#: The kind of which each job may have a domain for itself, and the others of its gang keep off.
_BY_JOB: Final = "JobSet"
_NO_SLOTS: Final[Ints] = np.zeros(0, dtype=np.intp)


def layers_of(group: PodGroup) -> Iterator[Layer]:
    """All layers of a gang and of its subgroups."""
    yield from group.layers
    for one in group.subgroups:
        yield from one.layers


class OwnedDomain(NamedTuple):
    """A domain that a gang has for itself: the gang's key, level and path, and all slots of the domain."""

    owner: str
    called: str
    slots: Ints


class _Holding(NamedTuple):
    """The nodes of the domains that a gang has for itself, and what they were worked out from."""

    group: PodGroup
    members: Members
    version: int
    #: Slots from which all others keep off, and those from which other exclusive gangs do.
    from_all: Ints
    from_the_kind: Ints
    #: JobSet, LeaderWorkerSet or nothing.
    kind: str


class _Kinds(NamedTuple):
    """By leaf of a gang, where its segments have domains for themselves, and what tells that."""

    group: PodGroup
    stamp: Hashable
    levels: Mapping[str, Sequence[tuple[Tree, int]]]


class Exclusives:
    """Answers from the pods that hold nodes now."""

    def __init__(
        self,
        cluster: Cluster,
        topologies: Topologies,
        state: SchedulingState,
        *,
        close_by_default: bool,
    ) -> None:
        """``close_by_default`` as of the profile."""
        self._cluster = cluster
        self._topologies = topologies
        self._state = state
        self._close = close_by_default
        #: By gang; good for the nodes and topologies of this stamp.
        self._known: dict[str, _Holding] = {}
        self._stamp: Hashable = None
        #: Of the gang that was asked about last.
        self._kinds: _Kinds | None = None

    def off(self, comer: Comer) -> Hold | None:
        """The nodes that an item must keep off, as others have their domains for themselves."""
        plain = self._state.waiting_pods.get(comer.key)
        return self.hold(comer.key if plain is None else "", plain) if self._state.exclusive else None

    def hold(self, key: str, plain: Pod | None, lifted: Iterable[Pod] = ()) -> Hold | None:
        """The same for a gang, or a plain pod, while some pods are off their nodes."""
        mask = self._owned(key, plain, {gang_key(pod) for pod in lifted if pod.group is not None})
        if mask is None:
            return None
        found = cache(lambda: [*self._domains(key, plain)])
        return Hold(HoldKind.DOMAIN, mask.tobytes(), mask, partial(_whose, found))

    def nodes(self) -> Bools | None:
        """The nodes in domains that gangs have for themselves from all others."""
        return self._owned("", None)

    def owners(self, key: str, plain: Pod | None) -> list[OwnedDomain]:
        """The domains of several nodes that keep an item off, each with the gang that has it for itself."""
        return [one for one in self._domains(key, plain) if len(one.slots) > 1]

    def _domains(self, key: str, plain: Pod | None) -> Iterator[OwnedDomain]:
        """The domains that keep an item off."""
        if plain is not None and plain.owner.startswith(ON_EACH_NODE):
            return
        for owner, tree, level, slots in self._layers_of_others(key, plain):
            domains = np.unique(tree.owners_of_slots(slots, level))
            domains = domains[domains >= 0]
            if not len(domains):  # np.split gives one piece at the least.
                continue
            inside, starts = tree.slots_of(level, domains)
            for index, some in zip(domains.tolist(), np.split(inside, starts[1:]), strict=True):
                path = path_text(tree.path(Domain(level, index)))
                yield OwnedDomain(owner, f"{tree.level_names[level]} {path}", some)

    def taken(self, group: PodGroup, layering: Layering) -> list[Bools | None]:
        """Per layer the domains that a gang may not have for itself, as others are there; None: all free."""
        found: list[Bools | None] = []
        for layer in layering.layers:
            if layer.exclusive is Exclusive.NONE:
                found.append(None)
                continue
            others = self._all_but(group) if layer.exclusive is Exclusive.ALL else self._of_the_kind(group)
            slots = np.fromiter(others, dtype=np.intp)
            owners = layering.tree.owners_of_slots(slots, layer.level)
            barred = np.zeros(layering.tree.count(layer.level), dtype=np.bool_)
            barred[owners[owners >= 0]] = True
            found.append(barred)
        return found

    def taken_by_own(self, group: PodGroup, leaf: str, placed: Sequence[tuple[Pod, int]]) -> Ints:
        """Slots off which segments of a leaf keep that have domains for themselves among those of their kind.

        Those of members of the leaf, and all in the domains that segments of other leaves have so.
        ``placed``: members that were placed in this cycle.
        """
        kinds = self._kinds_of(group)
        own: list[int] = []
        others: dict[tuple[str, int], list[int]] = {}
        for pod, slot in (*running_members(self._cluster, self._state, group.key), *placed):
            name = pod.subgroup or ""
            if name == leaf or (not kinds.get(name) and exclusive_kind(pod) == _BY_JOB):
                own.append(slot)
                continue
            for tree, level in kinds.get(name, ()):
                others.setdefault((tree.name, level), []).append(slot)
        found = [np.asarray(own, dtype=np.intp)]
        trees = {tree.name: tree for some in kinds.values() for tree, _ in some}
        for (tree_name, level), slots in others.items():
            found.append(_in_the_same(trees[tree_name], level, np.asarray(slots, dtype=np.intp)))
        return np.concatenate(found)

    def kept_by_own(self, group: PodGroup, leaf: str, placed: Sequence[tuple[Pod, int]]) -> Ints:
        """Slots off which members of a leaf keep that has no domains for itself, as other jobs of its JobSet
        have these for themselves.
        """
        kinds = self._kinds_of(group)
        if not any(kinds.values()) or kinds.get(leaf):
            return _NO_SLOTS
        found = [_NO_SLOTS]
        for pod, slot in (*running_members(self._cluster, self._state, group.key), *placed):
            if exclusive_kind(pod) == _BY_JOB:
                for tree, level in kinds.get(pod.subgroup or "", ()):
                    found.append(_in_the_same(tree, level, np.asarray([slot], dtype=np.intp)))
        return np.concatenate(found)

    def _kinds_of(self, group: PodGroup) -> Mapping[str, Sequence[tuple[Tree, int]]]:
        """By leaf, tree and level of the domains that its segments have for themselves (``kind``)."""
        stamp, known = self._structure(), self._kinds
        if known is None or known.group is not group or known.stamp != stamp:
            layerings = constraints_of(group, self._topologies, self._close).layerings
            levels = {
                leaf: [(own.tree, one.level) for one in own.layers if one.exclusive is Exclusive.KIND]
                for leaf, own in layerings.items()
            }
            known = self._kinds = _Kinds(group, stamp, levels)
        return known.levels

    def _all_but(self, group: PodGroup) -> Iterator[int]:
        for pod, slot in self._cluster.placed_pods():
            own = pod.group == group.name and pod.namespace == group.namespace
            if not own and not pod.owner.startswith(ON_EACH_NODE):
                yield slot

    def _of_the_kind(self, group: PodGroup) -> Iterator[int]:
        state, kind = self._state, self._kind(group.key)
        for key, members in state.members.items():
            if key != group.key and members.placed and self._meets(kind, self._kind(key), key):
                yield from self._slots(members.placed.values()).tolist()
        plain = (state.pods[uid] for uid in state.plain_of_kinds)
        yield from self._slots(pod for pod in plain if exclusive_kind(pod) == kind).tolist()

    def _kind(self, key: str) -> str:
        """The kind of a gang's members."""
        members = self._state.members.get(key)
        pods = () if members is None else (members.placed, members.waiting)
        return next((exclusive_kind(pod) for some in pods for pod in some.values()), "")

    def _asks(self, key: str) -> bool:
        """Whether a gang wants domains for itself among those of its kind."""
        group = self._state.groups.get(key) if key in self._state.exclusive else None
        return group is not None and any(one.exclusive is Exclusive.KIND for one in layers_of(group))

    def _meets(self, owner: str, kind: str, key: str) -> bool:
        """Whether pods of a kind keep off domains that some of kind ``owner`` have for themselves.

        No other job of any JobSet is there, and no other replica of any LeaderWorkerSet, whether these want
        domains for themselves or not. Where a kind is not known the gang ``key`` counts if it does.
        """
        return owner == kind if owner and kind else self._asks(key)

    def _owned(self, key: str, plain: Pod | None, lifted: Container[str] = ()) -> Bools | None:
        """The nodes in domains that other gangs have for themselves and that keep this item off."""
        if plain is not None and plain.owner.startswith(ON_EACH_NODE):
            return None
        kind = self._kind(key) if plain is None else exclusive_kind(plain)
        mask = np.zeros(self._cluster.capacity, dtype=np.bool_)
        for owner, found in self._holdings(lifted):
            if owner != key:
                mask[found.from_all] = True
                if self._meets(found.kind, kind, key):
                    mask[found.from_the_kind] = True
        return mask if mask.any() else None

    def _holdings(self, lifted: Container[str]) -> Iterator[tuple[str, _Holding]]:
        """What each gang has for itself that has any member on a node; of ``lifted`` ones some are off it."""
        groups, members = self._state.groups, self._state.members
        stamp = self._structure()
        if stamp != self._stamp or len(self._known) > 2 * len(self._state.exclusive):
            self._known.clear()
            self._stamp = stamp
        for owner in self._state.exclusive:
            group, own = groups.get(owner), members.get(owner)
            if group is None or own is None or not own.placed:
                continue
            if owner in lifted:
                yield owner, self._held_by(owner, group, own)
                continue
            found = self._known.get(owner)
            if (
                found is None
                or found.group is not group
                or found.members is not own
                or found.version != own.version
            ):
                found = self._known[owner] = self._held_by(owner, group, own)
            yield owner, found

    def _structure(self) -> Hashable:
        """Changes with the nodes and with the topologies."""
        return self._cluster.structure, self._cluster.node_count, self._topologies.version

    def _held_by(self, owner: str, group: PodGroup, members: Members) -> _Holding:
        nodes: dict[Exclusive, list[Ints]] = {one: [_NO_SLOTS] for one in Exclusive}
        for layer_of, tree, level, slots in self._layers_of(owner, group):
            nodes[layer_of].append(_in_the_same(tree, level, slots))
        from_all, from_the_kind = (np.concatenate(nodes[one]) for one in (Exclusive.ALL, Exclusive.KIND))
        return _Holding(group, members, members.version, from_all, from_the_kind, self._kind(owner))

    def _layers_of_others(self, key: str, plain: Pod | None) -> Iterator[tuple[str, Tree, int, Ints]]:
        """Of each layer with domains that keep an item off: whose, their tree and level, and its slots."""
        kind = self._kind(key) if plain is None else exclusive_kind(plain)
        for owner in self._state.exclusive:
            group = self._state.groups.get(owner)
            if owner == key or group is None or not self._state.holding(owner):
                continue
            for layer_of, tree, level, slots in self._layers_of(owner, group):
                if layer_of is Exclusive.ALL or self._meets(self._kind(owner), kind, key):
                    yield owner, tree, level, slots

    def _layers_of(self, owner: str, group: PodGroup) -> Iterator[tuple[Exclusive, Tree, int, Ints]]:
        """Of each layer whose domains a gang has for itself: from whom, its tree and level, and its slots."""
        for leaf, layering in constraints_of(group, self._topologies, self._close).layerings.items():
            members = [pod for pod in self._state.holding(owner) if not leaf or pod.subgroup == leaf]
            slots = self._slots(members)
            for layer in layering.layers:
                if layer.exclusive is not Exclusive.NONE:
                    yield layer.exclusive, layering.tree, layer.level, slots

    def _slots(self, pods: Iterable[Pod]) -> Ints:
        found = (self._cluster.placement(pod.uid) for pod in pods)
        return np.fromiter((slot for slot in found if slot is not None), dtype=np.intp)


def _whose(domains: Callable[[], Sequence[OwnedDomain]], slot: int, namespace: str) -> str:
    """For the owners of pods in a namespace: which of the domains that keep an item off a slot is in."""
    for one in domains():
        if slot in one.slots:
            same = one.owner.partition("/")[0] == namespace
            owner = f"gang {one.owner}" if same else "a gang of another namespace"
            return f"{owner} has {one.called} for itself"
    return "a gang has its domain for itself"


def _in_the_same(tree: Tree, level: int, slots: Ints) -> Ints:
    """All slots in the domains of a level that hold some."""
    owners = tree.owners_of_slots(slots, level)
    own = np.unique(owners[owners >= 0])
    if not len(own):
        return slots
    return tree.slots_of(level, own)[0]
