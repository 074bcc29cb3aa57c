"""Who goes first: inside an application its graph says so, everywhere else the class of service."""

from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.plugins.queue_sorts import QOSSort
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import AppGroupChanged, NodeUpserted, PodUpserted, Tick
from closeby.scheduling.extension import NoArguments
from closeby.scheduling.outcomes import bindings_of
from tests.applications.calls import ONLINE_BOUTIQUE, app
from tests.applications.networks import replicas
from tests.plugins.asking import handle_of
from tests.worlds import GPU, World, node, pods, spec, world

SORT = QOSSort(NoArguments(), handle_of([]))

#: The KEP's order of the Online Boutique (KahnSort).
BOUTIQUE = "p1-0 p10-0 p9-0 p8-0 p7-0 p6-0 p5-0 p4-0 p3-0 p2-0"


def sorted_by(name: str = "TopologicalSort") -> World:
    return world([node("n", allocatable={GPU: 1000})], plugins=[PluginEntry(name=name)])


def order(*members: Pod, drawing: str = ONLINE_BOUTIQUE, sort: str = "TopologicalSort") -> list[str]:
    """Names of the pods as they are bound."""
    drawn = sorted_by(sort).tell(AppGroupChanged(app(drawing)))
    return list(drawn.run(members=members).where)


def plain(name: str, priority: int = 0, qos: str = "BestEffort", created: float | None = 1.0) -> Pod:
    needs = replace(spec(gpu=1), priority=priority, qos_class=qos)
    [pod] = pods(None, 1, needs, prefix=name, created=created)
    return replace(pod, name=name, uid=f"default/{name}")


@pytest.mark.parametrize(
    ("first", "second", "less"),
    [("P1", "P9", True), ("P6", "P2", True), ("P8", "P10", False), ("P4", "P6", False), ("P2", "P3", False)],
)
def test_the_figure_of_less(first: str, second: str, less: bool) -> None:
    for pair in permutations([*replicas(first), *replicas(second)]):
        found = order(*pair)
        assert (found[0] == f"{first.lower()}-0") == less


def test_the_online_boutique_comes_in_the_order_of_the_proposal() -> None:
    members = [pod for number in range(1, 11) for pod in replicas(f"P{number}")]
    assert " ".join(order(*members)) == BOUTIQUE
    assert " ".join(order(*reversed(members))) == BOUTIQUE


def test_the_sort_that_the_group_names_counts() -> None:
    drawn = sorted_by().tell(AppGroupChanged(app("a > b\nb > c\nc", "ReverseKahn")))
    drawn.run(members=[*replicas("a"), *replicas("b"), *replicas("c")])
    assert list(drawn.where) == ["c-0", "b-0", "a-0"]


def test_replicas_of_one_workload_go_by_age_then_by_name() -> None:
    young, old = replicas("a", prefix="a-young", created=9.0), replicas("a", prefix="a-old", created=2.0)
    unknown = replicas("a", 11, prefix="a")
    found = order(*unknown[::-1], *young, *old, drawing="a > b\nb")
    assert found == ["a-old-0", "a-young-0", *(f"a-{number}" for number in range(11))]


def test_an_unknown_workload_goes_last() -> None:
    found = order(*replicas("nobody", created=0.0), *replicas("b"), *replicas("a"), drawing="a > b\nb")
    assert found == ["a-0", "b-0", "nobody-0"]


def test_pods_whose_group_is_missing_are_plain_pods() -> None:
    found = order(
        *replicas("P2", app="A9", created=1.0),
        *replicas("P1", app="A9", created=3.0),
        plain("x", created=2.0),
    )
    assert found == ["p2-0", "x", "p1-0"]


