"""What preemption cost whom: evictions, work that is lost, and who waited how long, by priority."""

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from closeby.objects.arrays import Floats
from closeby.quality.moments import RunColumns, during_of

_HOUR = 3_600.0


class PriorityMeasures(Struct, frozen=True, kw_only=True, rename="camel"):
    """The jobs of one priority. Seconds; None without jobs."""

    priority: int
    jobs: int
    #: Jobs among them that waited when the run stopped.
    unstarted: int
    #: What they waited, before their start and after each eviction.
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    #: Evictions of these jobs, and GPU-time that they lost.
    evictions: int
    lost_gpu_hours: float


class PreemptionMeasures(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run with several priorities."""

    #: Evictions, jobs that were evicted, and the most evictions of one job.
    evictions: int
    evicted_jobs: int
    most_evictions: int
    #: Evictions of jobs of several pods.
    gang_evictions: int
    #: GPU-time that jobs held without doing anything that lasts: since their last checkpoint when they were
    #: evicted, and to get back to it.
    lost_gpu_hours: float
    #: The highest first.
    priorities: tuple[PriorityMeasures, ...]


def preemption(run: RunColumns, waited: Floats, gpus: NDArray[np.int64]) -> PreemptionMeasures | UnsetType:
    """``waited`` by job, ``gpus`` of the whole job by row; unset where all jobs have one priority."""
    jobs = run.jobs
    priorities = run.priorities[:jobs]
    levels = np.unique(priorities)[::-1]
    if len(levels) < 2:
        return UNSET
    evictions = np.bincount(run.evicted, minlength=jobs)
    lost = run.by_job(gpus * run.lost) / _HOUR if len(run.lost) else np.zeros(jobs)
    waits = np.isnan(run.started[:jobs])
    found = []
    for priority in levels.tolist():
        mine = priorities == priority
        p50, p95, p99 = np.percentile(waited[mine], (50, 95, 99)).tolist()
        found.append(
            PriorityMeasures(
                priority=priority,
                jobs=int(mine.sum()),
                unstarted=int(waits[mine].sum()),
                mean=float(waited[mine].mean()),
                p50=p50,
                p95=p95,
                p99=p99,
                evictions=int(evictions[mine].sum()),
                lost_gpu_hours=float(lost[mine].sum()),
            )
        )
    return PreemptionMeasures(
        evictions=int(evictions.sum()),
        evicted_jobs=int((evictions > 0).sum()),
        most_evictions=int(evictions.max(initial=0)),
        gang_evictions=int(evictions[run.pods[:jobs] > 1].sum()),
        lost_gpu_hours=float(lost.sum()),
        priorities=tuple(found),
    )


def lasting(run: RunColumns) -> Floats | float:
    """The share of each row's time in which something was done that lasts; shape (J,)."""
    if not len(run.lost):
        return 1.0
    during = during_of(run)
    ran = np.nan_to_num(during[:, 1] - during[:, 0])
    shares: Floats = 1.0 - np.where(ran > 0, run.lost / np.where(ran > 0, ran, 1.0), 0.0)
    return np.clip(shares, 0.0, 1.0)
