"""Runs over time made by hand, small enough to know what every picture of them shows."""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.lab.replay.history import History, Kept, Samples
from closeby.lab.workloads.jobs import CallGraph, Jobs
from closeby.objects.labels import HOSTNAME
from closeby.quality.traffic import TrafficMeasures
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.simulator.runs import Run, simulate
from closeby.topology.tree import Tree
from tests.worlds import GPU, draw, fabric

#: Two leaves in each of two zones; every node has 4 GPUs.
DRAWING = """
a l1 : n1=4 n2=4
a l2 : n3=4 n4=4
b l1 : n5=4 n6=4
b l2 : n7=4
"""
LEVELS = ("zone", "leaf")


class Job(Struct, frozen=True, kw_only=True):
    """One job: where its pods were, by rank, and when it was submitted, started and ended (None: not)."""

    nodes: Sequence[str] = ()
    gpus: int = 4
    pods: int = 0
    submitted: float = 0.0
    start: float | None = None
    end: float | None = None


def empty_run(drawing: str = DRAWING, levels: Sequence[str] = LEVELS) -> Run:
    """The cluster of a drawing without any pods."""
    nodes = tuple(draw(drawing, levels))
    topologies = (fabric(*levels, HOSTNAME),) if levels else ()
    return simulate(Manifests(nodes=nodes, topologies=topologies), Configuration())


def tree_of(drawing: str = DRAWING, levels: Sequence[str] = LEVELS) -> Tree:
    """The tree of a drawing."""
    topologies = empty_run(drawing, levels).engine.topologies
    tree = topologies.tree("fabric") if levels else topologies.flat()
    assert tree is not None
    return tree


class Keeps(Struct, frozen=True, kw_only=True):
    """Nodes that were kept free for a job; without a why until the run stopped."""

    job: str
    nodes: Sequence[str]
    begin: float
    end: float
    why: str = "it waits no more"


def history(
    jobs: Mapping[str, Job],
    until: float,
    drawing: str = DRAWING,
    levels: Sequence[str] = LEVELS,
    *,
    policy: str = "by-hand",
    with_gpus: bool = True,
    kept: Sequence[Keeps] = (),
    impossible: Sequence[str] = (),
) -> History:
    """What happened to these jobs on the cluster of a drawing, until the run stopped.

    ``with_gpus=False`` takes all GPUs off the nodes, for jobs that ask for none.
    """
    run = empty_run(drawing, levels)
    tree = tree_of(drawing, levels)
    cluster = run.engine.cluster
    names = tuple("" if node is None else node.name for node in cluster.nodes[: cluster.capacity])
    capacity = cluster.allocatable[cluster.row_of[GPU], : cluster.capacity].astype(np.int64) * with_gpus
    every = list(jobs.values())
    pods = np.asarray([job.pods or len(job.nodes) for job in every], dtype=np.int64)
    gpus = np.asarray([job.gpus for job in every], dtype=np.int64)
    submitted = np.asarray([job.submitted for job in every])
    started = np.asarray([np.nan if job.start is None else job.start for job in every])
    ended = np.asarray([np.nan if job.end is None else job.end for job in every])
    return History(
        jobs=Jobs(
            names=tuple(jobs),
            submitted=submitted,
            durations=np.where(np.isnan(ended), until, ended) - np.where(np.isnan(started), 0.0, started),
            pods=pods,
            gpus=gpus,
            priorities=np.zeros(len(every), dtype=np.int64),
            kinds=("",) * len(every),
        ),
        policy=policy,
        seed=1,
        tree=tree,
        nodes=names,
        node_gpus=capacity,
        started=started,
        ended=ended,
        offsets=np.concatenate(([0], np.cumsum([len(job.nodes) for job in every]))).astype(np.intp),
        slots=np.asarray([names.index(node) for job in every for node in job.nodes], dtype=np.intp),
        until=until,
        samples=_samples(
            submitted,
            started,
            ended,
            pods * gpus,
            [until, *(at for one in kept for at in (one.begin, one.end))],
        ),
        refusals={},
        impossible=tuple(list(jobs).index(name) for name in impossible),
        reservations=tuple(
            Kept(
                job=list(jobs).index(one.job),
                slots=tuple(sorted(names.index(node) for node in one.nodes)),
                begin=one.begin,
                end=one.end,
                why=one.why,
            )
            for one in kept
        ),
    )


