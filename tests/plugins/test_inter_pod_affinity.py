import numpy as np
import pytest

from closeby.objects.labels import HOSTNAME
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.reasons import Reason
from closeby.objects.selectors import (
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    WeightedPodTerm,
    selector_of,
)
from closeby.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArguments
from closeby.scheduling.plugin_view import CycleState, Nodes
from tests.plugins.among_pods import (
    NAMESPACES,
    Played,
    affinity_allows,
    affinity_score,
)
from tests.plugins.asking import allowed, handle_of, place

STATE = CycleState()


def plugin_on(*nodes: Node, **arguments: object) -> InterPodAffinity:
    return InterPodAffinity(InterPodAffinityArguments(**arguments), handle_of(nodes))  # type: ignore[arg-type]


def pod(name: str, app: str, affinity: PodAffinity | None = None, namespace: str = "a") -> Pod:
    spec = PodSpec(pod_affinity=affinity)
    return Pod(namespace=namespace, name=name, uid=f"{namespace}/{name}", spec=spec, labels={"app": app})


def near(app: str, key: str = "zone") -> PodAffinityTerm:
    return PodAffinityTerm(key, selector_of({"app": app}))


FIVE = [Node(name=f"{zone}{i}", labels={"zone": zone}) for zone in "ab" for i in (1, 2)]
FIVE.append(Node(name="bare"))


def test_required_affinity_goes_where_such_a_pod_is() -> None:
    plugin = plugin_on(*FIVE)
    web = pod("web", "web", PodAffinity(required=(near("db"),)))
    assert allowed(plugin, web) == ""
    place(plugin.handle.cluster, pod("db", "db"), "b1")
    assert allowed(plugin, web) == "b1 b2"
    found = plugin.rejection(STATE, web, 0)
    assert (found.reason, "app=db" in found.message, "zone=a" in found.message) == (
        Reason.POD_AFFINITY_MISMATCH,
        True,
        True,
    )


def test_the_first_pod_of_a_group_may_go_anywhere_with_the_label() -> None:
    plugin = plugin_on(*FIVE)
    web = pod("web-0", "web", PodAffinity(required=(near("web"),)))
    assert allowed(plugin, web) == "a1 a2 b1 b2"
    place(plugin.handle.cluster, web, "a1")
    assert allowed(plugin, pod("web-1", "web", web.spec.pod_affinity)) == "a1 a2"


def test_anti_affinity_of_placed_pods_holds_against_all() -> None:
    plugin = plugin_on(*FIVE)
    place(plugin.handle.cluster, pod("loner", "db", PodAffinity(forbidden=(near("web"),))), "a1")
    web = pod("web", "web")
    assert allowed(plugin, web) == "b1 b2 bare"
    assert allowed(plugin, pod("web", "web", namespace="b")) == "a1 a2 b1 b2 bare"
    found = plugin.rejection(STATE, web, 1)
    assert (found.reason, "1 pod" in found.message) == (Reason.POD_ANTI_AFFINITY_CONFLICT, True)


def test_own_anti_affinity() -> None:
    plugin = plugin_on(*FIVE)
    place(plugin.handle.cluster, pod("db", "db"), "a1")
    assert allowed(plugin, pod("web", "web", PodAffinity(forbidden=(near("db"),)))) == "b1 b2 bare"


@pytest.mark.parametrize(
    "affinity",
    [PodAffinity(required=(near("none", HOSTNAME),)), PodAffinity(forbidden=(near("db", HOSTNAME),))],
    ids=["near", "apart"],
)
def test_nodes_that_refuse_for_the_same_reason_have_the_same_message(affinity: PodAffinity) -> None:
    nodes = [Node(name=name, labels={HOSTNAME: name}) for name in ("n1", "n2", "n3")]
    plugin = plugin_on(*nodes)
    for name in ("n1", "n2"):
        place(plugin.handle.cluster, pod(f"db-{name}", "db"), name)
    web = pod("web", "web", affinity)
    assert plugin.rejection(STATE, web, 0) == plugin.rejection(STATE, web, 1)


def test_labels_of_namespaces_decide() -> None:
    plugin = plugin_on(*FIVE)
    cluster = plugin.handle.cluster
    term = PodAffinityTerm("zone", LabelSelector(), namespace_selector=selector_of({"team": "x"}))
    web = pod("web", "web", PodAffinity(forbidden=(term,)))
    place(cluster, pod("db", "db", namespace="b"), "a1")
    assert allowed(plugin, web) == "a1 a2 b1 b2 bare"
    cluster.population.namespace_changed("b", {"team": "x"})
    assert allowed(plugin, web) == "b1 b2 bare"
    cluster.population.namespace_changed("b", None)
    assert allowed(plugin, web) == "a1 a2 b1 b2 bare"


def test_a_namespace_without_pods_changes_nothing_until_it_has_some() -> None:
    plugin = plugin_on(*FIVE)
    cluster = plugin.handle.cluster
    population = cluster.population
    term = PodAffinityTerm("zone", LabelSelector(), namespace_selector=selector_of({"team": "x"}))
    web = pod("web", "web", PodAffinity(forbidden=(term,)))
    assert allowed(plugin, web) == "a1 a2 b1 b2 bare"
    before = population.epoch
    assert not population.namespace_changed("b", {"team": "x"})
    assert population.epoch is before
    place(cluster, pod("db", "db", namespace="b"), "a1")
    assert allowed(plugin, web) == "b1 b2 bare"
    assert population.namespace_changed("b", {"team": "y"})
    assert allowed(plugin, web) == "a1 a2 b1 b2 bare"


