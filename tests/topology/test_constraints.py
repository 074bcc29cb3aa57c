"""Which tree and levels a constraint names, and why it names none."""

import pytest

from closeby.objects.groups import TopologyConstraint
from closeby.objects.reasons import Reason
from closeby.objects.topologies import Topology, TopologyLevel
from closeby.topology.constraints import Resolution, resolve
from closeby.topology.registry import Topologies
from tests.topology.drawing import Slots


def resolved(
    topology: str | None = None, required: str | None = None, preferred: str | None = None
) -> Resolution:
    """On the topologies ``network`` (zone, rack) and ``power`` (zone, feed) of one node."""
    slots = Slots({"n1": {"zone": "z", "rack": "r", "feed": "f"}})
    topologies = Topologies(slots.labels, slots.names)
    for name, labels in (("network", "zone rack"), ("power", "zone feed")):
        topologies.declare(Topology(name=name, levels=tuple(map(TopologyLevel, labels.split()))))
    asked = TopologyConstraint(topology=topology, required=required, preferred=preferred)
    return resolve(asked, topologies, "PodGroup/g", "spec.topologyConstraint")


def found(resolution: Resolution) -> tuple[str, int | None, int | None] | None:
    levels = resolution.levels
    return None if levels is None else (levels.tree.name, levels.required, levels.preferred)


@pytest.mark.parametrize(
    ("required", "preferred", "expected"),
    [
        ("rack", None, ("network", 1, None)),
        (None, "rack", ("network", None, 1)),
        (None, "feed", ("power", None, 1)),
    ],
)
def test_without_a_name_it_is_the_topology_that_has_the_level(
    required: str | None, preferred: str | None, expected: tuple[str, int | None, int | None]
) -> None:
    resolution = resolved(required=required, preferred=preferred)
    assert found(resolution) == expected
    assert resolution.conditions == ()


def test_the_required_level_finds_the_topology_where_both_are_given() -> None:
    """``feed`` alone would find ``power``, which has no rack."""
    resolution = resolved(required="rack", preferred="feed")
    assert found(resolution) == ("network", 1, None)
    (condition,) = resolution.conditions
    assert (condition.reason, condition.blocking) == (Reason.TOPOLOGY_LEVEL_NOT_FOUND, False)
    assert condition.field == "spec.topologyConstraint.preferredTopologyLevel"


@pytest.mark.parametrize(("level", "reason"), [("zone", Reason.TOPOLOGY_NOT_FOUND), ("row", None)])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_level_of_two_topologies_or_of_none_finds_none(
    level: str, reason: Reason | None, blocking: bool
) -> None:
    resolution = resolved(**{"required" if blocking else "preferred": level})
    assert resolution.levels is None
    (condition,) = resolution.conditions
    assert condition.reason == (reason or Reason.TOPOLOGY_LEVEL_NOT_FOUND)
    assert (condition.blocking, condition.field) == (blocking, "spec.topologyConstraint")


@pytest.mark.parametrize(
    ("topology", "level", "meant"),
    [(None, "rak", "rack"), ("network", "rak", "rack"), ("netwrk", "rack", "network"), (None, "row", None)],
)
def test_a_misspelt_name_gets_the_one_that_was_meant(
    topology: str | None, level: str, meant: str | None
) -> None:
    (condition,) = resolved(topology, required=level).conditions
    assert condition.remedy.startswith(f"did you mean {meant}?") == (meant is not None)


def test_nothing_asked_for_is_nothing_to_enforce() -> None:
    nothing = resolved()
    assert (nothing.levels, nothing.conditions) == (None, ())


@pytest.mark.parametrize(("required", "preferred"), [("zone", "rack"), ("rack", "rack")])
def test_the_preferred_level_may_be_the_required_one_or_finer(required: str, preferred: str) -> None:
    assert resolved("network", required, preferred).conditions == ()


def test_a_preferred_level_above_the_required_one_is_refused() -> None:
    resolution = resolved("network", "rack", "zone")
    assert resolution.levels is None
    assert [(one.reason, one.blocking) for one in resolution.conditions] == [(Reason.INVALID_SPEC, True)]


def test_a_topology_without_a_level_stands_for_its_tightest_domain() -> None:
    resolution = resolved("network")
    assert resolution.levels is not None and resolution.levels.by_default
    assert found(resolution) == ("network", None, resolution.levels.tree.node_level)
    assert [(one.reason, one.blocking) for one in resolution.conditions] == [(Reason.INVALID_SPEC, False)]


@pytest.mark.parametrize(("level", "blocking"), [("required", True), ("preferred", False)])
def test_a_topology_that_is_not_there_blocks_only_what_is_required(level: str, blocking: bool) -> None:
    resolution = resolved("storage", **{level: "rack"})
    assert resolution.levels is None
    (condition,) = resolution.conditions
    assert (condition.reason, condition.blocking) == (Reason.TOPOLOGY_NOT_FOUND, blocking)
    assert condition.field == "spec.topologyConstraint.topology"
