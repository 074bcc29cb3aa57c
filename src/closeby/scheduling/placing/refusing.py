"""Why a gang is refused for which the search found no place: the reason, and what is lacking, as facts."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools, Ints
from closeby.objects.groups import Exclusive
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.gangs.parts import Part
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.holds import Hold, HoldKind
from closeby.scheduling.judging.needs import Need
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.fill import Filler
from closeby.scheduling.placing.segment_refusals import segment_room
from closeby.scheduling.placing.segment_room import SegmentRoom
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Tools, WaitingGang
from closeby.scheduling.reasons.facts import Shortfall, ShortOf
from closeby.topology.constraints import Levels
from closeby.topology.tree import ROOT_LEVEL, Domain

_NO_SLOTS: Final[Ints] = np.zeros(0, dtype=np.intp)


class Infeasible(NamedTuple):
    """What the search for a gang's place found out that found none."""

    #: The pods that need a place at the least.
    demand: Sequence[Share]
    #: Pods of a class that has not enough room in the whole cluster, whatever the topology.
    short: Share | None
    #: Members that found a place where the subgroups found theirs but the gang as a whole fell short.
    most: int
    #: Whether the search ended for its budget, so that there may be a place.
    spent: bool
    #: Whether the pods fit beside each other without any topology, None: not known; takes a search.
    fits_anywhere: Callable[[], bool | None]


