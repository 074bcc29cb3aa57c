"""Why a gang is refused for which the search found no place: the reason, a sentence, and what is lacking."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Ints
from closeby.objects.bounds import some
from closeby.objects.reasons import Condition, Reason, ReasonToken
from closeby.objects.words import all_pods, names_text, path_text, plural
from closeby.scheduling.judging.diagnosis import NoNode
from closeby.scheduling.judging.lacking import ResourceLack, Unlabelled, lacks_text
from closeby.scheduling.judging.needs import Need
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.fill import Filler
from closeby.scheduling.placing.segment_refusals import shortfall, subgroups_apart
from closeby.scheduling.placing.statement import Statement
from closeby.scheduling.placing.tools import Tools, WaitingGang, gang_refusal
from closeby.topology.constraints import Levels


class SearchInVain(NamedTuple):
    """What the search for a gang's place found out."""

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


class GangRefusal(NamedTuple):
    """The refusal of a gang, and what it lacks."""

    condition: Condition
    lacks: tuple[ResourceLack, ...] = ()
    unlabelled: Unlabelled | None = None


class Refusing:
    """Says why one gang is refused; nothing of it is placed."""

    def __init__(self, tools: Tools, gang: WaitingGang, statement: Statement, filler: Filler) -> None:
        self._tools = tools
        self._gang = gang
        self._group = gang.group
        self._statement = statement
        self._state = statement.state
        self._filler = filler

    def why(self, search: SearchInVain, need: Need | None) -> GangRefusal:
        """The first reason of several; ``need``: what every attempt at the gang needs, None: not known."""
        reserved = self._reserved(need)
        if reserved is not None:
            return reserved
        among = self._tools.table.asked_among(search.demand)
        constrained = f"; the pods constrain each other: {some(among)}" if among else ""
        if search.short is not None and not search.spent:
            return self._short_of_room(search.short, alone=len(search.demand) == 1, constrained=constrained)
        shared = self._shared_claim(search.demand)
        if shared is not None:
            return shared
        volumes = self._lacks_volumes(search.demand)
        if search.spent:
            return self._spent(volumes)
        binds = any(one.binds for one in self._gang.constraints.layerings.values())
        # Of equal pods that don't constrain each other it is known that there is room for them.
        certain = len(search.demand) == 1 and not among and not search.most
        required = binds or self._gang.constraints.required
        room = required and (certain or search.fits_anywhere())
        if room is False:
            return self._beside_each_other(search, volumes, constrained)
        but = "there is room in the cluster, but " if room else ""
        if binds:
            return self._segments_apart(constrained, but)
        if search.most:
            text = f"{search.most} of at least {self._group.min_member} members find a place"
            return self._refused(Reason.TOPOLOGY_PLACEMENT_FAILED, f"{text} where they require one")
        levels = self._gang.constraints.levels.get("")
        if levels is None or levels.required is None or self._group.subgroups:
            text = subgroups_apart(self._tools, self._group, self._gang.parts(everyone=False))
            text = text or f"{but}no choice of domains holds all subgroups as they require"
            return self._refused(Reason.TOPOLOGY_PLACEMENT_FAILED, text)
        return self._no_domain(search.demand, levels, levels.required, constrained)

    def _beside_each_other(
        self, search: SearchInVain, volumes: NoNode | None, constrained: str
    ) -> GangRefusal:
        """Where there is too little room in the whole cluster, whatever the topology."""
        if search.most:
            text = f"{search.most} of at least {self._group.min_member} members find a place"
            return self._refused(Reason.GANG_DOES_NOT_FIT, text)
        lacks = self._tools.diagnosis.lacks(search.demand)
        text = "the pods fit one by one, but not all beside each other"
        found = volumes.message if volumes is not None else lacks_text(lacks)
        text += f": {found}" if found else ""
        return self._refused(Reason.GANG_DOES_NOT_FIT, text + constrained, lacks=lacks)

    def _segments_apart(self, constrained: str, but: str) -> GangRefusal:
        """Where segments find no domains."""
        text = shortfall(self._tools, self._group, self._gang.parts(everyone=False))
        text = text or f"{but}no choice of domains holds all segments as their layers require"
        return self._refused(Reason.TOPOLOGY_PLACEMENT_FAILED, text + constrained)

    def _reserved(self, need: Need | None) -> GangRefusal | None:
        """Where the gang lacks nothing but nodes that are reserved for another one, or in domains that others
        have for themselves.
        """
        reserved, rooms = self._tools.reserved, self._tools.rooms
        if need is None or not rooms.lack(need, keep_off=reserved.applies):
            return None
        theirs = self._room_of_others(need)
        if len(theirs):
            text = f"it lacks the room on {plural(len(theirs), 'node')} in domains that others have for "
            text += f"themselves: {reserved.whose(int(theirs[0]), self._group.namespace)}"
            return self._refused(Reason.DOMAIN_EXCLUSIVE, text)
        if not reserved.applies or rooms.lack(need):
            return None
        nodes = plural(0 if reserved.mask is None else int(reserved.mask.sum()), "node")
        text = f"it lacks the room on {nodes} {reserved.text(self._group.namespace)}"
        return self._refused(Reason.NODE_RESERVED, text)

    def _room_of_others(self, need: Need) -> Ints:
        """The nodes in domains of others that have the room it lacks; none if it lacked more than these."""
        reserved, rooms, table = self._tools.reserved, self._tools.rooms, self._tools.table
        owned, number = reserved.owned, reserved.owned_set
        slots = np.flatnonzero(() if owned is None else owned)
        lacking = [one for one in need.wants if rooms.lack(replace(need, wants=(one,)), reserved.applies)]
        reserved.owned, reserved.owned_set = None, 0
        try:
            if not len(slots) or rooms.lack(need, keep_off=reserved.applies):
                return slots[:0]
            takes = np.zeros(len(slots), dtype=np.bool_)
            for want in lacking:
                pod_class = table.of(want.pod)
                able = pod_class.fits[slots] > 0
                if need.tree is not None:
                    owners = need.tree.owners_of_slots(slots, need.level)
                    able &= table.counts(pod_class, need.tree).of(need.level)[owners] >= want.count
                takes |= able
            return slots[takes]
        finally:
            reserved.owned, reserved.owned_set = owned, number

    def _short_of_room(self, short: Share, *, alone: bool, constrained: str) -> GangRefusal:
        """Where the pods of one class have not enough room; ``alone``: the gang has no others."""
        self._tools.table.refresh(short.pod_class)
        room, pods = short.pod_class.total, plural(len(short.pods), "pod")
        diagnosis, state, pod = self._tools.diagnosis, self._state, short.pods[0]
        lacks = diagnosis.lacks((short,))
        bare, label = (None, "") if lacks else diagnosis.label_lack(state, pod)
        asked = self._tools.explains(self._group.key) and not label
        nodes = diagnosis.kept_out(state, pod, examples=asked)
        pods += "" if alone else f" ({names_text([one.name for one in short.pods])})"
        text = f"{room} of {pods} {'fits' if len(short.pods) == 1 else 'fit'} in the whole cluster"
        if not self._tools.cluster.node_count:
            text = "the cluster has no nodes"
        else:
            text += f": {lacks_text(lacks)}" if lacks else ""
            text += f" ({nodes})" if nodes else ""
        text += f": {label}" if label else ""
        remedy = "" if bare is None else bare.remedy
        return self._refused(Reason.GANG_DOES_NOT_FIT, text + constrained, remedy, lacks, bare)

    def _shared_claim(self, demand: Sequence[Share]) -> GangRefusal | None:
        """Where members can never run together, as they name one claim for one pod at a time."""
        found = self._tools.cluster.volumes.wanted_by_several(pod for share in demand for pod in share.pods)
        if found is None:
            return None
        claim, names = found
        why = f"claim {claim} is for one pod at a time (ReadWriteOncePod)"
        text = f"{names_text(names)} would have to share it: {why}"
        remedy = "give each member a claim of its own, or one with another access mode"
        return self._refused(Reason.VOLUME_IN_USE, text, remedy)

    def _lacks_volumes(self, demand: Sequence[Share]) -> NoNode | None:
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
                    beside = f"{pod.name} finds no node beside {plural(number, 'other member')}"
                    self._statement.rollback(mark)
                    return None if lack is None else NoNode(lack.reason, f"{beside}: {lack.message}")
                self._statement.assume_one(pod, slot)
                number += 1
        self._statement.rollback(mark)
        return None

    def _spent(self, volumes: NoNode | None) -> GangRefusal:
        if volumes is not None and volumes.reason:
            return self._refused(volumes.reason, volumes.message)
        text = "no place was found before the search budget was spent; there may be one"
        text += "" if volumes is None else f"; {volumes.message}"
        remedy = "ask for fewer subgroups, equal pods or a coarser level"
        return self._refused(Reason.SEARCH_BUDGET_EXHAUSTED, text, remedy)

    def _no_domain(
        self, demand: Sequence[Share], levels: Levels, required: int, constrained: str
    ) -> GangRefusal:
        """Where no domain of the level that the gang requires holds all its pods."""
        tree = levels.tree
        wanted = sum(len(share.pods) for share in demand)
        text = f"no {tree.level_names[required]} of topology {tree.name} holds {all_pods(wanted)}"
        best = self._tools.diagnosis.roomiest(demand, tree, required)
        bare = self._tools.diagnosis.without_level(demand, tree, required)
        lacks: tuple[ResourceLack, ...] = ()
        if self._state.anchors:
            text += " beside the members that already run"
        elif best is not None:
            domain, room, lacks, lack = best
            text += f": the roomiest, {path_text(tree.path(domain))}, {_takes(room, wanted)}"
            text += f" ({lack})" if lack else ""
        if bare is not None:
            text += f"{': ' if best is None else '; '}{bare.text}"
        remedy = "" if bare is None else bare.remedy
        return self._refused(Reason.TOPOLOGY_PLACEMENT_FAILED, text + constrained, remedy, lacks, bare)

    def _refused(
        self,
        reason: ReasonToken,
        message: str,
        remedy: str = "",
        lacks: tuple[ResourceLack, ...] = (),
        unlabelled: Unlabelled | None = None,
    ) -> GangRefusal:
        condition = gang_refusal(self._group.key, reason, message, remedy)
        return GangRefusal(condition, lacks, unlabelled)


def _takes(room: int, wanted: int) -> str:
    """How many of its unequal pods a domain takes, where those of each kind are counted alone."""
    return f"takes {room}" if room < wanted else "takes each kind of them alone, not all together"
