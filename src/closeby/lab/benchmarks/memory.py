"""Memory of an engine with 100,000 nodes and 500,000 pods, measured in a process of its own."""

import resource
import subprocess
import sys
from collections.abc import Iterator

from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.figures import Figure
from closeby.lab.benchmarks.placement import engine_of
from closeby.objects.pods import Pod
from closeby.scheduling.events import GroupChanged, PodUpserted, Tick

NODES = 100_000
PODS = 500_000
TARGET_MIB = 1024


def memory() -> Iterator[Figure]:
    """Peak resident memory after filling the cluster and placing one gang."""
    done = subprocess.run(
        [sys.executable, "-m", "closeby.lab.benchmarks.memory"], capture_output=True, text=True, check=True
    )
    peak, cpu = (float(part) for part in done.stdout.split())
    yield Figure(
        benchmark="memory",
        case="peak, filled and one gang placed",
        nodes=NODES,
        pods=PODS,
        runs=1,
        cpu_ms=round(cpu * 1000),
        cpu_ms_min=round(cpu * 1000),
        wall_ms=0.0,
        placed=64,
        memory_mib=round(peak),
        target_mib=TARGET_MIB,
    )


def _fill() -> None:
    engine = engine_of(NODES)
    small = clusters.needs(0)
    engine.handle(
        *(
            PodUpserted(
                Pod(
                    namespace="service",
                    name=f"service-{index}",
                    uid=f"6f9619ff-8b86-d011-b42d-{index:012d}",
                    spec=small,
                    labels={"app": "service"},
                    node_name=f"node-{index % NODES}",
                    phase="Running",
                )
            )
            for index in range(PODS - engine.cluster.placed_count)
        )
    )
    group, pods = clusters.gang("train", 64, 1, required="rack")
    engine.handle(GroupChanged(group), *(PodUpserted(pod) for pod in pods), Tick())


if __name__ == "__main__":
    _fill()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    sys.stdout.write(f"{usage.ru_maxrss / 1024} {usage.ru_utime + usage.ru_stime}\n")
