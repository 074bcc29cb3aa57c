"""Applications as work items: placed together, not all or nothing, where their talk costs least."""

from collections.abc import Iterable, Sequence
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.applications import WORKLOAD_LABEL, AppGroup, AppWorkload, Dependency, NetworkTopology
from closeby.objects.nodes import Node
from closeby.objects.pods import HostPort, Pod
from closeby.objects.reasons import Reason
from closeby.reading.configuration import PluginEntry
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    BindFailed,
    NetworkTopologyChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
)
from closeby.scheduling.outcomes import Improvement, ItemKind
from tests.applications.calls import app
from tests.applications.networks import FIVE_NODES, distances, network, replicas, workers
from tests.scheduling.oracle import assert_nothing_is_overcommitted
from tests.worlds import GPU, World, gang, node, pods, world

#: Two pairs of near nodes, far from each other.
PAIRS = "a1 a2 1\nb1 b2 1\na1 b1 50\na2 b2 50"


def place(
    nodes: list[Node],
    *objects: AppGroup | NetworkTopology,
    members: Iterable[Pod] = (),
    plugins: Iterable[PluginEntry] = (),
    explain: bool = False,
) -> World:
    drawn = world(nodes, plugins=plugins, explain=explain)
    for one in objects:
        drawn.tell(AppGroupChanged(one) if isinstance(one, AppGroup) else NetworkTopologyChanged(one))
    return drawn.run(members=members)


def rooms(**gpus: int) -> list[Node]:
    return [node(name, allocatable={GPU: amount}) for name, amount in gpus.items()]


def improvement(drawn: World, name: str = "A1") -> Improvement:
    found = drawn.outcome(name).improvement
    assert found is not None
    return found


def cost_of(group: AppGroup, costs: NetworkTopology, placed: Sequence[tuple[str, str, bool]]) -> float:
    """Cost of all talk in which a new pod takes part; ``placed``: workload, node, whether it is new."""
    far = distances(sorted({name for _, name, _ in placed}), costs)
    total = 0.0
    for workload in group.workloads:
        for edge in workload.dependencies:
            for one, (caller, here, fresh) in enumerate(placed):
                for other, (callee, there, young) in enumerate(placed):
                    if (caller, callee) == (workload.name, edge.workload) and (fresh or young):
                        twice = caller == callee and one >= other
                        total += 0.0 if twice else edge.weight * far[here, there]
    return total


# Placed together


def test_an_application_is_one_item_and_its_pods_are_numbered_in_its_order() -> None:
    members = [pod for name in ("c", "a", "b") for pod in replicas(name, 2)]
    drawn = place(workers(), app("a > b\nb > c\nc"), network(FIVE_NODES), members=members)
    outcome = drawn.outcome("A1")
    assert outcome.kind is ItemKind.APPLICATION
    assert [one.pod.name for one in outcome.bindings] == ["a-0", "a-1", "b-0", "b-1", "c-0", "c-1"]
    assert [one.order for one in outcome.bindings] == [0, 1, 2, 3, 4, 5]
    assert set(drawn.where.values()) == {"worker-1"}
    assert improvement(drawn).final == 0


def test_the_first_pod_does_not_strand_the_rest() -> None:
    """One after another, a goes to a1, which has room for nothing else near."""
    drawn = place(rooms(a1=1, b1=1, b2=2), app("a > b c\nb\nc"), network(PAIRS), members=three())
    assert set(drawn.where.values()) == {"b1", "b2"}
    assert (improvement(drawn).greedy, improvement(drawn).final) == (101.0, 1.0)


def three() -> list[Pod]:
    return [*replicas("a"), *replicas("b"), *replicas("c")]


def test_pods_that_do_not_fit_stay_with_their_own_reason() -> None:
    drawn = place(rooms(a1=1, a2=1), app("a > b c\nb\nc"), network(PAIRS), members=three())
    assert list(drawn.where) == ["a-0", "c-0"]
    assert drawn.left("A1") == {"b-0": Reason.INSUFFICIENT_RESOURCES}
    assert drawn.engine.unschedulable == ("app:default/A1",)
    assert drawn.reason("A1") is None
    drawn.run().tell(NodeUpserted(node("b1", allocatable={GPU: 1}))).run()
    assert drawn.where["b-0"] == "b1"
    assert not drawn.engine.unschedulable


