"""In which order the workloads of an application are placed (network-aware scheduling KEP).

All sorts are deterministic: what the graph leaves open is decided by the order in which workloads and
dependencies are declared. Workloads in a circle stand together in declared order, in the place that the
circle has in the graph without circles.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from closeby.applications.graph import AppGraph, components, condensed, cycle_conditions, graph_of
from closeby.objects.applications import AppGroup
from closeby.objects.reasons import Condition

#: A sort takes a graph without circles and returns its vertices in order.
Sort = Callable[[AppGraph], list[int]]


class TopologyOrder(Struct, frozen=True, kw_only=True):
    """The workloads in order; the first one is placed first and has index 1."""

    names: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()

    @property
    def index(self) -> Mapping[str, int]:
        """Index of each workload, from 1."""
        return {name: place for place, name in enumerate(self.names, start=1)}


def kahn(graph: AppGraph) -> list[int]:
    """Workloads that no remaining workload needs, the last one found first (a stack)."""
    callers = [0] * len(graph.names)
    for needs in graph.needs:
        for tail in needs:
            callers[tail] += 1
    ready = [vertex for vertex, count in enumerate(callers) if not count]
    order = []
    while ready:
        vertex = ready.pop()
        order.append(vertex)
        for tail in graph.needs[vertex]:
            callers[tail] -= 1
            if not callers[tail]:
                ready.append(tail)
    return order


def tarjan(graph: AppGraph) -> list[int]:
    """Depth first in declared order; reversed postorder."""
    finished: list[int] = []
    seen: set[int] = set()
    for root in range(len(graph.names)):
        if root in seen:
            continue
        seen.add(root)
        way = [(root, iter(graph.needs[root]))]
        while way:
            vertex, rest = way[-1]
            tail = next((one for one in rest if one not in seen), None)
            if tail is None:
                way.pop()
                finished.append(vertex)
            else:
                seen.add(tail)
                way.append((tail, iter(graph.needs[tail])))
    return finished[::-1]


def reverse(sort: Sort) -> Sort:
    """The last one first."""
    return lambda graph: sort(graph)[::-1]


def alternate(sort: Sort) -> Sort:
    """The first, the last, the second, the second to last, and so on."""

    def alternating(graph: AppGraph) -> list[int]:
        order = sort(graph)
        return [
            order[place // 2] if place % 2 == 0 else order[-1 - place // 2] for place in range(len(order))
        ]

    return alternating


DEFAULT_SORT = "KahnSort"
SORTS: Mapping[str, Sort] = {
    "KahnSort": kahn,
    "TarjanSort": tarjan,
    "ReverseKahn": reverse(kahn),
    "ReverseTarjan": reverse(tarjan),
    "AlternateKahn": alternate(kahn),
    "AlternateTarjan": alternate(tarjan),
}


def topology_order(app: AppGroup) -> TopologyOrder:
    """The order of an application by the sort it names; KahnSort where it names none that is known."""
    graph = graph_of(app)
    circles = components(graph)
    sort = SORTS.get(app.algorithm, SORTS[DEFAULT_SORT])
    order = [vertex for circle in sort(condensed(graph, circles)) for vertex in circles[circle]]
    return TopologyOrder(
        names=tuple(graph.names[vertex] for vertex in order),
        conditions=tuple(cycle_conditions(app, graph, circles)),
    )
