"""Applications of microservices: call graphs made after a few parameters, and the Online Boutique.

Tables of how deep and wide real call graphs are were not to be had (Alibaba's microservices traces of 2021
and 2022 are the source to take them from), so the parameters here are ours and have names: how deep the calls
go, how many callees a workload has, how many workloads share how many stores.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.random import Generator

from closeby.lab.workloads.jobs import CallGraph
from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from closeby.objects.arrays import Floats


class ApplicationShape(Struct, frozen=True, kw_only=True):
    """Parameters of a made-up application."""

    #: Layers of workloads below the entry, and workloads in each.
    depth: int = 3
    width: int = 4
    #: Most callees of a workload in the layer below; at least one.
    fan_out: int = 3
    #: Stores that many workloads call, and the share of workloads that call one.
    stores: int = 1
    store_share: float = 0.5
    #: Most replicas of a workload, and cores of each in thousandths.
    replicas: int = 4
    cpu: tuple[int, ...] = (250, 500, 1000, 2000)


#: Frontend and its ten services, one pod each, as the network-aware scheduling KEP draws their calls
#: (GoogleCloudPlatform/microservices-demo, Apache-2.0).
BOUTIQUE: Final = CallGraph(
    workloads=(
        *("frontend", "cart", "product-catalog", "currency", "payment", "shipping", "email"),
        *("checkout", "recommendation", "ad", "redis-cart"),
    ),
    replicas=(1,) * 11,
    calls=(
        *((0, 1), (0, 2), (0, 3), (0, 5), (0, 7), (0, 8), (0, 9)),
        *((7, 1), (7, 2), (7, 3), (7, 4), (7, 5), (7, 6)),
        *((8, 2), (1, 10)),
    ),
    cpu=(200, 300, 200, 200, 200, 200, 200, 200, 200, 300, 125),
)

#: Shapes of the workload ``microservices``, with the share of applications that have each.
SHAPES: Final = (
    (ApplicationShape(depth=1, width=3, fan_out=3), 0.4),
    (ApplicationShape(depth=3, width=4, fan_out=3, stores=1), 0.4),
    (ApplicationShape(depth=4, width=8, fan_out=4, stores=2, store_share=0.7), 0.2),
)
#: ``maxNetworkCost`` of calls to a store in made-up applications: as far as zones of one region are in the
#: made-up cluster ``zones``.
STORE_LIMIT: Final = 5
#: Different graphs of a shape in one workload; applications of a kind are often deployed.
_VARIANTS: Final = 16
_BOUTIQUE_SHARE: Final = 0.2
#: Applications stay for an hour to three days, evenly over the logarithm.
_STAYS: Final = (3_600.0, 259_200.0)


def application(shape: ApplicationShape, random: Generator) -> CallGraph:
    """A graph without cycles: an entry, layers that call the next one, and stores that many call."""
    layers = [[0]]
    for _ in range(shape.depth):
        size = int(random.integers(1, shape.width + 1))
        first = layers[-1][-1] + 1
        layers.append(list(range(first, first + size)))
    callers = layers[-1][-1] + 1
    calls = set()
    for upper, lower in pairwise(layers):
        for callee in lower:  # every workload has a caller
            calls.add((int(random.choice(upper)), callee))
        for caller in upper:
            more = int(random.integers(1, min(shape.fan_out, len(lower)) + 1))
            calls |= {(caller, int(callee)) for callee in random.choice(lower, size=more, replace=False)}
    for store in range(callers, callers + shape.stores):
        users = np.flatnonzero(random.random(callers) < shape.store_share).tolist() or [callers - 1]
        calls |= {(user, store) for user in users}
    count = callers + shape.stores
    replicas = random.integers(1, shape.replicas + 1, size=count)
    replicas[callers:] = 1  # a store has one primary
    return CallGraph(
        workloads=tuple(f"w{index}" for index in range(callers))
        + tuple(f"store{index}" for index in range(shape.stores)),
        replicas=tuple(replicas.tolist()),
        calls=tuple(sorted(calls)),
        limits=tuple(STORE_LIMIT if callee >= callers else None for _, callee in sorted(calls)),
        cpu=tuple(random.choice(shape.cpu, size=count).tolist()),
    )


def draw_applications(
    count: int, random: Generator, allowed: Callable[[CallGraph], bool]
) -> tuple[tuple[CallGraph, ...], Floats, tuple[str, ...]]:
    """Graphs, seconds that they stay, and kinds of ``count`` applications, of those that are allowed.

    Raises:
        ValueError: none is.
    """
    graphs = [BOUTIQUE] + [application(shape, random) for shape, _ in SHAPES for _ in range(_VARIANTS)]
    kinds = ["boutique"] + [kind for kind in ("small", "medium", "large") for _ in range(_VARIANTS)]
    shares = [_BOUTIQUE_SHARE]
    for _, share in SHAPES:
        shares += [(1 - _BOUTIQUE_SHARE) * share / _VARIANTS] * _VARIANTS
    weights = np.array(shares) * [allowed(graph) for graph in graphs]
    if not weights.any():
        raise ValueError("all applications are larger than what is allowed")
    chosen = random.choice(len(graphs), size=count, p=weights / weights.sum()).tolist()
    low, high = np.log(_STAYS)
    durations = np.exp(random.uniform(low, high, count))
    return tuple(graphs[index] for index in chosen), durations, tuple(kinds[index] for index in chosen)


def app_group(graph: CallGraph, namespace: str, name: str) -> AppGroup:
    """The AppGroup object of one application."""
    needs: list[list[Dependency]] = [[] for _ in graph.workloads]
    limits = graph.limits or (None,) * len(graph.calls)
    for (caller, callee), limit in zip(graph.calls, limits, strict=True):
        needs[caller].append(Dependency(workload=graph.workloads[callee], max_network_cost=limit))
    return AppGroup(
        namespace=namespace,
        name=name,
        workloads=tuple(
            AppWorkload(name=workload, dependencies=tuple(needed))
            for workload, needed in zip(graph.workloads, needs, strict=True)
        ),
        num_members=graph.pods,
    )