def test_replicas_that_run_draw_the_next_ones() -> None:
    running = [*replicas("b", on="b2"), *replicas("b", prefix="other", on="b1")]
    drawn = place(
        rooms(a1=9, a2=9, b1=9, b2=1), app("a > b\nb"), network(PAIRS), members=[*running, *replicas("a")]
    )
    assert drawn.where == {"a-0": "b1"}
    assert improvement(drawn).final == 1


def test_pods_placed_in_the_same_run_count_at_once_for_those_that_come_later() -> None:
    drawn = place(rooms(a1=0, b1=1, b2=9), app("a > b\nb"), network(PAIRS), members=replicas("a"))
    drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 9}))).run(members=replicas("b"))
    assert drawn.where == {"a-0": "b1", "b-0": "b2"}


def test_an_application_that_does_not_talk_is_placed_without_a_search() -> None:
    drawn = place(workers(), app("a\nb"), network(FIVE_NODES), members=[*replicas("a"), *replicas("b")])
    assert len(drawn.where) == 2
    assert drawn.outcome("A1").improvement is None


@pytest.mark.parametrize("explain", [False, True])
def test_without_a_network_an_application_is_placed_all_the_same(explain: bool) -> None:
    drawn = place(rooms(a1=1, a2=1), app("a > b c\nb\nc"), members=three(), explain=explain)
    assert list(drawn.where) == ["a-0", "c-0"]
    assert drawn.left("A1") == {"b-0": Reason.INSUFFICIENT_RESOURCES}
    explained = [one.pod for one in drawn.outcome("A1").explanations]
    assert explained == (["default/a-0", "default/c-0", "default/b-0"] if explain else [])


def test_two_applications_do_not_mix() -> None:
    groups = app("a > b\nb"), app("a > b\nb", name="A2")
    members = [
        *replicas("a"),
        *replicas("b"),
        *replicas("a", app="A2", prefix="a2"),
        *replicas("b", app="A2", prefix="b2"),
    ]
    drawn = place(rooms(a1=1, a2=1, b1=1, b2=1), *groups, network(PAIRS), members=members)
    assert {drawn.where["a-0"], drawn.where["b-0"]} in ({"a1", "a2"}, {"b1", "b2"})
    assert improvement(drawn).final == improvement(drawn, "A2").final == 1


def test_gated_pods_wait_and_the_others_are_placed() -> None:
    [gated] = replicas("b")
    gated = replace(gated, spec=replace(gated.spec, scheduling_gates=("wait",)))
    drawn = place(workers(), app("a > b\nb"), network(FIVE_NODES), members=[*replicas("a"), gated])
    assert list(drawn.where) == ["a-0"]
    assert drawn.left("A1") == {"b-0": Reason.SCHEDULING_GATED}
    drawn.tell(PodUpserted(replicas("b")[0])).run()
    assert drawn.where["b-0"] == drawn.where["a-0"]


def test_pods_with_host_ports_stay_where_the_filters_put_them() -> None:
    members = [replace(pod, spec=replace(pod.spec, host_ports=(HostPort(80),))) for pod in replicas("a", 3)]
    drawn = place(rooms(a1=9, a2=9, b1=9, b2=9), app("a > a b\nb"), network(PAIRS), members=members)
    assert len(set(drawn.where.values())) == 3
    drawn.run(members=replicas("b"))
    assert drawn.where["b-0"] in {drawn.where[f"a-{number}"] for number in range(3)}


