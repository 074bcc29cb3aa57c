"""From a PodGroup and its pods to who belongs where: leaves, those that name none, and what is missing."""

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Reason
from closeby.scheduling.gangs.rosters import (
    UNASSIGNED,
    Roster,
    constraints_of,
    leaf_names,
    missing,
    parts,
    roster,
    tree_of,
    unassigned,
)
from closeby.topology.registry import Topologies
from tests.worlds import fabric, gang, node, pods, subgroup, world

#   p (x, y)   z
TREE = (subgroup("p"), subgroup("x", 2, parent="p"), subgroup("y", 1, parent="p"), subgroup("z", 1))
GROUP = gang(subgroups=TREE)


def topologies() -> Topologies:
    """Two topologies of one node."""
    one = node("n1", {"rack": "r", "feed": "f"})
    return world([one], fabric("rack"), fabric("feed", name="power")).engine.topologies


def member(name: str | None, count: int = 1) -> list[Pod]:
    return pods("train", count, subgroup=name, prefix=f"of-{name}")


def appeared(group: PodGroup = GROUP, /, **counts: int) -> Roster:
    """So many members of each leaf wait."""
    return roster(group, [pod for name, count in counts.items() for pod in member(name, count)], ())


def test_leaves_are_subgroups_without_children() -> None:
    assert leaf_names(GROUP) == ("x", "y", "z")
    assert leaf_names(gang()) == ("",)


@pytest.mark.parametrize("name", ["p", "nobody", None])
def test_who_names_no_leaf_belongs_to_no_subgroup(name: str | None) -> None:
    (pod,) = member(name)
    members = roster(GROUP, [*member("x"), pod], [(replace(pod, uid="runs"), 7)], done=[name, "z"])
    assert members.waiting[UNASSIGNED] == (pod,)
    assert members.running == {UNASSIGNED: (7,)}
    assert (members.present(UNASSIGNED), members.present("x"), members.present("z")) == (3, 1, 1)
    assert (members.total, members.total_running, members.total_done, members.anchors) == (5, 1, 2, (7,))
    (condition,) = unassigned(GROUP, [*member("x"), pod])
    assert (condition.reason, condition.field) == (Reason.INVALID_SPEC, "spec.subGroups")
    assert unassigned(GROUP, member("x")) == unassigned(gang(), [pod]) == ()


def test_one_that_runs_without_a_subgroup_is_a_part_of_its_own() -> None:
    (pod,) = member("nobody")
    members = roster(GROUP, [*member("x", 2), *member("y"), *member("z")], [(pod, 0)])
    whole = parts(GROUP, members, constraints_of(GROUP, topologies(), False), everyone=False)
    assert [leaf.name for leaf in whole.leaves()] == ["x", "y", "z", UNASSIGNED]
    assert whole.all_anchors() == (0,)


@pytest.mark.parametrize(
    ("counts", "complete"),
    [
        ({"x": 2, "y": 1, "z": 1}, True),
        ({"x": 1, "y": 1, "z": 1}, False),
        ({"x": 2, "z": 1}, False),
        ({"x": 9, "y": 1}, False),
    ],
)
def test_every_leaf_has_its_own_minimum(counts: dict[str, int], complete: bool) -> None:
    assert (missing(GROUP, appeared(**counts)) is None) == complete


@pytest.mark.parametrize(
    ("of_gang", "of_parent", "counts", "complete"),
    [
        (1, None, {"z": 1}, True),
        (1, None, {"x": 2}, False),
        (2, 1, {"x": 2, "z": 1}, True),
        (2, 1, {"x": 1, "z": 1}, False),
        (1, 1, {"y": 1}, True),
        (1, 2, {"y": 1}, False),
    ],
)
def test_so_many_subgroups_must_be_complete(
    of_gang: int, of_parent: int | None, counts: dict[str, int], complete: bool
) -> None:
    parent, *others = TREE
    subgroups = (replace(parent, min_subgroups=of_parent), *others)
    group = replace(GROUP, subgroups=subgroups, min_subgroups=of_gang)
    assert (missing(group, appeared(group, **counts)) is None) == complete


def test_a_part_may_be_left_out_at_any_depth() -> None:
    parent, *others = TREE
    inner = replace(GROUP, subgroups=(replace(parent, min_subgroups=1), *others))
    nothing = constraints_of(GROUP, topologies(), False)
    members = appeared(x=2, y=1, z=1)
    found = {
        name: parts(group, members, nothing, everyone=everyone).may_leave_out
        for name, group, everyone in (
            ("all", GROUP, False),
            ("one of the gang", replace(GROUP, min_subgroups=1), False),
            ("one of the parent", inner, False),
            ("everyone", inner, True),
        )
    }
    assert found == {"all": False, "one of the gang": True, "one of the parent": True, "everyone": False}


def test_closeness_refers_to_the_gangs_own_tree_else_to_the_only_one_of_its_subgroups() -> None:
    known = topologies()

    def told(group: PodGroup) -> str | None:
        tree = tree_of(constraints_of(group, known, close_by_default=False))
        return None if tree is None else tree.name

    on_racks = subgroup("a", required="rack"), subgroup("b", preferred="rack")
    on_power = subgroup("c", required="feed", topology="power")
    assert told(gang(required="rack", subgroups=[on_power])) == "fabric"
    assert told(gang(subgroups=on_racks)) == "fabric"
    assert told(gang(subgroups=[*on_racks, on_power])) is None
    assert told(gang()) is None
