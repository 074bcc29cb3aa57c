"""In which order the parts of a gang are placed, and for which of them every way has to be tried."""

from collections.abc import Sequence

from closeby.objects.pods import PodSpec
from closeby.scheduling.gangs.parts import Part, entangled, hardest_first, with_preferences_required
from closeby.scheduling.judging.classes import ClassTable
from closeby.topology.constraints import Levels
from closeby.topology.tree import Tree
from tests.worlds import World, fabric, node, pods, spec, world


def three_racks() -> World:
    """Racks of one topology, power feeds of another."""
    nodes = [node(f"n{at}", {"zone": "z", "rack": f"r{at}", "feed": f"f{at % 2}"}) for at in range(3)]
    return world(nodes, fabric("zone", "rack"), fabric("feed", name="power"))


DRAWN = three_racks()


def tree(name: str = "fabric") -> Tree:
    found = DRAWN.engine.topologies.tree(name)
    assert found is not None
    return found


def part(
    name: str,
    count: int = 1,
    *,
    required: int | None = None,
    preferred: int | None = None,
    topology: str = "fabric",
    needs: PodSpec | None = None,
    children: Sequence[Part] = (),
    by_default: bool = False,
) -> Part:
    """A leaf with so many equal pods, or a part with children; levels by their index."""
    asks = required is not None or preferred is not None
    levels = Levels(tree=tree(topology), required=required, preferred=preferred, by_default=by_default)
    return Part(
        name=name,
        levels=levels if asks else None,
        children=tuple(children),
        core=() if children else tuple(pods("train", count, needs or EQUAL, name)),
    )


EQUAL = spec(gpu=1)
ZONE, RACK = 0, 1


def names(parts: Sequence[Part]) -> str:
    return " ".join(part.name for part in parts)


def apart(*children: Part) -> dict[str, list[str]]:
    """The leaves of which all ways are tried, with the trees in which nodes are told apart."""
    table = ClassTable(DRAWN.engine.cluster, DRAWN.engine.profile.filters, ())
    found = entangled(part("", children=children), table)
    return {name: [tree.name for tree in one.trees] for name, one in found.items()}


def test_finer_requirements_then_more_pods_then_the_name() -> None:
    children = [
        part("free", 9),
        part("b", 2, required=RACK),
        part("zoned", 5, required=ZONE),
        part("a", 2, required=RACK),
        part("many", 3, required=RACK),
    ]
    assert names(hardest_first(part("", children=children))) == "many a b zoned free"


def test_what_is_only_preferred_makes_nothing_harder() -> None:
    children = [part("a", preferred=RACK), part("b", required=ZONE)]
    assert names(hardest_first(part("", children=children))) == "b a"


def test_a_parent_is_as_hard_as_the_hardest_below_it() -> None:
    parent = part("p", required=ZONE, children=[part("x", required=RACK), part("y")])
    assert names(hardest_first(part("", children=[part("a", 2, required=ZONE), parent]))) == "p a"


def test_a_parent_has_the_pods_of_all_its_children() -> None:
    parent = part("p", required=ZONE, children=[part("x", 2), part("y", 2)])
    assert names(hardest_first(part("", children=[part("a", 3, required=ZONE), parent]))) == "p a"


def test_equal_pods_with_the_finer_ones_first_need_one_way_for_each_domain() -> None:
    assert apart(part("a", 2, required=RACK), part("b", 2, required=RACK), part("c", required=ZONE)) == {}


def test_a_coarser_one_before_a_finer_one_gets_in_its_way() -> None:
    """The parent of x goes first as a whole, and with it y, which may be anywhere in its zone."""
    parent = part("p", 0, required=ZONE, children=[part("x", required=RACK), part("y")])
    other = part("q", 0, required=ZONE, children=[part("z", required=RACK)])
    assert apart(parent, other) == {"y": ["fabric"]}


def test_a_requirement_above_a_leaf_holds_for_it() -> None:
    """y is confined to a rack by its parent, as z is: neither gets in the way of the other."""
    parent = part("p", 0, required=RACK, children=[part("y")])
    assert apart(parent, part("z", required=RACK)) == {}


def test_unequal_pods_are_distinguished_but_for_the_last() -> None:
    big = part("big", 1, required=RACK, needs=spec(gpu=4))
    assert apart(part("a", 2, required=RACK), big, part("c")) == {"a": ["fabric"], "big": ["fabric"]}


def test_requirements_in_two_topologies_are_distinguished() -> None:
    found = apart(part("a", 2, required=RACK), part("b", 1, required=ZONE, topology="power"))
    assert {name: sorted(trees) for name, trees in found.items()} == {"a": ["fabric", "power"]}


def test_leaves_without_a_minimum_get_in_no_others_way() -> None:
    big = part("big", 1, needs=spec(gpu=4))
    assert apart(part("none", 0, required=RACK), big, part("c")) == {"big": ["fabric"]}


def test_preferences_become_requirements_where_a_pod_asked() -> None:
    asked = part(
        "", children=[part("a", preferred=RACK), part("b", required=ZONE, preferred=RACK), part("c")]
    )
    close = with_preferences_required(asked)
    assert close is not None
    found = [
        None if one.levels is None else (one.levels.required, one.levels.preferred) for one in close.leaves()
    ]
    assert found == [(RACK, None), (RACK, None), None]
    assert with_preferences_required(part("", children=[part("a", required=RACK)])) is None
    assert with_preferences_required(part("", children=[part("a", preferred=RACK, by_default=True)])) is None
    assert with_preferences_required(part("a", preferred=RACK)) is None, "a gang without subgroups"