def test_clusters_without_terms_count_nothing() -> None:
    plugin = plugin_on(*FIVE)
    cluster = plugin.handle.cluster
    place(cluster, pod("db", "db"), "a1")
    assert not plugin.concerns(pod("web", "web"))
    assert plugin.class_key(pod("web", "web")) is None
    assert plugin.shares_by_spec and not cluster.population.active


@pytest.fixture(params=["one by one", "counted together", "counted together from changes alone"])
def many_terms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How terms of one topology key are judged."""
    if request.param != "one by one":
        monkeypatch.setattr("closeby.plugins.inter_pod_affinity._FEW", 0)
    if request.param == "counted together from changes alone":
        monkeypatch.setattr("closeby.cluster.terms._TERMS_PER_CHANGE", 0)


def test_of_many_terms_the_one_that_keeps_a_node_is_named() -> None:
    plugin = plugin_on(*FIVE)
    cluster = plugin.handle.cluster
    avoided = PodAffinity(forbidden=tuple(near(app) for app in ("a", "b", "c", "d", "e", "f")))
    asked, other = pod("asked", "web", avoided), pod("e-0", "e", avoided)
    place(cluster, other, "a2")
    place(cluster, pod("e-1", "e"), "a1")
    assert allowed(plugin, asked) == "b1 b2 bare"
    assert "app=e per zone: 2 pods there in zone=a" in plugin.rejection(STATE, asked, 0).message
    # What the placed pod has against others holds as well.
    assert allowed(plugin, pod("c-0", "c")) == "b1 b2 bare"
    kept_off = [pod(f"g-{app}", "g", PodAffinity(forbidden=(near("c"), near(app)))) for app in "uvwxyz"]
    for one in kept_off:
        place(cluster, one, "b1")
    assert allowed(plugin, pod("c-0", "c")) == "bare"


@pytest.mark.usefixtures("many_terms")
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("recounted", [2, 0])
def test_against_brute_force(seed: int, recounted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods with a label that begins to matter are counted again with all others, or alone."""
    monkeypatch.setattr("closeby.cluster.population.RECOUNTED", recounted)
    against_brute_force(seed, InterPodAffinityArguments(hard_pod_affinity_weight=7))


@pytest.mark.parametrize("followed", [True, False], ids=["from changes alone", "counted again each time"])
@pytest.mark.parametrize("seed", range(60, 100))
def test_weights_against_brute_force(seed: int, followed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where hardly anything is remembered."""
    for name, value in (("_FEW_CHANGES", 1 << 20 if followed else -(1 << 20)), ("_KNOWN", 1)):
        monkeypatch.setattr(f"closeby.cluster.weights.{name}", value)
    for name in ("KEPT_SUMS", "_KEPT_ANSWERS"):
        monkeypatch.setattr(f"closeby.cluster.weights.{name}", 64)
    monkeypatch.setattr("closeby.cluster.population.RECOUNTED", seed % 4 // 2 * 2)
    own_only = seed % 2 == 0
    arguments = InterPodAffinityArguments(
        hard_pod_affinity_weight=seed % 3 * 50, ignore_preferred_terms_of_existing_pods=own_only
    )
    against_brute_force(seed, arguments)


def test_a_preference_that_a_pod_has_twice_counts_twice() -> None:
    plugin = plugin_on(*FIVE)
    place(plugin.handle.cluster, pod("db", "db"), "a1")
    place(plugin.handle.cluster, pod("web", "web"), "b1")
    twice = (WeightedPodTerm(3, near("db")), WeightedPodTerm(3, near("db")), WeightedPodTerm(5, near("web")))
    asked = pod("asked", "x", PodAffinity(preferred=twice))
    assert plugin.score(STATE, asked, Nodes(plugin.handle.cluster)).tolist() == [6, 6, 5, 5, 0]
    place(plugin.handle.cluster, asked, "b2")
    db = pod("db-1", "db")
    assert plugin.score(STATE, db, Nodes(plugin.handle.cluster)).tolist() == [0, 0, 6, 6, 0]


def against_brute_force(seed: int, arguments: InterPodAffinityArguments) -> None:
    played, weight = Played(seed), arguments.hard_pod_affinity_weight
    plugin = InterPodAffinity(arguments, played.handle)
    for _ in range(25):
        played.step()
        asked, cluster, placed = played.some_pod(), played.cluster, played.where()
        expected = {node.name: affinity_allows(asked, node, placed, NAMESPACES) for node in played.nodes}
        answer = plugin.filter(STATE, asked, Nodes(cluster))
        assert {node.name: bool(answer[cluster.slot_of(node.name)]) for node in played.nodes} == expected
        slots = np.asarray([cluster.slot_of(node.name) for node in played.nodes])
        scores = np.zeros(len(slots))
        if plugin.scores(asked):
            nodes = Nodes(cluster, slots)
            scores = plugin.normalize(STATE, asked, plugin.score(STATE, asked, nodes))
        counted = placed
        own = asked.spec.pod_affinity
        if arguments.ignore_preferred_terms_of_existing_pods and not (own and own.preferred):
            counted = []
        assert scores.tolist() == affinity_score(asked, played.nodes, counted, NAMESPACES, weight)