def test_a_choice_that_another_filter_refuses_loses_no_pod() -> None:
    """The filter of bandwidth risk lets one such pod on a node, though the search sees room for two."""
    bandwidth = "network.aware.com/bandwidth"
    nodes = [node(name, allocatable={GPU: 9, bandwidth: 1000}) for name in ("a1", "a2", "b1", "b2")]
    members = [
        replace(pod, spec=replace(pod.spec, requests=((GPU, 1), (bandwidth, 400))))
        for pod in (*replicas("a"), *replicas("b"), *replicas("c"))
    ]
    risk = PluginEntry(name="CheckRiskNodeBandwidth", arguments={"RiskThreshold": 0.3})
    drawn = place(nodes, app("a > b c\nb\nc"), network(PAIRS), members=members, plugins=[risk])
    assert len(drawn.where) == 3
    assert len(set(drawn.where.values())) == 3
    found = improvement(drawn)
    placed = [(name[0], where, True) for name, where in drawn.where.items()]
    assert found.final == cost_of(app("a > b c\nb\nc"), network(PAIRS), placed) <= found.greedy


def test_a_pod_is_not_crowded_out_by_another_one_that_a_filter_sent_away() -> None:
    """Both would be on b1, which alone holds c; but b1 is not to have more than one of them."""
    bandwidth = "network.aware.com/bandwidth"
    nodes = [node("a1", allocatable={bandwidth: 1000}), node("b1", allocatable={GPU: 9, bandwidth: 1000})]
    [a], [c] = replicas("a", gpus=0), replicas("c")
    a = replace(a, spec=replace(a.spec, requests=((bandwidth, 400),)))
    c = replace(c, spec=replace(c.spec, requests=((GPU, 1), (bandwidth, 400))))
    risk = PluginEntry(name="CheckRiskNodeBandwidth", arguments={"RiskThreshold": 0.3})
    drawn = place(nodes, app("a > c\nc"), network(PAIRS), members=[a, c], plugins=[risk])
    assert drawn.where == {"a-0": "a1", "c-0": "b1"}
    assert (improvement(drawn).greedy, improvement(drawn).final) == (50, 50)


def test_of_places_that_cost_the_same_the_first_by_name_is_taken() -> None:
    """The greedy start strands a on a1; b1 with b2 would be as good as c1 with c2."""
    costs = network("a1 b1 50\na1 c1 50\nb1 b2 1\nc1 c2 1")
    nodes = rooms(a1=1, b1=1, b2=2, c1=1, c2=2)
    for order in (nodes, nodes[::-1], [*nodes[3:], *nodes[:3]]):
        drawn = place(order, app("a > b c\nb\nc"), costs, members=three())
        assert set(drawn.where.values()) == {"b1", "b2"}
        assert improvement(drawn).greedy > improvement(drawn).final == 1


# Limits


def test_a_limit_holds_in_the_greedy_start_and_in_the_search() -> None:
    drawn = place(rooms(a1=1, b1=1, unknown=1), app("a > b<=40\nb"), network(PAIRS), members=three()[:2])
    assert list(drawn.where) == ["a-0"]
    assert drawn.left("A1") == {"b-0": Reason.NETWORK_COST_TOO_HIGH}


def test_a_limit_that_appears_after_pods_of_the_same_needs_were_placed_holds() -> None:
    """Pods that share one spec are judged alike only as long as no limit tells them apart."""
    [first, second] = pods(None, 2, prefix="x")
    shared = first.spec
    a, b = (replace(replicas(name)[0], spec=shared) for name in ("a", "b"))
    drawn = place(rooms(a1=1, b1=3, b2=3), app("a > b\nb"), network(PAIRS), members=[first, second])
    drawn.tell(AppGroupChanged(app("a > b<=5\nb")), PodUpserted(replace(a, node_name="a1", phase="Running")))
    drawn.run(members=[b])
    assert drawn.left("A1") == {"b-0": Reason.NETWORK_COST_TOO_HIGH}
    drawn.tell(AppGroupChanged(app("a > b<=50\nb"))).run()
    assert drawn.where["b-0"] == "b1"


def test_a_pod_too_far_from_another_is_placed_when_the_network_gets_nearer() -> None:
    """Nothing else happens: no room comes, and nothing of the application is new."""
    running = replicas("b", on="a1")
    drawn = place(rooms(a1=1, b1=1), app("a > b<=40\nb"), network(PAIRS), members=[*running, *replicas("a")])
    assert drawn.where == {}
    drawn.tell(NetworkTopologyChanged(network("a1 b1 45"))).run()
    assert drawn.where == {}
    drawn.tell(NetworkTopologyChanged(network("a1 b1 40"))).run()
    assert drawn.where == {"a-0": "b1"}


