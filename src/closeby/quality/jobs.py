"""All measures of where jobs are, job by job: of a whole run at once, or of a single gang."""

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats
from closeby.quality.collectives import all_reduce_seconds, job_slowdowns, slowdowns, tiers_climbed
from closeby.quality.contention import JobRanks, alone_seconds, contended_seconds
from closeby.quality.groups import Spreads, group_spreads, usual_layouts
from closeby.quality.model import Model
from closeby.quality.pairs import cross_pairs, diameters, mean_distances, pairs
from closeby.quality.placements import Placements
from closeby.quality.rings import least_ring_hops, ring_crossings, ring_hops, rings
from closeby.quality.spans import excess_spans, spans


class JobMeasures(Struct, frozen=True, kw_only=True, eq=False):
    """Measures of J jobs, K levels (coarse to fine, single nodes last). Jobs without pods have 0 or nan."""

    #: Distinct domains used, and over the fewest that could hold the job when empty; shapes (J, K).
    span: Counts
    excess_span: Floats
    #: Pairs of pods in different domains, shape (J, K), and all pairs, shape (J,).
    cross_pairs: Counts
    pairs: Counts
    #: Tree edges between two pods: mean (nan for fewer than two pods) and greatest; shape (J,).
    mean_distance: Floats
    diameter: Counts
    #: Ring edges that leave a domain, shape (J, K); tree edges that the ring runs over, and the fewest in
    #: another order of ranks, shape (J,).
    ring_crossings: Counts
    ring_hops: Counts
    least_ring_hops: Counts
    #: Domains that data- and pipeline-parallel groups touch.
    spreads: Spreads
    #: Modelled seconds of an all-reduce while all nodes send: here, and on an ideal placement; shape (J,).
    all_reduce: Floats
    ideal_all_reduce: Floats
    #: Here among the flows that were there.
    contended_all_reduce: Floats
    #: Here over ideal, for communication (both forms) and for the job as a whole; at least 1; shape (J,).
    slowdown: Floats
    contended_slowdown: Floats
    job_slowdown: Floats


class Shapes(Struct, frozen=True, kw_only=True, eq=False):
    """What J jobs are made of."""

    #: Ranks of a job, and the fewest GPUs that one of its pods has; a pod without GPUs counts as one of each.
    ranks: Counts
    links: Counts
    #: Fewest domains of each level that could hold the job on an empty cluster; shape (J, K).
    fewest: Floats
    #: When each job started and ended; shape (J, 2).
    during: Floats


def measure_jobs(found: Placements, shapes: Shapes, node_gpus: NDArray[Any], model: Model) -> JobMeasures:
    """Measure jobs where they are; ``node_gpus`` has shape (slots,)."""
    span, crossing, every = spans(found), cross_pairs(found), pairs(found)
    ring = rings(found)
    crossings = ring_crossings(found, ring)
    ranks_of_jobs = JobRanks(ranks=shapes.ranks, links=shapes.links, climbed=tiers_climbed(span))
    placed = span[:, -1] > 0
    # Nodes may hold more than they have, such as those that shrank: so few do it, then.
    fewest = np.where(placed[:, None], np.minimum(shapes.fewest, span), shapes.fewest)
    at_best = JobRanks(ranks=shapes.ranks, links=shapes.links, climbed=tiers_climbed(fewest))
    here = _seconds(model, ranks_of_jobs, found.levels, placed)
    ideal = _seconds(model, at_best, found.levels, placed & ~np.isnan(fewest).any(axis=1))
    contended = np.where(
        placed, contended_seconds(model, found, ring, ranks_of_jobs, node_gpus, shapes.during), np.nan
    )
    alone = np.where(np.isnan(ideal), np.nan, alone_seconds(model, at_best, found.levels))
    slowdown = slowdowns(here, ideal)
    return JobMeasures(
        span=span,
        excess_span=excess_spans(span, fewest),
        cross_pairs=crossing,
        pairs=every,
        mean_distance=mean_distances(crossing, every),
        diameter=diameters(span),
        ring_crossings=crossings,
        ring_hops=ring_hops(crossings),
        least_ring_hops=least_ring_hops(span),
        spreads=group_spreads(found, usual_layouts(found.pods, shapes.links)),
        all_reduce=here,
        ideal_all_reduce=ideal,
        contended_all_reduce=contended,
        slowdown=slowdown,
        contended_slowdown=slowdowns(contended, alone),
        job_slowdown=job_slowdowns(model, slowdown),
    )


def _seconds(model: Model, ranks_of_jobs: JobRanks, levels: int, known: NDArray[np.bool_]) -> Floats:
    return np.where(
        known,
        all_reduce_seconds(model, ranks_of_jobs.ranks, ranks_of_jobs.links, ranks_of_jobs.climbed, levels),
        np.nan,
    )
