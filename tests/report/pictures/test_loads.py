"""How busy domains are and what leaves them.

a: l1 (n1, n2), l2 (n3, n4)    b: l1 (n5, n6), l2 (n7)
"""

from closeby.report.pictures.loads import loads_of
from closeby.report.pictures.scene import scene_of
from closeby.simulator.replay.history import History
from closeby.topology.tree import Domain
from tests.report.pictures.histories import Job, history

Told = dict[tuple[str, str], tuple[float, float]]


def told(past: History, level: int) -> Told:
    """GPUs held and flows out by job and domain."""
    scene = scene_of(past)
    loads = loads_of(scene, level)
    columns = (loads.tenants.tolist(), loads.domains.tolist(), loads.held.tolist(), loads.flows.tolist())
    return {
        (scene.tenants[tenant].name, "/".join(map(str, scene.tree.path(Domain(level, domain))))): (
            held,
            flows,
        )
        for tenant, domain, held, flows in zip(*columns, strict=True)
    }


def test_a_ring_leaves_each_leaf_once() -> None:
    """n1 -> n2 -> n3 -> n1: one pod of l1 sends to l2 and one back, each with its four GPUs."""
    past = history({"g": Job(nodes=("n1", "n2", "n3"), start=0.0, end=9.0)}, until=9.0)
    assert told(past, 1) == {("g", "a/l1"): (8, 4), ("g", "a/l2"): (4, 4)}
    assert told(past, 0) == {("g", "a"): (12, 0)}
    assert told(past, -1) == {("g", ""): (12, 0)}


def test_ranks_that_go_to_and_fro_leave_more_often() -> None:
    """n1 -> n5 -> n2 -> n6 -> n1: every hop changes zones; in good order two of four would."""
    past = history({"g": Job(nodes=("n1", "n5", "n2", "n6"), gpus=2, start=0.0, end=9.0)}, until=9.0)
    assert told(past, 0) == {("g", "a"): (4, 4), ("g", "b"): (4, 4)}
    good = history({"g": Job(nodes=("n1", "n2", "n5", "n6"), gpus=2, start=0.0, end=9.0)}, until=9.0)
    assert told(good, 0) == {("g", "a"): (4, 2), ("g", "b"): (4, 2)}


def test_single_pods_send_nothing() -> None:
    past = history(
        {
            "one": Job(nodes=("n1",), start=0.0, end=9.0),
            "two": Job(nodes=("n3", "n7"), gpus=1, start=0.0, end=9.0),
        },
        until=9.0,
    )
    assert told(past, 1) == {("one", "a/l1"): (4, 0), ("two", "a/l2"): (1, 1), ("two", "b/l2"): (1, 1)}
