import pytest

from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import PodSpec, Toleration
from closeby.objects.reasons import Reason, Rejection
from closeby.plugins.taint_toleration import TaintToleration
from closeby.scheduling.extension import NoArguments
from tests.golden.fixture import Golden
from tests.plugins.asking import STATE, allowed, handle_of, pod_of, scores, why_not

ML = Taint("dedicated", "ml", "NoSchedule")
WEB = Taint("dedicated", "web", "NoSchedule")
BAD = Taint("bad", "", "NoExecute")
SLOW = Taint("slow", "", "PreferNoSchedule")
OLD = Taint("old", "yes", "PreferNoSchedule")

NODES = [
    Node(name="plain"),
    Node(name="ml", taints=(ML,)),
    Node(name="web", taints=(WEB,)),
    Node(name="bad", taints=(BAD,)),
    Node(name="mlbad", taints=(ML, BAD)),
    Node(name="slow", taints=(SLOW,)),
]


def tolerating(*tolerations: Toleration) -> PodSpec:
    return PodSpec(tolerations=tolerations)


@pytest.mark.parametrize(
    ("tolerations", "nodes"),
    [
        ((), "plain slow"),
        ((Toleration("dedicated", "Equal", "ml", "NoSchedule"),), "plain ml slow"),
        ((Toleration("dedicated", "Equal", "ml", ""),), "plain ml slow"),
        ((Toleration("dedicated", "", "ml", ""),), "plain ml slow"),
        ((Toleration("dedicated", "Equal", "ml", "NoExecute"),), "plain slow"),
        ((Toleration("dedicated", "Equal", "", ""),), "plain slow"),
        ((Toleration("dedicated", "Exists"),), "plain ml web slow"),
        ((Toleration("dedicated", "Near", "ml"),), "plain slow"),
        ((Toleration("bad", "Exists", "", "NoExecute"),), "plain bad slow"),
        ((Toleration("bad", "Exists"), Toleration("dedicated", "Equal", "ml")), "plain ml bad mlbad slow"),
        ((Toleration("", "Exists", "", "NoSchedule"),), "plain ml web slow"),
        ((Toleration("", "Exists"),), "plain ml web bad mlbad slow"),
    ],
)
def test_taints_and_tolerations(tolerations: tuple[Toleration, ...], nodes: str) -> None:
    plugin = TaintToleration(NoArguments(), handle_of(NODES))
    assert allowed(plugin, pod_of(tolerating(*tolerations))) == nodes


@pytest.mark.parametrize(
    ("operator", "bound", "nodes"),
    [
        ("Gt", "900", "950"),
        ("Gt", "950", ""),
        ("Lt", "900", "-5 800"),
        ("Lt", "-4", "-5"),
        ("Gt", "0900", ""),
        ("Lt", "9223372036854775808", ""),
        ("Gt", "-9223372036854775808", "-5 800 950"),
    ],
)
def test_numbers_are_compared(operator: str, bound: str, nodes: str) -> None:
    """Names are the values of the nodes' taints; what is no whole number matches nothing."""
    values = ["-5", "800", "950", "high", "+990", "007"]
    taints = {value: (Taint("sla", value, "NoSchedule"),) for value in values}
    plugin = TaintToleration(NoArguments(), handle_of([Node(name=k, taints=v) for k, v in taints.items()]))
    assert allowed(plugin, pod_of(tolerating(Toleration("sla", operator, bound)))) == nodes


def test_the_message_names_the_taint_as_kubectl_does(golden: Golden) -> None:
    plugin = TaintToleration(NoArguments(), handle_of(NODES))
    expected = Rejection(Reason.TAINT_NOT_TOLERATED, "taint dedicated=ml:NoSchedule not tolerated")
    assert why_not(plugin, pod_of(), "ml") == expected
    both = why_not(plugin, pod_of(), "mlbad").message
    golden("plugins", both)
    half = why_not(plugin, pod_of(tolerating(Toleration("dedicated", "Exists"))), "mlbad").message
    assert half == "taint bad:NoExecute not tolerated"


@pytest.mark.parametrize(
    ("toleration", "concerned", "scored"),
    [
        (Toleration("", "Exists"), False, False),
        (Toleration("", "Exists", "", "PreferNoSchedule"), True, False),
        (Toleration("", "Exists", "", "NoSchedule"), True, True),
        (Toleration("any", "Exists"), True, True),
    ],
)
def test_a_pod_that_tolerates_everything_is_not_asked_about(
    toleration: Toleration, concerned: bool, scored: bool
) -> None:
    plugin = TaintToleration(NoArguments(), handle_of(NODES))
    pod = pod_of(tolerating(toleration))
    assert (plugin.concerns(pod), plugin.scores(pod)) == (concerned, scored)


def test_fewer_discouraging_taints_score_higher() -> None:
    nodes = [Node(name="none"), Node(name="one", taints=(SLOW,)), Node(name="two", taints=(SLOW, OLD))]
    plugin = TaintToleration(NoArguments(), handle_of(nodes))
    assert scores(plugin, pod_of()) == {"none": 100, "one": 50, "two": 0}
    assert scores(plugin, pod_of(), feasible=["none", "one"]) == {"none": 100, "one": 0}
    used_to_slow = pod_of(tolerating(Toleration("slow", "Exists", "", "PreferNoSchedule")))
    assert scores(plugin, used_to_slow) == {"none": 100, "one": 100, "two": 0}
    elsewhere = pod_of(tolerating(Toleration("slow", "Exists", "", "NoSchedule")))
    assert scores(plugin, elsewhere) == {"none": 100, "one": 50, "two": 0}


def test_without_discouraging_taints_there_is_no_score() -> None:
    handle = handle_of([Node(name="a"), Node(name="b", taints=(ML,))])
    plugin = TaintToleration(NoArguments(), handle)
    assert not plugin.pre_score(STATE, pod_of())
    assert scores(plugin, pod_of()) == {"a": 100, "b": 100}
    handle.cluster.add_node(Node(name="b", taints=(SLOW,)))
    assert plugin.pre_score(STATE, pod_of())
    assert scores(plugin, pod_of()) == {"a": 100, "b": 0}


def test_a_changed_a_removed_and_a_new_node_are_noticed() -> None:
    handle = handle_of(NODES)
    plugin = TaintToleration(NoArguments(), handle)
    assert allowed(plugin, pod_of()) == "plain slow"
    handle.cluster.add_node(Node(name="ml"))
    handle.cluster.add_node(Node(name="plain", taints=(BAD,)))
    assert allowed(plugin, pod_of()) == "ml slow"
    handle.cluster.remove_node("slow")
    handle.cluster.add_node(Node(name="in slow's slot", taints=(WEB,)))
    handle.cluster.add_node(Node(name="new"))
    assert allowed(plugin, pod_of()) == "ml new"


def test_many_new_nodes_with_taints_of_their_own() -> None:
    handle = handle_of(NODES)
    plugin = TaintToleration(NoArguments(), handle)
    assert allowed(plugin, pod_of()) == "plain slow"
    for number in range(200):
        handle.cluster.add_node(Node(name=f"n{number}", taints=(Taint("team", str(number), "NoSchedule"),)))
    pod = pod_of(tolerating(Toleration("team", "Equal", "7")))
    assert allowed(plugin, pod) == "plain slow n7"
