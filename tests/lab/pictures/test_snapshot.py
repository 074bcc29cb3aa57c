"""A run over manifests as a scene: who holds what, in which topology, and what is said about the rest."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from closeby.lab.pictures.album import notes_on
from closeby.lab.pictures.boxes import boxes_of
from closeby.lab.pictures.gang_marks import pieces_of
from closeby.lab.pictures.paper import with_datasets
from closeby.lab.pictures.rack_map import rack_map
from closeby.lab.pictures.scene import scene_of
from closeby.lab.pictures.snapshot import snapshot
from closeby.objects.labels import HOSTNAME, ZONE
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests, read_manifests
from closeby.simulator.runs import simulate
from tests.golden.fixture import Golden
from tests.lab.pictures.histories import applications
from tests.worlds import draw, fabric, gang, node, pods, spec

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
DRAWING = "a l1 : n1=4 n2=4\na l2 : n3=4"


def test_gangs_then_single_pods(golden: Golden) -> None:
    """Two pods of 3 GPUs that are placed by rank, and one of 1 that runs."""
    run = simulate(
        Manifests(
            nodes=tuple(draw(DRAWING, ["zone", "leaf"])),
            topologies=(fabric("zone", "leaf", HOSTNAME),),
            groups=(gang(min_member=2, required="leaf"),),
            pods=(*pods("train", 2, spec(gpu=3)), *pods(None, 1, spec(gpu=1), prefix="solo", on="n1")),
        ),
        Configuration(),
    )
    scene = snapshot(run)
    assert [(one.name, one.has_colour, one.asks) for one in scene.tenants] == [
        ("default/train", True, "2 pods × 3 GPUs"),
        ("default/solo-0", False, "1 pod × 1 GPU"),
    ]
    golden("pictures", scene.tenants[0].in_short)
    assert sorted(scene.nodes[slot] for slot in scene.slots[:2].tolist()) == ["n1", "n2"]
    assert (scene.resource, scene.coloured, scene.left_out) == ("GPU", "gangs", ())
    pieces = pieces_of(scene)
    held = np.bincount(pieces.slots, weights=(pieces.high - pieces.low) * 4, minlength=3)
    assert dict(zip(scene.nodes, held.tolist(), strict=True)) == {"n1": 4, "n2": 3, "n3": 0}


def test_nodes_that_may_not_be_used() -> None:
    cordoned = node("n9", {"zone": "a", "leaf": "l1"}, {"example.com/gpu": 4}, unschedulable=True)
    nodes = (*draw(DRAWING, ["zone", "leaf"]), cordoned)
    scene = snapshot(simulate(Manifests(nodes=nodes, topologies=(fabric("zone", "leaf"),)), Configuration()))
    assert [name for name, usable in zip(scene.nodes, scene.usable, strict=True) if not usable] == ["n9"]


def test_of_several_topologies_the_one_is_drawn_in_which_gangs_lie(golden: Golden) -> None:
    """The gang asks for a leaf of topology second; first has as many levels and the earlier name."""
    run = simulate(
        Manifests(
            nodes=tuple(draw(DRAWING, ["zone", "leaf"])),
            topologies=(fabric("zone", HOSTNAME, name="first"), fabric("leaf", HOSTNAME, name="second")),
            groups=(gang(min_member=2, required="leaf", topology="second"),),
            pods=tuple(pods("train", 2, spec(gpu=4))),
        ),
        Configuration(),
    )
    scene = snapshot(run)
    assert scene.tree.name == "second"
    golden("pictures", notes_on(scene))


def test_without_a_topology_all_nodes_lie_side_by_side(golden: Golden) -> None:
    scene = snapshot(simulate(Manifests(nodes=tuple(draw(DRAWING, ["zone", "leaf"]))), Configuration()))
    assert scene.tree.levels == ()
    golden("pictures", notes_on(scene))


def test_an_application_has_a_colour_and_is_counted_in_cores() -> None:
    run = simulate(read_manifests([str(EXAMPLES / "shop")]), Configuration())
    scene = snapshot(run)
    services = ("cart", "catalog", "database", "frontend")
    assert sorted(one.name for one in scene.tenants) == [f"default/shop/{name}" for name in services]
    assert (scene.resource, scene.coloured) == ("cpu", "services")
    assert [level.node_label for level in scene.tree.levels][-1] == ZONE
    pieces = pieces_of(scene)
    assert (pieces.high <= 1).all()
    cores = (pieces.high - pieces.low) @ scene.capacity[pieces.slots]
    assert float(cores) == pytest.approx(sum(one.size for one in scene.tenants))


def test_the_map_of_a_run_over_time_knows_the_services_of_each_node() -> None:
    """shop has a web and a store, on two nodes; bank both of them on one."""
    scene = scene_of(applications())
    assert scene.services.count("web") == 4
    document = with_datasets(rack_map(scene, boxes_of(scene.tree)))
    tables = [list(csv.DictReader(io.StringIO(one))) for one in document["datasets"].values()]
    (held,) = [table for table in tables if table and "services" in table[0]]
    names = {(scene.tenants[int(row["tenant"])].name, scene.nodes[int(row["slot"])]): row for row in held}
    assert names["shop", "n1"]["services"] == "web"
    assert names["shop", "n2"]["services"] == "store"
    assert names["bank", "n5"]["services"] == "web, store"
