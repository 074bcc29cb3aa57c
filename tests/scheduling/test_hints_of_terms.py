"""Which waiting items are tried again when pods or namespaces that selectors go by change."""

from msgspec.structs import replace

from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodSpec
from closeby.objects.selectors import (
    Namespace,
    PodAffinity,
    PodAffinityTerm,
    selector_of,
)
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import Event, NodeUpserted, PodDeleted, PodUpserted, SelectionChanged, Tick
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