def _samples(
    submitted: np.ndarray,
    started: np.ndarray,
    ended: np.ndarray,
    sizes: np.ndarray,
    others: Sequence[float],
) -> Samples:
    moments = np.concatenate((submitted, started, ended, others))
    times = np.unique(moments[moments <= others[0]])
    gone = np.where(np.isnan(ended), np.inf, ended)
    begun = np.where(np.isnan(started), np.inf, started)
    runs = (begun <= times[:, None]) & (times[:, None] < gone)
    waits = (submitted <= times[:, None]) & (times[:, None] < begun)
    return Samples(times=times, busy=runs @ sizes, queued=waits.sum(axis=1), queued_gpus=waits @ sizes)


#: A gang over two leaves, two single pods on one node one after the other, a gang that waits for the first,
#: and a job that never starts.
STORY = {
    "wide": Job(nodes=("n1", "n2", "n3"), start=0.0, end=1200.0),
    "half": Job(nodes=("n4",), gpus=2, start=0.0, end=600.0),
    "other": Job(nodes=("n4",), gpus=3, submitted=300.0, start=600.0, end=1800.0),
    "later": Job(nodes=("n1", "n2"), submitted=600.0, start=1200.0),
    "never": Job(pods=9, gpus=4, submitted=900.0),
}
UNTIL = 2400.0


def story(policy: str = "by-hand") -> History:
    """The history of ``STORY``."""
    return history(STORY, UNTIL, policy=policy)


#: For later, n5 is kept free and n1, which wide still has; in the end, n6 for the job that never starts.
KEPT = (
    Keeps(job="later", nodes=("n1", "n5"), begin=720.0, end=1200.0),
    Keeps(job="never", nodes=("n6",), begin=1500.0, end=UNTIL, why=""),
)


def reserving_story() -> History:
    """The history of ``STORY`` with the reservations ``KEPT``."""
    return history(STORY, UNTIL, kept=KEPT)


def applications(policy: str = "by-hand") -> History:
    """Four applications without GPUs, with how close they were; one has no pairs, one no known cost."""
    past = history(
        {
            "shop": Job(nodes=("n1", "n2"), gpus=0, start=0.0, end=100.0),
            "bank": Job(nodes=("n5", "n5"), gpus=0, start=0.0, end=300.0),
            "lone": Job(nodes=("n3",), gpus=0, start=0.0, end=900.0),
            "far": Job(nodes=("n1", "n5"), gpus=0, start=0.0, end=100.0),
        },
        until=900.0,
        policy=policy,
        with_gpus=False,
    )
    pair = CallGraph(workloads=("web", "store"), replicas=(1, 1), calls=((0, 1),), cpu=(1000, 1000))
    lone = CallGraph(workloads=("web",), replicas=(1,), calls=(), cpu=(1000,))
    told = (
        TrafficMeasures(cost=8.0, pairs=4, same_node=0.5, same_zone=1.0, same_region=1.0, over=0),
        TrafficMeasures(cost=0.0, pairs=2, same_node=1.0, same_zone=1.0, same_region=1.0, over=0),
        TrafficMeasures(cost=0.0, pairs=0, same_node=None, same_zone=None, same_region=None, over=0),
        TrafficMeasures(cost=None, pairs=1, same_node=0.0, same_zone=0.0, same_region=1.0, over=0),
    )
    jobs = replace(past.jobs, graphs=(pair, pair, lone, pair))
    cpu = np.where(np.asarray([name != "" for name in past.nodes]), 4000, 0)
    return replace(past, jobs=jobs, talk=dict(enumerate(told)), node_cpu=cpu)


def who_holds(past: History, seconds: float) -> dict[str, dict[str, int]]:
    """GPUs that each job holds on each node at a moment, read off the history itself."""
    found: dict[str, dict[str, int]] = {}
    for job, name in enumerate(past.jobs.names):
        end = past.ended[job]
        if past.started[job] <= seconds and not end <= seconds:
            for slot in past.slots_of(job).tolist():
                here = found.setdefault(past.nodes[slot], {})
                here[name] = here.get(name, 0) + int(past.jobs.gpus[job])
    return found
