"""Pods that stand in for those of a Workload, until these come: they hold the places that were asked for.

Stand-ins are pods of a gang of their own. They are placed like any gang, and hold what they take. A real pod
of the Workload, known by its annotation and its namespace, takes the place of one of them; when it leaves its
node, one stands in for it again. So of each pod set as many places are held as were asked for, less the pods
that have a node.

Once a pod has come, a place that is lost is not looked for again: the search would not know of the pods that
are there, and could end in another domain than theirs. Pods that are ending count as gone for that: they may
be of a time before the Workload was evicted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.places import POD_SET, WORKLOAD, PlaceSet
from closeby.objects.pods import Pod
from closeby.scheduling.events import PlacesAsked, PlacesEvent, PlacesWithdrawn
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Decision, Output
from closeby.scheduling.placing.place_records import PlaceRecords
from closeby.scheduling.placing.siblings import Siblings
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.plugin_view import CycleState

_NO_MORE: Final = "stands in no more"


class HeldForPods(Protocol):
    """The places that are held for pods to come, as decisions about these pods see them."""

    @property
    def any(self) -> bool:
        """Whether any places are asked for."""

    def concerns(self, pods: Iterable[Pod]) -> bool:
        """Whether places may be held for any of these pods."""

    def of(self, pods: Sequence[Pod]) -> dict[str, str]:
        """uid of a pod that waits -> uid of the stand-in whose place it takes."""

    def must_have_place(self, pod: Pod) -> bool:
        """Whether a pod without a gang must not go elsewhere."""

    def siblings(self, pod: Pod) -> Siblings | None:
        """The Workload of a pod while others of it run, with their nodes; None while none runs."""

    def vacate(self, places: Mapping[str, str]) -> dict[str, str]:
        """Takes stand-ins off their nodes; uid of each pod -> the node that it finds free."""

    def placed(self, pods: Iterable[Pod]) -> None:
        """These pods got nodes by a decision."""


class StandIns:
    """Keeps as many places as were asked for, less those that pods took."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        holdings: Holdings,
        put: Callable[[Pod], None],
        drop: Callable[[str, str], None],
    ) -> None:
        """``put`` and ``drop`` take in a pod that comes, and one (by uid, and why) that goes."""
        self._take_in = put
        self._let_go = drop
        self._tools = tools
        self._state = state
        self._holdings = holdings
        self._places = PlaceRecords(state)
        #: By gang the stand-ins whose written node was believed once: after that what is decided counts.
        self._restored: dict[str, set[str]] = {}
        #: Stand-ins whose node may not do any more.
        self._doubted: set[str] = set()
        #: Gangs of which others stand in than before, or should; and of which that was not said yet.
        self._touched: set[str] = set()
        self._news: set[str] = set()

    @property
    def any(self) -> bool:
        """Whether any places are asked for."""
        return bool(self._places)

    @property
    def keys(self) -> tuple[str, ...]:
        """The gangs of stand-ins."""
        return tuple(self._places)

    def __contains__(self, key: str) -> bool:
        """Whether this is a gang of stand-ins."""
        return key in self._places

    def take_news(self) -> set[str]:
        """Gangs of which others stand in since the last call, or of which none do any more."""
        taken, self._news = self._news, set()
        return taken

    def started(self, key: str) -> bool:
        """Whether a pod of the Workload has a node, be it one that is ending."""
        group = self._places.group(key)
        return group is not None and group.places is not None and bool(self._places.with_nodes(group.places))

    # What is asked for

    def take(self, event: PlacesEvent) -> None:
        """Places are asked for, or are not any more."""
        match event:
            case PlacesAsked(group):
                self.ask(group)
            case PlacesWithdrawn(key):
                self.withdraw(key)

    def ask(self, group: PodGroup) -> None:
        """Places are asked for, or others than before; ``plan`` says where they are as far as is written."""
        asked = group.places
        if asked is None:
            return
        before = self._places.ask(group, asked)
        gone: list[str] = []
        if before is not None and _other(before, group):
            gone = [one.uid for one in self._places.standing(group.key)]
        put: list[Pod] = []
        for one in asked.sets:
            own = [pod for pod in self._places.standing(group.key, one.name) if pod.uid not in gone]
            wanted = self._places.wanted(group.key, one)
            # Those that found no place go first.
            own.sort(key=lambda pod: (self._holdings.holds(pod.uid), -(pod.index or 0)))
            gone += [pod.uid for pod in own[: max(len(own) - wanted, 0)]]
            used = {pod.index for pod in own}
            used |= {
                one.index_of(pod)
                for pod in self._places.came(asked)
                if self._places.place_of(pod)[1] == one.name
            }
            free = (index for index in range(one.count + len(used)) if index not in used)
            for index, _ in zip(free, range(wanted - len(own)), strict=False):
                put.append(self._stand_in(group, one, index))
        names = {one.name for one in asked.sets}
        gone += [one.uid for one in self._places.standing(group.key) if one.labels.get(POD_SET) not in names]
        self._state.groups[group.key] = replace(group, plan={}, ranks={})
        self._state.note_layers(group)
        self._replace(dict.fromkeys(gone), put)
        self._touched.add(group.key)
        self._tidy()

    def withdraw(self, key: str) -> None:
        """Nothing is asked for any more."""
        group = self._places.withdraw(key)
        if group is None or group.places is None:
            return
        gone = tuple(one.uid for one in self._places.standing(key))
        self._restored.pop(key, None)
        self._doubted.difference_update(gone)
        self._replace(gone)
        self._state.groups.pop(key, None)
        self._state.exclusive.pop(key, None)
        self._news.add(key)

    # Pods that come and go

    def took(self, pod: Pod, node: str) -> None:
        """A pod that came from elsewhere has a node: one less stands in."""
        known = self._places.knows(pod)
        if not self._places.note(pod) or known or pod.terminating:
            return
        key, name = self._places.place_of(pod)
        if key is None:
            return
        self._touched.add(key)
        own = self._places.standing(key, name)
        if not own:
            return
        at, index = self._tools.cluster.slot(node), self._places.index_of(key, name, pod)

        def worse(one: Pod) -> tuple[bool, bool, int]:
            elsewhere = at is None or self._tools.cluster.placement(one.uid) != at
            return elsewhere, one.index != index, one.index or 0

        self._replace((min(own, key=worse).uid,))

    def left(self, pod: Pod, node: str | None) -> None:
        """A pod left its node, or never came to it: its place is held for one that comes after it."""
        if not self._places.leave(pod):
            return
        key, name = self._places.place_of(pod)
        group = None if key is None else self._places.group(key)
        if key is None or group is None or group.places is None:
            return
        self._touched.add(key)
        one = next((each for each in group.places.sets if each.name == name), None)
        if one is None or node is None or self._tools.cluster.slot(node) is None:
            return
        own = self._places.standing(key, name)
        if len(own) >= self._places.wanted(key, one):
            return
        used = {each.index for each in own}
        index = one.index_of(pod)
        if index is None or index in used:
            index = next(number for number in range(len(used) + 1) if number not in used)
        made = self._stand_in(group, one, index)
        self._doubted.add(made.uid)
        self._put(replace(made, node_name=node))

    def doubt(self, slot: int) -> None:
        """A node changed."""
        if self._places:
            cluster = self._tools.cluster
            for key in self._places:
                members = self._state.members.get(key)
                placed = () if members is None else members.placed
                self._doubted.update(uid for uid in placed if cluster.placement(uid) == slot)

    def doubt_claims(self, keys: Iterable[str]) -> None:
        """Something changed on which these claims depend."""
        to_come = self._tools.cluster.volumes.to_come
        for key in keys if self._places else ():
            if key in to_come:
                self._doubted.update(self._state.users.get(key, ()))

    def review(self) -> None:
        """Looks for those that have lost their node.

        While no pod of the Workload runs all of its places are looked for again, since nothing is lost by
        that; else these go.
        """
        self._tidy()
        gone: list[str] = []
        put: list[Pod] = []
        doubted, self._doubted = self._doubted, set()
        for key in self._places:
            members = self._state.members.get(key)
            placed = {} if members is None else members.placed
            lost = [uid for uid, pod in placed.items() if self._is_lost(pod, uid in doubted)]
            if lost and not self._places.runs(key):
                lost = list(placed)
                put += [replace(pod, node_name=None) for pod in placed.values()]
            gone += lost
        self._replace(gone, put)

    def stand(self, outputs: Iterable[Output]) -> None:
        """Stand-ins are never bound: they are on their nodes from the decision on."""
        if self._places:
            for output in outputs:
                if isinstance(output, Decision) and output.outcome.is_gang and output.outcome.key in self:
                    for one in output.outcome.bindings:
                        self._put(replace(one.pod, node_name=one.node))
            self._tidy()

    # Places for pods

    def concerns(self, pods: Iterable[Pod]) -> bool:
        """Whether places may be held for any of these pods."""
        return bool(self._places) and any(self._places.place_of(pod)[0] is not None for pod in pods)

    def of(self, pods: Sequence[Pod]) -> dict[str, str]:
        """uid of a pod that waits -> uid of the stand-in whose place it takes, of its index if it can."""
        if not self._places:
            return {}
        found: dict[str, str] = {}
        free: dict[tuple[str, str], list[Pod]] = {}
        waiting = []
        for pod in pods:
            key, name = self._places.place_of(pod)
            if key is None:
                continue
            waiting.append((pod, (key, name)))
            if (key, name) not in free:
                own = (one for one in self._places.standing(key, name) if self._slot(one.uid) is not None)
                free[key, name] = sorted(own, key=lambda one: one.index or 0)
        for same in (True, False):
            for pod, of in waiting:
                if pod.uid in found:
                    continue
                index = self._places.index_of(*of, pod)
                at = next((i for i, one in enumerate(free[of]) if not same or one.index == index), None)
                if at is not None and (index is not None or not same):
                    found[pod.uid] = free[of].pop(at).uid
        return found

    def must_have_place(self, pod: Pod) -> bool:
        """Whether a pod without a gang must not go elsewhere: one pod can't keep what its Workload asks."""
        key, _ = self._places.place_of(pod)
        group = None if key is None else self._places.group(key)
        if group is None:
            return False
        asked = (group.constraint, *(one.constraint for one in group.subgroups))
        layers = group.layers or any(one.layers for one in group.subgroups)
        return bool(layers) or any(one is not None and one.required for one in asked)

    def siblings(self, pod: Pod) -> Siblings | None:
        """The Workload of a pod while others of it run, with their nodes; None while none runs."""
        key, name = self._places.place_of(pod)
        group = None if key is None else self._places.group(key)
        if key is None or group is None or group.places is None or not self._places.runs(key):
            return None
        part_of = {one.name: one.template.subgroup for one in group.places.sets}
        pods = [(part_of.get(self._places.place_of(one)[1]), one) for one in self._places.came(group.places)]
        pods += [(one.subgroup, one) for one in self._places.standing(key)]
        on = ((subgroup, self._slot(one.uid)) for subgroup, one in pods)
        placed = [(subgroup, slot) for subgroup, slot in on if slot is not None]
        return Siblings(group, part_of.get(name), placed)

    def vacate(self, places: Mapping[str, str]) -> dict[str, str]:
        """Takes stand-ins off their nodes for good; uid of each pod -> the node that it finds free."""
        nodes: dict[str, str] = {}
        for uid, stand_in in places.items():
            node = self._holdings.release(stand_in)
            pod = self._state.remove(stand_in)
            if pod is not None:
                self._tools.cluster.volumes.to_come.forget(pod)
            if node is not None and pod is not None:
                nodes[uid] = node
                self._touched.add(self._state.item_key(pod))
        return nodes

    def placed(self, pods: Iterable[Pod]) -> None:
        """These pods got nodes by a decision, in their places or elsewhere."""
        # Gangs have thousands of these, and most clusters no Workload.
        for pod in [pod for pod in pods if WORKLOAD in pod.annotations]:
            if self._places.note(pod) and (key := self._places.place_of(pod)[0]) is not None:
                self._touched.add(key)

    # Inside

    def _tidy(self) -> None:
        """No more stand in than are to come, and their gang needs all of them."""
        while self._touched:
            key = self._touched.pop()
            self._news.add(key)
            group = self._places.group(key)
            if group is None or group.places is None:
                continue
            if self._places.runs(key):
                members = self._state.members.get(key)
                for uid in () if members is None else tuple(members.waiting):
                    self._drop(uid, _NO_MORE)
            for one in group.places.sets:
                own = self._places.standing(key, one.name)
                own.sort(key=lambda pod: (self._holdings.holds(pod.uid), -(pod.index or 0)))
                for pod in own[: max(len(own) - self._places.wanted(key, one), 0)]:
                    self._drop(pod.uid, _NO_MORE)
            self._fit_minimum(key, group)

    def _put(self, pod: Pod) -> None:
        self._tools.cluster.volumes.to_come.expect(pod)
        self._take_in(pod)

    def _drop(self, uid: str, why: str) -> None:
        pod = self._state.pods.get(uid)
        self._let_go(uid, why)
        if pod is not None:
            self._tools.cluster.volumes.to_come.forget(pod)

    def _replace(self, gone: Iterable[str], put: Iterable[Pod] = ()) -> None:
        for uid in gone:
            self._drop(uid, _NO_MORE)
        for pod in put:
            self._put(pod)

    def _slot(self, uid: str) -> int | None:
        return self._tools.cluster.placement(uid)

    def _stand_in(self, group: PodGroup, one: PlaceSet, index: int) -> Pod:
        asked = group.places
        assert asked is not None, f"{group.key} asks for no places"
        uid = f"{asked.uid}/{one.name}/{index}"
        restored = self._restored.setdefault(group.key, set())
        node = None if uid in restored else group.plan.get(uid)
        restored.add(uid)
        if node is not None:
            self._doubted.add(uid)
        name = f"{asked.workload}-{one.name}-{index}"
        return replace(one.template, name=name, uid=uid, index=index, created=group.created, node_name=node)

    def _fit_minimum(self, key: str, group: PodGroup) -> None:
        """The gang needs all that stand in, however few pods are still to come."""
        standing = self._places.standing(key)
        of_subgroup = Counter(pod.subgroup for pod in standing)
        subgroups = tuple(replace(one, min_member=of_subgroup[one.name]) for one in group.subgroups)
        # Where its stand-ins are is known from them, not from what was written.
        self._state.groups[key] = replace(
            group, min_member=len(standing), subgroups=subgroups, plan={}, ranks={}
        )

    def _is_lost(self, pod: Pod, doubted: bool) -> bool:
        """Whether the node of a stand-in is gone, or could not take it now."""
        slot = self._tools.cluster.placement(pod.uid)
        if slot is None or not doubted:
            return slot is None
        if any(one.pre_enqueue(pod) is not None for one in self._tools.profile.pre_enqueue):
            self._doubted.add(pod.uid)  # It can't be judged yet.
            return False
        put_back = self._holdings.lift(pod)
        try:
            return not self._tools.allows(CycleState(), pod, slot)
        finally:
            put_back()


def _other(before: PodGroup, group: PodGroup) -> bool:
    """Whether other pods are to come, or elsewhere, and not only more or fewer of them."""

    def kind(one: PodGroup) -> PodGroup:
        asked = one.places
        sets = () if asked is None else tuple(replace(each, count=0) for each in asked.sets)
        subgroups = tuple(replace(each, min_member=0) for each in one.subgroups)
        return replace(
            one,
            min_member=0,
            subgroups=subgroups,
            plan={},
            ranks={},
            places=None if asked is None else replace(asked, sets=sets),
        )

    return kind(before) != kind(group)
