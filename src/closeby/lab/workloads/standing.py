"""The jobs that run already when the clock begins: those of a steady state that hold just what the load says.

At any one moment of a steady state a job runs with a probability in proportion to its run time (Little's
law), and is caught at an even moment of its run (inspection paradox), so that sizes hold the cluster in the
shares of their GPU-time. How much is held in all would go up and down with the few largest jobs. Here the sum
is fixed to the load: size classes get whole numbers of jobs from the largest to the smallest, and what a
class holds above or below its share, as jobs are whole, is taken from the smaller ones or left to them. Each
class keeps its share on average over seeds, but for jobs that are larger than what is to be held.
"""

from typing import Final

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

#: Sums of cores are no whole numbers.
_ROUNDING: Final = 1e-9


def standing(amounts: Floats, durations: Floats, held: float, random: Generator) -> tuple[Indices, Floats]:
    """Which jobs of a pool stand (some more than once), in random order, and how long each still runs.

    Args:
        amounts: GPUs or cores of each job of the pool, above 0; shape (P,).
        durations: seconds that each runs; shape (P,).
        held: what they are to hold together. The sum falls short of it by less than the smallest job of the
            pool, and is never above it.
        random: draws them.
    """
    classes = np.ceil(np.log2(amounts)).astype(np.intp)
    work = amounts * durations
    left = held * (1 + _ROUNDING)
    chosen: list[int] = []
    for size in np.unique(classes)[::-1].tolist():
        here = np.flatnonzero(classes == size)
        # What is left is for this class and all smaller ones; a job counts by its run time.
        wanted = left * float(durations[here].sum() / work[classes <= size].sum())
        count = int(wanted + random.random())
        for job in _by_run_time(here, amounts, durations, count, random):
            if amounts[job] <= left:
                chosen.append(job)
                left -= amounts[job]
    while amounts.min() <= left:
        # Whole jobs leave a rest, which the largest that fit take.
        largest = np.flatnonzero(amounts == amounts[amounts <= left].max())
        (job,) = _by_run_time(largest, amounts, durations, 1, random)
        chosen.append(job)
        left -= amounts[job]
    order = np.array(chosen, dtype=np.intp)[random.permutation(len(chosen))]
    return order, np.maximum(durations[order] * random.random(len(order)), 1.0)


def _by_run_time(
    jobs: Indices, amounts: Floats, durations: Floats, count: int, random: Generator
) -> list[int]:
    """``count`` of the jobs, each as likely as it is long, evenly over sizes and run times; random order."""
    order = jobs[np.lexsort((durations[jobs], amounts[jobs]))]
    mass = np.cumsum(durations[order])
    at = (np.arange(count) + random.random()) / max(count, 1) * mass[-1]
    drawn = order[np.minimum(np.searchsorted(mass, at, side="right"), len(order) - 1)]
    found: list[int] = drawn[random.permutation(count)].tolist()
    return found
