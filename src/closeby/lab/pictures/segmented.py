"""Which pod of a gang is in which segment, for pictures: of a run over time, and of a run over manifests."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from closeby.lab.replay.history import History
from closeby.objects.arrays import Ints
from closeby.objects.pods import Pod
from closeby.objects.words import plural
from closeby.quality.placements import level_names
from closeby.quality.segments import segment_spans
from closeby.report.documents.scheduling import segments_of
from closeby.scheduling.gangs.places import SegmentPlace
from closeby.simulator.runs import Run


class Segmented(Struct, frozen=True, kw_only=True, eq=False):
    """The segments of P pods of T tenants; layers with one segment, or with one pod in each, are left out."""

    #: The number of each pod's segment in the finest layer; -1: in none; shape (P,).
    numbers: Ints
    #: An index that is another for each segment of a tenant, as each subgroup counts from 0; shape (P,).
    indices: Ints
    #: ``block 0, rack 2`` for each pod; empty: in none.
    names: tuple[str, ...]
    #: ``4 segments by rack, 1 split`` for each tenant; empty: it has none.
    told: tuple[str, ...]


def segmented_history(history: History, jobs: Ints, slots: Ints) -> Segmented | None:
    """Those of some jobs of a run over time, with the ``slots`` of their pods in the order of ranks; None: no
    job goes in segments."""
    if not history.segments:
        return None
    pods = np.diff(history.offsets)[jobs]
    job = np.repeat(np.arange(len(jobs)), pods)
    rank = np.arange(len(job)) - (np.cumsum(pods) - pods)[job]
    numbers = np.full(len(job), -1, dtype=np.intp)
    names: list[list[str]] = [[] for _ in range(len(job))]
    told = [""] * len(jobs)
    for level, size in history.segments:
        several = np.flatnonzero((pods[job] > size) & (size > 1))
        name = level_names(history.tree)[level]
        numbers[several] = rank[several] // size
        for pod in several.tolist():
            names[pod].append(f"{name} {numbers[pod]}")
        found = segment_spans(history.tree, level, job[several], numbers[several], slots[several])
        for one in np.unique(found.job).tolist():
            mine = found.span[found.job == one]
            told[one] = _told(len(mine), name, int((mine > 1).sum()))
    return Segmented(
        numbers=numbers, indices=numbers, names=tuple(", ".join(one) for one in names), told=tuple(told)
    )


def segmented_run(run: Run, tenants: Sequence[tuple[str | None, Sequence[Pod]]]) -> Segmented | None:
    """Those of gangs by key, with their pods that hold a node; None: none of them has layers."""
    layered = {one.key: one for one in run.groups if one.layers or any(sub.layers for sub in one.subgroups)}
    if not layered:
        return None
    pods: list[_PodSegments] = []
    told: list[str] = []
    for key, members in tenants:
        group = layered.get(key or "")
        leaves = ("", *(one.name for one in group.subgroups)) if group is not None else ()
        found = [(leaf, _several(segments_of(run, group, leaf))) for leaf in leaves if group is not None]
        own = _of_members(found)
        pods += [own.get(pod.name, _NOWHERE) for pod in members]
        told.append("; ".join(_told_of(leaf, entries) for leaf, entries in found if entries))
    return Segmented(
        numbers=np.asarray([one.number for one in pods], dtype=np.intp),
        indices=np.asarray([one.index for one in pods], dtype=np.intp),
        names=tuple(one.name for one in pods),
        told=tuple(told),
    )


class _PodSegments(Struct, frozen=True):
    """The segments of one pod."""

    number: int
    index: int
    name: str


_NOWHERE = _PodSegments(-1, -1, "")


def _several(entries: Sequence[SegmentPlace]) -> list[SegmentPlace]:
    """Those of layers with several segments, of which one has several pods."""
    levels = {
        one.level
        for one in entries
        if len(one.pods) > 1 and sum(other.level == one.level for other in entries) > 1
    }
    return [one for one in entries if one.level in levels]


def _of_members(leaves: Sequence[tuple[str, Sequence[SegmentPlace]]]) -> dict[str, _PodSegments]:
    """By name of pod; layers come coarse to fine, so that the last counts."""
    found: dict[str, _PodSegments] = {}
    segments = [(leaf, one) for leaf, entries in leaves for one in entries]
    for index, (leaf, one) in enumerate(segments):
        for pod in one.pods:
            before = found[pod].name + ", " if pod in found else f"{leaf}: " if leaf else ""
            found[pod] = _PodSegments(one.segment, index, f"{before}{one.level} {one.segment}")
    return found


def _told_of(leaf: str, entries: Sequence[SegmentPlace]) -> str:
    finest = [one for one in entries if one.level == entries[-1].level]
    text = _told(len(finest), finest[0].level, sum(not one.together for one in finest))
    return f"{leaf}: {text}" if leaf else text


def _told(count: int, level: str, split: int) -> str:
    return f"{plural(count, 'segment')} by {level}" + (f", {split} split" if split else "")
