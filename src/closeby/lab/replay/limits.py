"""What a cluster could never hold, however long one waits: computed from amounts, before anything runs."""

import numpy as np

from closeby.lab.replay.clusters import ClusterRoom
from closeby.lab.replay.history import Counts
from closeby.lab.workloads.jobs import Jobs
from closeby.lab.workloads.sampling import GPUS_PER_HOST
from closeby.topology.tree import Tree


def largest_job(room: ClusterRoom, tree: Tree, required: str | None) -> int:
    """GPUs of the largest job that the cluster could hold if no other ran, made as generated jobs are.

    That is one pod a host of 8 GPUs, all in one domain of the required level, or else a single pod.
    """
    level = None if required is None else tree.level_named(required)
    together = _most_pods(GPUS_PER_HOST, room.free, tree, level) * GPUS_PER_HOST
    return max(together, min(int(room.free.max(initial=0)), GPUS_PER_HOST))


def too_large(jobs: Jobs, room: ClusterRoom, tree: Tree, required: str | None) -> dict[int, str]:
    """Jobs that the cluster could not hold if no other job ran, with the reason, in GPUs."""
    level = None if required is None else tree.level_named(required)
    found: dict[int, str] = {}
    for gpus in np.unique(jobs.gpus).tolist():
        if gpus == 0:
            continue
        asks_so = jobs.gpus == gpus
        in_all = _most_pods(gpus, room.free, tree, None)
        for job in np.flatnonzero(asks_so & (jobs.pods > in_all)).tolist():
            found[job] = f"all nodes together take {_pods(in_all, gpus)} when no other job runs"
        if level is not None:
            in_one = _most_pods(gpus, room.free, tree, level)
            for job in np.flatnonzero(asks_so & (jobs.pods > max(in_one, 1))).tolist():
                message = f"no {tree.level_names[level]} takes more than {_pods(in_one, gpus)}"
                found.setdefault(job, f"{message} when no other job runs")
    return found


def too_many_pods(jobs: Jobs, room: Counts) -> dict[int, str]:
    """Jobs without GPUs of more pods than all nodes take, with the reason.

    ``room`` is how many pods the nodes could still take if no job ran; shape (slots,).
    """
    in_all = int(room.sum())
    message = f"all nodes together take {in_all:,} pods when no other job runs"
    return dict.fromkeys(np.flatnonzero((jobs.gpus == 0) & (jobs.pods > in_all)).tolist(), message)


def too_many_cores(jobs: Jobs, room: ClusterRoom) -> dict[int, str]:
    """Applications that the cluster could not hold alone, with the reason, in CPU."""
    in_all, in_one = int(room.free.sum()) / 1000, int(room.free.max(initial=0)) / 1000
    found = {}
    for job, graph in enumerate(jobs.graphs):
        if graph is not None and max(graph.cpu) / 1000 > in_one:
            found[job] = f"no node has more than {in_one:,g} cores when no other application runs"
        elif graph is not None and graph.cores > in_all:
            found[job] = f"all nodes together have {in_all:,g} cores when no other application runs"
    return found


def _pods(count: int, gpus: int) -> str:
    return f"{count:,} pod{'' if count == 1 else 's'} of {gpus} GPU{'' if gpus == 1 else 's'}"


def _most_pods(gpus: int, free: Counts, tree: Tree, level: int | None) -> int:
    """The most pods of so many GPUs that one domain of the level holds (the whole cluster without one)."""
    holds: Counts = (free // gpus)[tree.slot_at]
    if level is None:
        return int(holds.sum())
    if level < tree.node_level:
        holds = np.add.reduceat(holds, tree.bounds[level][:-1])
    return int(holds[tree.labelled[level]].max(initial=0))
