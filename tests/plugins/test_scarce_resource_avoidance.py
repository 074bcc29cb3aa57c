"""ScarceResourceAvoidance: who asks for no accelerator leaves free ones to those that do."""

import msgspec
import pytest

from closeby.objects.nodes import Node
from closeby.plugins.scarce_resource_avoidance import AvoidanceArguments, ScarceResourceAvoidance
from closeby.scheduling.extension import Handle
from tests.plugins.asking import GPU, asking, handle_of, place, pod_of, scores

NODES = [
    Node(name="cpu-only", allocatable={"cpu": 8000}),
    Node(name="gpus", allocatable={"cpu": 8000, GPU: 8}),
    Node(name="chips", allocatable={"cpu": 8000, "example.com/chip": 4}),
]


def plugin_on(handle: Handle, **arguments: object) -> ScarceResourceAvoidance:
    return ScarceResourceAvoidance(msgspec.convert(arguments, AvoidanceArguments), handle)


@pytest.mark.parametrize(
    ("taken", "expected"), [(0, 0.0), (2, 3.75), (7, 13.125), (8, 100.0), (9, 100.0)], ids=str
)
def test_the_score_is_100_without_free_accelerators_and_at_most_15_with_some(
    taken: int, expected: float
) -> None:
    handle = handle_of(NODES, [(asking("old", gpu=taken), "gpus")])
    assert scores(plugin_on(handle), asking(cpu=100)) == {"cpu-only": 100, "gpus": expected, "chips": 0}


def test_the_most_free_of_several_accelerators_counts() -> None:
    handle = handle_of(
        [Node(name="both", allocatable={GPU: 8, "example.com/chip": 4})], [(asking(gpu=8), "both")]
    )
    assert scores(plugin_on(handle), asking(cpu=100)) == {"both": 0}


def test_only_pods_that_ask_for_none_are_scored() -> None:
    plugin = plugin_on(handle_of(NODES))
    assert plugin.scores(asking(cpu=100))
    assert plugin.scores(asking(gpu=0))
    assert plugin.scores(pod_of())
    assert not plugin.scores(asking(gpu=1))
    assert plugin.class_key(asking(gpu=1)) != plugin.class_key(asking(cpu=1))


def test_no_pod_is_scored_where_there_are_no_accelerators_and_that_follows_the_nodes() -> None:
    handle = handle_of(NODES[:1])
    plugin = plugin_on(handle)
    assert not plugin.scores_any
    assert not plugin.scores(asking(cpu=100))
    handle.cluster.add_node(NODES[1])
    assert plugin.scores(asking(cpu=100))
    handle.cluster.remove_node("gpus")
    assert not plugin.scores(asking(cpu=100))


def test_scores_follow_the_pods_that_come_and_go() -> None:
    handle = handle_of(NODES)
    plugin = plugin_on(handle)
    place(handle.cluster, asking("old", gpu=8), "gpus")
    assert scores(plugin, asking(cpu=100))["gpus"] == 100
    handle.cluster.forget_pod("default/old")
    assert scores(plugin, asking(cpu=100))["gpus"] == 0


def test_the_resources_that_the_argument_names_count_instead() -> None:
    plugin = plugin_on(handle_of(NODES), resources=["example.com/chip"])
    assert scores(plugin, asking(gpu=1)) == {"cpu-only": 100, "gpus": 100, "chips": 0}
    with pytest.raises(msgspec.ValidationError, match="must name at least one"):
        plugin_on(handle_of(NODES), resources=[])
