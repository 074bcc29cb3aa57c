"""Small clusters and workloads, and what must hold of every history whatever the policy."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from closeby.lab.replay.clusters import GivenCluster
from closeby.lab.replay.driver import ReplaySettings, replay
from closeby.lab.replay.history import History
from closeby.lab.workloads.jobs import Jobs
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import TopologyChanged
from closeby.simulator.synthetic import GPU, LEAF_LABEL, POD_LABEL, fabric_topology

#: Name, submitted, duration, pods, GPUs of each.
Job = tuple[str, float, float, int, int]
DEFAULT = ReplaySettings()


def jobs(*rows: Job, priorities: Sequence[int] = ()) -> Jobs:
    """Jobs in columns."""
    return Jobs(
        names=tuple(row[0] for row in rows),
        submitted=np.array([row[1] for row in rows], dtype=np.float64),
        durations=np.array([row[2] for row in rows], dtype=np.float64),
        pods=np.array([row[3] for row in rows], dtype=np.int64),
        gpus=np.array([row[4] for row in rows], dtype=np.int64),
        priorities=np.array(priorities or [0] * len(rows), dtype=np.int64),
        kinds=("",) * len(rows),
    )


def leaves(*sizes: int, gpus: int = 8) -> GivenCluster:
    """One pod with a leaf of each size; hosts are called h1, h2, …, which are the slots 0, 1, …."""
    nodes: list[Node] = []
    for leaf, size in enumerate(sizes, start=1):
        for _ in range(size):
            name = f"h{len(nodes) + 1}"
            labels = {POD_LABEL: "p", LEAF_LABEL: f"leaf-{leaf}", HOSTNAME: name}
            nodes.append(
                Node(name=name, labels=labels, allocatable={"cpu": 64_000, "memory": 1 << 38, GPU: gpus})
            )
    topology = TopologyChanged(fabric_topology())
    return GivenCluster(name="small", nodes=tuple(nodes), others=(topology,))


def run(workload: Jobs, cluster: GivenCluster, settings: ReplaySettings = DEFAULT) -> History:
    """A run in which the engine's invariants are asserted after every moment, and those of the history."""
    history = replay(workload, cluster, settings, after_each=Engine.validate_state)
    holds_together(history)
    return history


def places(history: History) -> dict[str, list[str]]:
    """Nodes of each job that started, in the order of ranks."""
    found = {name: history.slots_of(job).tolist() for job, name in enumerate(history.jobs.names)}
    return {name: [history.nodes[slot] for slot in slots] for name, slots in found.items() if slots}


def holds_together(history: History) -> None:
    """No slot is ever over its capacity, jobs end when they must, and the samples say what the jobs say.

    Of a job that was evicted every run counts, and what it lost is all that it runs more.
    """
    jobs = history.jobs
    started, ended = history.started, history.ended
    ran = ~np.isnan(started)
    assert (np.diff(history.offsets) == np.where(ran, jobs.pods, 0)).all(), "started jobs have all their pods"
    over = ~np.isnan(ended)
    whole = history.evictions == 0
    runs = history.each_run()
    begun = ~np.isnan(runs.started)
    assert (np.diff(runs.offsets) == np.where(begun, runs.jobs.pods, 0)).all(), "so has every run"
    assert (runs.started[begun] >= runs.jobs.submitted[begun]).all(), "nothing starts before it is submitted"
    exact = over & whole
    assert (ended[exact] == started[exact] + jobs.durations[exact]).all(), "durations are what was given"
    late = ran & ~over & whole
    assert (started[late] + jobs.durations[late] > history.until).all(), "what should have ended has"
    worked = np.nan_to_num(ended - started) - history.lost
    np.add.at(worked, history.cut.job, history.cut.ended - history.cut.started)
    assert np.allclose(worked[over], jobs.durations[over]), "what is lost is done again, and nothing else"

    owner = np.repeat(np.arange(len(runs.jobs)), np.diff(runs.offsets))
    times = np.concatenate([runs.ended[owner], runs.started[owner]])
    amounts = np.concatenate([-runs.jobs.gpus[owner], runs.jobs.gpus[owner]])
    slots = np.concatenate([runs.slots, runs.slots])
    kept = ~np.isnan(times)
    # Those that end at a moment make room for those that start at it.
    order = np.lexsort((amounts[kept], times[kept], slots[kept]))
    held = amounts[kept][order].cumsum()
    bounds = np.searchsorted(slots[kept][order], np.arange(len(history.nodes)))
    for slot, (first, end) in enumerate(zip(bounds, [*bounds[1:], len(held)], strict=True)):
        before = held[first - 1] if first else 0
        most = (held[first:end] - before).max(initial=0)
        assert most <= history.node_gpus[slot], f"{history.nodes[slot]} holds {most} GPUs"

    samples = history.samples
    assert (np.diff(samples.times) > 0).all()
    assert (samples.busy == _running(runs, samples.times)).all(), "busy GPUs are those of running jobs"
    assert (samples.busy <= history.node_gpus.sum()).all()
    assert (samples.queued >= 0).all() and (samples.queued_gpus >= 0).all()

    cut = history.cut
    assert ((cut.by >= 0) != (cut.failed >= 0)).all(), "a run is cut short for a job, or by a node"
    for_jobs = cut.by >= 0
    assert (jobs.priorities[cut.by] > jobs.priorities[cut.job])[for_jobs].all(), "victims have lower priority"
    assert (cut.lost >= 0).all() and (cut.lost <= cut.ended - cut.started).all()


def _running(history: History, times: NDArray[np.float64]) -> NDArray[np.int64]:
    """GPUs of the jobs that have started by each time and have not ended."""
    sizes = history.jobs.sizes
    total = np.zeros(len(times), dtype=np.int64)
    for moments, sign in ((history.started, 1), (history.ended, -1)):
        known = np.flatnonzero(~np.isnan(moments))
        order = known[np.argsort(moments[known], kind="stable")]
        sums = np.concatenate(([0], sizes[order].cumsum()))
        total += sign * sums[np.searchsorted(moments[order], times, side="right")]
    return total
