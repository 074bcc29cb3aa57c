"""Volcano's HyperNodes become one topology, with a level for each tier."""

import pytest

from closeby.objects.topologies import tier_level
from closeby.reading.manifests import Manifests
from tests.reading.manifest_text import read_objects

Object = dict[str, object]


def hypernode(name: str, tier: int, *members: Object, called: str = "") -> Object:
    """One HyperNode, shaped as `benchmark/scripts/create-hypernodes.sh` of volcano-sh/volcano writes them."""
    spec: Object = {"tier": tier, "members": list(members)}
    if called:
        spec["tierName"] = called
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": spec,
    }


def node(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def exact(name: str) -> Object:
    return {"type": "Node", "selector": {"exactMatch": {"name": name}}}


def regex(pattern: str) -> Object:
    return {"type": "Node", "selector": {"regexMatch": {"pattern": pattern}}}


def labels(**wanted: str) -> Object:
    return {"type": "Node", "selector": {"labelMatch": {"matchLabels": wanted}}}


def nested(name: str) -> Object:
    return {"type": "HyperNode", "selector": {"exactMatch": {"name": name}}}


def places(manifests: Manifests, tiers: int = 2) -> dict[str, list[str | None]]:
    """Each node's HyperNodes, from the highest tier down."""
    levels = [tier_level(tier) for tier in range(tiers, 0, -1)]
    return {one.name: [one.labels.get(level) for level in levels] for one in manifests.nodes}


#: s4 holds s0 and s1, s5 holds nodes itself; n9 is in none.
UNEVEN = [
    hypernode("s0", 1, exact("n0"), exact("n1"), called="rack"),
    hypernode("s1", 1, regex("^n[23]$"), called="rack"),
    hypernode("s4", 2, nested("s0"), nested("s1"), called="spine"),
    hypernode("s5", 2, labels(rack="old"), called="spine"),
    node("n0"),
    node("n1"),
    node("n2"),
    node("n3"),
    node("n4", rack="old"),
    node("n9"),
]


def test_members_by_name_pattern_and_label_in_a_tree_that_is_uneven() -> None:
    manifests = read_objects(*UNEVEN)
    assert manifests.notices == ()
    assert places(manifests) == {
        "n0": ["s4", "s0"],
        "n1": ["s4", "s0"],
        "n2": ["s4", "s1"],
        "n3": ["s4", "s1"],
        "n4": ["s5", None],
        "n9": [None, None],
    }
    (topology,) = manifests.topologies
    assert topology.name == "hypernodes"
    assert [(one.node_label, one.alias) for one in topology.levels] == [
        (tier_level(2), "spine"),
        (tier_level(1), "rack"),
    ]


def test_the_order_of_the_documents_makes_no_difference() -> None:
    assert places(read_objects(*reversed(UNEVEN))) == places(read_objects(*UNEVEN))


def test_a_hypernode_without_one_of_the_next_tier_stands_in_for_it() -> None:
    # What a job may use that allows tier 2 are the HyperNodes of tier 2 and of lower ones.
    manifests = read_objects(
        hypernode("a", 1, exact("n0")),
        hypernode("b", 2, exact("n1")),
        hypernode("top", 3, nested("a"), nested("b")),
        hypernode("c", 1, exact("n2")),
        node("n0"),
        node("n1"),
        node("n2"),
    )
    assert places(manifests, 3) == {
        "n0": ["top", "a", "a"],
        "n1": ["top", "b", None],
        "n2": ["c", "c", "c"],
    }


@pytest.mark.parametrize(
    ("hypernodes", "object_", "field", "remedy"),
    [
        *(
            (
                [hypernode("a", 1, regex(text))],
                "HyperNode/a",
                "spec.members[0].selector.regexMatch.pattern",
                "",
            )
            for text in ("[", f"a{{{'9' * 20}}}", "(" * 5000 + ")" * 5000)
        ),
        ([hypernode("a", 1, labels())], "HyperNode/a", "spec.members[0].selector.labelMatch", "name a label"),
        ([hypernode("a", 1, {"type": "Rack"})], "HyperNode/a", "spec.members[0].type", "Node or HyperNode"),
        ([hypernode("a", 1, {"type": "Node"})], "HyperNode/a", "spec.members[0].selector", "add one"),
        (
            [hypernode("a", 2, {**regex("b"), "type": "HyperNode"})],
            "HyperNode/a",
            "spec.members[0].selector",
            "exactMatch",
        ),
        ([hypernode("a", 2, nested("b"))], "HyperNode/a", "spec.members", "create it"),
        (
            [hypernode("a", 1, nested("b")), hypernode("b", 1, nested("a"))],
            "HyperNode/a",
            "spec.members",
            "greater tier",
        ),
        (
            [hypernode("a", 2, nested("c")), hypernode("b", 2, nested("c")), hypernode("c", 1, exact("n"))],
            "HyperNode/b",
            "spec.members",
            "one parent",
        ),
        (
            [hypernode("a", 1, exact("n"), called="x"), hypernode("b", 1, exact("m"), called="y")],
            "HyperNode/b",
            "spec.tierName",
            "one name",
        ),
        (
            [hypernode("a", 1, exact("n"), called="x"), hypernode("b", 2, nested("a"), called="x")],
            "HyperNode/b",
            "spec.tierName",
            "its own name",
        ),
    ],
)
def test_what_makes_no_sense_is_said_and_the_rest_counts(
    hypernodes: list[Object], object_: str, field: str, remedy: str
) -> None:
    manifests = read_objects(*hypernodes, hypernode("good", 1, exact("n9")), node("n9"))
    found = [*manifests.notices, *(one for top in manifests.topologies for one in top.conditions)]
    assert (found[0].object, found[0].field, found[0].blocking) == (object_, field, False)
    assert remedy in found[0].remedy
    assert places(manifests)["n9"][-1] == "good"


def test_a_node_in_two_hypernodes_of_a_tier_is_in_the_first_by_name() -> None:
    manifests = read_objects(hypernode("b", 1, regex("n")), hypernode("a", 1, exact("n0")), node("n0"))
    assert places(manifests)["n0"][-1] == "a"


@pytest.mark.parametrize("pattern", ["(n+)+$", "(a|aa)+$", "((a|b)c){1,30}$", "(?P<n>a+)*", ".*" * 9 + "x"])
def test_a_pattern_that_may_take_very_long_has_no_members(pattern: str) -> None:
    """Python would try 2^26 ways for the first one on the first node."""
    manifests = read_objects(hypernode("a", 1, regex(pattern)), node("n" * 26 + "0"), node("n"))
    (notice,) = manifests.notices
    assert notice.field == "spec.members[0].selector.regexMatch.pattern"
    assert places(manifests, 1) == {"n" * 26 + "0": [None], "n": [None]}


@pytest.mark.parametrize(
    "pattern",
    ["^(n-|m-)?[0-9]+$", "^n-([0-9]{2})+$", "^n-c?\\d{2,4}?$", "^(?:n|m)[-](?i:[0-9])[0-9]", "[^)(+*]+1+"],
)
def test_usual_patterns_have_members(pattern: str) -> None:
    manifests = read_objects(hypernode("a", 1, regex(pattern)), node("n-11"))
    assert manifests.notices == ()
    assert places(manifests, 1) == {"n-11": ["a"]}


def test_of_more_tiers_than_levels_no_node_is_labelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each HyperNode is the only member of the next."""
    asked: list[int] = []

    def counting(tier: int) -> str:
        asked.append(tier)
        return tier_level(tier)

    monkeypatch.setattr("closeby.reading.dialects.hypernodes.tier_level", counting)
    chain = [hypernode(f"h{tier}", tier, nested(f"h{tier - 1}")) for tier in range(1, 200)]
    manifests = read_objects(hypernode("h0", 0, exact("n")), *chain, node("n"))
    (topology,) = manifests.topologies
    assert any(one.blocking for one in topology.conditions)
    assert len(asked) <= 2 * 200
