from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.cluster.columns import UNLIMITED
from closeby.objects.nodes import Node
from closeby.objects.pods import PodSpec
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.node_resources_fit import FitArguments, NodeResourcesFit
from closeby.scheduling.extension import Handle
from closeby.scheduling.plugin_view import Nodes
from tests.golden.fixture import Golden
from tests.plugins.asking import GPU, STATE, asking, handle_of, place, pod_of, room, scores, why_not

GI = 1 << 30


def plugin_on(handle: Handle, strategy: str = "LeastAllocated", /, **weights: int) -> NodeResourcesFit:
    """A plugin that scores by the resources with the given weights; ``gpu`` stands for the GPU."""
    resources = [{"name": GPU if name == "gpu" else name, "weight": w} for name, w in weights.items()]
    named = {"resources": resources} if resources else {}
    arguments = msgspec.convert({"scoringStrategy": {"type": strategy, **named}}, FitArguments)
    return NodeResourcesFit(arguments, handle)


NODES = [
    Node(name="big", allocatable={"cpu": 16000, "memory": 64 * GI, "pods": 110}),
    Node(name="gpu", allocatable={"cpu": 8000, "memory": 32 * GI, GPU: 8, "pods": 110}),
    Node(name="tiny", allocatable={"cpu": 500, "memory": 1 * GI, "pods": 2}),
    Node(name="endless", allocatable={"cpu": 4000}),
]


@pytest.mark.parametrize(
    ("requests", "fitting"),
    [
        ({}, {"big": 110, "gpu": 110, "tiny": 2, "endless": UNLIMITED}),
        ({"cpu": 0}, {"big": 110, "gpu": 110, "tiny": 2, "endless": UNLIMITED}),
        ({"cpu": 1}, {"big": 110, "gpu": 110, "tiny": 2, "endless": 4000}),
        ({"cpu": 300}, {"big": 53, "gpu": 26, "tiny": 1, "endless": 13}),
        ({"cpu": 1000, "memory": 20 * GI}, {"big": 3, "gpu": 1, "tiny": 0, "endless": 0}),
        ({"gpu": 2}, {"big": 0, "gpu": 4, "tiny": 0, "endless": 0}),
        ({"cpu": 1000, "gpu": 3}, {"big": 0, "gpu": 2, "tiny": 0, "endless": 0}),
        ({"example.com/unheard-of": 1}, {"big": 0, "gpu": 0, "tiny": 0, "endless": 0}),
    ],
)
def test_pods_that_fit(requests: dict[str, int], fitting: dict[str, int]) -> None:
    assert room(plugin_on(handle_of(NODES)), asking(**requests)) == fitting


def test_running_pods_take_their_part() -> None:
    handle = handle_of(NODES, [(asking(f"r{i}", cpu=1000, gpu=3), "gpu") for i in range(2)])
    assert room(plugin_on(handle), asking(gpu=1))["gpu"] == 2
    handle.cluster.forget_pod("default/r0")
    assert room(plugin_on(handle), asking(gpu=1))["gpu"] == 5


def test_an_overcommitted_node_has_no_room_and_never_a_negative_one(golden: Golden) -> None:
    handle = handle_of(NODES, [(asking("greedy", cpu=9000), "tiny")])
    assert room(plugin_on(handle), asking(cpu=1))["tiny"] == 0
    golden("plugins", why_not(plugin_on(handle), asking(cpu=1), "tiny").message)


@pytest.mark.parametrize(
    ("requests", "node", "message"),
    [
        ({"gpu": 8}, "gpu", "nvidia.com/gpu: requested 8, free 3"),
        ({"gpu": 1}, "big", "nvidia.com/gpu: requested 1, free 0"),
        (
            {"cpu": 1500, "memory": 2 * GI},
            "tiny",
            "cpu: requested 1500m, free 500m; memory: requested 2Gi, free 1Gi",
        ),
        ({"memory": GI + 1}, "tiny", "memory: requested 1073741825, free 1073741824"),
    ],
)
def test_the_message_says_which_resource_how_much_and_what_is_free(
    requests: dict[str, int], node: str, message: str
) -> None:
    handle = handle_of(NODES, [(asking("running", gpu=5), "gpu")])
    assert why_not(plugin_on(handle), asking(**requests), node) == Rejection(
        Reason.INSUFFICIENT_RESOURCES, message
    )


