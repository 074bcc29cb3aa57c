"""Queueing delay and excess span as cumulative distributions, of one run or of several taken together.

They tell of the jobs that the measures count.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.lab.pictures.steps import cdf
from closeby.lab.replay.history import History
from closeby.lab.replay.measuring import columns_of
from closeby.quality.delays import SIZE_BUCKETS, size_bucket, sizes
from closeby.quality.placements import level_names, placements
from closeby.quality.spans import excess_spans, fewest, spans
from closeby.quality.summary import waits_of

Floats = NDArray[np.float64]


#: What is shown of the traffic of an application: the first is a cost, the others are shares of its pairs.
TALK = ("cost of a pair", "pairs in one node", "pairs in one zone", "pairs in one region")


class Distribution(Struct, frozen=True, kw_only=True, eq=False):
    """A share of all weight at or below each of some ascending values; the last share is 1."""

    #: Bucket of sizes or level.
    group: str
    #: What the group counts, in words, such as ``1,203 jobs``.
    jobs: int
    values: Floats
    shares: Floats


def delay_distributions(histories: Sequence[History]) -> tuple[Distribution, ...]:
    """By bucket of sizes: the share of jobs that waited at most so many seconds.

    A job that never started counts with what it had waited when the run stopped. Empty buckets are left out.
    """
    runs = [columns_of(history) for history in histories]
    waited = np.concatenate([waits_of(run) for run in runs])
    size = np.concatenate([sizes(run.pods, run.gpus) for run in runs])
    buckets = np.asarray([size_bucket(one) for one in size.tolist()], dtype=np.str_)
    chosen = [(name, waited[buckets == name]) for name, _ in SIZE_BUCKETS]
    return tuple(_distribution(name, values, np.ones(len(values))) for name, values in chosen if len(values))


def span_distributions(histories: Sequence[History]) -> tuple[Distribution, ...]:
    """By level above nodes: the share of GPU-time of jobs larger than a node that ran so spread at most.

    Values are excess spans: domains used over the fewest that could hold the job on an empty cluster.
    """
    parts = [_excess(history) for history in histories]
    names = level_names(histories[0].tree)[:-1]
    found = []
    for level, name in enumerate(names):
        values = np.concatenate([excess[:, level] for excess, _ in parts])
        weights = np.concatenate([weight for _, weight in parts])
        if (~np.isnan(values) & (weights > 0)).any():
            found.append(_distribution(name, values, weights))
    return tuple(found)


def talk_distributions(histories: Sequence[History]) -> tuple[Distribution, ...]:
    """The network costs of applications, and where their pairs of dependent pods are, each named in ``TALK``.

    An application counts by the time that it ran with all its pods.
    """
    told: list[tuple[float | None, ...]] = []
    ran: list[float] = []
    for history in histories:
        ended = np.where(np.isnan(history.ended), history.until, history.ended)
        for job, one in history.talk.items():
            cost = None if one.cost is None or not one.pairs else one.cost / one.pairs
            told.append((cost, one.same_node, one.same_zone, one.same_region))
            ran.append(float(ended[job] - history.started[job]))
    values = np.asarray(told, dtype=np.float64).reshape(-1, len(TALK))
    weights = np.asarray(ran)
    counted = ~np.isnan(values) & (weights > 0)[:, None]
    return tuple(
        _distribution(name, values[:, column], weights)
        for column, name in enumerate(TALK)
        if counted[:, column].any()
    )


def _distribution(group: str, values: Floats, weights: Floats) -> Distribution:
    ascending, shares = cdf(values, weights)
    counted = int(np.count_nonzero(~np.isnan(values) & (weights > 0)))
    return Distribution(group=group, jobs=counted, values=ascending, shares=shares)


def _excess(history: History) -> tuple[Floats, Floats]:
    """Excess spans, shape (J, K), and the GPU-time by which each job counts; 0 for jobs that a node holds."""
    run = columns_of(history)
    found = placements(run.tree, run.offsets, run.slots)
    least = fewest(run.tree, run.node_gpus, run.pods, run.gpus)
    ended = np.where(np.isnan(run.ended), run.until, run.ended)
    ran = np.where(np.isnan(run.started), 0.0, ended - run.started)
    weights = np.where(least[:, -1] > 1, ran * sizes(run.pods, run.gpus), 0.0)
    return excess_spans(spans(found), least), weights
