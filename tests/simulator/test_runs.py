"""One run over manifests: pure, complete, and the same for every order of its input."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.errors import ConfigurationError
from closeby.objects.groups import PodGroup
from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PriorityClass
from closeby.objects.reasons import Reason
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.manifests import Manifests
from closeby.report.documents.common import to_json
from closeby.report.documents.scheduling import scheduling_report
from closeby.simulator.runs import Asked, Run, simulate
from closeby.topology.families import NETWORK_LABELS
from tests.golden.fixture import Golden
from tests.worlds import draw, fabric, gang, pods, spec

NODES = """
    a r1 : a1=4 a2=4
    a r2 : a3=4
    b r1 : b1=8
"""


def manifests(members: Iterable[Pod], *groups: PodGroup, nodes: str = NODES) -> Manifests:
    return Manifests(
        nodes=tuple(draw(nodes)),
        topologies=(fabric("zone", "rack", HOSTNAME),),
        groups=groups,
        pods=tuple(members),
    )


def run(members: Iterable[Pod], *groups: PodGroup) -> Run:
    found = simulate(manifests(members, *groups), Configuration())
    found.engine.validate_state()
    return found


def nodes_of(found: Run) -> dict[str, str | None]:
    return {pod.name: found.node_of(pod) for pod in found.pods}


def test_pods_are_listed_in_natural_order_with_their_nodes() -> None:
    found = run(reversed(pods("train", 11)), gang(min_member=11, required="zone"))
    assert [pod.name for pod in found.pods] == [f"train-{index}" for index in range(11)]
    assert found.places["default/train"].path == ("a",)
    assert found.places["default/train"].span == {"zone": 1, "rack": 2, "hostname": 3}


def test_what_waits_says_why_it_does_after_all_others_were_placed(golden: Golden) -> None:
    """wide is decided first, and finds room for 4 of its 5 pods; one of these places is taken after that."""
    wide = [replace(pod, spec=replace(pod.spec, priority=1)) for pod in pods("wide", 5)]
    group = gang("wide", min_member=5, required="rack")
    found = simulate(manifests([*wide, *pods(None, 1)], group, nodes="a r1 : a1=4"), Configuration())
    assert list(found.bindings) == ["default/pod-0"]
    assert {one.pod.name: one.reason for one in found.leftovers.values()} == dict.fromkeys(
        (f"wide-{number}" for number in range(5)), "GangDoesNotFit"
    )
    shortfall = found.gang_outcomes["default/wide"].shortfall
    assert shortfall is not None
    (lack,) = shortfall.lacks
    assert (lack.free, lack.asked) == (3, 5)
    golden("refusals", found.gang_outcomes["default/wide"].message or "")


def test_a_gang_with_waiting_members_is_reported_as_it_was_placed() -> None:
    """elastic gets 3 of its 4 members; the last room goes after that, and then one of them waits for less."""
    elastic = [replace(pod, spec=replace(pod.spec, priority=1)) for pod in pods("elastic", 4, spec(gpu=2))]
    group = gang("elastic", min_member=1, required="rack")
    members = [*elastic, *pods(None, 1)]
    found = simulate(manifests(members, group, nodes="a r1 : a1=7"), Configuration(), Asked(explain=True))
    outcome = found.gang_outcomes["default/elastic"]
    assert len(outcome.bindings) == 3 and outcome.place is not None and outcome.reason is None
    assert [one.pod.name for one in outcome.left] == ["elastic-3"]
    assert outcome.left[0] == found.leftovers[outcome.left[0].pod.uid]


def test_running_members_are_taken_in_before_anything_is_decided() -> None:
    """Two members run in b; the third joins them although a is tighter."""
    found = run(
        [*pods("train", 2, on="b1"), *pods("train", 1, prefix="late")], gang(min_member=3, required="rack")
    )
    assert nodes_of(found) == {"late-0": "b1", "train-0": "b1", "train-1": "b1"}
    assert found.bindings["default/late-0"].rank == 2


@pytest.mark.parametrize("status", [False, True])
def test_a_member_that_comes_again_gets_no_rank_that_another_one_has(status: bool) -> None:
    """The ranks of those that run stand in the status or, without one, in their labels."""
    ranks = {0: 0, 2: 3, 3: 2}
    members = [replace(pod, index=at) for at, pod in enumerate(pods("train", 4))]
    group = gang(min_member=4)
    for at, rank in ranks.items():
        labels = {} if status else {"closeby.dev/rank": str(rank)}
        members[at] = replace(members[at], node_name="a1", phase="Running", labels=labels)
    if status:
        group = replace(group, ranks={members[at].uid: rank for at, rank in ranks.items()})
    assert run(members, group).bindings["default/train-1"].rank == 1


def test_at_a_given_time_gangs_that_have_waited_long_keep_nodes_free() -> None:
    """The gang needs all of zone a, of which a3 is taken; a1 and a2 would take the small pod."""
    waits = pods("big", 3, spec(gpu=4), created=1_000.0)
    here = [*waits, *pods(None, 1, spec(gpu=4), prefix="old", on="a3"), *pods(None, 1, spec(gpu=8), on="b1")]
    late = pods(None, 1, spec(gpu=1), prefix="late", created=2_000.0)
    given = manifests([*here, *late], gang("big", min_member=3, required="zone"))
    now = simulate(given, Configuration(reserve_after=3_600.0), Asked(wall=1_000.0 + 3_600.0))
    assert now.leftovers["default/late-0"].reason is Reason.NODE_RESERVED
    earlier = simulate(given, Configuration(reserve_after=3_600.0), Asked(wall=1_000.0 + 3_599.0))
    assert nodes_of(earlier)["late-0"] in ("a1", "a2")
    assert nodes_of(simulate(given, Configuration(reserve_after=1.0)))["late-0"] in ("a1", "a2")


def test_higher_priorities_come_first_whatever_the_names() -> None:
    """One node is big enough, and the pod that comes last by name has the higher class."""
    big = spec(gpu=8)
    important = replace(big, priority_class_name="important")
    found = simulate(
        replace(
            manifests([*pods(None, 1, big, prefix="a"), *pods(None, 1, important, prefix="z")]),
            priority_classes=(PriorityClass(name="important", value=10),),
        ),
        Configuration(),
    )
    assert nodes_of(found) == {"a-0": None, "z-0": "b1"}


def test_without_scheduling_it_is_the_state_of_the_manifests() -> None:
    members = [*pods("train", 2), *pods(None, 1, on="a1")]
    found = simulate(manifests(members, gang(min_member=2)), Configuration(), Asked(schedule=False))
    assert nodes_of(found) == {"pod-0": "a1", "train-0": None, "train-1": None}
    assert not found.gang_outcomes


def test_a_pod_and_a_gang_of_the_same_name_are_kept_apart() -> None:
    found = run([*pods("train", 1, prefix="member"), *pods(None, 1)], gang("pod-0"), gang(min_member=1))
    assert list(found.gang_outcomes) == ["default/train"]
    assert list(found.pod_outcomes) == ["default/pod-0"]


def test_network_labels_become_a_topology_and_their_conflicts_are_reported() -> None:
    """Two blocks agree with their zones, the third is in two."""
    block, zone = NETWORK_LABELS.labels[1], NETWORK_LABELS.labels[3]
    places = [
        ("n1", "b1", "z1"),
        ("n2", "b1", "z1"),
        ("n3", "b2", "z2"),
        ("n4", "b3", "z1"),
        ("n5", "b3", "z2"),
    ]
    nodes = tuple(Node(name=name, labels={block: at, zone: under}) for name, at, under in places)
    found = simulate(Manifests(nodes=nodes), Configuration())
    tree = found.engine.topologies.tree("network-labels")
    assert tree is not None
    assert [level.node_label for level in tree.levels] == [zone, block]
    assert len(found.conditions) == 1
    assert "b3" in found.conditions[0].message


def test_a_topology_object_wins_over_labels_of_the_same_name() -> None:
    nodes = (Node(name="n1", labels={NETWORK_LABELS.labels[1]: "b1", "rack": "r1"}),)
    found = simulate(
        Manifests(nodes=nodes, topologies=(fabric("rack", name="network-labels"),)), Configuration()
    )
    tree = found.engine.topologies.tree("network-labels")
    assert tree is not None
    assert tree.level_names[0] == "rack"


def test_a_wrong_configuration_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="NoSuchPlugin"):
        simulate(Manifests(), Configuration(plugins=(PluginEntry(name="NoSuchPlugin"),)))


def test_nothing_at_all_is_fine() -> None:
    found = simulate(Manifests(), Configuration())
    assert (found.pods, found.groups) == ((), ())
    assert [one.object for one in found.conditions] == ["Node"]


MEMBERS = [
    *pods("train", 4, spec(gpu=2)),
    *pods("serve", 3, spec(gpu=1)),
    *pods("big", 2, spec(gpu=8)),
    *pods(None, 3, spec(gpu=1)),
    *pods(None, 2, spec(gpu=2), prefix="old", on="a3"),
]
GROUPS = [
    gang(min_member=4, required="rack"),
    gang("serve", min_member=2, preferred="rack"),
    gang("big", min_member=2, required="zone"),
]


@settings(max_examples=40)
@given(st.permutations(MEMBERS), st.permutations(GROUPS), st.permutations(draw(NODES)))
def test_the_order_of_objects_never_matters(
    members: list[Pod], groups: list[PodGroup], nodes: list[Node]
) -> None:
    def told(found: Manifests) -> str:
        return to_json(scheduling_report(simulate(found, Configuration(), Asked(explain=True)), explain=True))

    straight = manifests(MEMBERS, *GROUPS)
    turned = replace(straight, pods=tuple(members), groups=tuple(groups), nodes=tuple(nodes))
    assert told(turned) == told(straight)