def test_members_of_a_gang_heed_limits_that_appeared_later() -> None:
    drawn = place(rooms(a1=1, b1=9), network(PAIRS), members=pods(None, 1, prefix="x"))
    shared = drawn.engine.state.pods["default/x-0"].spec
    members = [replace(pod, spec=shared) for pod in (*replicas("a", group="g"), *replicas("b", group="g"))]
    drawn.tell(PodDeleted("default/x-0"), AppGroupChanged(app("a > b<=5\nb")))
    drawn.run(gang("g", min_member=2), members=members)
    assert {drawn.where["a-0"], drawn.where["b-0"]} == {"b1"}


# Gangs


def test_a_pod_group_is_the_item_and_the_edges_are_scores_inside_it() -> None:
    drawn = world(rooms(a1=1, b1=1, b2=9))
    drawn.tell(AppGroupChanged(app("a > b c\nb\nc")), NetworkTopologyChanged(network(PAIRS)))
    members = [pod for name in "abc" for pod in replicas(name, group="g")]
    drawn.run(gang("g", min_member=3), members=members)
    assert drawn.outcome("g").kind is ItemKind.GANG
    assert set(drawn.where.values()) <= {"b1", "b2"}
    assert drawn.engine.outcome("default/A1") is None


def test_a_gang_of_an_application_is_still_all_or_nothing() -> None:
    drawn = world(rooms(a1=1, b1=1))
    drawn.tell(AppGroupChanged(app("a > b c\nb\nc")), NetworkTopologyChanged(network(PAIRS)))
    members = [pod for name in "abc" for pod in replicas(name, group="g")]
    drawn.run(gang("g", min_member=3), members=[*members, *replicas("b", prefix="single")])
    assert list(drawn.where) == ["single-0"]


# AppGroups come and go while pods wait


def waiting_pods() -> World:
    drawn = place(rooms(a1=0), network(PAIRS), members=[*replicas("a"), *replicas("b"), *pods(None, 1)])
    assert drawn.engine.unschedulable == ("pod:default/a-0", "pod:default/b-0", "pod:default/pod-0")
    return drawn


def test_pods_that_wait_join_the_application_that_arrives() -> None:
    drawn = waiting_pods().tell(AppGroupChanged(app("a > b\nb"))).run()
    assert sorted(drawn.engine.unschedulable) == ["app:default/A1", "pod:default/pod-0"]
    drawn.tell(*(NodeUpserted(one) for one in rooms(a1=1, b1=2))).run()
    assert drawn.where["a-0"] == drawn.where["b-0"] == "b1"
    assert not drawn.engine.unschedulable


def test_pods_that_wait_are_plain_ones_when_the_application_goes() -> None:
    drawn = waiting_pods().tell(AppGroupChanged(app("a > b\nb"))).run()
    drawn.tell(AppGroupDeleted("default/A1")).run()
    assert sorted(drawn.engine.unschedulable) == ["pod:default/a-0", "pod:default/b-0", "pod:default/pod-0"]
    assert drawn.engine.outcome("default/A1") is not None
    drawn.tell(NodeUpserted(node("a1", allocatable={GPU: 9}))).run()
    assert len(drawn.where) == 3


def test_another_order_counts_for_pods_that_wait() -> None:
    drawn = waiting_pods().tell(AppGroupChanged(app("a > b\nb"))).run()
    drawn.tell(AppGroupChanged(app("b > a\na"))).tell(NodeUpserted(node("a1", allocatable={GPU: 9}))).run()
    assert [one.pod.name for one in drawn.outcome("A1").bindings] == ["b-0", "a-0"]


