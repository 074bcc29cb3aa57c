"""Which waiting items are tried again when pods or namespaces that selectors go by change."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.selectors import Namespace, PodAffinity, PodAffinityTerm, PodOwner, selector_of
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    Event,
    GroupChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    SelectionChanged,
    Tick,
)
from closeby.scheduling.outcomes import outcomes_of


def pod(name: str, app: str, cpu: int = 100, on: str | None = None, **terms: PodAffinityTerm) -> Pod:
    """A pod with a label; ``near`` and ``apart`` are its required terms."""
    affinity = PodAffinity(
        required=tuple(term for key, term in terms.items() if key == "near"),
        forbidden=tuple(term for key, term in terms.items() if key == "apart"),
    )
    needs = PodSpec(requests=(("cpu", cpu),), pod_affinity=affinity if terms else None)
    return Pod(namespace="a", name=name, uid=name, spec=needs, labels={"app": app}, node_name=on)


def selects(app: str, team: str | None = None) -> PodAffinityTerm:
    namespaces = None if team is None else selector_of({"team": team})
    return PodAffinityTerm("zone", selector_of({"app": app}), namespace_selector=namespaces)


def decided(engine: Engine, *events: Event) -> list[str]:
    """The items decided at the next tick."""
    found = engine.handle(*events, Tick())
    engine.validate_state()
    return sorted(one.key.removeprefix("a/") for one in outcomes_of(found))


def waiting() -> Engine:
    """50 pods too large for any node, one that is kept away, and two that miss a pod to be near to."""
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    nodes = [Node(name=name, labels={"zone": name}, allocatable={"cpu": 4000}) for name in ("n1", "n2")]
    engine.handle(*map(NodeUpserted, nodes))
    far = replace(pod("far", "db", on="n2"), namespace="b")
    noise = [pod("noise", "noise", on="n1"), pod("noise2", "noise", on="n2")]
    placed = [pod("other", "other", on="n1"), far, *noise]
    large = [pod(f"large-{i}", f"large-{i % 7}", 4000) for i in range(50)]
    terms = [
        pod("to-db", "to-db", near=selects("db")),
        pod("to-team", "to-team", near=selects("db", "x")),
        pod("from-noise", "from-noise", apart=selects("noise")),
    ]
    everything = [*placed, *large, *terms]
    assert len(decided(engine, *map(PodUpserted, everything))) == 53
    assert decided(engine) == []
    return engine


def test_a_pod_that_changes_its_labels() -> None:
    engine = waiting()
    assert decided(engine, PodUpserted(pod("other", "nothing", on="n1"))) == []
    assert decided(engine, PodUpserted(pod("other", "db", on="n1"))) == ["to-db"]


def test_a_pod_that_comes() -> None:
    engine = waiting()
    assert decided(engine, PodUpserted(pod("new", "other", on="n1"))) == []
    assert decided(engine, PodUpserted(pod("new2", "db", on="n1"))) == ["to-db"]


def test_a_pod_that_goes() -> None:
    engine = waiting()
    assert decided(engine, PodDeleted("other")) == []
    assert decided(engine, PodDeleted("noise")) == ["from-noise"]


def test_a_namespace_that_changes_its_labels() -> None:
    engine = waiting()
    assert decided(engine, SelectionChanged(Namespace(name="b", labels={"team": "y"}))) == []
    assert decided(engine, SelectionChanged(Namespace(name="b", labels={"team": "x"}))) == ["to-team"]


def full_nodes(*more: Pod, arguments: Mapping[str, object] | None = None) -> Engine:
    """Two nodes that are full, and pods that wait for room."""
    plugins = (PluginEntry(name="PodTopologySpread", arguments=dict(arguments)),) if arguments else ()
    engine = Engine(lambda handle: profile_for(Configuration(plugins=plugins), handle))
    nodes = [Node(name=name, labels={"zone": name}, allocatable={"cpu": 4000}) for name in ("n1", "n2")]
    full = [pod("old-1", "old", 3800, on="n1"), pod("old-2", "old", 3800, on="n2")]
    engine.handle(*map(NodeUpserted, nodes))
    waiting = [one for one in more if one.node_name is None]
    assert len(decided(engine, *map(PodUpserted, [*full, *more]))) == len(waiting)
    return engine


def guards(app: str) -> list[Pod]:
    """A pod on each node that keeps the pods of an application away."""
    return [pod(f"guard-{name}", "guard", on=name, apart=selects(app)) for name in ("n1", "n2")]


def test_pods_that_waited_for_the_same_room_differ_by_a_new_term() -> None:
    """Only the kept-away pod is the first of its class; the others are tried as room appears."""
    others = [pod(f"two-{i}", "two", 3000) for i in range(20)]
    engine = full_nodes(pod("one", "one", 3000), *others)
    assert decided(engine, *map(PodUpserted, guards("one"))) == []
    # One takes the room, the next finds that it is gone; "one" is not tried.
    assert decided(engine, PodDeleted("old-1")) == ["two-0"]
    assert decided(engine, PodDeleted("old-2")) == ["two-1"]
    assert decided(engine, PodDeleted("guard-n1"), PodDeleted("two-0")) == ["one"]


@pytest.mark.parametrize("key", ["a", "b"])
def test_pods_that_waited_for_the_same_room_differ_by_each_of_several_new_terms(key: str) -> None:
    waiting = [replace(pod(name, "", 3000), labels={key: name}) for name in ("one", "two")]
    engine = full_nodes(*waiting, *guards("other"))
    more = [
        pod(f"guard-{of}-{on}", "", on=on, apart=PodAffinityTerm("zone", selector_of({of: "one"})))
        for of in ("a", "b")
        for on in ("n1", "n2")
    ]
    assert decided(engine, *map(PodUpserted, more)) == []
    assert decided(engine, PodDeleted("old-1")) == ["two"]


def test_a_waiting_pod_whose_term_tells_others_apart() -> None:
    """The term is known before its pod is placed, and the classes are sorted before it is."""
    engine = full_nodes(pod("one", "one", 3000), pod("two", "two", 3000))
    assert decided(engine, PodUpserted(pod("guard", "guard", 100, apart=selects("one")))) == ["guard"]
    guard = next(one for one in guards("one") if one.name == "guard-n2")
    assert decided(engine, PodUpserted(guard)) == []
    assert decided(engine, PodDeleted("old-1")) == ["two"]
    assert decided(engine, PodDeleted("old-2")) == []


def gang(name: str, *members: str) -> list[Event]:
    """A gang whose members differ in a label."""
    pods = [replace(pod(f"{name}-{app}", app, 3000), group=name) for app in members]
    group = PodGroup(namespace="a", name=name, min_member=len(pods))
    return [GroupChanged(group), *map(PodUpserted, pods)]


def test_a_gang_whose_members_a_new_term_tells_apart() -> None:
    """It waits for room for two such pods; only one of them is kept away, from one of the nodes."""
    engine = full_nodes()
    assert decided(engine, *gang("g", "one", "two")) == ["g"]
    guard = next(one for one in guards("one") if one.name == "guard-n2")
    # What a gang needs takes an attempt to know, at the first event after its members are distinguished.
    assert decided(engine, PodUpserted(guard)) == ["g"]
    # There is room for each of them for itself, then for both.
    assert decided(engine, PodDeleted("old-1")) == ["g"]
    assert decided(engine, PodDeleted("old-2")) == ["g"]
    assert engine.unschedulable == ()


def test_a_gang_whose_members_count_for_each_other_once_their_namespace_is_meant() -> None:
    engine = Engine(lambda handle: profile_for(Configuration(), handle))
    engine.handle(NodeUpserted(Node(name="n1", labels={"zone": "n1"}, allocatable={"cpu": 4000})))
    engine.handle(SelectionChanged(Namespace(name="a", labels={"team": "y"})))
    members = [pod("g-1", "one", near=selects("db", "x")), pod("g-2", "db")]
    group = PodGroup(namespace="a", name="g", min_member=2)
    events: list[Event] = [PodUpserted(replace(one, group="g")) for one in members]
    assert decided(engine, GroupChanged(group), *events) == ["g"]
    assert engine.cluster.placement("g-1") is None
    assert decided(engine, SelectionChanged(Namespace(name="a", labels={"team": "x"}))) == ["g"]
    assert engine.cluster.placement("g-1") is not None


def test_pods_with_different_owners_differ_by_a_hard_default_constraint() -> None:
    """Two pods wait alike, until the ReplicaSet of one is known, which has other pods in one zone."""
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    arguments = {"defaultingType": "List", "defaultConstraints": [spread]}
    one, two = (replace(pod(name, "x", 3000), owner=f"ReplicaSet/{name}") for name in ("one", "two"))
    placed = [pod(f"x-{i}", "x", 50, on="n1") for i in range(2)]
    engine = full_nodes(*placed, *guards("w"), arguments=arguments)
    assert len(decided(engine, PodUpserted(one), PodUpserted(two))) == 2
    owner = PodOwner(kind="ReplicaSet", namespace="a", name="one", selector=selector_of({"app": "x"}))
    decided(engine, SelectionChanged(owner))
    assert decided(engine, PodDeleted("old-1")) == ["two"]
    assert decided(engine, PodDeleted("old-2")) == ["one"]
