"""Applications of microservices are graphs without cycles, of the shape that was asked for."""

import pytest
from numpy.random import PCG64, Generator

from closeby.applications.sorts import topology_order
from closeby.lab.workloads.applications import BOUTIQUE, ApplicationShape, app_group, application
from closeby.lab.workloads.generating import generate
from closeby.lab.workloads.jobs import CallGraph


def depths(graph: CallGraph) -> list[int]:
    """Longest way from the entry to each workload, in calls."""
    depth = [0] * len(graph.workloads)
    for caller, callee in graph.calls:
        assert caller < callee, "callees come after their callers: no cycle"
        depth[callee] = max(depth[callee], depth[caller] + 1)
    return depth


@pytest.mark.parametrize("seed", range(20))
def test_an_application_has_its_shape(seed: int) -> None:
    """Three layers below one entry, everybody but the entry is called, and two stores at the end."""
    shape = ApplicationShape(depth=3, width=5, fan_out=2, stores=2)
    graph = application(shape, Generator(PCG64(seed)))
    depth = depths(graph)
    assert [index for index, level in enumerate(depth) if level == 0] == [0]
    assert max(depth) in (3, 4), "a store may be called by the last layer"
    assert graph.workloads[-2:] == ("store0", "store1")
    assert graph.replicas[-2:] == (1, 1)
    assert len(set(graph.workloads)) == len(graph.replicas) == len(graph.cpu)


def test_stores_are_called_by_every_workload() -> None:
    graph = application(ApplicationShape(depth=4, width=8, stores=1, store_share=1.0), Generator(PCG64(1)))
    store = len(graph.workloads) - 1
    assert sum(callee == store for _, callee in graph.calls) == store


def test_the_boutique_is_the_one_of_the_network_aware_scheduling_kep() -> None:
    """Frontend calls seven services, checkout six, recommendation one; the cart has its Redis."""
    called: dict[str, list[str]] = {}
    for caller, callee in BOUTIQUE.calls:
        called.setdefault(BOUTIQUE.workloads[caller], []).append(BOUTIQUE.workloads[callee])
    assert {name: len(callees) for name, callees in called.items()} == {
        "frontend": 7,
        "checkout": 6,
        "recommendation": 1,
        "cart": 1,
    }
    assert BOUTIQUE.pods == 11
    assert BOUTIQUE.cores == pytest.approx(2.325)


def test_a_graph_becomes_an_app_group() -> None:
    graph = CallGraph(
        workloads=("a", "b", "c"), replicas=(2, 1, 1), calls=((0, 1), (1, 2)), cpu=(100, 100, 100)
    )
    app = app_group(graph, "default", "shop-1")
    assert (app.key, app.num_members) == ("default/shop-1", 4)
    assert [(one.name, [need.workload for need in one.dependencies]) for one in app.workloads] == [
        ("a", ["b"]),
        ("b", ["c"]),
        ("c", []),
    ]
    assert topology_order(app).conditions == ()


def test_calls_may_have_a_limit() -> None:
    graph = CallGraph(
        workloads=("a", "b", "c"),
        replicas=(1, 1, 1),
        calls=((0, 1), (0, 2)),
        cpu=(100,) * 3,
        limits=(None, 7),
    )
    caller = app_group(graph, "default", "shop-1").workloads[0]
    assert [(need.workload, need.max_network_cost) for need in caller.dependencies] == [("b", None), ("c", 7)]


def test_stores_must_be_near_their_callers() -> None:
    jobs = generate("microservices", jobs=300, load=0.5, capacity=1000, seed=3)
    for graph, kind in zip(jobs.graphs, jobs.kinds, strict=True):
        assert graph is not None
        limited = {
            callee for (_, callee), limit in zip(graph.calls, graph.limits, strict=False) if limit == 5
        }
        stores = {index for index, name in enumerate(graph.workloads) if name.startswith("store")}
        assert limited == stores
        assert (kind == "boutique") == (not stores)


def test_a_workload_of_applications_offers_its_load_in_cores() -> None:
    jobs = generate("microservices", jobs=2_000, load=0.5, capacity=1000, seed=3)
    graphs = [graph for graph in jobs.graphs if graph is not None]
    assert len(graphs) == len(jobs) == 2_000
    assert jobs.pods.tolist() == [graph.pods for graph in graphs]
    assert set(jobs.gpus.tolist()) == {0}
    offered = sum(graph.cores * stay for graph, stay in zip(graphs, jobs.durations.tolist(), strict=True))
    assert jobs.submitted[-1] == pytest.approx(offered / (0.5 * 1000), rel=0.02)
    assert {"boutique", "small", "medium", "large"} == set(jobs.kinds)
    assert sum(kind == "boutique" for kind in jobs.kinds) == pytest.approx(400, abs=60)
