import pytest

from closeby.objects.nodes import Node
from closeby.objects.pods import PodSpec, Toleration
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.node_unschedulable import NodeUnschedulable
from closeby.scheduling.extension import NoArguments
from tests.plugins.asking import allowed, handle_of, pod_of, why_not

NODES = [
    Node(name="up"),
    Node(name="cordoned", unschedulable=True),
    Node(name="down", ready=False),
    Node(name="both", ready=False, unschedulable=True),
]
KEY = "node.kubernetes.io/unschedulable"


def test_cordoned_and_unready_nodes_take_no_pods() -> None:
    plugin = NodeUnschedulable(NoArguments(), handle_of(NODES))
    assert allowed(plugin, pod_of()) == "up"


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("cordoned", "the node is cordoned (spec.unschedulable)"),
        ("down", "the node is not ready"),
        ("both", "the node is not ready and cordoned (spec.unschedulable)"),
    ],
)
def test_the_message_says_which(node: str, message: str) -> None:
    plugin = NodeUnschedulable(NoArguments(), handle_of(NODES))
    assert why_not(plugin, pod_of(), node) == Rejection(Reason.NODE_UNSCHEDULABLE, message)


@pytest.mark.parametrize(
    ("toleration", "nodes"),
    [
        (Toleration(KEY, "Exists", "", "NoSchedule"), "up cordoned"),
        (Toleration(KEY, "Equal", "", ""), "up cordoned"),
        (Toleration("", "Exists"), "up cordoned"),
        (Toleration(KEY, "Exists", "", "NoExecute"), "up"),
        (Toleration("node.kubernetes.io/not-ready", "Exists"), "up"),
    ],
)
def test_a_toleration_lifts_the_cordon_alone(toleration: Toleration, nodes: str) -> None:
    plugin = NodeUnschedulable(NoArguments(), handle_of(NODES))
    pod = pod_of(PodSpec(tolerations=(toleration,)))
    assert allowed(plugin, pod) == nodes
    message = "the node is not ready" if nodes != "up" else "the node is not ready and cordoned"
    assert why_not(plugin, pod, "both").message.startswith(message)


def test_a_node_that_is_uncordoned_is_used_again() -> None:
    handle = handle_of(NODES)
    plugin = NodeUnschedulable(NoArguments(), handle)
    assert allowed(plugin, pod_of()) == "up"
    handle.cluster.add_node(Node(name="cordoned"))
    assert allowed(plugin, pod_of()) == "up cordoned"


def test_pods_share_answers_unless_one_tolerates_the_cordon() -> None:
    plugin = NodeUnschedulable(NoArguments(), handle_of(NODES))
    plain = pod_of(PodSpec(requests=(("cpu", 1),)))
    other = pod_of(PodSpec(tolerations=(Toleration("gpu", "Exists"),)))
    daemon = pod_of(PodSpec(tolerations=(Toleration("", "Exists"),)))
    assert plugin.class_key(plain) == plugin.class_key(other) != plugin.class_key(daemon)
    assert plugin.shares_by_spec
