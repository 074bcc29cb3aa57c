"""Segments: over how many domains the pods are that are to be in one."""

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Ints
from closeby.quality.moments import RunColumns
from closeby.quality.placements import level_names
from closeby.topology.tree import Tree


class SegmentSpan(Struct, frozen=True, kw_only=True, eq=False):
    """The segments of one layer of some jobs; S segments."""

    #: The job of each, and the domains of the layer's level that it uses; shape (S,).
    job: Ints
    span: Ints


class SegmentMeasures(Struct, frozen=True, kw_only=True, rename="camel"):
    """One layer of the jobs of several pods that started. None where none did."""

    #: Short name of its level, and pods of each segment.
    level: str
    size: int
    #: Segments of all these jobs.
    segments: int
    #: Domains of the level that a segment uses, mean (1 is what a layer asks for) and greatest.
    span: float | None
    greatest_span: int | None
    #: Share of the segments that are in several domains.
    split: float | None
    #: Domains of the level that a job uses over its segments, mean: below 1 where segments share domains.
    domains_per_segment: float | None
    #: Domains of the next coarser level that a job with several segments uses, mean: how far its segments are
    #: from each other. None without such jobs, and at the coarsest level.
    outer_span: float | None


def segment_measures(run: RunColumns) -> tuple[SegmentMeasures, ...]:
    """How whole the segments of a run are, layer by layer; runs that were cut short count too."""
    names = level_names(run.tree)
    job = np.repeat(np.arange(len(run.pods)), np.diff(run.offsets))
    rank = np.arange(len(job)) - run.offsets[:-1][job]
    several = run.pods[job] > 1
    job, rank, slots = job[several], rank[several], run.slots[several]
    found = []
    for level, size in run.segments:
        spans = segment_spans(run.tree, level, job, rank // size, slots)
        domains = len(np.unique(np.stack([job, run.tree.owners_of_slots(slots, level)]), axis=1).T)
        count = len(spans.span)
        apart = run.pods[job] > size
        found.append(
            SegmentMeasures(
                level=names[level],
                size=size,
                segments=count,
                span=float(spans.span.mean()) if count else None,
                greatest_span=int(spans.span.max()) if count else None,
                split=float((spans.span > 1).mean()) if count else None,
                domains_per_segment=domains / count if count else None,
                outer_span=_outer_span(run.tree, level, job[apart], slots[apart]),
            )
        )
    return tuple(found)


def _outer_span(tree: Tree, level: int, job: NDArray[Any], slots: NDArray[Any]) -> float | None:
    """Domains of the level above that each job uses, mean; arrays by pod."""
    if not level or not len(job):
        return None
    whole = segment_spans(tree, level - 1, job, np.zeros(len(job), dtype=np.intp), slots)
    return float(whole.span.mean())


def segment_spans(
    tree: Tree, level: int, job: NDArray[Any], segment: NDArray[Any], slots: NDArray[Any]
) -> SegmentSpan:
    """Domains of a level that each segment of each job uses; all arrays by pod."""
    rows = np.unique(np.stack([job, segment, tree.owners_of_slots(slots, level)]), axis=1)
    segments, counts = np.unique(rows[:2], axis=1, return_counts=True)
    return SegmentSpan(job=segments[0].astype(np.intp), span=counts.astype(np.intp))
