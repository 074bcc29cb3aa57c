import pytest

from closeby.objects.nodes import Node
from closeby.objects.pods import HostPort, PodSpec
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.node_ports import NodePorts
from closeby.scheduling.extension import NoArguments
from tests.golden.fixture import Golden
from tests.plugins.asking import handle_of, place, pod_of, room, why_not

WEB = pod_of(PodSpec(host_ports=(HostPort(80),)), "web")
LOCAL = pod_of(PodSpec(host_ports=(HostPort(80, "TCP", "10.0.0.1"), HostPort(53, "UDP"))), "local")


@pytest.mark.parametrize(
    ("ports", "fitting"),
    [
        ((HostPort(80),), {"free": 1, "web": 0, "local": 0}),
        ((HostPort(81),), {"free": 1, "web": 1, "local": 1}),
        ((HostPort(80, "UDP"),), {"free": 1, "web": 1, "local": 1}),
        ((HostPort(80, "TCP", "10.0.0.2"),), {"free": 1, "web": 0, "local": 1}),
        ((HostPort(80, "TCP", "10.0.0.1"),), {"free": 1, "web": 0, "local": 0}),
        ((HostPort(81), HostPort(53, "UDP", "10.0.0.7")), {"free": 1, "web": 1, "local": 0}),
    ],
)
def test_a_port_is_given_once_per_node(ports: tuple[HostPort, ...], fitting: dict[str, int]) -> None:
    handle = handle_of(
        [Node(name="free"), Node(name="web"), Node(name="local")], [(WEB, "web"), (LOCAL, "local")]
    )
    assert room(NodePorts(NoArguments(), handle), pod_of(PodSpec(host_ports=ports))) == fitting


def test_without_host_ports_a_pod_is_not_asked_about() -> None:
    plugin = NodePorts(NoArguments(), handle_of([Node(name="free")]))
    assert not plugin.concerns(pod_of())
    assert plugin.concerns(WEB)


def test_a_port_is_free_again_when_its_pod_is_gone() -> None:
    handle = handle_of([Node(name="n")])
    plugin = NodePorts(NoArguments(), handle)
    place(handle.cluster, WEB, "n")
    assert room(plugin, WEB) == {"n": 0}
    handle.cluster.forget_pod(WEB.uid)
    assert room(plugin, WEB) == {"n": 1}


def test_the_message_names_the_ports(golden: Golden) -> None:
    handle = handle_of([Node(name="n")], [(LOCAL, "n")])
    plugin = NodePorts(NoArguments(), handle)
    one = why_not(plugin, WEB, "n")
    assert one == Rejection(Reason.HOST_PORT_CONFLICT, "host port 80/TCP already taken")
    golden("plugins", why_not(plugin, LOCAL, "n").message)
