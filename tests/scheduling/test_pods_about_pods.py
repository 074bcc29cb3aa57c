"""Pod affinity and topology spread in decisions: of single pods, of gangs, and of pods that wait."""

import random

import pytest
from msgspec.structs import replace

from closeby.cluster.terms import MOST_VIEWS
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import NodeSelectorTerm, Pod, PodSpec, Requirement
from closeby.objects.reasons import Reason
from closeby.objects.selectors import (
    Namespace,
    PodAffinity,
    PodAffinityTerm,
    PodOwner,
    TopologySpreadConstraint,
    selector_of,
)
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    GroupChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    SelectionChanged,
    Tick,
)
from closeby.scheduling.outcomes import bindings_of
from tests.plugins.among_pods import (
    NAMESPACES,
    affinity_allows,
    some_node,
    some_pod,
    some_spec,
    spread_allows,
)

ZONES = [
    Node(name=f"{zone}{i}", labels={"zone": zone}, allocatable={"cpu": 4000}) for zone in "abc" for i in "12"
]


def engine_with(*nodes: Node) -> Engine:
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    engine.handle(*map(NodeUpserted, nodes))
    return engine


def pod(
    name: str,
    app: str = "web",
    affinity: PodAffinity | None = None,
    spread: tuple[TopologySpreadConstraint, ...] = (),
    on: str | None = None,
    group: str | None = None,
    cpu: int = 100,
) -> Pod:
    return Pod(
        namespace="a",
        name=name,
        uid=name,
        spec=PodSpec(requests=(("cpu", cpu),), pod_affinity=affinity, topology_spread=spread),
        labels={"app": app},
        node_name=on,
        group=group,
    )


def near(app: str) -> PodAffinityTerm:
    return PodAffinityTerm("zone", selector_of({"app": app}))


def over(skew: int = 1) -> tuple[TopologySpreadConstraint, ...]:
    return (
        TopologySpreadConstraint(topology_key="zone", max_skew=skew, selector=selector_of({"app": "web"})),
    )


def decide(engine: Engine, *pods: Pod) -> dict[str, str]:
    """Node by pod of what is placed now."""
    engine.handle(*map(PodUpserted, pods))
    outputs = engine.handle(Tick())
    engine.validate_state()
    return {one.pod.uid: one.node for one in bindings_of(outputs)}


def gang(engine: Engine, count: int, **rules: object) -> dict[str, str]:
    engine.handle(GroupChanged(PodGroup(namespace="a", name="g", min_member=count)))
    return decide(engine, *(pod(f"m{i}", group="g", **rules) for i in range(count)))  # type: ignore[arg-type]


def keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was worked out about classes and terms is forgotten very soon."""
    monkeypatch.setattr("closeby.cluster.terms.MOST_VIEWS", 1)
    monkeypatch.setattr("closeby.cluster.population._SPARE", 0)
    monkeypatch.setattr("closeby.cluster.population._REMEMBERED", 1)


def zones(placed: dict[str, str]) -> list[str]:
    return sorted(name[0] for name in placed.values())


def test_a_pod_waits_until_the_pod_it_wants_to_be_near_is_there() -> None:
    engine = engine_with(*ZONES)
    assert decide(engine, pod("web", affinity=PodAffinity(required=(near("db"),)))) == {}
    outcome = engine.outcome("a/web")
    assert outcome is not None and outcome.reason == Reason.POD_AFFINITY_MISMATCH
    placed = decide(engine, pod("db", "db"))
    assert placed["web"][0] == placed["db"][0]


def test_anti_affinity_of_others_keeps_a_pod_away_until_they_leave() -> None:
    engine = engine_with(*ZONES)
    forbids = PodAffinity(forbidden=(near("web"),))
    decide(engine, *(pod(f"loner-{zone}", "loner", forbids, on=f"{zone}1") for zone in "abc"))
    assert decide(engine, pod("web")) == {}
    outcome = engine.outcome("a/web")
    assert outcome is not None and outcome.reason == Reason.POD_ANTI_AFFINITY_CONFLICT
    engine.handle(PodDeleted("loner-b"))
    assert decide(engine)["web"][0] == "b"


def test_a_pod_that_changes_its_labels_cures_what_waits() -> None:
    engine = engine_with(*ZONES)
    decide(engine, pod("other", "other", on="c1"))
    assert decide(engine, pod("web", affinity=PodAffinity(required=(near("db"),)))) == {}
    assert decide(engine, pod("other", "db", on="c1"))["web"][0] == "c"


def test_a_namespace_that_changes_its_labels_cures_what_waits() -> None:
    engine = engine_with(*ZONES)
    term = PodAffinityTerm("zone", selector_of({"app": "db"}), namespace_selector=selector_of({"team": "x"}))
    engine.handle(PodUpserted(replace(pod("db", "db", on="c1"), namespace="b")))
    assert decide(engine, pod("web", affinity=PodAffinity(required=(term,)))) == {}
    engine.handle(SelectionChanged(Namespace(name="b", labels={"team": "x"})))
    assert decide(engine)["web"][0] == "c"


def test_pods_are_spread() -> None:
    engine = engine_with(*ZONES)
    placed = decide(engine, *(pod(f"w{i}", spread=over()) for i in range(7)))
    assert zones(placed) in (list("aaabbcc"), list("aabbbcc"), list("aabbccc"))


def test_pods_of_a_service_are_spread_by_default() -> None:
    nodes = [replace(one, labels={"topology.kubernetes.io/zone": one.name[0]}) for one in ZONES]
    engine = engine_with(*nodes)
    service = PodOwner(kind="Service", namespace="a", name="web", selector=selector_of({"app": "web"}))
    engine.handle(SelectionChanged(service))
    assert zones(decide(engine, *(pod(f"w{i}") for i in range(3)))) == list("abc")


def test_members_of_a_gang_keep_apart() -> None:
    assert zones(gang(engine_with(*ZONES), 3, affinity=PodAffinity(forbidden=(near("web"),)))) == list("abc")
    assert gang(engine_with(*ZONES), 4, affinity=PodAffinity(forbidden=(near("web"),))) == {}


def test_members_of_a_gang_are_spread() -> None:
    assert zones(gang(engine_with(*ZONES), 6, spread=over())) == list("aabbcc")


def test_members_of_a_gang_that_want_to_be_together_find_the_zone_that_holds_them() -> None:
    engine = engine_with(*ZONES)
    # Zones a and b have room for three members each.
    decide(engine, *(pod(f"old-{name}", "old", cpu=2500, on=name) for name in ("a1", "b1")))
    decide(engine, *(pod(f"old-{name}", "old", cpu=4000, on=name) for name in ("a2", "b2")))
    wish = PodAffinity(required=(near("web"),))
    assert zones(gang(engine, 6, affinity=wish, cpu=500)) == list("cccccc")


def test_a_gang_is_not_led_into_a_zone_that_is_too_small() -> None:
    # The emptiest node, which scores best, is alone in its zone.
    nodes = [
        Node(name=name, labels={"zone": name[0]}, allocatable={"cpu": cpu})
        for name, cpu in (("a1", 2000), ("c1", 4000), ("c2", 4000))
    ]
    engine = engine_with(*nodes)
    decide(engine, *(pod(f"old-{name}", "old", cpu=2000, on=name) for name in ("c1", "c2")))
    wish = PodAffinity(required=(near("web"),))
    assert zones(gang(engine, 4, affinity=wish, cpu=1000)) == list("cccc")


@pytest.mark.parametrize("kept", ["much", "little"])
@pytest.mark.parametrize("seed", range(60))
def test_random_pods_one_by_one(seed: int, kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kept == "little":
        keep_little(monkeypatch)
    dice = random.Random(seed)
    nodes = [replace(some_node(dice, f"n{i}"), allocatable={"cpu": 1000}) for i in range(dice.randint(1, 7))]
    by_name = {node.name: node for node in nodes}
    engine = engine_with(*nodes)
    engine.handle(*(SelectionChanged(Namespace(name=name, labels=NAMESPACES[name])) for name in NAMESPACES))
    specs = [some_spec(dice) for _ in range(4)]
    held: dict[str, tuple[Pod, Node]] = {}

    def allowed(one: Pod) -> bool:
        placed = [entry for uid, entry in held.items() if uid != one.uid]
        return any(fits(one, node, placed) for node in nodes)

    def fits(one: Pod, node: Node, placed: list[tuple[Pod, Node]]) -> bool:
        plain = all(node.labels.get(key) == value for key, value in one.spec.node_selector)
        taints = not node.taints or bool(one.spec.tolerations)
        about = affinity_allows(one, node, placed, NAMESPACES) and spread_allows(one, node, nodes, placed)
        return plain and taints and about

    for step in range(12):
        if held and dice.random() < 0.25:
            uid = dice.choice(sorted(held))
            engine.handle(PodDeleted(uid))
            del held[uid]
        new = replace(some_pod(dice, f"p{step}", specs), terminating=False)
        engine.handle(PodUpserted(new))
        for binding in bindings_of(engine.handle(Tick())):
            node = by_name[binding.node]
            assert fits(binding.pod, node, list(held.values())), (seed, binding.pod.key)
            held[binding.pod.uid] = (binding.pod, node)
        engine.validate_state()
        for key in engine.unschedulable:
            outcome = engine.outcome(key.partition(":")[2] or key)
            for one in engine.state.waiting_pods.values():
                assert not allowed(one), (seed, one.key, outcome)


def test_without_any_term_nothing_is_counted() -> None:
    engine = engine_with(*ZONES)
    decide(engine, *(pod(f"p{i}") for i in range(3)))
    gang(engine, 3)
    assert not engine.cluster.population.active


@pytest.mark.parametrize("kind", ["default spread", "spread", "affinity"])
def test_little_is_kept_of_pods_that_are_gone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closeby.cluster.population._SPARE", 10)
    monkeypatch.setattr("closeby.cluster.population._REMEMBERED", 10)
    monkeypatch.setattr("closeby.cluster.terms.MOST_VIEWS", 10)
    engine = engine_with(*ZONES)
    service = PodOwner(kind="Service", namespace="a", name="web", selector=selector_of({"app": "web"}))
    engine.handle(SelectionChanged(service))
    wish = PodAffinity(required=(near("web"),)) if kind == "affinity" else None
    for number in range(50):
        made = pod(f"p{number}", affinity=wish, spread=over() if kind == "spread" else (), cpu=100 + number)
        elsewhere = replace(made.spec, node_selector=(("zone", "abc"[number % 3]),), images=(f"i{number}",))
        decide(engine, replace(made, spec=elsewhere, owner=f"Job/j{number}"))
        engine.handle(PodDeleted(made.uid))
    population = engine.cluster.population
    assert sum(len(one.notes) for one in population._classes.values()) <= 2 * 12
    assert len(population._carried_by) <= 10
    assert all(len(one._views) <= 10 for one in population._tallies.values())


def test_counts_for_many_kinds_of_nodes_take_little_and_are_right() -> None:
    engine = engine_with(*ZONES)
    placed: dict[str, str] = {}
    for number in range(MOST_VIEWS + 20):
        made = pod(f"p{number}", spread=over(), cpu=1)
        nowhere = Requirement("zone", "NotIn", (f"z{number}",))
        terms = (NodeSelectorTerm(expressions=(nowhere,)),)
        placed |= decide(engine, replace(made, spec=replace(made.spec, required_affinity=terms)))
    found = zones(placed)
    assert max(map(found.count, "abc")) - min(map(found.count, "abc")) <= 1
    tallies = engine.cluster.population._tallies.values()
    assert all(len(one._views) <= MOST_VIEWS for one in tallies)
