"""The layers of a gang: how our own PodGroup writes them, and what is said about nonsense."""

import pytest

from closeby.objects.groups import (
    Arrangement,
    Exclusive,
    Layer,
    LayerMode,
    PodGroup,
    Remainder,
)
from tests.reading.manifest_text import read_good


def gang(spec: str) -> PodGroup:
    (result,) = read_good(
        f"""
        apiVersion: closeby.dev/v1alpha1
        kind: PodGroup
        metadata: {{name: g}}
        spec: {spec}
        """
    ).groups
    return result


def test_every_field() -> None:
    found = gang(
        "{minMember: 8, layers: [{level: block, size: 4}, {level: rack, size: 2, topology: fabric, "
        "mode: preferred, remainder: allow, arrangement: spread, exclusive: all}]}"
    )
    assert found.layers == (
        Layer(level="block", size=4),
        Layer(
            level="rack",
            size=2,
            topology="fabric",
            mode=LayerMode.PREFERRED,
            remainder=Remainder.ALLOW,
            arrangement=Arrangement.SPREAD,
            exclusive=Exclusive.ALL,
        ),
    )
    assert not found.conditions


def test_a_subgroup_has_layers_of_its_own() -> None:
    found = gang("{subGroups: [{name: driver}, {name: w, minMember: 4, layers: [{level: rack, size: 2}]}]}")
    assert [one.layers for one in found.subgroups] == [(), (Layer(level="rack", size=2),)]
    assert not found.conditions


@pytest.mark.parametrize("level", ["", ", requiredTopologyLevel: block"])
def test_layers_are_levels_of_the_topology_that_the_constraint_names(level: str) -> None:
    found = gang(
        f"{{topologyConstraint: {{topology: fabric{level}}}, layers: [{{level: rack, size: 2}}], "
        "subGroups: [{name: a, layers: [{level: rack, size: 2}]}, "
        "{name: b, layers: [{level: rack, size: 2}], topologyConstraint: {topology: other}}]}"
    )
    assert [one.topology for one in found.layers] == ["fabric"]
    assert [one.layers[0].topology for one in found.subgroups] == ["fabric", "other"]
    assert [one.layers[0].written.topology for one in found.subgroups] == [
        "spec.topologyConstraint.topology",
        "spec.subGroups[1].topologyConstraint.topology",
    ]
    assert [one.field for one in found.conditions if "topologyConstraint" in one.field] == []


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ("{layers: [{level: rack, size: 4}]}", 4),
        ("{layers: [{level: rack, size: 4, minSegments: 3}]}", 12),
        ("{layers: [{level: rack, counts: [1, 3, 4]}]}", 8),
        ("{layers: [{level: rack, counts: [1, 3, 4], minSegments: 2}]}", 4),
        ("{minMember: 8, layers: [{level: rack, size: 4, minSegments: 1}]}", 8),
    ],
)
def test_without_a_minimum_the_segments_say_it(spec: str, minimum: int) -> None:
    assert gang(spec).min_member == minimum


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("{minMember: 6, layers: [{level: rack, size: 4}]}", "spec.layers[0].size"),
        ("{minMember: 6, layers: [{level: rack, counts: [4, 4]}]}", "spec.layers[0].counts"),
        ("{minMember: 8, layers: [{level: rack}]}", "spec.layers[0].size"),
        ("{minMember: 8, layers: [{level: rack, size: 4, counts: [4, 4]}]}", "spec.layers[0].size"),
        ("{minMember: 8, layers: [{level: rack, size: -4}]}", "spec.layers[0].size"),
        ("{minMember: 8, layers: [{size: 4}]}", "spec.layers[0].level"),
        ("{minMember: 8, layers: [{level: rack, size: 4}, {level: rack, size: 4}]}", "spec.layers[1].level"),
        ("{minMember: 12, layers: [{level: block, size: 6}, {level: rack, size: 4}]}", "spec.layers[1].size"),
        ("{minMember: 8, layers: [{level: block, size: 2}, {level: rack, size: 4}]}", "spec.layers[1].size"),
        (
            "{minMember: 8, layers: [{level: block, size: 4}, {level: rack, counts: [1, 2]}]}",
            "spec.layers[1].counts",
        ),
        ("{layers: [{level: rack, size: 4, minSegments: 0}]}", "spec.layers[0].minSegments"),
        (
            "{minMember: 4, layers: [{level: block, size: 4}, {level: rack, size: 2, minSegments: 1}]}",
            "spec.layers[1].minSegments",
        ),
        ("{layers: [{level: rack, size: 4, mode: hard}]}", "spec.layers[0].mode"),
        ("{layers: [{level: rack, size: 1000001}]}", "spec.layers[0].size"),
        ("{layers: [{level: rack, counts: [1000000, 1]}]}", "spec.layers[0].counts"),
        ("{layers: [{level: rack, size: 1, minSegments: 1000001}]}", "spec.layers[0].minSegments"),
        ("{layers: [{level: rack, size: 2}], subGroups: [{name: a}]}", "spec.layers"),
        (
            "{subGroups: [{name: a, minMember: 3, layers: [{level: rack, size: 2}]}]}",
            "spec.subGroups[0].layers[0].size",
        ),
    ],
)
def test_nonsense_keeps_the_gang_waiting(spec: str, field: str) -> None:
    found = gang(spec).conditions
    assert [(one.reason, one.field, one.blocking) for one in found] == [("InvalidSpec", field, True)]


def test_equal_sizes_may_follow_each_other() -> None:
    spec = "{minMember: 8, layers: [{level: block, size: 4}, {level: rack, size: 4, mode: preferred}]}"
    assert not gang(spec).conditions


def test_a_smaller_last_segment_is_allowed_where_the_layer_says_so() -> None:
    assert not gang("{minMember: 6, layers: [{level: rack, size: 4, remainder: allow}]}").conditions
