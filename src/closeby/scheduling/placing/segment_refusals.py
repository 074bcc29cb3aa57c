"""Which segments and subgroups of a gang find a domain as things are, for people."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from closeby.objects.arrays import Bools
from closeby.objects.groups import Exclusive, PodGroup
from closeby.objects.words import all_pods, names_text, path_text, plural
from closeby.scheduling.gangs.parts import EVERYWHERE, Part
from closeby.scheduling.gangs.segments import Layering
from closeby.scheduling.judging.pod_classes import Share
from closeby.scheduling.placing.segment_bounds import SegmentCounts, least_kind, most_segments
from closeby.scheduling.placing.segment_room import PodCounts, SegmentRoom
from closeby.scheduling.placing.tools import Tools
from closeby.topology.tree import ROOT_LEVEL, Domain

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
    counts.look_closer()
    return _room(tools, group, layering, counts)


def _at_most(tools: Tools, part: Part, layering: Layering, demand: Sequence[Share]) -> SegmentCounts | None:
    """What fits of segments of unequal pods at the most, by sums; None: not known."""
    kind = least_kind(part, layering, demand) if part.core else None
    if kind is None:
        return None
    tree, level = layering.tree, layering.layers[-1].level
    return most_segments(tools.cluster, tools.table, kind, tree, level, EVERYWHERE)


def _room(tools: Tools, group: PodGroup, layering: Layering, counts: PodCounts) -> SegmentRoom | None:
    barred: list[Bools | None] = [None] * len(layering.layers)
    if tools.taken is not None:
        barred = tools.taken(group, layering)
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
        # What finer segments have in common may be less than what coarser ones have.
        for depth in range(len(layering.layers), 0, -1):
            layers = replace(layering, layers=layering.layers[:depth])
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
        counts.look_closer()
        found = most()
    return found < pods


def _most(room: SegmentRoom, part: Part, whole: Part, pods: int) -> int:
    """Of so many pods and more, how many fit in whole segments in one domain that the part may use."""
    levels = part.levels or whole.levels
    bound = ROOT_LEVEL if levels is None or levels.required is None else levels.required
    if levels is not None and levels.tree is not room.tree:
        bound = ROOT_LEVEL
    return int(room.room(bound, pods).max(initial=0))


def shortfall(tools: Tools, group: PodGroup, whole: Part) -> str:
    """Which segment of a gang that was refused found no domain, and how many did, as a sentence.

    Of several layers the finest one is named of which there is too little room. Empty: each finds one alone.
    """
    for part in whole.leaves():
        layering = part.layering
        if layering is None or not part.core:
            continue
        if part.anchors:
            if found := _beside_their_own(tools, part, layering):
                return found
            continue
        for depth in range(len(layering.layers) - 1, -1, -1):
            room = segment_room(tools, group, part, replace(layering, layers=layering.layers[depth:]))
            found = "" if room is None else _lacking(tools, room, part, whole)
            if found:
                return found
        found = _largest(tools, group, part, layering) or _bound(tools, part, whole)
        if found:
            return found
    return ""


def _beside_their_own(tools: Tools, part: Part, layering: Layering) -> str:
    """That members of a segment of which others run find no room in the domain of these."""
    if part.segments is None:
        return ""
    tree, slots = layering.tree, np.asarray(part.anchors, dtype=np.intp)
    runs, waits = layering.ids(part.segments.running), layering.ids(part.numbers[: len(part.core)])
    for layer, running, waiting in reversed(list(zip(layering.layers, runs, waits, strict=True))):
        owners, name = tree.owners_of_slots(slots, layer.level), tree.level_names[layer.level]
        for segment in np.intersect1d(running, waiting[waiting >= 0]).tolist() if layer.required else ():
            domain = Domain(layer.level, int(owners[running == segment][0]))
            if domain.index < 0:
                continue  # Their node is in no tree.
            members = [part.core[at] for at in np.flatnonzero(waiting == segment).tolist()]
            room = 0
            for share in tools.table.beside_each_other(members):
                tools.table.refresh(share.pod_class)
                fits = int(tools.table.counts(share.pod_class, tree).of(layer.level)[domain.index])
                room += min(fits, len(share.pods))
            if room < len(members):
                who = names_text([pod.name for pod in members])
                of = f" of subgroup {part.name!r}" if part.name else ""
                where = path_text(tree.path(domain))
                return (
                    f"others of segment {segment}{of} run in {where}, and {who} must be in that {name} too: "
                    f"it takes {room} of {plural(len(members), 'pod')} now"
                )
    return ""


def _largest(tools: Tools, group: PodGroup, part: Part, layering: Layering) -> str:
    """That no domain holds the first of the largest segments of equal pods, where their sizes differ."""
    demand, tree = tools.table.beside_each_other(part.core), layering.tree
    barred: Sequence[Bools | None] = [None] * len(layering.layers)
    if tools.taken is not None:
        barred = tools.taken(group, layering)
    for layer, closed in zip(layering.layers, barred, strict=True):
        sizes = layer.counts
        if not layer.required or sum(sizes) != len(part.core) or len(demand) != 1:
            continue
        room = tools.table.counts(demand[0].pod_class, tree).of(layer.level)
        most = int((room if closed is None else room[~closed]).max(initial=0))
        number = max(range(len(sizes)), key=sizes.__getitem__)
        if sizes[number] > most:
            before = sum(sizes[:number])
            names = names_text([pod.name for pod in part.core[before : before + sizes[number]]])
            name = tree.level_names[layer.level]
            return (
                f"segment {number} of {len(sizes)} ({names}) finds no {name} of topology {tree.name}: the "
                f"roomiest {name} holds {most} of its {sizes[number]} pods{_occupied([closed])}"
            )
    return ""


def _bound(tools: Tools, part: Part, whole: Part) -> str:
    """That no domain of the level that all of them require holds a leaf of equal pods."""
    levels, demand = part.levels or whole.levels, tools.table.beside_each_other(part.core)
    if levels is None or levels.required is None or len(demand) != 1:
        return ""
    best = tools.diagnosis.roomiest(demand, levels.tree, levels.required)
    if best is None or best[1] >= len(part.core):
        return ""
    domain, fit, _, lack = best
    who = f" of subgroup {part.name!r}" if part.name else ""
    return (
        f"no {levels.tree.level_names[levels.required]} of topology {levels.tree.name} holds "
        f"{all_pods(len(part.core))}{who}: the roomiest, {path_text(levels.tree.path(domain))}, takes {fit}"
        + (f" ({lack})" if lack else "")
    )


def _lacking(tools: Tools, room: SegmentRoom, part: Part, whole: Part) -> str:
    """That segments of the first layer find no domain; empty where all do."""
    tree, levels, first = room.tree, part.levels or whole.levels, room.layers[0]
    bound = ROOT_LEVEL if levels is None or levels.required is None else levels.required
    bound = bound if levels is not None and levels.tree is tree and bound < first.level else ROOT_LEVEL
    most = int((room.room(bound, 0) // first.size).max(initial=0))
    number = -(-len(part.core) // first.size)
    if most >= number:
        return ""
    name = tree.level_names[first.level]
    if first.max_domains is not None:
        used = f"{plural(first.max_domains, name)} of topology {tree.name}"
        pods = plural(min(most * first.size, len(part.core)), "pod")
        segments = f" in whole segments of {first.size}" if first.size > 1 else ""
        return f"at most {used} may be used, which hold {pods} of {len(part.core)}{segments}"
    lost = part.core[most * first.size : (most + 1) * first.size]
    inside = "" if bound == ROOT_LEVEL else f" in one {tree.level_names[bound]}"
    who = f" of subgroup {part.name!r}" if part.name else ""
    where = f"{name} of topology {tree.name}{inside}"
    best = _roomiest(tools, room, part, len(lost)) + _occupied(room.barred)
    if number == 1:
        return f"the {len(lost)} pods{who} are one segment, and no {where} holds it: the roomiest {best}"
    alone = " for themselves" if first.exclusive is not Exclusive.NONE else ""
    return (
        f"{most} of {number} segments{who} of {plural(first.size, 'pod')} each find a {where}{alone}; "
        f"segment {most} ({names_text([pod.name for pod in lost])}) finds none: the roomiest {name} {best}"
    )


def _roomiest(tools: Tools, room: SegmentRoom, part: Part, pods: int) -> str:
    """``holds 2 segments``; of equal pods where it holds no segment ``holds 5 of its 6 pods``."""
    first = room.layers[0]
    segments = int(room.of(first.level).max(initial=0))
    fit = int(room.room(first.level, 0).max(initial=0))
    if segments or not 0 <= fit < pods or len(tools.table.beside_each_other(part.core)) > 1:
        return f"holds {plural(segments, 'segment')}"
    inner = f" in whole segments of {room.layers[1].size}" if len(room.layers) > 1 else ""
    return f"holds {fit} of its {pods} pods{inner}"


def subgroups_apart(tools: Tools, group: PodGroup, whole: Part) -> str:
    """The first subgroup of equal pods that finds no domain whatever the others do; empty: there is none."""
    any_of_them = any(one.min_subgroups is not None for one in group.subgroups)
    for part in () if any_of_them else whole.leaves():
        if part.levels is not None and part.core and not part.anchors:
            found = _bound(tools, part, part)
            if found:
                return found
    return ""


def _occupied(barred: Sequence[Bools | None]) -> str:
    counts = [int(mask.sum()) for mask in barred if mask is not None and mask.any()]
    if not counts:
        return ""
    return f", and {plural(counts[0], 'domain')} {'is' if counts[0] == 1 else 'are'} not free of others"
