"""Memory of an engine with 100,000 nodes and 500,000 pods, measured in a process of its own."""

import resource
import subprocess
import sys
from collections.abc import Iterator

from msgspec.structs import replace

from closeby.lab.benchmarks import clusters, terms
from closeby.lab.benchmarks.figures import Figure
from closeby.lab.benchmarks.placement import engine_of
from closeby.objects.pods import Pod
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, PodUpserted, Tick

NODES = 100_000
PODS = 500_000
TARGET_MIB = 1024
#: Applications with a term of their own.
TERMS = 200


def memory() -> Iterator[Figure]:
    """Peak resident memory after filling the cluster and placing one gang, without terms and with 200."""
    for applications, case in (
        (0, "peak, filled and one gang placed"),
        (TERMS, f"the same with {TERMS} terms"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "closeby.lab.benchmarks.memory", str(applications)],
            capture_output=True,
            text=True,
            check=True,
        )
        peak, cpu = (float(part) for part in done.stdout.split())
        yield Figure(
            benchmark="memory",
            case=case,
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


def _fill(applications: int) -> None:
    """Pods of so many applications, each with an affinity term or a spread constraint of its own; 0: none."""
    if applications:
        engine = Engine(lambda handle: profile_for(Configuration(), handle))
        fabric = clusters.topology("block", "rack")
        clusters.fill(engine, terms.zoned(clusters.nodes(NODES)), fabric, clusters.usage(NODES))
        specs = [replace(terms.spec_of(one), requests=()) for one in range(applications)]
    else:
        engine, specs = engine_of(NODES), [clusters.needs(0)]
    engine.handle(
        *(
            PodUpserted(
                Pod(
                    namespace="service",
                    name=f"service-{index}",
                    uid=f"6f9619ff-8b86-d011-b42d-{index:012d}",
                    spec=specs[index % len(specs)],
                    labels={"app": f"app-{index % applications}"} if applications else {"app": "service"},
                    node_name=f"node-{index * 7 % NODES}",
                    phase="Running",
                )
            )
            for index in range(PODS - engine.cluster.placed_count)
        )
    )
    group, pods = clusters.gang("train", 64, 1, required="rack")
    engine.handle(GroupChanged(group), *(PodUpserted(pod) for pod in pods), Tick())
    if applications:  # One pod of each application: all that their terms need is counted.
        more = clusters.plain_pods(specs, "more")
        engine.handle(
            *(
                PodUpserted(replace(pod, namespace="service", labels={"app": f"app-{index}"}))
                for index, pod in enumerate(more)
            ),
            Tick(),
        )


if __name__ == "__main__":
    _fill(int(sys.argv[1]))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    sys.stdout.write(f"{usage.ru_maxrss / 1024} {usage.ru_utime + usage.ru_stime}\n")
