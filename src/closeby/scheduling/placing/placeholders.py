"""Placeholder pods: they hold the places that were asked for the pods of a Workload, until these come.

They are pods of a gang of their own. They are placed like any gang, and hold what they take. A real pod of
the Workload, known by its annotation and its namespace, takes the place of one of them; when it leaves its
node, a placeholder takes it again. So of each pod set as many places are held as were asked for, less the
pods that have a node.

Once a pod has come, a place that is lost is not looked for again: the search would not know of the pods that
are there, and could end in another domain than theirs. Pods that are ending count as gone for that: they may
be of a time before the Workload was evicted. When all pods have left, all places are looked for again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import Final

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.groups import POD_SET, WORKLOAD, PlaceSet, PodGroup
from closeby.objects.pods import Pod
from closeby.scheduling.events import PlacesAsked, PlacesEvent, PlacesWithdrawn
from closeby.scheduling.gangs.places import split_part
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Decision, Outcome, Output
from closeby.scheduling.placing.place_records import PlaceRecords, asks_for_others, set_of
from closeby.scheduling.placing.places_for_pods import PlacesForPods, domain_of
from closeby.scheduling.placing.statement import Holdings
from closeby.scheduling.placing.tools import Tools, waiting_gang
from closeby.scheduling.plugin_view import CycleState

_NO_MORE: Final = "its place is held no more"


class Placeholders:
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
        #: Gangs that were looked at before a decision: from then on what is decided here counts, and not what
        #: another process wrote.
        self._own: set[str] = set()
        #: Those whose node another process wrote, and gangs of those that are where pods of before were: what
        #: the Workload requires may not hold for them.
        self._written: set[str] = set()
        self._inherited: set[str] = set()
        #: Placeholder pods whose node may not do any more, in the order in which that was noticed.
        self._invalidated: dict[str, None] = {}
        #: Gangs of which other placeholders are there than before, or should be; and those not said yet.
        self._touched: set[str] = set()
        self._news: set[str] = set()
        self.for_pods = PlacesForPods(self._places, self._slot, self._vacate, self._touched.add)

    @property
    def keys(self) -> tuple[str, ...]:
        """The gangs of placeholder pods."""
        return tuple(self._places)

    def __contains__(self, key: str) -> bool:
        """Whether this is a gang of placeholder pods."""
        return key in self._places

    def take_news(self) -> set[str]:
        """Gangs of which other placeholders are there since the last call, or none any more."""
        taken, self._news = self._news, set()
        return taken

    def started(self, key: str) -> bool:
        """Whether a pod of the Workload has a node, be it one that is ending."""
        return self._places.started(key)

    def lost(self, key: str) -> int:
        """How many pods are still to come for which no place is held, nor looked for."""
        group = self._places.group(key)
        sets = () if group is None or group.places is None else group.places.sets
        lacking = (self._places.wanted(key, one) - len(self._places.numbers(key, one.name)) for one in sets)
        return sum(max(number, 0) for number in lacking)

    def on_the_way(self, key: str) -> list[tuple[Pod, str]]:
        """The places, with their nodes, that pods took which are not bound yet."""
        names, found = self._tools.cluster.names, self._places.on_the_way(key)
        placed = [(one, node, self._slot(uid)) for uid, one, node in found]
        return [(one, node) for one, node, slot in placed if slot is not None and names[slot] == node]

    def taken(self, key: str) -> list[tuple[Pod, str]]:
        """The places of pods that have a node, each with it: such a pod may end while no process is there.

        A place has the number of its pod, or another one where that is none or taken. There are no more than
        are asked for: a pod that is ending may have its successor already.
        """
        group, names = self._places.group(key), self._tools.cluster.names
        if group is None or group.places is None:
            return []
        set_out = {uid: place.index for uid, place, _ in self._places.on_the_way(key)}
        found: list[tuple[Pod, str]] = []
        for one in group.places.sets:
            used = {*self._places.numbers(key, one.name)}
            without: list[str] = []
            for pod in sorted(self._places.occupants(group.places, one), key=attrgetter("terminating")):
                slot = self._slot(pod.uid)
                node = None if slot is None else names[slot]
                if node is None:
                    continue
                number = set_out.get(pod.uid, one.index_of(pod))
                if number is None or number in used:
                    without.append(node)
                else:
                    used.add(number)
                    found.append((self._placeholder(group, one, number), node))
            free = (number for number in range(one.count) if number not in used)
            found += [
                (self._placeholder(group, one, number), node)
                for node, number in zip(without, free, strict=False)
            ]
        return found

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
        believed = group.key not in self._own
        other = before is not None and (
            asks_for_others(before, group) or (believed and before.plan != group.plan)
        )
        gone = [one.uid for one in self._places.placeholders(group.key)] if other else []
        put: list[Pod] = []
        for one in asked.sets:
            own = () if other else self._places.numbers(group.key, one.name)
            more = self._places.wanted(group.key, one) - len(own)
            put += self._more(group, one, own, more, group.plan if believed else {})
        names = {one.name for one in asked.sets}
        gone += [
            one.uid for one in self._places.placeholders(group.key) if one.labels.get(POD_SET) not in names
        ]
        self._state.put_group(replace(group, plan={}, ranks={}))
        self._replace(dict.fromkeys(gone), put)
        written = {one.uid for one in put if one.node_name is not None}
        if written:
            self._written |= written
            self._inherited.add(group.key)
        self._touched.add(group.key)

    def withdraw(self, key: str) -> None:
        """Nothing is asked for any more."""
        group = self._places.withdraw(key)
        if group is None or group.places is None:
            return
        self._own.discard(key)
        self._inherited.discard(key)
        self._replace([one.uid for one in self._places.placeholders(key)])
        self._state.drop_group(key)
        self._news.add(key)

    # Pods that come and go

    def took(self, pod: Pod, node: str) -> None:
        """A pod has a node. If it came from elsewhere, there is one placeholder less."""
        known = self._places.knows(pod)
        if not self._places.note(pod):
            return
        key, name = self._places.place_of(pod)
        if key is None:
            return
        if pod.node_name is not None and self._places.arrived(pod):
            self._touched.add(key)
        if known or pod.terminating:
            return
        self._touched.add(key)
        index = self._places.index_of(key, name, pod)
        if index is None or not self._places.has(key, name, index):
            return  # Which one goes is seen when all are known.
        uid = self._places.uid_of(key, name, index)
        if self._slot(uid) in (None, self._tools.cluster.slot(node)):
            self._replace((uid,))

    def changed(self, before: Pod, pod: Pod) -> None:
        """A pod changed; if it names another Workload now, it counts as gone for the one before."""
        if before.annotations.get(WORKLOAD) != pod.annotations.get(WORKLOAD):
            self.left(before, None)

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
        if len(self._places.numbers(key, name)) >= self._places.wanted(key, one):
            return
        index = one.index_of(pod)
        if index is None or self._places.has(key, name, index):
            index = self._places.free_number(key, name)
        made = self._placeholder(group, one, index)
        self._inherited.add(key)
        self._replace((), (replace(made, node_name=node),))

    def invalidate_node(self, slot: int) -> None:
        """A node changes, or goes."""
        if self._places:
            pods = self._tools.cluster.pods_at(slot)
            self._invalidated |= {pod.uid: None for pod in pods if set_of(pod) is not None}

    def invalidate_claims(self, keys: Iterable[str]) -> None:
        """Something changed on which these claims depend."""
        to_come = self._tools.cluster.volumes.to_come
        for key in keys if self._places else ():
            if key in to_come:
                self._invalidated |= self._state.users.get(key, {})

    def review(self) -> None:
        """Looks for those that have lost their node.

        While no pod of the Workload runs all of its places are looked for again, since nothing is lost by
        that; else these go.
        """
        self._tidy()
        self._own.update(self._places)
        gone: list[str] = []
        put: list[Pod] = []
        invalidated, self._invalidated = self._invalidated, {}
        misplaced = self._misplaced()
        lost: dict[str, list[str]] = {}
        for uid in invalidated:
            pod = self._state.pods.get(uid)
            of = None if pod is None else set_of(pod)
            if pod is None or of is None or of[0] not in self._places:
                continue
            key, _ = of
            if uid in self._state.members[key].placed and (uid in misplaced or self._is_lost(pod)):
                lost.setdefault(key, []).append(uid)
        for key, uids in lost.items():
            self._touched.add(key)
            if self._places.runs(key):
                gone += uids
            else:
                placed = self._state.members[key].placed
                gone += placed
                put += [replace(pod, node_name=None) for pod in placed.values()]
        self._replace(gone, put)

    def take_nodes(self, outputs: Iterable[Output]) -> None:
        """Placeholder pods are never bound: they are on their nodes from the decision on."""
        if self._places:
            for output in outputs:
                if isinstance(output, Decision) and output.outcome.is_gang and output.outcome.key in self:
                    self._decided(output.outcome)
            self._tidy()

    # Inside

    def _decided(self, outcome: Outcome) -> None:
        for one in outcome.bindings:
            if one.pod.uid in self._state.pods:  # Else a pod took its place meanwhile.
                self._put(replace(one.pod, node_name=one.node))
        group, members = self._places.group(outcome.key), self._state.members.get(outcome.key)
        if group is None or members is None or not (members.waiting and members.placed):
            return
        known = self._state.gated.keys().isdisjoint(members.waiting)
        if outcome.refused and known and not self.started(outcome.key):
            # Beside those that have places there is no room for the rest: there may be for all elsewhere.
            self._look_again(group)

    def _tidy(self) -> None:
        """There are no more than pods are to come, and their gang needs all of them."""
        while self._touched:
            key = self._touched.pop()
            self._news.add(key)
            group = self._places.group(key)
            if group is None or group.places is None:
                continue
            members = self._state.members.get(key)
            if self._places.runs(key):
                for uid in () if members is None else tuple(members.waiting):
                    self._drop(uid, _NO_MORE)
            elif not self.started(key) and (self.lost(key) or self._are_apart(key)):
                self._look_again(group)
            for one in group.places.sets:
                more = len(self._places.numbers(key, one.name)) - self._places.wanted(key, one)
                self._replace(self._first_to_go(key, one, more))
            self._fit_minimum(key, group)

    def _first_to_go(self, key: str, one: PlaceSet, count: int) -> list[str]:
        """So many of those for a pod set: those whose pod came, or that have no place."""
        group = self._places.group(key)
        if count <= 0 or group is None or group.places is None:
            return []
        cluster, numbers = self._tools.cluster, self._places.numbers_that_came(group.places, one)
        came = {cluster.placement(pod.uid) for pod in self._places.came(group.places, one)}
        #: By slot: how many more than it has room for.
        excess: dict[int, int] = {}

        def rank(number: int) -> int:
            slot = self._slot(self._places.uid_of(key, one.name, number))
            if number in numbers:
                return 0
            if slot is None:
                return 1
            if slot not in excess:
                excess[slot] = self._excess(one, slot)
            excess[slot] -= 1
            return 2 if excess[slot] >= 0 else 3 if slot in came else 4

        latest_first = self._places.numbers(key, one.name)[::-1]
        chosen = sorted(latest_first, key=rank)[:count]
        return [self._places.uid_of(key, one.name, number) for number in chosen]

    def _excess(self, one: PlaceSet, slot: int) -> int:
        """How many places of a pod set are to go until a node has room for what is on it."""
        cluster = self._tools.cluster
        asked = cluster.demand(one.template.spec)
        rows = np.asarray(asked.rows, dtype=np.intp)
        excess = cluster.requested[rows, slot] - cluster.allocatable[rows, slot]
        return max(int(np.ceil(excess / np.asarray(asked.amounts)).max(initial=0)), 0)

    def _look_again(self, group: PodGroup) -> None:
        """All pods have left, and some lost their places: all of them may be elsewhere."""
        found = self._places.placeholders(group.key)
        put = [replace(one, node_name=None) for one in found]
        for one in () if group.places is None else group.places.sets:
            own = self._places.numbers(group.key, one.name)
            put += self._more(group, one, own, self._places.wanted(group.key, one) - len(own))
        self._replace([one.uid for one in found], put)

    def _put(self, pod: Pod) -> None:
        self._tools.cluster.volumes.to_come.expect(pod)
        self._take_in(pod)
        self._places.add(pod)

    def _drop(self, uid: str, why: str) -> None:
        pod = self._state.pods.get(uid)
        self._let_go(uid, why)
        if pod is not None:
            self._forget(pod)

    def _vacate(self, uid: str) -> tuple[Pod, str] | None:
        """Takes one off its node for a pod that came; returns it with that node."""
        node = self._holdings.release(uid)
        pod = self._state.remove(uid)
        if pod is None:
            return None
        self._forget(pod)
        if node is None:
            return None
        self._touched.add(self._state.item_key(pod))
        return pod, node

    def _forget(self, pod: Pod) -> None:
        self._tools.cluster.volumes.to_come.forget(pod)
        self._places.remove(pod)
        self._invalidated.pop(pod.uid, None)
        self._written.discard(pod.uid)

    def _replace(self, gone: Iterable[str], put: Iterable[Pod] = ()) -> None:
        for uid in gone:
            self._drop(uid, _NO_MORE)
        for pod in put:
            self._put(pod)
            if pod.node_name is not None:
                self._invalidated[pod.uid] = None

    def _slot(self, uid: str) -> int | None:
        return self._tools.cluster.placement(uid)

    def _more(
        self, group: PodGroup, one: PlaceSet, own: Sequence[int], count: int, plan: Mapping[str, str] = {}
    ) -> list[Pod]:
        """So many more for a pod set beside those with these numbers, or all that are planned."""
        if count <= 0 or group.places is None:
            return []
        used = {*own, *self._places.numbers_that_came(group.places, one)}
        planned = [number for number in self._places.numbers_in(plan, group.key, one) if number not in used]
        used.update(planned)
        free = (number for number in range(one.count + len(used)) if number not in used)
        numbers = chain(planned, islice(free, max(count - len(planned), 0)))
        return [self._placeholder(group, one, number, plan) for number in numbers]

    def _placeholder(self, group: PodGroup, one: PlaceSet, index: int, plan: Mapping[str, str] = {}) -> Pod:
        asked = group.places
        assert asked is not None, f"{group.key} asks for no places"
        uid = self._places.uid_of(group.key, one.name, index)
        node = plan.get(uid)
        name = f"{asked.workload}-{one.name}-{index}"
        return replace(one.template, name=name, uid=uid, index=index, created=group.created, node_name=node)

    def _fit_minimum(self, key: str, group: PodGroup) -> None:
        """The gang needs all of them, however few pods are still to come."""
        of_subgroup: Counter[str | None] = Counter()
        for one in () if group.places is None else group.places.sets:
            of_subgroup[one.template.subgroup] += len(self._places.numbers(key, one.name))
        subgroups = tuple(replace(one, min_member=of_subgroup[one.name]) for one in group.subgroups)
        # Where its placeholder pods are is known from them, not from what was written.
        self._state.put_group(
            replace(group, min_member=of_subgroup.total(), subgroups=subgroups, plan={}, ranks={})
        )

    def _are_apart(self, key: str) -> bool:
        """Whether those that are where pods of before were are not together as the Workload requires."""
        if key not in self._inherited:
            return False
        self._inherited.discard(key)
        gang = waiting_gang(self._tools, self._state, self._state.groups[key], (), in_order=False)
        return split_part(gang.parts(everyone=True), {}) is not None

    def _misplaced(self) -> set[str]:
        """Those whose node another process wrote, and which are not beside the pods that came meanwhile."""
        beside: dict[tuple[str, str | None], Bools | None] = {}
        found: set[str] = set()
        for uid in self._written:
            pod, slot = self._state.pods.get(uid), self._slot(uid)
            of = None if pod is None else set_of(pod)
            if pod is None or of is None or slot is None:
                continue
            part = of[0], pod.subgroup
            if part not in beside:
                came = self.for_pods.those_that_came(*part)
                beside[part] = None if came is None else domain_of(came, self._tools)
            inside = beside[part]
            if inside is not None and not inside[slot]:
                found.add(uid)
        self._written.clear()
        return found

    def _is_lost(self, pod: Pod) -> bool:
        """Whether the node of a placeholder pod is gone, or could not take it now."""
        slot = self._tools.cluster.placement(pod.uid)
        if slot is None:
            return True
        if any(one.pre_enqueue(pod) is not None for one in self._tools.profile.pre_enqueue):
            self._invalidated[pod.uid] = None  # It can't be judged yet.
            return False
        put_back = self._holdings.lift(pod)
        try:
            return not self._tools.allows(CycleState(), pod, slot)
        finally:
            put_back()
