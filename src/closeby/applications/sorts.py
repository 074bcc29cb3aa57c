"""In which order the workloads of an application are placed (network-aware scheduling KEP).

All sorts are deterministic: what the graph leaves open is decided by the order in which workloads and
dependencies are declared. Workloads in a circle stand together in declared order, in the place that the
circle has in the graph without circles.
"""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module

import numpy as np
from msgspec import Struct

from closeby.objects.applications import AppGroup
from closeby.objects.bounds import ENTRIES, some
from closeby.objects.reasons import Condition, invalid


class AppGraph(Struct, frozen=True, kw_only=True):
    """Workloads as vertices, edges from a workload to what it needs."""

    #: The declared workloads in their order, then undeclared dependencies, as they are mentioned.
    names: tuple[str, ...]
    #: For each workload what it needs, as indices into ``names``, in declared order.
    needs: tuple[tuple[int, ...], ...]


def graph_of(app: AppGroup) -> AppGraph:
    """The graph of an application. A dependency that is not declared is a leaf."""
    index = {workload.name: place for place, workload in enumerate(app.workloads)}
    needs = []
    for workload in app.workloads:
        own = [index.setdefault(edge.workload, len(index)) for edge in workload.dependencies]
        needs.append(tuple(dict.fromkeys(own)))
    needs += [()] * (len(index) - len(needs))
    return AppGraph(names=tuple(index), needs=tuple(needs))


def load() -> None:
    """Import what graphs and shortest paths need now, so that no decision has to wait for it."""
    import_module("scipy.sparse.csgraph")


def components(graph: AppGraph) -> tuple[tuple[int, ...], ...]:
    """Sets of workloads that need each other in a circle (most have one member), by their first member."""
    # scipy is slow to import, and only clusters with AppGroups need it.
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    size = len(graph.names)
    if not size:
        return ()
    heads = [head for head, needs in enumerate(graph.needs) for _ in needs]
    tails = [tail for needs in graph.needs for tail in needs]
    edges = csr_array((np.ones(len(heads), dtype=np.int8), (heads, tails)), shape=(size, size))
    _, labels = connected_components(edges, directed=True, connection="strong")
    members: dict[int, list[int]] = {}
    for vertex, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(vertex)
    return tuple(sorted(tuple(circle) for circle in members.values()))


def condensed(graph: AppGraph, circles: tuple[tuple[int, ...], ...]) -> AppGraph:
    """The graph with each circle as one vertex, called by its first member; it has no circles."""
    circle_of = {vertex: place for place, circle in enumerate(circles) for vertex in circle}
    needs = []
    for place, circle in enumerate(circles):
        found = [circle_of[tail] for vertex in circle for tail in graph.needs[vertex]]
        needs.append(tuple(other for other in dict.fromkeys(found) if other != place))
    return AppGraph(names=tuple(graph.names[circle[0]] for circle in circles), needs=tuple(needs))


def _circle(others: list[str], last: str) -> str:
    return f"{', '.join(others)} and {last}" if len(others) < ENTRIES else some([*others, last])


def cycle_conditions(
    app: AppGroup, graph: AppGraph, circles: tuple[tuple[int, ...], ...]
) -> Iterator[Condition]:
    """One condition for each circle; a workload that needs itself is one too."""
    for circle in circles:
        if len(circle) == 1 and circle[0] not in graph.needs[circle[0]]:
            continue
        *others, last = (graph.names[vertex] for vertex in circle)
        message = f"{_circle(others, last)} need each other in a circle" if others else f"{last} needs itself"
        yield invalid(
            f"AppGroup/{app.key}",
            "spec",
            message,
            "drop a dependency; until then they are ordered as they are declared",
        )


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
