import numpy as np
import pytest
from msgspec import convert
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node, Taint
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.selectors import LabelSelector, PodOwner, TopologySpreadConstraint, selector_of
from closeby.plugins.node_affinity import NodeAffinity
from closeby.plugins.pod_topology_spread import (
    DefaultConstraint,
    PodTopologySpread,
    PodTopologySpreadArguments,
)
from closeby.scheduling.extension import Handle, NoArguments
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.plugins.among_pods import Played, spread_allows, spread_score
from tests.plugins.asking import allowed, handle_of, place

STATE = CycleState()
WEB = selector_of({"app": "web"})
NODES = [
    Node(name=f"{zone}{i}", labels={"zone": zone, HOSTNAME: f"{zone}{i}"}) for zone in "abc" for i in (1, 2)
]


def plugin_on(handle: Handle, **arguments: object) -> PodTopologySpread:
    affinity = NodeAffinity(NoArguments(), handle)
    handle.required_affinity = lambda pod, nodes: affinity.filter(STATE, pod, nodes)
    return PodTopologySpread(PodTopologySpreadArguments(**arguments), handle)  # type: ignore[arg-type]


def web(name: str, *spread: TopologySpreadConstraint, owner: str = "", terminating: bool = False) -> Pod:
    return Pod(
        namespace="a",
        name=name,
        uid=f"a/{name}",
        spec=PodSpec(topology_spread=spread),
        labels={"app": "web"},
        owner=owner,
        terminating=terminating,
    )


def over(key: str, skew: int = 1, **more: object) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(topology_key=key, max_skew=skew, selector=WEB, **more)  # type: ignore[arg-type]


def test_the_emptiest_domains_take_the_pod() -> None:
    plugin = plugin_on(handle_of([*NODES, Node(name="bare")]))
    pod = web("w", over("zone"))
    assert allowed(plugin, pod) == "a1 a2 b1 b2 c1 c2"
    place(plugin.handle.cluster, web("w-0"), "a1")
    assert allowed(plugin, pod) == "b1 b2 c1 c2"
    place(plugin.handle.cluster, web("w-1", terminating=True), "b1")
    assert allowed(plugin, pod) == "b1 b2 c1 c2"
    found = plugin.rejection(STATE, pod, 0)
    assert found.reason == Reason.TOPOLOGY_SPREAD_VIOLATION
    assert "zone=a has 1 such pod, the emptiest domain 0" in found.message
    assert "no label zone" in plugin.rejection(STATE, pod, 6).message


def test_with_too_few_domains_the_minimum_is_0() -> None:
    plugin = plugin_on(handle_of(NODES))
    for i, name in enumerate(("a1", "b1", "c1")):
        place(plugin.handle.cluster, web(f"w-{i}"), name)
    assert allowed(plugin, web("w", over("zone"))) == "a1 a2 b1 b2 c1 c2"
    more = web("w", over("zone", min_domains=4))
    assert allowed(plugin, more) == ""
    found = plugin.rejection(STATE, more, 0)
    assert "minDomains 4 where there are 3 domains" in found.message
    assert "minDomains" not in plugin.masks(web("w", over("zone", min_domains=3)))[0].asks


def test_an_empty_selector_counts_no_pod() -> None:
    plugin = plugin_on(handle_of(NODES))
    pod = web("w", TopologySpreadConstraint(topology_key="zone", max_skew=1, selector=LabelSelector()))
    for i in range(3):
        place(plugin.handle.cluster, web(f"w-{i}"), "a1")
    assert allowed(plugin, pod) == "a1 a2 b1 b2 c1 c2"


@pytest.mark.parametrize(
    ("owner", "kind", "spread"),
    [
        ("ReplicaSet/web", "ReplicaSet", True),
        ("StatefulSet/web", "StatefulSet", True),
        ("", "Service", True),
        ("Job/web", "ReplicaSet", False),
        ("Job/web", "Job", False),
    ],
)
def test_default_spread_goes_by_services_and_owners(owner: str, kind: str, spread: bool) -> None:
    plugin = plugin_on(handle_of(NODES))
    population = plugin.handle.cluster.population
    key = f"{kind}/a/web"
    population.owner_changed(key, PodOwner(kind=kind, namespace="a", name="web", selector=WEB))
    pod = web("w", owner=owner)
    assert plugin.scores(pod) == spread
    assert not plugin.concerns(pod)
    population.owner_changed(key, None)
    assert not plugin.scores(pod)


