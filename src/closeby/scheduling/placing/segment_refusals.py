"""How many segments of a gang find room as things are, and whether that is certainly too little."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.groups import PodGroup
from closeby.objects.words import plural
from closeby.scheduling.gangs.parts import EVERYWHERE, Part
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.domain_fits import SegmentCounts, least_kind
from closeby.scheduling.placing.segment_room import PodCounts, SegmentRoom
from closeby.scheduling.placing.tools import Tools
from closeby.topology.tree import ROOT_LEVEL

#: With so many times the room by sums, mixtures of pods hardly show that there is too little.
AMPLE: Final = 4


def segment_room(
    tools: Tools, group: PodGroup, part: Part, layering: Layering | None = None
) -> SegmentRoom | None:
    """The room for whole segments of a leaf as things are; of unequal pods at the most. None: not known.

    ``layering``: other layers than those of the part.
    """
    layering = part.layering if layering is None else layering
    demand = tools.table.beside_each_other(part.core or part.extra)
    if layering is None or not demand or any(layer.counts for layer in layering.layers):
        return None
    if len(demand) == 1:
        tools.table.refresh(demand[0].pod_class)
        return _room(tools, group, layering, tools.table.counts(demand[0].pod_class, layering.tree))
    counts = _at_most(tools, part, layering, demand)
    if counts is None:
        return None
    counts.settle()
    return _room(tools, group, layering, counts)


def _at_most(tools: Tools, part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentCounts | None:
    """What fits of segments of unequal pods at the most, by sums; None: not known."""
    kind = least_kind(part, layering, demand) if part.core else None
    if kind is None:
        return None
    tree, level = layering.tree, layering.layers[-1].level
    return SegmentCounts(tools, kind, tree, level, EVERYWHERE)


def _room(tools: Tools, group: PodGroup, layering: Layering, counts: PodCounts) -> SegmentRoom | None:
    barred: list[Bools | None] = [None] * len(layering.layers)
    if tools.exclusives is not None:
        barred = tools.exclusives.taken(group, layering)
    room = SegmentRoom(layering, counts, barred, strict=False)
    return room if room.layers else None


def segments_text(room: SegmentRoom, level: int, domain: int, pods: int) -> tuple[int, str]:
    """Pods in whole segments that fit in a domain, and what that means for so many pods, for people."""
    first = next((layer for layer in room.layers if layer.level >= level), None)
    if first is None:
        return pods, ""
    alone = first.level == level
    fits = int(room.of(level)[domain]) if alone else int(room.room(level, 0)[domain]) // first.size
    wanted = -(-pods // first.size)
    if fits >= wanted:
        return pods, ""
    each = "" if alone else f", a {room.tree.level_names[first.level]} each"
    return fits * first.size, f"{fits} of {plural(wanted, 'segment')} of {plural(first.size, 'pod')}{each}"


def certainly_short(tools: Tools, group: PodGroup, whole: Part) -> bool:
    """Whether a leaf of unequal pods certainly has no room for its segments, however they are placed."""
    for part in whole.leaves():
        layering, demand = part.layering, tools.table.beside_each_other(part.core)
        if layering is None or part.anchors or len(demand) < 2:
            continue
        required = tuple([layer for layer in layering.layers if layer.required])
        # What finer segments have in common may be less than what coarser ones have.
        for depth in range(len(required), 0, -1):
            layers = replace(layering, layers=required[:depth])
            counts = _at_most(tools, part, layers, demand)
            if counts is not None and _too_few(tools, group, part, whole, layers, counts):
                return True
    return False


def _too_few(
    tools: Tools, group: PodGroup, part: Part, whole: Part, layers: Layering, counts: SegmentCounts
) -> bool:
    """Whether there is too little room for a part: by sums, and if these leave not much, by mixtures."""
    size = layers.layers[-1].size
    pods = len(part.core) // size * size

    def most() -> int:
        room = _room(tools, group, layers, counts)
        return pods * AMPLE if room is None else _most(room, part, whole, pods)

    found = most()
    if pods <= found < pods * AMPLE:
        counts.settle()
        found = most()
    return found < pods


def _most(room: SegmentRoom, part: Part, whole: Part, pods: int) -> int:
    """Of so many pods and more, how many fit in whole segments in one domain that the part may use."""
    levels = part.levels or whole.levels
    bound = ROOT_LEVEL if levels is None or levels.required is None else levels.required
    if levels is not None and levels.tree is not room.tree:
        bound = ROOT_LEVEL
    return int(room.room(bound, pods).max(initial=0))
