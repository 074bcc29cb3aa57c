"""How busy domains are, what leaves them, and how much of that their uplinks carry.

a: l1 (n1, n2), l2 (n3, n4)    b: l1 (n5, n6), l2 (n7)    4 GPUs and so 4 links a node
"""

from pathlib import Path

import pytest

from closeby.lab.pictures.fabric import greatest_load, loads_of
from closeby.lab.pictures.scene import Scene, scene_of
from closeby.lab.pictures.snapshot import snapshot
from closeby.lab.replay.history import History
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import read_manifests
from closeby.report.documents.quality import gang_qualities
from closeby.simulator.runs import Run, simulate
from closeby.topology.tree import Domain
from tests.lab.pictures.histories import Job, history

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
Told = dict[tuple[str, str], tuple[float, float]]


def told(past: History, level: int) -> Told:
    """GPUs held and flows out by job and domain."""
    scene = scene_of(past)
    loads = loads_of(scene, scene.tree.node_level)[level + 1]
    assert loads.level == level
    columns = (loads.tenants.tolist(), loads.domains.tolist(), loads.held.tolist(), loads.flows.tolist())
    return {
        (scene.tenants[tenant].name, "/".join(map(str, scene.tree.path(Domain(level, domain))))): (
            held,
            flows,
        )
        for tenant, domain, held, flows in zip(*columns, strict=True)
    }


def run_of(example: str) -> Run:
    return simulate(read_manifests([str(EXAMPLES / example)]), Configuration())


def per_link(scene: Scene) -> dict[str, float]:
    """Flows per full link of each domain's uplink when all tenants are there."""
    found: dict[str, float] = {}
    for loads in loads_of(scene, scene.tree.node_level)[1:]:
        for index, links in enumerate(loads.links.tolist()):
            flows = float(loads.flows[loads.domains == index].sum())
            found["/".join(map(str, scene.tree.path(Domain(loads.level, index))))] = flows / links
    return found


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


def test_an_uplink_has_the_links_below_over_the_oversubscription_above() -> None:
    """n1 -> n3 -> n5 -> n1 with 4 GPUs a pod: 4 flows leave each leaf and each zone.

    a/l1 has 8 links / 1.2 for its 4, b the 12 of three nodes / 7; n7 sends nothing.
    """
    past = history({"g": Job(nodes=("n1", "n3", "n5"), start=0.0, end=9.0)}, until=9.0)
    assert per_link(scene_of(past)) == pytest.approx(
        {
            "a": 4 / (16 / 7),
            "b": 4 / (12 / 7),
            "a/l1": 4 / (8 / 1.2),
            "a/l2": 4 / (8 / 1.2),
            "b/l1": 4 / (8 / 1.2),
            "b/l2": 0,
        }
    )


def test_the_greatest_load_is_that_of_gangs_that_ran_at_the_same_time() -> None:
    """Two gangs send 4 flows each out of a and b, b's 12 links / 7: together, or one after the other."""
    first = Job(nodes=("n1", "n5"), start=0.0, end=6.0)
    for start, flows in ((3.0, 8), (6.0, 4)):
        past = history({"g": first, "h": Job(nodes=("n2", "n6"), start=start, end=9.0)}, until=9.0)
        scene = scene_of(past)
        most = greatest_load(scene, loads_of(scene, scene.tree.node_level))
        assert most == pytest.approx(flows / (12 / 7))


def test_the_load_is_that_of_the_measures_worked_example() -> None:
    """docs/measures.md: a, b, c and e with 8 GPUs each; block-2 has 16 links / 7 for 8 flows.

    The all-reduce among others takes 62 steps of 11.6 us, and 62/32 GiB at an equal share of the narrowest
    uplink.
    """
    run = run_of("measures")
    found = per_link(snapshot(run))
    assert found == pytest.approx(
        {
            "block-1": 8 / (32 / 7),
            "block-2": 8 / (16 / 7),
            "block-1/rack-1": 8 / (16 / 1.2),
            "block-1/rack-2": 8 / (16 / 1.2),
            "block-2/rack-3": 8 / (8 / 1.2),
            "block-2/rack-4": 0,
        }
    )
    (quality,) = gang_qualities(run).values()
    seconds = 62 * 11.6e-6 + 62 / 32 * 2**30 / (8 * 50e9 / max(found.values()))
    assert quality.contended_all_reduce_seconds == pytest.approx(seconds, rel=1e-5)


def test_applications_form_no_rings() -> None:
    scene = snapshot(run_of("shop"))
    assert len(scene.slots) > 1
    assert not scene.has_rings
    assert not any(loads.flows.any() for loads in loads_of(scene, scene.tree.node_level))
