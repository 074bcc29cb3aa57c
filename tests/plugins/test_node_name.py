from closeby.objects.nodes import Node
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.node_name import NodeName
from closeby.scheduling.extension import NoArguments
from tests.plugins.asking import allowed, handle_of, pod_of, why_not

NODES = [Node(name=name) for name in ("a", "b", "c")]


def test_a_pod_that_names_no_node_may_go_anywhere() -> None:
    plugin = NodeName(NoArguments(), handle_of(NODES))
    assert not plugin.concerns(pod_of())


def test_a_pod_goes_to_the_node_it_names() -> None:
    plugin = NodeName(NoArguments(), handle_of(NODES))
    pod = pod_of(node_name="b")
    assert plugin.concerns(pod)
    assert allowed(plugin, pod) == "b"
    assert why_not(plugin, pod, "a") == Rejection(Reason.NODE_AFFINITY_MISMATCH, "the pod asks for node b")


def test_a_node_that_does_not_exist_is_nowhere() -> None:
    plugin = NodeName(NoArguments(), handle_of(NODES))
    assert allowed(plugin, pod_of(node_name="z")) == ""


def test_pods_that_name_different_nodes_are_different() -> None:
    plugin = NodeName(NoArguments(), handle_of(NODES))
    assert plugin.class_key(pod_of(node_name="a")) != plugin.class_key(pod_of(node_name="b"))
