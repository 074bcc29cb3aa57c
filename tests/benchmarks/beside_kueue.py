"""Kueue's own search beside closeby's placement, on one machine in one run: gangs with and without layers.

The cluster is that of ``closeby bench``. Of Kueue a search on a snapshot that is built already is timed, and
nothing else; of closeby the whole decision, with the change of its state. Both say CPU time of their process.

    python -m tests.benchmarks.beside_kueue [--nodes 5000 --nodes 50000] [--runs 11]
"""

import statistics
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import replace

from closeby.lab.benchmarks import clusters
from closeby.lab.benchmarks.figures import quiet_collector, this_machine, timed
from closeby.lab.benchmarks.placement import LAYERED, LAYERED_SHAPE, engine_of
from closeby.objects.groups import Layer
from closeby.objects.labels import HOSTNAME
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import GroupChanged, GroupDeleted, PodDeleted, PodUpserted, Tick
from closeby.scheduling.outcomes import Binding, bindings_of
from tests.kueue.searching import find_search, searched

LEVELS: Final = ("block", "rack", HOSTNAME)
#: What is asked for: its name, a required level, layers.
CASES: Final[tuple[tuple[str, str | None, tuple[Layer, ...]], ...]] = (
    ("1,024 x 1 GPU in a block, no layers", "block", ()),
    *((case.text, None, case.layers) for case in LAYERED if not case.led),
)


def question(count: int, runs: int) -> dict[str, Any]:
    """The cluster and the gangs as Kueue's side takes them."""
    used = {pod.node_name: dict(pod.spec.requests) | {"pods": 1} for pod in clusters.usage(count)}
    machines = [
        {"name": node.name, "labels": dict(node.labels), "used": used.get(node.name, {})}
        for node in clusters.nodes(count)
    ]
    return {
        "levels": LEVELS,
        "capacity": clusters.NODE_CAPACITY,
        "pod": dict(clusters.needs(LAYERED_SHAPE.gpus).requests),
        "machines": machines,
        "questions": [
            {"case": text, "count": LAYERED_SHAPE.pods, "request": request(required, layers)}
            for text, required, layers in CASES
        ],
        "runs": runs,
    }


def request(required: str | None, layers: tuple[Layer, ...]) -> dict[str, Any]:
    """The ``topologyRequest`` of a pod set."""
    asked: dict[str, Any] = {} if required is None else {"required": required}
    if len(layers) == 1:
        asked |= {"podSetSliceRequiredTopology": layers[0].level, "podSetSliceSize": layers[0].size}
    elif layers:
        slices = [{"topology": one.level, "size": one.size} for one in layers]
        asked["podsetSliceRequiredTopologyConstraints"] = slices
    return asked


def placed(engine: Engine, runs: int) -> Iterator[tuple[list[float], list[Binding]]]:
    """CPU seconds of each decision about a case, and the last of them."""
    for number, (_, required, layers) in enumerate(CASES):
        found: list[Binding] = []
        times = []
        for run in range(runs):
            shape = LAYERED_SHAPE
            group, pods = clusters.gang(f"gang-{number}-{run}", shape.pods, shape.gpus, required)
            engine.handle(GroupChanged(replace(group, layers=layers)), *map(PodUpserted, pods))

            def decide(found: list[Binding] = found) -> int:
                found[:] = bindings_of(engine.handle(Tick()))
                return len(found)

            times.append(timed(decide).cpu)
            engine.handle(*(PodDeleted(pod.uid) for pod in pods), GroupDeleted(group.key))
        yield times, found


def domains(bindings: list[Binding], labels: dict[str, dict[str, str]]) -> dict[str, int]:
    """How many domains of each level were used."""
    used = {(level, labels[one.node][level]) for one in bindings for level in LEVELS}
    return dict(Counter(level for level, _ in used))


@click.command()
@click.option("--nodes", "sizes", type=int, multiple=True, default=(5_000, 50_000))
@click.option("--runs", type=int, default=11, help="Of each case; the first does not count.")
def main(sizes: tuple[int, ...], runs: int) -> None:
    """Print medians and the least of CPU milliseconds, of both sides, and how many pods and domains."""
    program = find_search(click.echo)
    machine = this_machine()
    click.echo(f"{machine.processor}, {machine.cores} cores, Python {machine.python}")
    for count in sizes:
        labels = {node.name: dict(node.labels) for node in clusters.nodes(count)}
        with tempfile.TemporaryDirectory() as folder:
            theirs = searched(program, question(count, runs), Path(folder))
        engine = engine_of(count)
        with quiet_collector():
            ours = list(placed(engine, runs))
        click.echo(f"\n{count:,} nodes: CPU ms, median (least)")
        for (text, _, _), kueue, (times, bindings) in zip(CASES, theirs, ours, strict=True):
            one, other = [sorted(1000 * each for each in side[1:]) for side in (kueue["cpu"], times)]
            ratios = [statistics.median(one) / statistics.median(other), one[0] / other[0]]
            click.echo(
                f"{text:45} Kueue {statistics.median(one):7.1f} ({one[0]:.1f})"
                f"  closeby {statistics.median(other):6.1f} ({other[0]:.1f})"
                f"  ratio {ratios[0]:.1f} ({ratios[1]:.1f})"
            )
            click.echo(f"    Kueue: {kueue['placed']} pods, {kueue['domains']} {kueue['failure']}")
            click.echo(f"    closeby: {len(bindings)} pods, {domains(bindings, labels)}")


if __name__ == "__main__":
    main()
