"""What is not looked at, because no pod of an application would find a node, would find none if it were."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.applications import WORKLOAD_LABEL
from closeby.objects.pods import Pod
from closeby.scheduling.events import (
    AppGroupChanged,
    Event,
    FlushUnschedulable,
    NetworkTopologyChanged,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.judging.needs import need_of_any
from closeby.scheduling.outcomes import bindings_of, outcomes_of
from tests.applications.calls import app
from tests.applications.networks import network, replicas
from tests.scheduling.test_applications import Case, cases, place, rooms
from tests.worlds import GPU


def taken_somewhere(case: Case, pod: Pod) -> bool:
    """Whether a node has room for a new pod and is near enough to those that run; one node after another."""
    alone = Case(case.nodes, case.group, case.costs, case.running, [pod])
    used = [one.node_name for one in case.running]
    return any(
        used.count(one.name) < one.allocatable[GPU] and not alone.broken({pod.name: one.name})
        for one in case.nodes
    )


@given(cases(most=6))
def test_a_pod_finds_no_node_exactly_if_each_lacks_room_or_is_too_far(case: Case) -> None:
    drawn = case.place(members=())
    drawn.tell(*(PodUpserted(pod) for pod in case.new))
    tools = drawn.engine._tools
    for pod in case.new:
        need = need_of_any(tools.table, [pod])
        assert tools.rooms.lack(need) != taken_somewhere(case, pod)
    need = need_of_any(tools.table, case.new)
    assert tools.rooms.lack(need) != any(taken_somewhere(case, pod) for pod in case.new)


@given(cases(most=6), st.data())
def test_pods_end_where_they_would_if_all_were_tried_whenever_anything_happens(
    case: Case, data: st.DataObject
) -> None:
    """Pods leave, the network gets nearer or farther, limits go."""
    quick, thorough = case.place(), case.place()
    unlimited = replace(
        case.group,
        workloads=tuple(
            replace(
                one, dependencies=tuple(replace(need, max_network_cost=None) for need in one.dependencies)
            )
            for one in case.group.workloads
        ),
    )
    events: list[Event] = [
        *(PodDeleted(pod.uid) for pod in (*case.running, *case.new)),
        NetworkTopologyChanged(network("n0 n1 1\nn1 n2 1\nn2 n3 1")),
        NetworkTopologyChanged(network("n0 n1 9")),
        AppGroupChanged(unlimited),
    ]
    for event in data.draw(st.permutations(events))[:4]:
        quick.tell(event).run()
        thorough.tell(event, FlushUnschedulable()).run()
        assert quick.where == thorough.where


def test_only_what_may_help_makes_an_application_be_looked_at_again() -> None:
    """b may be 1 from a, which is on n1; n1 is full, n2 is 5 away."""
    others = [*replicas("x", app="B1", on="n1"), *replicas("y", app="B1", on="n2")]
    drawn = place(
        rooms(n1=2, n2=1),
        app("a > b<=1\nb"),
        network("n1 n2 5"),
        members=[*replicas("a", on="n1"), *others, *replicas("b")],
    )
    assert set(drawn.left("A1")) == {"b-0"}
    engine = drawn.engine

    away = engine.handle(PodDeleted(others[1].uid), Tick())
    beside = engine.handle(PodDeleted(others[0].uid), Tick())

    assert not outcomes_of(away)
    assert [one.node for one in bindings_of(beside)] == ["n1"]


def test_a_running_replica_that_becomes_one_of_another_workload_makes_room_near_it() -> None:
    [a] = replicas("a", on="n1")
    members = [a, *replicas("b")]
    drawn = place(rooms(n1=1, n2=1), app("a > b<=1\nb\nc"), network("n1 n2 5"), members=members)
    assert drawn.where == {}
    relabelled = replace(a, labels={**a.labels, WORKLOAD_LABEL: "c"})
    assert drawn.tell(PodUpserted(relabelled)).run().where == {"b-0": "n2"}
