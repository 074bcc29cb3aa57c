"""All benchmarks by name."""

from collections.abc import Callable, Iterator, Mapping

from closeby.lab.benchmarks import applications, dumps, memory, placement, preemption, terms, throughput
from closeby.lab.benchmarks.figures import Figure, summary, timed
from closeby.lab.replay.clusters import made_up
from closeby.lab.replay.driver import Policy, ReplaySettings, replay
from closeby.lab.workloads.generating import WorkloadOptions, generate
from closeby.lab.workloads.jobs import Jobs
from closeby.plugins.configurations import CLOSEBY, NAMED

#: Jobs, and the CPU milliseconds that we aim at.
CASES = ((10_000, 6_000.0), (100_000, 60_000.0))
LOAD = 0.85
SEED = 1


def over_time() -> Iterator[Figure]:
    """Whole runs with the configuration ``closeby``: arrivals, decisions, ends, and the history."""
    cluster = made_up("lingjun")
    settings = ReplaySettings(policy=Policy(name=CLOSEBY, configuration=NAMED[CLOSEBY]), seed=SEED)
    options = WorkloadOptions(standing=True)
    gpus = sum(node.allocatable[cluster.resource] for node in cluster.nodes)
    for count, limit in CASES:
        jobs = generate("seren", jobs=count, load=LOAD, capacity=gpus, seed=SEED, options=options)

        def run(jobs: Jobs = jobs) -> int:
            return len(replay(jobs, cluster, settings).slots)

        case = f"{count:,} jobs of seren at {LOAD:.0%} load"
        yield summary("over time", case, len(cluster.nodes), int(jobs.pods.sum()), [timed(run)], limit)


BENCHMARKS: Mapping[str, Callable[[], Iterator[Figure]]] = {
    "placement": placement.warm,
    "layers": placement.in_layers,
    "node-change": placement.after_node_change,
    "node-events": placement.node_events,
    "pod-by-pod": placement.pod_by_pod,
    "throughput": throughput.throughput,
    "refusal": throughput.refusals,
    "unequal": throughput.unequal,
    "terms": terms.terms,
    "preemption": preemption.preemption,
    "buckets": placement.buckets,
    "by-buckets": placement.placed_by_buckets,
    "network-cost": applications.scoring,
    "network-paths": applications.paths,
    "applications": applications.placing,
    "over-time": over_time,
    "files": dumps.reading,
    "memory": memory.memory,
}


def run(names: tuple[str, ...] = ()) -> Iterator[Figure]:
    """Figures of the named benchmarks (all by default), as they are measured."""
    for name, benchmark in BENCHMARKS.items():
        if not names or name in names:
            yield from benchmark()
