"""How much of a workload is larger than what a cluster can hold: smaller jobs are drawn in its place."""

from typing import Final

import numpy as np
from msgspec import Struct
from numpy.random import PCG64, Generator

from closeby.lab.workloads.generating import AS_PUBLISHED, WORKLOADS, WorkloadOptions

#: Seeds, and jobs of each, of which the shares are taken.
_SEEDS: Final = 10
_JOBS: Final = 4_000


class LeftOut(Struct, frozen=True, kw_only=True):
    """Shares of a workload as it was published, between 0 and 1."""

    jobs: float
    #: Of its GPU time, or core time.
    time: float


def left_out(name: str, options: WorkloadOptions) -> LeftOut:
    """What options leave out of a workload for its size, averaged over seeds.

    Raises:
        KeyError: there is no such workload.
    """
    workload = WORKLOADS[name]
    jobs, time, all_time = 0, 0.0, 0.0
    for seed in range(_SEEDS):
        drawn = workload.draw(_JOBS, AS_PUBLISHED, Generator(PCG64(seed)))
        if drawn.graphs:
            allowed = {graph: options.allows(graph) for graph in set(drawn.graphs)}
            beyond = np.array([not allowed[graph] for graph in drawn.graphs])
        else:
            beyond = drawn.sizes > (options.max_gpus or np.inf)
        work = drawn.amounts * drawn.durations
        jobs += int(beyond.sum())
        time += float(work[beyond].sum())
        all_time += float(work.sum())
    return LeftOut(jobs=jobs / (_SEEDS * _JOBS), time=time / all_time)
