"""Pairs of a job's pods: how many are in different domains, and how many edges are between them."""

import numpy as np

from closeby.objects.arrays import Counts, Floats
from closeby.quality.placements import Placements, by_level, per_job


def pairs(found: Placements) -> Counts:
    """Pairs of pods of each job, n(n - 1)/2; shape (J,)."""
    pods = found.pods
    return pods * (pods - 1) // 2


def cross_pairs(found: Placements) -> Counts:
    """Pairs of pods that are in different domains of a level, for each job and level; shape (J, K)."""
    every = pairs(found)
    columns = []
    for level in range(found.levels):
        runs = found.runs(level)
        together = np.diff(np.append(runs, len(found.ascending))).astype(np.float64)
        same = per_job(found, found.job[runs], together * (together - 1) / 2)
        columns.append(every - np.rint(same).astype(np.int64))
    return by_level(columns)


def mean_distances(crossing: Counts, every: Counts) -> Floats:
    """Mean number of tree edges between two pods of a job, from its crossing pairs; shape (J,).

    Two nodes are two edges apart for each level on which they are in different domains. nan for a job of
    fewer than two pods.
    """
    known = np.where(every > 0, every, np.nan)
    found: Floats = 2.0 * crossing.sum(axis=1) / known
    return found


def diameters(span: Counts) -> Counts:
    """The greatest number of tree edges between two pods of a job, from its spans; shape (J,).

    Two edges for each level on which the job uses several domains.
    """
    found: Counts = 2 * np.count_nonzero(span > 1, axis=1)
    return found
