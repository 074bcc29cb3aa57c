"""Queueing delay by the size of jobs, and how much of it the topology or preemption is to blame for."""

from enum import StrEnum
from typing import Any, Final

import numpy as np
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from closeby.objects.arrays import Bools, Counts, Floats
from closeby.quality.moments import RunColumns, during_of

#: Buckets of job sizes (see ``sizes``): name and greatest size.
SIZE_BUCKETS: Final[tuple[tuple[str, float], ...]] = (
    ("1", 1),
    ("2-8", 8),
    ("9-64", 64),
    (">64", float("inf")),
)
#: The bucket that holds all jobs.
ALL: Final = "all"


class SizeUnit(StrEnum):
    """What the size of jobs is counted in."""

    GPU = "GPU"
    POD = "pod"


class Delay(Struct, frozen=True, kw_only=True):
    """How long the jobs of one size waited. Seconds; None in a bucket without jobs."""

    #: Name of the bucket, in the run's ``SizeUnit``; ``all`` for jobs of every size.
    size: str
    jobs: int
    #: Jobs among them that had not started when the run stopped: they count with what they had waited by
    #: then, which is less than what they would have waited in the end.
    unstarted: int
    mean: float | None
    #: Percentiles, linear between neighbours.
    p50: float | None
    p95: float | None
    p99: float | None
    #: Mean wait caused by topology: what a job waited more than in the same run without constraints. None
    #: without such a run.
    topology: float | None = None


def sizes(pods: NDArray[Any], gpus: NDArray[Any]) -> Counts:
    """Size of each job: its GPUs, and a pod without any counts as one; ``size_unit`` says what that is."""
    found: Counts = (pods * np.maximum(gpus, 1)).astype(np.int64)
    return found


def size_unit(gpus: NDArray[Any]) -> SizeUnit:
    """What ``sizes`` counts for jobs whose pods have so many GPUs: their pods, if none asks for a GPU."""
    return SizeUnit.GPU if gpus.any() or not len(gpus) else SizeUnit.POD


def size_bucket(size: int) -> str:
    """The bucket of a job of a size."""
    return next(name for name, most in SIZE_BUCKETS if size <= most)


def waits(submitted: Floats, started: Floats, until: float) -> Floats:
    """Seconds from submission to start; for a job that has not started, to the end of the run; shape (J,).

    ``started`` is nan where a job did not start, ``until`` is when the run stopped.
    """
    return np.maximum(np.where(np.isnan(started), until, started) - submitted, 0.0)


def delays(
    size: NDArray[Any], waited: Floats, unstarted: Bools, unconstrained: Floats | None = None
) -> tuple[Delay, ...]:
    """Delays of all jobs, then of each bucket; all arrays of shape (J,).

    ``unconstrained`` is what the same jobs waited in the same run (same seed) without topology constraints.
    """
    edges = np.asarray([most for _, most in SIZE_BUCKETS])
    bucket = np.searchsorted(edges, size)
    more = None if unconstrained is None else waited - unconstrained
    found = [_delay(ALL, np.ones(len(size), dtype=np.bool_), waited, unstarted, more)]
    for index, (name, _) in enumerate(SIZE_BUCKETS):
        found.append(_delay(name, bucket == index, waited, unstarted, more))
    return tuple(found)


def _delay(size: str, chosen: Bools, waited: Floats, unstarted: Bools, more: Floats | None) -> Delay:
    mine = waited[chosen]
    if not len(mine):
        return Delay(size=size, jobs=0, unstarted=0, mean=None, p50=None, p95=None, p99=None)
    p50, p95, p99 = np.percentile(mine, (50, 95, 99)).tolist()
    return Delay(
        size=size,
        jobs=len(mine),
        unstarted=int(np.count_nonzero(unstarted[chosen])),
        mean=float(mine.mean()),
        p50=p50,
        p95=p95,
        p99=p99,
        topology=None if more is None else float(more[chosen].mean()),
    )


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