def test_default_constraints_of_the_configuration() -> None:
    hard = DefaultConstraint(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")
    plugin = plugin_on(handle_of(NODES), default_constraints=(hard,), defaulting_type="List")
    service = PodOwner(kind="Service", namespace="a", name="web", selector=WEB)
    plugin.handle.cluster.population.owner_changed(service.key, service)
    place(plugin.handle.cluster, web("w-0"), "a1")
    assert allowed(plugin, web("w")) == "b1 b2 c1 c2"
    with pytest.raises(ValueError, match="defaultingType"):
        PodTopologySpreadArguments(default_constraints=(hard,))


@pytest.mark.parametrize(
    ("kind", "nodes"),
    [
        # Its labels take the place of those of the Service: the pod is spread by pods of another app.
        ("ReplicationController", "b1 b2 c1 c2"),
        # No pod is of both apps.
        ("ReplicaSet", "a1 a2 b1 b2 c1 c2"),
        ("StatefulSet", "a1 a2 b1 b2 c1 c2"),
    ],
)
def test_a_service_and_an_owner_that_select_other_pods(kind: str, nodes: str) -> None:
    """Kubernetes: ``pkg/scheduler/framework/plugins/helper/spread.go``, ``DefaultSelector``."""
    hard = DefaultConstraint(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")
    plugin = plugin_on(handle_of(NODES), default_constraints=(hard,), defaulting_type="List")
    other = selector_of({"app": "db"})
    for one in (
        PodOwner(kind="Service", namespace="a", name="web", selector=WEB),
        PodOwner(kind=kind, namespace="a", name="own", selector=other),
    ):
        plugin.handle.cluster.population.owner_changed(one.key, one)
    for i in range(2):
        place(plugin.handle.cluster, replace(web(f"w-{i}"), labels={"app": "db"}), "a1")
    assert allowed(plugin, web("w", owner=f"{kind}/own")) == nodes


@pytest.mark.parametrize(
    ("given", "nodes"),
    [
        ({}, "d1"),
        ({"nodeTaintsPolicy": "Honor"}, "a1 a2 b1 b2 c1 c2 d1"),
        ({"nodeTaintsPolicy": "Honor", "minDomains": 4}, "d1"),
        ({"nodeAffinityPolicy": "Ignore"}, "d1"),
    ],
)
def test_default_constraints_take_what_constraints_of_pods_take(given: dict[str, object], nodes: str) -> None:
    """One pod is in each zone but that of a tainted node."""
    arguments = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **given}
    hard = convert(arguments, DefaultConstraint)
    tainted = Node(name="d1", labels={"zone": "d"}, taints=(Taint("t", "", "NoSchedule"),))
    plugin = plugin_on(handle_of([*NODES, tainted]), default_constraints=(hard,), defaulting_type="List")
    service = PodOwner(kind="Service", namespace="a", name="web", selector=WEB)
    plugin.handle.cluster.population.owner_changed(service.key, service)
    for zone in "abc":
        place(plugin.handle.cluster, web(f"w-{zone}"), f"{zone}1")
    assert allowed(plugin, web("w")) == nodes


@pytest.mark.parametrize("recounted", [2, 0])
@pytest.mark.parametrize("seed", range(60))
def test_against_brute_force(seed: int, recounted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closeby.cluster.population.RECOUNTED", recounted)
    played = Played(seed)
    plugin = plugin_on(played.handle)
    for _ in range(25):
        played.step()
        asked, cluster, placed = played.some_pod(), played.cluster, played.where()
        expected = {node.name: spread_allows(asked, node, played.nodes, placed) for node in played.nodes}
        answer = plugin.filter(STATE, asked, Nodes(cluster))
        assert {node.name: bool(answer[cluster.slot_of(node.name)]) for node in played.nodes} == expected
        soft = [one for one in asked.spec.topology_spread if not one.hard]
        assert plugin.scores(asked) == bool(soft)
        feasible = [node for node in played.nodes if played.dice.random() < 0.7]
        if soft and feasible:
            slots = np.asarray([cluster.slot_of(node.name) for node in feasible])
            scores = plugin.normalize(STATE, asked, plugin.score(STATE, asked, Nodes(cluster, slots)))
            assert scores.tolist() == spread_score(asked, feasible, played.nodes, placed, soft)


@pytest.mark.parametrize("seed", range(20))
def test_default_spread_against_brute_force(seed: int) -> None:
    played = Played(seed)
    played.specs = [PodSpec()]
    plugin = plugin_on(played.handle)
    selector = selector_of({"app": "1"})
    for namespace in "abc":
        owner = PodOwner(kind="Service", namespace=namespace, name="s", selector=selector)
        played.cluster.population.owner_changed(owner.key, owner)
    defaults = [
        TopologySpreadConstraint(topology_key=HOSTNAME, max_skew=3, hard=False, selector=selector),
        TopologySpreadConstraint(
            topology_key="topology.kubernetes.io/zone", max_skew=5, hard=False, selector=selector
        ),
    ]
    for _ in range(25):
        played.step()
        asked, cluster, placed = played.some_pod(), played.cluster, played.where()
        assert plugin.scores(asked) == (asked.labels.get("app") == "1")
        if not plugin.scores(asked):
            continue
        slots = np.asarray([cluster.slot_of(node.name) for node in played.nodes])
        scores = plugin.normalize(STATE, asked, plugin.score(STATE, asked, Nodes(cluster, slots)))
        assert scores.tolist() == spread_score(
            asked, played.nodes, played.nodes, placed, defaults, need_all_keys=False
        )
