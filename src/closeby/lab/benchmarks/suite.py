"""All benchmarks by name."""

from collections.abc import Callable, Iterator, Mapping

from closeby.lab.benchmarks import applications, buckets, memory, over_time, placement, throughput
from closeby.lab.benchmarks.figures import Figure

BENCHMARKS: Mapping[str, Callable[[], Iterator[Figure]]] = {
    "placement": placement.warm,
    "node-change": placement.after_node_change,
    "pod-by-pod": placement.pod_by_pod,
    "throughput": throughput.throughput,
    "refusal": throughput.refusals,
    "buckets": buckets.buckets,
    "by-buckets": buckets.placed_by_buckets,
    "network-cost": applications.scoring,
    "network-paths": applications.paths,
    "applications": applications.placing,
    "over-time": over_time.over_time,
    "memory": memory.memory,
}


def run(names: tuple[str, ...] = ()) -> Iterator[Figure]:
    """Figures of the named benchmarks (all by default), as they are measured."""
    for name, benchmark in BENCHMARKS.items():
        if not names or name in names:
            yield from benchmark()
