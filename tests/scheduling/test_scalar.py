from typing import Any, cast

import numpy as np
import pytest

from closeby.cluster.columns import Cluster
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason, Rejection
from closeby.scheduling.extension import Handle, NoArguments
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.scalar import ScalarCost, ScalarFilter, ScalarScore, Verdict
from closeby.topology.registry import Topologies

STATE = CycleState()


def handle() -> Handle:
    """Nodes a, b, d in slots 0, 1, 3; slot 2 is empty. Their price: 1, 3, unknown."""
    cluster = Cluster()
    for name, labels in (("a", {"price": "1"}), ("b", {"price": "3"}), ("c", {}), ("d", {})):
        cluster.add_node(Node(name=name, labels=labels))
    cluster.remove_node("c")
    return Handle(cluster, Topologies(cluster.labels, cluster.names), lambda pod: None)


def pod(name: str = "p", labels: dict[str, str] | None = None) -> Pod:
    return Pod(namespace="default", name=name, uid=name, spec=PodSpec(), labels=labels or {})


class Picky(ScalarFilter):
    name = "picky"

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        verdicts: dict[str, Verdict] = {
            "a": True,
            "b": "b is not for you",
            "d": Rejection(Reason.BANDWIDTH_RISK, "d is full"),
        }
        return verdicts[node.name]


class Blunt(ScalarFilter):
    name = "blunt"
    reason = Reason.NETWORK_COST_TOO_HIGH

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        return node.name == "a"


class Forgetful(ScalarFilter):
    name = "forgetful"

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        verdict: Any = None
        return cast(Verdict, verdict)


class LongNames(ScalarScore):
    name = "long-names"

    def score_node(self, pod: Pod, node: Node) -> float:
        return 10.0 * len(node.name)


class Cheap(ScalarCost):
    name = "cheap"

    def cost_node(self, pod: Pod, node: Node) -> float | None:
        price = node.labels.get("price")
        return None if price is None else float(price)


class Both(ScalarFilter, ScalarScore):
    name = "both"

    def filter_node(self, pod: Pod, node: Node) -> Verdict:
        return node.name != "b"

    def score_node(self, pod: Pod, node: Node) -> float:
        return 7


def test_a_filter_judges_node_by_node_and_passes_over_empty_slots() -> None:
    plugin = Picky(NoArguments(), handle())
    assert plugin.filter(STATE, pod(), Nodes(plugin.handle.cluster)).tolist() == [True, False, False, False]
    assert plugin.filter(STATE, pod(), Nodes(plugin.handle.cluster, np.asarray([3, 0]))).tolist() == [
        False,
        True,
    ]


def test_a_sentence_and_a_whole_rejection_are_reasons() -> None:
    plugin = Picky(NoArguments(), handle())
    assert plugin.rejection(STATE, pod(), 1) == Rejection(Reason.REFUSED_BY_PLUGIN, "b is not for you")
    assert plugin.rejection(STATE, pod(), 3) == Rejection(Reason.BANDWIDTH_RISK, "d is full")


def test_a_plain_no_has_the_plugins_own_reason() -> None:
    plugin = Blunt(NoArguments(), handle())
    assert plugin.filter(STATE, pod(), Nodes(plugin.handle.cluster)).tolist() == [True, False, False, False]
    assert plugin.rejection(STATE, pod(), 1) == Rejection(Reason.NETWORK_COST_TOO_HIGH, "blunt refuses it")


def test_a_forgotten_return_is_an_error_and_not_a_refusal() -> None:
    plugin = Forgetful(NoArguments(), handle())
    with pytest.raises(TypeError, match=r"forgetful\.filter_node must return a bool.* not NoneType"):
        plugin.filter(STATE, pod(), Nodes(plugin.handle.cluster))


def test_a_score_is_asked_node_by_node() -> None:
    plugin = LongNames(NoArguments(), handle())
    values = plugin.score(STATE, pod(), Nodes(plugin.handle.cluster))
    assert values.dtype == np.float64
    assert values.tolist() == [10, 10, 0, 10]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [([0, 1, 3], [100, 0, 0]), ([1, 3], [100, 0]), ([0], [100]), ([3], [0]), ([], [])],
)
def test_the_cheapest_feasible_node_scores_100_and_an_unknown_cost_0(
    slots: list[int], expected: list[float]
) -> None:
    plugin = Cheap(NoArguments(), handle())
    raw = plugin.score(STATE, pod(), Nodes(plugin.handle.cluster, np.asarray(slots, dtype=np.intp)))
    assert plugin.normalize(STATE, pod(), raw).tolist() == expected


def test_one_class_may_filter_and_score() -> None:
    plugin = Both(NoArguments(), handle())
    nodes = Nodes(plugin.handle.cluster)
    assert plugin.filter(STATE, pod(), nodes).tolist() == [True, False, False, True]
    assert plugin.score(STATE, pod(), nodes).tolist() == [7, 7, 0, 7]


def test_pods_of_one_template_share_answers_and_others_do_not() -> None:
    plugin = LongNames(NoArguments(), handle())
    assert plugin.class_key(pod("w-0", {"app": "w"})) == plugin.class_key(pod("w-1", {"app": "w"}))
    assert plugin.class_key(pod("w-0", {"app": "w"})) != plugin.class_key(pod("w-0", {"app": "v"}))
    assert not plugin.shares_by_spec