def test_the_message_counts_pods_too(golden: Golden) -> None:
    handle = handle_of(NODES, [(asking("one"), "tiny"), (asking("two"), "tiny")])
    golden("plugins", why_not(plugin_on(handle), asking(), "tiny").message)


# What follows: two nodes of 10 CPU and 100 bytes, one with half its memory in use, one without memory.
HALF = [
    Node(name="idle", allocatable={"cpu": 10000, "memory": 100, GPU: 4}),
    Node(name="half", allocatable={"cpu": 10000, "memory": 100}),
    Node(name="cpu-only", allocatable={"cpu": 10000}),
]
RUNNING = [(asking("running", memory=50), "half")]


@pytest.mark.parametrize(
    ("strategy", "weights", "requests", "expected"),
    [
        ("LeastAllocated", {}, {"cpu": 2000, "memory": 20}, {"idle": 80, "half": 55, "cpu-only": 80}),
        ("MostAllocated", {}, {"cpu": 2000, "memory": 20}, {"idle": 20, "half": 45, "cpu-only": 20}),
        ("LeastAllocated", {"memory": 1}, {"cpu": 2000}, {"idle": 100, "half": 50, "cpu-only": 0}),
        ("MostAllocated", {"memory": 1}, {"cpu": 2000}, {"idle": 0, "half": 50, "cpu-only": 0}),
        (
            "LeastAllocated",
            {"cpu": 3, "memory": 1},
            {"cpu": 5000},
            {"idle": 62.5, "half": 50, "cpu-only": 50},
        ),
        ("MostAllocated", {"cpu": 1, "gpu": 5}, {"gpu": 2}, {"idle": 250 / 6, "half": 0, "cpu-only": 0}),
        ("MostAllocated", {"cpu": 1, "gpu": 5}, {"cpu": 10000}, {"idle": 100, "half": 100, "cpu-only": 100}),
    ],
)
def test_scores(
    strategy: str, weights: dict[str, int], requests: dict[str, int], expected: dict[str, float]
) -> None:
    handle = handle_of(HALF, RUNNING)
    plugin, pod = plugin_on(handle, strategy, **weights), asking(**requests)
    room(plugin, pod)
    assert scores(plugin, pod) == pytest.approx(expected, abs=1e-12)


def test_only_resources_that_the_pod_asks_for_or_that_are_native_tell_nodes_apart() -> None:
    handle = handle_of(HALF)
    assert plugin_on(handle).scores(asking())
    assert not plugin_on(handle, gpu=1).scores(asking(cpu=1))
    assert plugin_on(handle, gpu=1).scores(asking(gpu=1))
    assert not plugin_on(handle, **{"example.com/unheard-of": 1}).scores(asking(cpu=1))
    assert scores(plugin_on(handle, gpu=1), asking(cpu=1)) == {"idle": 0, "half": 0, "cpu-only": 0}


def test_more_use_than_there_is_stays_in_range() -> None:
    handle = handle_of(HALF, [(asking("greedy", memory=500), "half")])
    assert scores(plugin_on(handle, memory=1), asking())["half"] == 0
    assert scores(plugin_on(handle, "MostAllocated", memory=1), asking())["half"] == 100


def test_scores_follow_nodes_that_change_come_and_go() -> None:
    handle = handle_of(HALF)
    plugin, pod = plugin_on(handle), asking(cpu=5000)
    assert scores(plugin, pod) == {"idle": 75, "half": 75, "cpu-only": 50}
    handle.cluster.add_node(Node(name="idle", allocatable={"cpu": 5000}))
    handle.cluster.remove_node("half")
    handle.cluster.add_node(Node(name="in half's slot", allocatable={"cpu": 20000, "memory": 1}))
    assert scores(plugin, pod) == {"idle": 0, "in half's slot": 87.5, "cpu-only": 50}
    for number in range(100):
        handle.cluster.add_node(Node(name=f"n{number}", allocatable={"cpu": 10000, "memory": 1}))
    assert scores(plugin, pod)["n99"] == 75