@pytest.mark.parametrize("sort", ["TopologicalSort", "QOSSort"])
def test_plain_pods_go_by_priority_then_class_then_age_then_uid(sort: str) -> None:
    expected = [
        plain("high", priority=7, qos="BestEffort", created=9.0),
        plain("guaranteed", qos="Guaranteed", created=8.0),
        plain("burstable-old", qos="Burstable", created=1.0),
        plain("burstable-twin-1", qos="Burstable", created=2.0),
        plain("burstable-twin-2", qos="Burstable", created=2.0),
        plain("burstable-unknown", qos="Burstable", created=None),
        plain("best-effort", created=0.0),
        plain("low", priority=-1, qos="Guaranteed", created=0.0),
    ]
    assert order(*reversed(expected), sort=sort) == [pod.name for pod in expected]


def test_an_application_stands_where_its_oldest_pod_would() -> None:
    found = order(
        plain("before", created=1.0),
        *replicas("a", created=8.0),
        *replicas("b", created=2.0),
        plain("after", created=3.0),
        drawing="a > b\nb",
    )
    assert found == ["before", "a-0", "b-0", "after"]


def test_one_pod_of_an_application_lifts_no_other() -> None:
    urgent = [replace(pod, spec=replace(pod.spec, priority=5)) for pod in replicas("b", created=9.0)]
    found = order(plain("x", priority=4, created=0.0), *replicas("a"), *urgent, drawing="a > b\nb")
    assert found == ["b-0", "x", "a-0"]


@st.composite
def crowds(draw: st.DrawFn) -> list[Pod]:
    crowd = []
    for number in range(draw(st.integers(2, 9))):
        created = draw(st.sampled_from([None, 1.0, 2.0]))
        priority, qos = draw(st.integers(0, 1)), draw(st.sampled_from(["Guaranteed", "Burstable"]))
        pod = plain(f"pod-{number}", priority, qos, created)
        group = draw(st.sampled_from([None, "A1", "A2", "missing"]))
        if group is not None:
            [labelled] = replicas(draw(st.sampled_from(["a", "b", "nobody"])), app=group)
            pod = replace(pod, labels=labelled.labels)
        crowd.append(pod)
    return crowd


@given(crowds(), st.randoms(use_true_random=False))
def test_the_order_is_total_and_does_not_depend_on_who_came_first(crowd: list[Pod], random: Random) -> None:
    groups = [AppGroupChanged(app("a > b\nb", name=name)) for name in ("A1", "A2")]
    shuffled = [*crowd]
    random.shuffle(shuffled)

    def bound(members: list[Pod]) -> list[str]:
        drawn = sorted_by().tell(*groups)
        return list(drawn.run(members=members).where)

    found = bound(crowd)
    assert bound(shuffled) == found
    assert sorted(found) == sorted(pod.name for pod in crowd)


@given(crowds())
def test_taking_one_item_at_a_time_follows_the_keys(crowd: list[Pod]) -> None:
    drawn = sorted_by().tell(AppGroupChanged(app("a > b\nb")), *(PodUpserted(pod) for pod in crowd))
    state = drawn.engine.state
    taken = []
    for _ in crowd:
        items = [item for item in map(state.item, state.item_keys()) if item is not None]
        assert len({SORT.sort_key(item) for item in items}) == len(items)
        first = min(items, key=SORT.sort_key, default=None)
        bound = [one.pod.name for one in bindings_of(drawn.engine.handle(Tick(limit=1)))]
        assert sorted(bound) == sorted(pod.name for pod in (() if first is None else first.pods))
        taken += bound
    assert len(taken) == len(crowd)


def test_a_place_in_the_queue_is_kept_while_pods_wait() -> None:
    drawn = world([node("n", allocatable={GPU: 0})], plugins=[PluginEntry(name="TopologicalSort")])
    drawn.tell(AppGroupChanged(app("a > b\nb"))).run(
        members=[*replicas("b", created=5.0), plain("x", created=4.0)]
    )
    drawn.tell(*(PodUpserted(pod) for pod in replicas("a", created=1.0)))
    drawn.tell(NodeUpserted(node("n", allocatable={GPU: 9}))).run()
    assert list(drawn.where) == ["x", "a-0", "b-0"]
