"""The orders of an application. Those of the Online Boutique stand in the network-aware scheduling KEP."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeby.applications.sorts import SORTS, topology_order
from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from tests.applications.calls import ONLINE_BOUTIQUE, app

BOUTIQUE_ORDERS = {
    "KahnSort": "P1 P10 P9 P8 P7 P6 P5 P4 P3 P2",
    "ReverseKahn": "P2 P3 P4 P5 P6 P7 P8 P9 P10 P1",
    "AlternateKahn": "P1 P2 P10 P3 P9 P4 P8 P5 P7 P6",
    "TarjanSort": "P1 P10 P9 P8 P7 P5 P6 P4 P3 P2",
    "ReverseTarjan": "P2 P3 P4 P6 P5 P7 P8 P9 P10 P1",
    "AlternateTarjan": "P1 P2 P10 P3 P9 P4 P8 P6 P7 P5",
}


@pytest.mark.parametrize(("algorithm", "order"), BOUTIQUE_ORDERS.items())
def test_the_online_boutique_is_ordered_as_published(algorithm: str, order: str) -> None:
    assert " ".join(topology_order(app(ONLINE_BOUTIQUE, algorithm)).names) == order


def test_the_kahn_index_list_of_the_online_boutique() -> None:
    index = topology_order(app(ONLINE_BOUTIQUE, "KahnSort")).index
    text = " ".join(f"({name} {place})" for name, place in index.items())
    assert text == "(P1 1) (P10 2) (P9 3) (P8 4) (P7 5) (P6 6) (P5 7) (P4 8) (P3 9) (P2 10)"


def test_the_eleventh_pod_of_the_published_test() -> None:
    boutique = ONLINE_BOUTIQUE.replace("P2\n", "P2 > P11\n", 1).strip() + "\nP11"
    boutique = boutique.replace("P1 > P2 > P11", "P1 > P2")
    assert topology_order(app(boutique, "KahnSort")).names[-2:] == ("P2", "P11")
    assert " ".join(topology_order(app(boutique, "AlternateKahn")).names) == (
        "P1 P11 P10 P2 P9 P3 P8 P4 P7 P5 P6"
    )


def test_the_chain_of_the_proposal() -> None:
    assert topology_order(app("P1 > P2\nP2 > P3\nP3")).names == ("P1", "P2", "P3")


def test_an_unknown_or_missing_algorithm_is_kahn() -> None:
    assert (
        topology_order(app(ONLINE_BOUTIQUE, "BogoSort")).names == topology_order(app(ONLINE_BOUTIQUE)).names
    )


def test_a_workload_without_edges_is_in_the_order_too() -> None:
    assert topology_order(app("alone\na > b\nb")).names == ("a", "b", "alone")


def test_an_undeclared_dependency_is_a_leaf() -> None:
    assert topology_order(app("a > outside b\nb > outside")).names == ("a", "b", "outside")


def test_a_circle_is_reported_by_its_members_and_keeps_its_place() -> None:
    #  front -> a <-> b -> back; back is downstream of the circle, not in it
    order = topology_order(app("front > a\na > b\nb > a back\nback"))
    assert order.names == ("front", "a", "b", "back")
    [condition] = order.conditions
    assert condition.message == "a and b need each other in a circle"
    assert condition.object == "AppGroup/default/A1"


def test_a_workload_that_needs_itself_is_a_circle_of_one() -> None:
    [condition] = topology_order(app("a > a b\nb")).conditions
    assert condition.message == "a needs itself"


def test_a_long_chain_is_no_deeper_than_the_stack() -> None:
    names = [f"w{number}" for number in range(5_000)]
    chain = "\n".join(f"{one} > {other}" for one, other in pairwise(names))
    assert topology_order(app(chain, "TarjanSort")).names == tuple(names)


@st.composite
def apps(draw: st.DrawFn, acyclic: bool) -> AppGroup:
    names = [f"w{number}" for number in range(draw(st.integers(1, 8)))]
    workloads = []
    for place, name in enumerate(names):
        others = names[place + 1 :] if acyclic else names
        needs = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        workloads.append(
            AppWorkload(name=name, dependencies=tuple(Dependency(workload=one) for one in needs))
        )
    algorithm = draw(st.sampled_from(list(SORTS)))
    declared = draw(st.permutations(workloads))
    return AppGroup(namespace="default", name="app", workloads=tuple(declared), algorithm=algorithm)


@given(apps(acyclic=False))
def test_every_workload_is_in_the_order_once(group: AppGroup) -> None:
    order = topology_order(group)
    assert sorted(order.names) == sorted(workload.name for workload in group.workloads)


@given(apps(acyclic=True))
def test_without_circles_callers_come_first_or_last(group: AppGroup) -> None:
    order = topology_order(group)
    assert not order.conditions
    for workload in group.workloads:
        for edge in workload.dependencies:
            caller_first = order.index[workload.name] < order.index[edge.workload]
            if group.algorithm.endswith("Sort"):
                assert caller_first
            elif group.algorithm.startswith("Reverse"):
                assert not caller_first
