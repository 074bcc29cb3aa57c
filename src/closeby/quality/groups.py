"""Spread of communication groups: over how many domains the ranks are that really exchange data.

Most pairs of a training job's GPUs exchange nothing; what counts is how far the groups of data-parallel and
of pipeline-parallel ranks are torn apart ("Efficient Pre-Training of LLMs via Topology-Aware Communication
Alignment on More Than 9600 GPUs", Arnold, ByteDance, NeurIPS 2025): a group's spread is the number of domains
its members touch, and a job's the greatest of its groups'.
"""

from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from closeby.objects.arrays import Counts, Floats, Ints
from closeby.quality.placements import Placements, by_level

#: Pipeline stages by greatest number of GPUs, where it is unknown how a job is split: those of the models
#: that Narayanan et al. trained on so many GPUs ("Efficient Large-Scale Language Model Training on GPU
#: Clusters Using Megatron-LM", SC 2021, table 1; 2 stages at 512 GPUs, 4 at 1,024, 8 at 1,536, 16 at 1,920).
PIPELINE_STAGES: Final = ((256, 1), (512, 2), (1024, 4), (1536, 8), (1 << 62, 16))


class Layouts(Struct, frozen=True, kw_only=True, eq=False):
    """How the GPUs of each job are split: tp x pp x dp = pods x GPUs of a pod; all of shape (J,).

    Ranks count the tensor-parallel index fastest, then the data-parallel, then the pipeline stage, as
    Megatron-LM does. Tensor-parallel groups are inside a pod: tp divides its GPUs.
    """

    tensor: Counts
    pipeline: Counts
    data: Counts


class Spreads(Struct, frozen=True, kw_only=True, eq=False):
    """Domains that the communication groups of each job touch, by level; shape (J, K); nan without pods."""

    #: Over all data- and pipeline-parallel groups of the job.
    greatest: Floats
    mean: Floats


def usual_layouts(pods: NDArray[Any], gpus: NDArray[Any]) -> Layouts:
    """Layouts of jobs for which the split is unknown.

    Tensor-parallel inside a pod, and pipeline stages by size (``PIPELINE_STAGES``), halved until they divide
    the pods. All arrays have shape (J,).
    """
    tensor = np.maximum(gpus, 1).astype(np.int64)
    limits = np.asarray([most for most, _ in PIPELINE_STAGES])
    stages = np.asarray([count for _, count in PIPELINE_STAGES], dtype=np.int64)
    wanted = stages[np.searchsorted(limits, pods * tensor)]
    pipeline = np.gcd(wanted, pods.astype(np.int64))
    return Layouts(tensor=tensor, pipeline=pipeline, data=pods.astype(np.int64) // np.maximum(pipeline, 1))


def group_spreads(found: Placements, layouts: Layouts) -> Spreads:
    """Spread of the data- and pipeline-parallel groups of each job.

    Raises ValueError for a layout that does not share out a job's pods evenly.
    """
    blocks = layouts.pipeline * layouts.data
    pods = found.pods
    if ((pods > 0) & (blocks % np.maximum(pods, 1) != 0)).any():
        raise ValueError("pipeline stages x data-parallel ranks must be a multiple of a job's pods")
    times = np.where(pods > 0, blocks // np.maximum(pods, 1), 0)
    job = np.repeat(found.job, times[found.job])
    positions = np.repeat(found.positions, times[found.job])
    begins = np.cumsum(np.append(0, pods * times))[:-1]
    index = np.arange(len(job)) - begins[job]
    data = np.maximum(layouts.data[job], 1)
    # Data-parallel groups share a stage; pipeline-parallel groups share the place inside their stage.
    groups = np.concatenate([index // data, layouts.pipeline[job] + index % data])
    return _spreads(found, np.concatenate([job, job]), groups, np.concatenate([positions, positions]))


def _spreads(found: Placements, job: Ints, groups: Ints, positions: Ints) -> Spreads:
    """Distinct owners of each (job, group), then the greatest and the mean of each job."""
    if not len(job):
        blank = np.full((found.jobs, found.levels), np.nan)
        return Spreads(greatest=blank, mean=blank)
    order = np.lexsort((positions, groups, job))
    job, groups, positions = job[order], groups[order], positions[order]
    begins = np.ones(len(job), dtype=np.bool_)
    begins[1:] = (job[1:] != job[:-1]) | (groups[1:] != groups[:-1])
    firsts = np.flatnonzero(begins)
    owner = job[firsts]
    of_job = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    present = owner[of_job]
    greatest, means = [], []
    for level in range(found.levels):
        domains = found.owners(level, positions)
        other = begins.copy()
        other[1:] |= domains[1:] != domains[:-1]
        touched = np.add.reduceat(other.astype(np.int64), firsts)
        most, mean = np.full(found.jobs, np.nan), np.full(found.jobs, np.nan)
        most[present] = np.maximum.reduceat(touched, of_job)
        counts = np.diff(np.append(of_job, len(firsts)))
        mean[present] = np.add.reduceat(touched, of_job) / counts
        greatest.append(most)
        means.append(mean)
    return Spreads(greatest=by_level(greatest), mean=by_level(means))
