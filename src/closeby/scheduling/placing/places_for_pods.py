"""Which pod of a Workload takes which of the places that are held for its pods, and where one goes without.

A pod that has no place, while others of its Workload run, goes into the domain that holds them. One pod can't
keep what its Workload asks for, unless the pods that are there say in which domain that is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from closeby.objects.arrays import Bools
from closeby.objects.groups import WORKLOAD, AskedPlaces, LayerMode
from closeby.objects.pods import Pod
from closeby.scheduling.gangs.rosters import constraints_of
from closeby.scheduling.placing.place_records import PlaceRecords
from closeby.scheduling.placing.tools import Siblings, Tools


class PlacesForPods:
    """The places of all Workloads, as decisions about their pods see them."""

    def __init__(
        self,
        places: PlaceRecords,
        slot: Callable[[str], int | None],
        vacate: Callable[[str], tuple[Pod, str] | None],
        touched: Callable[[str], None],
    ) -> None:
        """``slot`` says where a pod (by uid) is; ``vacate`` takes a placeholder off its node.

        ``touched`` hears of each gang of which other placeholders are there than before, or should be.
        """
        self._places = places
        self._slot = slot
        self._vacate = vacate
        self._touched = touched

    @property
    def any(self) -> bool:
        """Whether any places are asked for."""
        return bool(self._places)

    def concerns(self, pods: Iterable[Pod]) -> bool:
        """Whether places may be held for any of these pods."""
        return bool(self._places) and any(self._places.place_of(pod)[0] is not None for pod in pods)

    def of(self, pods: Sequence[Pod]) -> dict[str, str]:
        """uid of a pod that waits -> uid of the placeholder pod whose place it takes, of its index if it can.

        A pod without a gang keeps to its segment: nothing else would see that it is in that of others.
        """
        if not self._places:
            return {}
        found: dict[str, str] = {}
        taken: set[str] = set()
        others: list[tuple[Pod, str, str, range | None]] = []
        for pod in pods:
            key, name = self._places.place_of(pod)
            if key is None:
                continue
            index = self._places.index_of(key, name, pod)
            own = None if index is None else self._places.uid_of(key, name, index)
            if own is None or own in taken or self._slot(own) is None:
                segment = None if index is None or pod.group is not None else self._segment(key, name, index)
                others.append((pod, key, name, segment))
            else:
                found[pod.uid] = own
                taken.add(own)
        free: dict[tuple[str, str], Iterator[str]] = {}
        for pod, key, name, segment in others:
            if segment is not None:
                within = (self._places.uid_of(key, name, number) for number in segment)
                uid = next((one for one in within if one not in taken and self._slot(one) is not None), None)
            else:
                if (key, name) not in free:
                    uids = self._places.uids(key, name)
                    free[key, name] = (
                        one for one in uids if one not in taken and self._slot(one) is not None
                    )
                uid = next(free[key, name], None)
            if uid is not None:
                found[pod.uid] = uid
                taken.add(uid)
        return found

    def _segment(self, key: str, name: str, index: int) -> range | None:
        """The numbers of the pods that are in one domain with that of an index; None where all may be."""
        group = self._places.group(key)
        sets = () if group is None or group.places is None else group.places.sets
        one = next((each for each in sets if each.name == name), None)
        if group is None or one is None or index >= one.count or one.count < one.size:
            return None  # Which pods are done is not known.
        parts = {part.name: part.layers for part in group.subgroups}
        layers = parts.get(one.template.subgroup or "", group.layers)
        size = next((layer.size for layer in reversed(layers) if layer.mode is LayerMode.REQUIRED), 0)
        return range(index // size * size, index // size * size + size) if size else None

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
        held = [(one.subgroup, one) for one in self._places.placeholders(key)]
        placed = self._placed((*self._came(group.places), *held))
        return Siblings(group, part_of.get(name), placed)

    def those_that_came(self, key: str, subgroup: str | None) -> Siblings | None:
        """The pods of a Workload that run, as siblings of one of a subgroup; None while none runs."""
        group = self._places.group(key)
        if group is None or group.places is None or not self._places.runs(key):
            return None
        return Siblings(group, subgroup, self._placed(self._came(group.places)))

    def _came(self, asked: AskedPlaces) -> list[tuple[str | None, Pod]]:
        part_of = {one.name: one.template.subgroup for one in asked.sets}
        return [(part_of.get(self._places.place_of(one)[1]), one) for one in self._places.came(asked)]

    def _placed(self, pods: Iterable[tuple[str | None, Pod]]) -> list[tuple[str | None, int]]:
        on = ((subgroup, self._slot(one.uid)) for subgroup, one in pods)
        return [(subgroup, slot) for subgroup, slot in on if slot is not None]

    def vacate(self, places: Mapping[str, str]) -> dict[str, str]:
        """Takes placeholder pods off their nodes for good; uid of each pod -> the node that it finds free."""
        nodes: dict[str, str] = {}
        for uid, placeholder in places.items():
            if (vacated := self._vacate(placeholder)) is not None:
                place, nodes[uid] = vacated
                self._places.set_out(uid, place, nodes[uid])
        return nodes

    def placed(self, pods: Iterable[Pod]) -> None:
        """These pods got nodes by a decision, in their places or elsewhere."""
        # Gangs have thousands of these, and most clusters no Workload.
        for pod in [pod for pod in pods if WORKLOAD in pod.annotations]:
            if self._places.note(pod) and (key := self._places.place_of(pod)[0]) is not None:
                self._touched(key)


def domain_of(siblings: Siblings, tools: Tools) -> Bools | None:
    """The slots in the domains that the Workload requires, shape (capacity,); None where these are not known.

    Of layers it is not known to which segment the pod belongs.
    """
    group, own = siblings.group, siblings.subgroup
    subgroups = {one.name: one for one in group.subgroups}
    if group.layers or any(one.layers or one.parent for one in group.subgroups):
        return None
    levels = constraints_of(group, tools.topologies, tools.profile.close_by_default).levels
    inside: Bools | None = None
    for name in ("", own):
        asked = group.constraint if name == "" else subgroups[name].constraint if name in subgroups else None
        if asked is None or asked.required is None:
            continue
        known = levels.get(name or "")
        slots = [slot for subgroup, slot in siblings.placed if name in ("", subgroup)]
        node = known.tree.node_domain(slots[0]) if known is not None and slots else None
        if known is None or known.required is None or node is None:
            return None
        mask = np.zeros(tools.cluster.capacity, dtype=np.bool_)
        mask[known.tree.slots_in(known.tree.ancestor(node, known.required))] = True
        inside = mask if inside is None else inside & mask
    return inside