def test_scores_follow_use() -> None:
    handle = handle_of(HALF)
    plugin, pod = plugin_on(handle, cpu=1), asking("new", cpu=2500)
    assert scores(plugin, pod)["idle"] == 75
    place(handle.cluster, asking("other", cpu=2500), "idle")
    assert scores(plugin, pod)["idle"] == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}, "Invalid enum value"),
        ({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 0}]}}, ">= 1"),
        ({"scoringStrategy": {"resources": [{"name": "cpu", "weight": 101}]}}, "<= 100"),
        ({"scoringStrategy": {"resources": []}}, "at least one"),
        ({"scoringStrategy": {"resources": [{"name": "cpu"}, {"name": "cpu"}]}}, "none twice"),
        ({"ignoredResources": []}, "unknown field"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert(arguments, FitArguments)


def test_pods_with_equal_requests_share_answers() -> None:
    plugin = plugin_on(handle_of(NODES))
    one, other = asking("a", cpu=1, gpu=1), asking("b", gpu=1, cpu=1)
    assert plugin.class_key(one) == plugin.class_key(other) != plugin.class_key(asking("c", cpu=1))
    assert plugin.shares_by_spec


AMOUNTS = st.integers(0, 40) | st.integers(0, 1 << 50)
NAMES = ["cpu", "memory", GPU]
ALLOCATABLE = st.dictionaries(st.sampled_from([*NAMES, "pods"]), AMOUNTS)
REQUESTS = st.dictionaries(st.sampled_from(NAMES), AMOUNTS)
WEIGHTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, 100), min_size=1)


def pods_that_fit(node: dict[str, int], used: list[dict[str, int]], wanted: dict[str, int]) -> int:
    """Adds pods one kind at a time, in plain arithmetic."""
    counts = [max(0, min(node.get("pods", UNLIMITED), UNLIMITED) - len(used))]
    for name, amount in wanted.items():
        if amount:
            counts.append(max(0, node.get(name, 0) - sum(pod.get(name, 0) for pod in used)) // amount)
    return min(counts)


@given(st.lists(st.tuples(ALLOCATABLE, st.lists(REQUESTS, max_size=3)), min_size=1, max_size=5), REQUESTS)
def test_capacity_is_what_a_loop_over_nodes_finds(
    drawn: list[tuple[dict[str, int], list[dict[str, int]]]], wanted: dict[str, int]
) -> None:
    nodes = [Node(name=f"n{index}", allocatable=offered) for index, (offered, _) in enumerate(drawn)]
    running = [
        (pod_of(PodSpec(requests=tuple(sorted(one.items()))), f"r{index}-{number}"), f"n{index}")
        for index, (_, used) in enumerate(drawn)
        for number, one in enumerate(used)
    ]
    plugin = plugin_on(handle_of(nodes, running))
    expected = {
        f"n{index}": pods_that_fit(offered, used, wanted) for index, (offered, used) in enumerate(drawn)
    }
    assert room(plugin, pod_of(PodSpec(requests=tuple(sorted(wanted.items()))))) == expected


@given(
    st.lists(st.tuples(ALLOCATABLE, REQUESTS), min_size=1, max_size=5),
    REQUESTS,
    WEIGHTS,
    st.sampled_from(["LeastAllocated", "MostAllocated"]),
)
def test_scores_are_from_0_to_100(
    drawn: list[tuple[dict[str, int], dict[str, int]]],
    wanted: dict[str, int],
    weights: dict[str, int],
    strategy: str,
) -> None:
    nodes = [Node(name=f"n{index}", allocatable=offered) for index, (offered, _) in enumerate(drawn)]
    running = [
        (pod_of(PodSpec(requests=tuple(sorted(used.items()))), f"r{index}"), f"n{index}")
        for index, (_, used) in enumerate(drawn)
    ]
    plugin = plugin_on(handle_of(nodes, running), strategy, **weights)
    pod = pod_of(PodSpec(requests=tuple(sorted(wanted.items()))))
    values = plugin.score(STATE, pod, Nodes(plugin.handle.cluster))
    assert np.isfinite(values).all()
    assert ((values >= 0) & (values <= 100)).all()


def test_a_resource_that_comes_with_a_later_node_is_scored_then() -> None:
    handle = handle_of([Node(name="plain", allocatable={"cpu": 1000})])
    plugin, pod = plugin_on(handle, "LeastAllocated", gpu=1), asking(gpu=1)
    assert not plugin.scores(pod)
    handle.cluster.add_node(Node(name="late", allocatable={GPU: 4}))
    assert plugin.scores(pod)
    assert scores(plugin, pod) == {"plain": 0, "late": 75}
