from math import sqrt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.objects.nodes import Node
from closeby.objects.pods import PodSpec
from closeby.plugins.node_resources_balanced_allocation import (
    BalancedArguments,
    NodeResourcesBalancedAllocation,
)
from closeby.scheduling.extension import Handle
from tests.plugins.asking import GPU, asking, handle_of, pod_of, scores


def plugin_on(handle: Handle, *resources: str) -> NodeResourcesBalancedAllocation:
    given = {"resources": [{"name": name} for name in resources]} if resources else {}
    return NodeResourcesBalancedAllocation(msgspec.convert(given, BalancedArguments), handle)


def test_a_pod_that_makes_the_use_more_even_raises_the_score() -> None:
    nodes = [
        Node(name=name, allocatable={"cpu": 1000, "memory": 1000}) for name in ("cpu", "empty", "memory")
    ]
    used = [(asking("c", cpu=500), "cpu"), (asking("m", memory=500), "memory")]
    found = scores(plugin_on(handle_of(nodes, used)), asking(cpu=500))
    # Deviations 0.25 -> 0.5, 0 -> 0.25, 0.25 -> 0.
    assert found == {"cpu": 62.5, "empty": 62.5, "memory": 87.5}


def test_a_pod_that_asks_for_none_of_the_resources_is_not_scored() -> None:
    handle = handle_of([Node(name="n", allocatable={"cpu": 1000, "memory": 1000, "ephemeral-storage": 9})])
    assert not plugin_on(handle).scores(asking())
    assert not plugin_on(handle).scores(asking(**{"ephemeral-storage": 1}))
    assert plugin_on(handle).scores(asking(cpu=1))


def test_pods_that_ask_for_accelerators_are_left_to_packing_unless_resources_are_given() -> None:
    handle = handle_of([Node(name="n", allocatable={"cpu": 1000, "memory": 1000, GPU: 8})])
    assert not plugin_on(handle).scores(asking(cpu=1, gpu=1))
    assert plugin_on(handle, "cpu", "memory").scores(asking(cpu=1, gpu=1))


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ([{"name": "cpu", "weight": 2}], "weight must be 1"),
        ([{"name": "cpu"}, {"name": "cpu"}], "none twice"),
        ([], "at least one"),
    ],
)
def test_resources_are_each_named_once_with_weight_1(resources: list[object], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        msgspec.convert({"resources": resources}, BalancedArguments)


AMOUNTS = st.fixed_dictionaries(
    {}, optional={name: st.integers(0, 12) for name in ("cpu", "memory", GPU, "example.com/other")}
)


@given(
    nodes=st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=5),
    wanted=AMOUNTS,
    resources=st.sets(st.sampled_from(["cpu", "memory", GPU, "example.com/other"]), min_size=2),
)
def test_the_score_is_that_of_a_node_by_itself(
    nodes: list[tuple[dict[str, int], dict[str, int]]], wanted: dict[str, int], resources: set[str]
) -> None:
    """75 and up to 25 more or less, by the standard deviation before and after; a node at a time."""
    handle = handle_of(
        [Node(name=f"n{i}", allocatable=offers) for i, (offers, _) in enumerate(nodes)],
        [
            (pod_of(PodSpec(requests=tuple(sorted(used.items()))), f"r{i}"), f"n{i}")
            for i, (_, used) in enumerate(nodes)
        ],
    )
    pod = pod_of(PodSpec(requests=tuple(sorted(wanted.items()))))
    plugin = plugin_on(handle, *sorted(resources))
    if not any(wanted.get(name, 0) for name in resources):
        assert not plugin.scores(pod)
        return
    if not plugin.scores(pod):  # Of fewer than two resources there is nothing to balance.
        return

    def deviation(offers: dict[str, int], used: dict[str, int], more: dict[str, int]) -> float:
        parts = [
            min(1.0, (used.get(name, 0) + more.get(name, 0)) / offers[name])
            for name in resources
            if offers.get(name, 0) and (name in ("cpu", "memory") or wanted.get(name, 0))
        ]
        mean = sum(parts) / max(1, len(parts))
        return sqrt(sum((part - mean) ** 2 for part in parts) / max(1, len(parts)))

    expected = {
        f"n{i}": 75 + 50 * (deviation(offers, used, {}) - deviation(offers, used, wanted))
        for i, (offers, used) in enumerate(nodes)
    }
    assert scores(plugin, pod) == pytest.approx(expected)