def test_the_newest_decision_about_a_name_is_reported_whatever_kind_it_was() -> None:
    """A pod that is called like its application, which goes."""
    [pod] = replicas("A1", app="A1")
    pod = replace(pod, name="A1", uid="default/A1")
    drawn = place(rooms(a1=0), app("A1 > b\nb"), members=[pod])
    assert drawn.outcome("A1").kind is ItemKind.APPLICATION
    drawn.tell(AppGroupDeleted("default/A1")).run()
    assert drawn.outcome("A1").kind is ItemKind.POD
    stimuli = [entry.stimulus for entry in drawn.engine.story("default/A1")]
    assert stimuli == sorted(stimuli)


def test_a_binding_that_failed_brings_the_pod_back_into_its_application() -> None:
    drawn = place(rooms(a1=9, a2=9), app("a > b\nb"), network(PAIRS), members=three()[:2])
    drawn.tell(BindFailed("default/b-0", "timeout")).run()
    assert drawn.where["b-0"] == drawn.where["a-0"]
    assert improvement(drawn).final == 0
    drawn.tell(PodDeleted("default/b-0"))
    assert not drawn.engine.unschedulable


# Against brute force


class Case:
    """A small cluster with an application on it."""

    def __init__(
        self, nodes: list[Node], group: AppGroup, costs: NetworkTopology, running: list[Pod], new: list[Pod]
    ) -> None:
        self.nodes, self.group, self.costs, self.running, self.new = nodes, group, costs, running, new

    def place(self, nodes: Sequence[Node] | None = None, members: Sequence[Pod] | None = None) -> World:
        pending = self.new if members is None else members
        return place(
            list(self.nodes if nodes is None else nodes),
            self.group,
            self.costs,
            members=[*self.running, *pending],
        )

    def at(self, where: dict[str, str]) -> list[tuple[str, str, bool]]:
        placed = [(pod.labels[WORKLOAD_LABEL], pod.node_name or "", False) for pod in self.running]
        return placed + [
            (pod.labels[WORKLOAD_LABEL], where[pod.name], True) for pod in self.new if pod.name in where
        ]

    def cost(self, where: dict[str, str]) -> float:
        return cost_of(self.group, self.costs, self.at(where))

    def broken(self, where: dict[str, str]) -> list[tuple[str, str]]:
        """Pairs of nodes that break a limit, of which one holds a new pod."""
        links = {frozenset((link.origin, link.destination)) for link in self.costs.weight_sets[0].node_costs}
        known = reachable(links)
        far = distances([one.name for one in self.nodes], self.costs)
        placed = self.at(where)
        return [
            (here, there)
            for workload in self.group.workloads
            for edge in workload.dependencies
            for caller, here, fresh in placed
            for callee, there, young in placed
            if (caller, callee) == (workload.name, edge.workload)
            and edge.max_network_cost is not None
            and (fresh or young)
            and here != there
            and (far[here, there] > edge.max_network_cost or there not in known.get(here, {here}))
        ]

    def least(self) -> float:
        """The least cost of placing all new pods."""
        room = {one.name: one.allocatable[GPU] for one in self.nodes}
        for pod in self.running:
            room[pod.node_name or ""] -= 1
        best = float("inf")
        for choice in product(room, repeat=len(self.new)):
            where = {pod.name: name for pod, name in zip(self.new, choice, strict=True)}
            if all(choice.count(name) <= room[name] for name in set(choice)) and not self.broken(where):
                best = min(best, self.cost(where))
        return best


def reachable(links: set[frozenset[str]]) -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    for _ in range(len(links) + 1):
        for link in links:
            for one in link:
                known.setdefault(one, {one}).update(*(known.get(end, {end}) for end in link))
    return known


