"""Pods with equal keys share a plugin's answers, so what an answer depends on must be in its key."""

import pytest

from closeby.objects.nodes import Node
from closeby.objects.pods import HostPort, Pod, PodSpec, Toleration
from closeby.plugins.node_name import NodeName
from closeby.plugins.node_ports import NodePorts
from closeby.plugins.node_unschedulable import NodeUnschedulable
from closeby.plugins.taint_toleration import TaintToleration
from closeby.scheduling.extension import Filter, NoArguments
from tests.plugins.asking import handle_of, pod_of


def ports(*numbers: int) -> Pod:
    return pod_of(PodSpec(host_ports=tuple(HostPort(number) for number in numbers)))


def tolerating(*keys: str) -> Pod:
    return pod_of(PodSpec(tolerations=tuple(Toleration(key, operator="Exists") for key in keys)))


CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (NodePorts, ports(80), ports(81)),
        (NodePorts, ports(80), ports(80, 81)),
        (TaintToleration, tolerating("a"), tolerating("b")),
        (TaintToleration, tolerating(), tolerating("b")),
        (NodeUnschedulable, tolerating(CORDON), tolerating("b")),
        (NodeName, pod_of(node_name="n1"), pod_of(node_name="n2")),
        (NodeName, pod_of(node_name="n1"), pod_of()),
    ],
)
def test_pods_that_are_judged_apart_have_keys_of_their_own(kind: type[Filter], one: Pod, other: Pod) -> None:
    plugin = kind(NoArguments(), handle_of([Node(name="n1"), Node(name="n2")]))
    assert plugin.class_key(one) != plugin.class_key(other)
    assert plugin.class_key(one) == plugin.class_key(one)