class Refusing:
    """Says why one gang is refused; nothing of it is placed."""

    def __init__(self, tools: Tools, gang: WaitingGang, statement: Statement, filler: Filler) -> None:
        self._tools = tools
        self._gang = gang
        self._group = gang.group
        self._statement = statement
        self._state = statement.state
        self._filler = filler

    def why(self, search: Infeasible, need: Need | None) -> Shortfall:
        """The first reason of several; ``need``: what every attempt at the gang needs, None: not known."""
        reserved = self._reserved(need)
        if reserved is not None:
            return reserved
        among = tuple(self._tools.table.asked_among(search.demand))
        if search.short is not None and not search.spent:
            return self._short_of_room(search.short, alone=len(search.demand) == 1, among=among)
        shared = self._tools.cluster.volumes.wanted_by_several(
            pod for share in search.demand for pod in share.pods
        )
        if shared is not None:
            claim, names = shared
            return Shortfall(what=ShortOf.CLAIM, reason=Reason.VOLUME_IN_USE, claim=claim, pods=tuple(names))
        volumes = self._lacks_volumes(search.demand)
        if search.spent:
            if volumes is not None and volumes.reason:
                return volumes
            return Shortfall(what=ShortOf.SEARCH, reason=Reason.SEARCH_BUDGET_EXHAUSTED, there=volumes)
        binds = any(one.binds for one in self._gang.constraints.layerings.values())
        # Of equal pods that don't constrain each other it is known that there is room for them.
        certain = len(search.demand) == 1 and not among and not search.most
        room = (binds or self._gang.constraints.required) and (certain or search.fits_anywhere())
        nowhere = Reason.GANG_DOES_NOT_FIT if room is False else Reason.TOPOLOGY_PLACEMENT_FAILED
        if search.most and (room is False or not binds):
            minimum = self._group.min_member
            return Shortfall(what=ShortOf.MEMBERS, reason=nowhere, fits=search.most, wanted=minimum)
        if room is False:  # Whatever the topology.
            lacks = self._tools.diagnosis.lacks(search.demand)
            return Shortfall(what=ShortOf.TOGETHER, reason=nowhere, lacks=lacks, there=volumes, among=among)
        whole = self._gang.parts(everyone=False)
        if binds:
            other = Shortfall(what=ShortOf.SEGMENTS, reason=nowhere, room=bool(room))
            return replace(self._segments_apart(whole) or other, among=among)
        levels = self._gang.constraints.levels.get("")
        if levels is None or levels.required is None or self._group.subgroups:
            other = Shortfall(what=ShortOf.SUBGROUPS, reason=nowhere, room=bool(room))
            return self._subgroups_apart(whole) or other
        return self._no_domain(search.demand, levels, levels.required, among)

    def _reserved(self, need: Need | None) -> Shortfall | None:
        """Where the gang lacks nothing but nodes that are reserved for another one, or in domains that others
        have for themselves.
        """
        holds, rooms = self._tools.holds, self._tools.rooms
        domains, reserved = holds.of(HoldKind.DOMAIN), holds.of(HoldKind.RESERVATION)
        if need is None or not rooms.lack(need):
            return None
        theirs = _NO_SLOTS if domains is None else self._room_in(domains, need)
        if domains is not None and len(theirs):
            hold, slots, reason = domains, theirs, Reason.DOMAIN_EXCLUSIVE
        elif reserved is None or rooms.lack(need, holds.but(HoldKind.RESERVATION)):
            return None
        else:
            hold, slots, reason = reserved, np.flatnonzero(reserved.mask), Reason.NODE_RESERVED
        whose = hold.says(int(slots[0]), self._group.namespace)
        return Shortfall(what=ShortOf.HELD, reason=reason, nodes=len(slots), holders=whose)

    def _room_in(self, domains: Hold, need: Need) -> Ints:
        """The nodes in domains of others that have the room it lacks; none if it lacked more than these."""
        holds, rooms, table = self._tools.holds, self._tools.rooms, self._tools.table
        slots = np.flatnonzero(domains.mask)
        lacking = [one for one in need.wants if rooms.lack(replace(need, wants=(one,)))]
        with holds.instead(holds.but(HoldKind.DOMAIN)):
            if not len(slots) or rooms.lack(need):
                return _NO_SLOTS
            takes = np.zeros(len(slots), dtype=np.bool_)
            for want in lacking:
                pod_class = table.of(want.pod)
                able = pod_class.fits[slots] > 0
                if need.tree is not None:
                    owners = need.tree.owners_of_slots(slots, need.level)
                    able &= table.counts(pod_class, need.tree).of(need.level)[owners] >= want.count
                takes |= able
            return slots[takes]

    def _short_of_room(self, short: Share, *, alone: bool, among: tuple[str, ...]) -> Shortfall:
        """Where the pods of one class have not enough room; ``alone``: the gang has no others."""
        self._tools.table.refresh(short.pod_class)
        diagnosis, state, pod = self._tools.diagnosis, self._state, short.pods[0]
        lacks = diagnosis.lacks((short,))
        bare, unknown = (None, None) if lacks else diagnosis.label_lack(state, pod)
        asked = self._tools.explains(self._group.key) and bare is None and unknown is None
        blocked_by, examples = diagnosis.kept_out(state, pod, examples=asked)
        return Shortfall(
            what=ShortOf.CLUSTER,
            reason=Reason.GANG_DOES_NOT_FIT,
            lacks=lacks,
            unlabelled=bare,
            unknown=unknown,
            blocked_by=blocked_by,
            examples=examples,
            pods=() if alone else tuple(one.name for one in short.pods),
            fits=short.pod_class.total,
            wanted=len(short.pods) if self._tools.cluster.node_count else 0,
            among=among,
        )

    def _lacks_volumes(self, demand: Sequence[Share]) -> Shortfall | None:
        """Why the first member that finds no node beside the others finds none, if its volumes are a reason.

        The members are placed one by one for that, those with the least room first, and taken back.
        """
        if not any(pod.spec.claims for share in demand for pod in share.pods[:1]):
            return None
        number = 0
        mark = self._statement.checkpoint()
        for share in sorted(demand, key=lambda share: share.pod_class.total / len(share.pods)):
            for pod in share.pods:
                slot = self._filler.best_node(pod, None)
                if slot is None:
                    lack = self._tools.diagnosis.lacks_volumes(self._state, pod)
                    self._statement.rollback(mark)
                    return None if lack is None else replace(lack, pods=(pod.name,), fits=number)
                self._statement.assume_one(pod, slot)
                number += 1
        self._statement.rollback(mark)
        return None

    def _no_domain(
        self, demand: Sequence[Share], levels: Levels, required: int, among: tuple[str, ...]
    ) -> Shortfall:
        """Where no domain of the level that the gang requires holds all its pods."""
        tree = levels.tree
        best = self._tools.diagnosis.roomiest(demand, tree, required)
        domain, room, lack = (None, None, None) if best is None else best
        running = bool(self._state.anchors)
        return Shortfall(
            what=ShortOf.DOMAIN,
            reason=Reason.TOPOLOGY_PLACEMENT_FAILED,
            lacks=() if running or lack is None else lack.lacks,
            unlabelled=self._tools.diagnosis.without_level(demand, tree, required),
            wanted=sum(len(share.pods) for share in demand),
            among=among,
            topology=tree.name,
            level=tree.level_names[required],
            domain=None if domain is None else tree.path(domain),
            holds=room,
            running=running,
            there=lack,
        )

    # Segments and subgroups

    def _segments_apart(self, whole: Part) -> Shortfall | None:
        """Which segment found no domain, and how many did; None: each finds one alone.

        Of several layers the finest one is named of which there is too little room.
        """
        for part in whole.leaves():
            layering = part.layering
            if layering is None or not part.core:
                continue
            if part.anchors:
                found = self._beside_their_own(part, layering)
                if found is not None:
                    return found
                continue
            for depth in range(len(layering.layers) - 1, -1, -1):
                below = replace(layering, layers=layering.layers[depth:])
                room = segment_room(self._tools, self._group, part, below)
                found = None if room is None else self._lacking(room, part, whole)
                if found is not None:
                    return found
            found = self._largest(part, layering) or self._bound(part, whole)
            if found is not None:
                return found
        return None

    def _subgroups_apart(self, whole: Part) -> Shortfall | None:
        """The first subgroup of equal pods that finds no domain whatever the others do; None without one."""
        any_of_them = any(one.min_subgroups is not None for one in self._group.subgroups)
        parts = () if any_of_them else whole.leaves()
        alone = (one for one in parts if one.levels is not None and one.core and not one.anchors)
        return next(filter(None, (self._bound(one, one) for one in alone)), None)

    def _beside_their_own(self, part: Part, layering: Layering) -> Shortfall | None:
        """That members of a segment of which others run find no room in the domain of these."""
        if part.segments is None:
            return None
        table, tree, slots = self._tools.table, layering.tree, np.asarray(part.anchors, dtype=np.intp)
        runs, waits = layering.ids(part.segments.running), layering.ids(part.numbers[: len(part.core)])
        for layer, running, waiting in reversed(list(zip(layering.layers, runs, waits, strict=True))):
            owners = tree.owners_of_slots(slots, layer.level)
            for segment in np.intersect1d(running, waiting[waiting >= 0]).tolist() if layer.required else ():
                domain = Domain(layer.level, int(owners[running == segment][0]))
                if domain.index < 0:
                    continue  # Their node is in no tree.
                members = [part.core[at] for at in np.flatnonzero(waiting == segment).tolist()]
                room = 0
                for share in table.beside_each_other(members):
                    table.refresh(share.pod_class)
                    fits = int(table.counts(share.pod_class, tree).of(layer.level)[domain.index])
                    room += min(fits, len(share.pods))
                if room < len(members):
                    found = self._apart(ShortOf.RUNNING, part, layering, layer.level, members)
                    return replace(found, segment=segment, domain=tree.path(domain), fits=room)
        return None

    def _apart(
        self, what: ShortOf, part: Part, layering: Layering, level: int, pods: Sequence[Pod]
    ) -> Shortfall:
        """What all have in common that is said of segments."""
        return Shortfall(
            what=what,
            reason=Reason.TOPOLOGY_PLACEMENT_FAILED,
            part=part.name,
            topology=layering.tree.name,
            level=layering.tree.level_names[level],
            pods=tuple(pod.name for pod in pods),
        )

    def _largest(self, part: Part, layering: Layering) -> Shortfall | None:
        """That no domain holds the first of the largest segments of equal pods, where their sizes differ."""
        tools, tree = self._tools, layering.tree
        demand = tools.table.beside_each_other(part.core)
        barred: Sequence[Bools | None] = [None] * len(layering.layers)
        if tools.exclusives is not None:
            barred = tools.exclusives.taken(self._group, layering)
        for layer, closed in zip(layering.layers, barred, strict=True):
            sizes = layer.counts
            if not layer.required or sum(sizes) != len(part.core) or len(demand) != 1:
                continue
            room = tools.table.counts(demand[0].pod_class, tree).of(layer.level)
            most = int((room if closed is None else room[~closed]).max(initial=0))
            number = max(range(len(sizes)), key=sizes.__getitem__)
            if sizes[number] > most:
                pods = part.core[sum(sizes[:number]) : sum(sizes[: number + 1])]
                found = self._apart(ShortOf.LARGEST, part, layering, layer.level, pods)
                occupied = _occupied([closed])
                return replace(found, segment=number, wanted=len(sizes), holds=most, occupied=occupied)
        return None

    def _bound(self, part: Part, whole: Part) -> Shortfall | None:
        """That no domain of the level that all of them require holds a leaf of equal pods."""
        levels, demand = part.levels or whole.levels, self._tools.table.beside_each_other(part.core)
        if levels is None or levels.required is None or len(demand) != 1:
            return None
        best = self._tools.diagnosis.roomiest(demand, levels.tree, levels.required)
        if best is None or best[1] >= len(part.core):
            return None
        domain, fits, lack = best
        return Shortfall(
            what=ShortOf.DOMAIN,
            reason=Reason.TOPOLOGY_PLACEMENT_FAILED,
            part=part.name,
            wanted=len(part.core),
            topology=levels.tree.name,
            level=levels.tree.level_names[levels.required],
            domain=levels.tree.path(domain),
            holds=fits,
            there=lack,
        )

    def _lacking(self, room: SegmentRoom, part: Part, whole: Part) -> Shortfall | None:
        """That segments of the first layer find no domain; None where all do."""
        tree, levels, first = room.tree, part.levels or whole.levels, room.layers[0]
        bound = ROOT_LEVEL if levels is None or levels.required is None else levels.required
        bound = bound if levels is not None and levels.tree is tree and bound < first.level else ROOT_LEVEL
        most = int((room.room(bound, 0) // first.size).max(initial=0))
        number = -(-len(part.core) // first.size)
        if most >= number or part.layering is None:
            return None
        if first.max_domains is not None:
            found = self._apart(ShortOf.LIMIT, part, part.layering, first.level, ())
            fits = min(most * first.size, len(part.core))
            limit, wanted = first.max_domains, len(part.core)
            return replace(found, limit=limit, fits=fits, wanted=wanted, size=first.size)
        lost = part.core[most * first.size : (most + 1) * first.size]
        found = self._apart(ShortOf.SEGMENT, part, part.layering, first.level, lost)
        equal = len(self._tools.table.beside_each_other(part.core)) == 1
        fits = int(room.room(first.level, 0).max(initial=0))
        return replace(
            found,
            fits=most,
            wanted=number,
            inside="" if bound == ROOT_LEVEL else tree.level_names[bound],
            segment=most,
            size=first.size,
            inner=room.layers[1].size if len(room.layers) > 1 else 0,
            holds=fits if equal and fits >= 0 else None,
            segments=int(room.of(first.level).max(initial=0)),
            alone=first.exclusive is not Exclusive.NONE,
            occupied=_occupied(room.barred),
        )


def _occupied(barred: Sequence[Bools | None]) -> int:
    """Domains of the coarsest layer of which some are not free of others."""
    return next((int(mask.sum()) for mask in barred if mask is not None and mask.any()), 0)