@st.composite
def cases(draw: st.DrawFn, limits: bool = True, most: int = 4) -> Case:
    names = [f"n{number}" for number in range(draw(st.integers(1, 4)))]
    nodes = [node(name, allocatable={GPU: draw(st.integers(0, 3))}) for name in names]
    links = [
        f"{a} {b} {draw(st.integers(0, 12))}" for a in names for b in names if a < b and draw(st.booleans())
    ]
    labels = ["a", "b", "c"]
    workloads = []
    for head in labels:
        edges = []
        for tail in draw(st.sets(st.sampled_from(labels))):
            limit = draw(st.one_of(st.none(), st.integers(0, 12))) if limits else None
            weight = draw(st.sampled_from([1.0, 2.0, 0.3]))
            edges.append(Dependency(workload=tail, weight=weight, max_network_cost=limit))
        workloads.append(AppWorkload(name=head, dependencies=tuple(edges)))
    group = AppGroup(namespace="default", name="A1", workloads=tuple(workloads))
    running: list[Pod] = []
    for number in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(names))
        used = sum(pod.node_name == name for pod in running)
        if used < nodes[names.index(name)].allocatable[GPU]:
            running += replicas(draw(st.sampled_from(labels)), prefix=f"running-{number}", on=name)
    new = []
    for number in range(draw(st.integers(1, most))):
        new += replicas(draw(st.sampled_from(labels)), prefix=f"new-{number}")
    return Case(nodes, group, network("\n".join(links)), running, new)


@given(cases(most=6))
def test_limits_hold_nothing_is_overcommitted_and_the_cost_is_what_it_says(case: Case) -> None:
    drawn = case.place()
    assert_nothing_is_overcommitted(drawn.engine)
    assert case.broken(drawn.where) == []
    assert set(drawn.where) | set(drawn.left("A1")) == {pod.name for pod in case.new}
    found = drawn.outcome("A1").improvement
    if found is None:
        assert case.cost(drawn.where) == 0
    else:
        assert found.final == pytest.approx(case.cost(drawn.where), abs=1e-6)
        assert found.final <= found.greedy + 1e-9


@given(cases())
def test_a_small_application_is_placed_as_cheaply_as_can_be(case: Case) -> None:
    drawn = case.place()
    if len(drawn.where) == len(case.new):
        assert case.cost(drawn.where) == pytest.approx(case.least(), abs=1e-6)


@given(cases(limits=False, most=6))
def test_without_limits_every_pod_that_has_room_is_placed(case: Case) -> None:
    drawn = case.place()
    room = sum(one.allocatable[GPU] for one in case.nodes) - len(case.running)
    assert len(drawn.where) == min(room, len(case.new))
    assert set(drawn.left("A1").values()) <= {Reason.INSUFFICIENT_RESOURCES}


@given(cases(most=6), st.randoms(use_true_random=False))
def test_the_order_of_nodes_and_pods_decides_nothing(case: Case, random: Random) -> None:
    nodes, members = list(case.nodes), list(case.new)
    random.shuffle(nodes)
    random.shuffle(members)
    assert case.place(nodes, members).where == case.place().where


class TestEverybodyAtOnce:
    def test_a_caller_leaves_the_corner_in_which_its_callee_has_no_room(self) -> None:
        """One by one P1 takes a1; P2 may be 5 from it, but a2 is full and b1 and b2 are 50 away."""
        drawn = place(
            rooms(a1=1, a2=0, b1=1, b2=1),
            app("P1 > P2<=5\nP2"),
            network(nodes=PAIRS),
            members=[*replicas("P1"), *replicas("P2")],
        )
        assert set(drawn.where.values()) == {"b1", "b2"}
        assert improvement(drawn).final == 1

    def test_small_pods_do_not_take_both_nodes_from_a_large_one(self) -> None:
        """One by one the two small ones go to a node each, where nothing is left for the one of 4."""
        small = [*replicas("P1", gpus=2), *replicas("P2", gpus=2)]
        large = replicas("P3", gpus=4)
        drawn = place(
            rooms(a1=4, a2=4), app("P1 > P2\nP2 > P3\nP3"), network(nodes=PAIRS), members=[*small, *large]
        )
        assert drawn.where["p1-0"] == drawn.where["p2-0"] != drawn.where["p3-0"]
        drawn.engine.validate_state()

    def test_what_cannot_be_placed_at_once_leaves_the_others_where_they_were(self) -> None:
        drawn = place(
            rooms(a1=1, a2=1),
            app("P1 > P2\nP2 > P3\nP3"),
            network(nodes=PAIRS),
            members=[*replicas("P1"), *replicas("P2"), *replicas("P3")],
        )
        assert len(drawn.where) == 2
        assert list(drawn.left("A1").values()) == [Reason.INSUFFICIENT_RESOURCES]
        drawn.engine.validate_state()
