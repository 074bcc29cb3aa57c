"""The map of the cluster: one character per node, one word per leaf."""

from closeby.objects.labels import HOSTNAME
from closeby.reading.configuration import Configuration
from closeby.reading.manifests import Manifests
from closeby.report.views.demo import letters, rack_map
from closeby.simulator.runs import Run, simulate
from tests.worlds import draw, fabric, gang, node, pods, spec


def lines(run: Run, width: int = 80) -> list[str]:
    tree = run.engine.topologies.tree("fabric")
    assert tree is not None
    marks = letters([group.key for group in run.groups if run.gang_outcomes.get(group.key)])
    return [line.plain for line in rack_map(run, tree, marks, width)]


def test_free_used_and_newly_placed_nodes() -> None:
    """a1 is free, a2 half used, a3 full, a4 cordoned; the gang goes to b."""
    cordoned = node("a4", {"zone": "a", "rack": "r2"}, {"example.com/gpu": 4}, unschedulable=True)
    nodes = [*draw("a r1 : a1=4 a2=4\na r2 : a3=4\nb r1 : b1=4 b2=4 b3=4"), cordoned]
    running = [
        *pods(None, 1, spec(gpu=2), prefix="half", on="a2"),
        *pods(None, 1, spec(gpu=4), prefix="full", on="a3"),
    ]
    run = simulate(
        Manifests(
            nodes=tuple(nodes),
            topologies=(fabric("zone", "rack", HOSTNAME),),
            groups=(gang(min_member=2, required="zone"),),
            pods=(*running, *pods("train", 2, spec(gpu=4))),
        ),
        Configuration(),
    )
    assert lines(run) == ["a  4 nodes, 38 % in use", "  ·▃ █x", "b  3 nodes, 67 % in use", "  AA·"]


def test_lines_are_wrapped_between_leaves() -> None:
    """Five racks of three nodes; a word and the space behind it are four characters."""
    drawing = "\n".join(
        f"a r{rack} : " + " ".join(f"n{rack}{number}=1" for number in "123") for rack in range(5)
    )
    manifests = Manifests(nodes=tuple(draw(drawing)), topologies=(fabric("zone", "rack", HOSTNAME),))
    run = simulate(manifests, Configuration())
    assert lines(run, width=12)[1:] == ["  ··· ···", "  ··· ···", "  ···"]


def test_a_topology_of_one_level_is_one_paragraph() -> None:
    manifests = Manifests(
        nodes=tuple(draw("r1 : a=1 b=1\nr2 : c=1", ["rack"])), topologies=(fabric("rack", HOSTNAME),)
    )
    run = simulate(manifests, Configuration())
    assert lines(run) == ["the cluster  3 nodes, 0 % in use", "  ·· ·"]


def test_letters_start_over_after_z() -> None:
    given = letters([f"g{number}" for number in range(27)])
    assert (given["g0"][0], given["g25"][0], given["g26"][0]) == ("A", "Z", "A")
