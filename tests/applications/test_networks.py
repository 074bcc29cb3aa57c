"""Whose NetworkTopologies count, and for whom: the operator's for all, a tenant's for itself at most."""

import pytest
from msgspec.structs import replace

from closeby.applications.networks import (
    ALL_NAMESPACES,
    MOST_PLACES,
    Choice,
    Counts,
    Lack,
    NetworkScope,
    NetworkWish,
    choose_network,
    live_scope,
)
from closeby.applications.registry import Applications
from closeby.objects.applications import NetworkTopology
from closeby.objects.reasons import Condition, Reason
from tests.applications.networks import network

ANY = NetworkWish()
OPERATORS, WITH_TENANTS = live_scope(["net"], "closeby-system"), live_scope([], None, beside=True)


def costs(key: str, text: str = "n-1 n-2 5") -> NetworkTopology:
    namespace, name = key.split("/")
    return replace(network(text, name=name), namespace=namespace)


def without_costs(key: str) -> NetworkTopology:
    return replace(costs(key), weight_sets=())


def chosen(applications: Applications, namespace: str = "victim", wish: NetworkWish = ANY) -> Choice:
    return choose_network(applications.networks_for(namespace), applications.scope, wish)


def known(*networks: NetworkTopology, scope: NetworkScope = OPERATORS) -> Applications:
    applications = Applications()
    applications.limit(scope)
    for one in networks:
        applications.declare_network(one)
    return applications


def key_of(choice: Choice) -> str | None:
    return None if choice.network is None else choice.network.key


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        ("kube-system/a", Counts.EVERYWHERE),
        ("closeby-system/a", Counts.EVERYWHERE),
        ("net/a", Counts.EVERYWHERE),
        ("tenant/a", Counts.NOT_HERE),
    ],
)
def test_the_namespaces_that_count(key: str, counts: Counts) -> None:
    assert OPERATORS.counts(costs(key)) is counts
    assert ALL_NAMESPACES.counts(costs(key)) is Counts.EVERYWHERE


def test_a_tenants_makes_the_operators_neither_ambiguous_nor_unknown() -> None:
    applications = known(costs("kube-system/costs"), costs("tenant/costs"), costs("victim/costs"))
    for wish in (ANY, NetworkWish("costs"), NetworkWish("kube-system/costs")):
        for namespace in ("victim", "tenant", "other"):
            assert key_of(chosen(applications, namespace, wish)) == "kube-system/costs"


def test_what_does_not_count_is_not_to_be_had_by_its_full_name() -> None:
    choice = chosen(known(costs("tenant/costs")), wish=NetworkWish("tenant/costs"))
    assert (choice.network, choice.lack) == (None, Lack.NOT_FOUND)


def test_where_none_counts_the_message_names_nothing_of_another_tenants() -> None:
    applications = known(costs("tenant/secret"), costs("victim/mine"))
    choice = chosen(applications)
    assert choice.lack is Lack.NONE_COUNTS
    assert "victim/mine" in choice.message
    assert "tenant" not in choice.message + choice.remedy
    assert "kube-system" in choice.remedy


def test_two_of_the_operators_are_ambiguous_until_one_is_named_or_the_only_one_with_costs() -> None:
    both = costs("kube-system/a"), costs("net/b")
    assert chosen(known(*both)).lack is Lack.AMBIGUOUS
    assert key_of(chosen(known(*both), wish=NetworkWish("b"))) == "net/b"
    assert key_of(chosen(known(both[0], without_costs("net/b")))) == "kube-system/a"


def test_one_with_a_mistake_does_not_count() -> None:
    wrong = Condition(reason=Reason.INVALID_SPEC, object="NetworkTopology/net/b", message="", blocking=True)
    broken = replace(costs("net/b"), conditions=(wrong,))
    assert key_of(chosen(known(costs("kube-system/a"), broken))) == "kube-system/a"
    assert chosen(known(broken)).network is None


def test_one_without_costs_yet() -> None:
    assert chosen(known(without_costs("kube-system/a"))).lack is Lack.NO_WEIGHTS
    assert chosen(known(costs("kube-system/a")), wish=NetworkWish(weights="x")).lack is Lack.NO_WEIGHTS


def test_with_the_option_a_tenants_counts_beside_it_alone_once_it_has_costs() -> None:
    operators = costs("kube-system/costs")
    applications = known(operators, without_costs("tenant/costs"), scope=WITH_TENANTS)
    assert key_of(chosen(applications, "tenant")) == "kube-system/costs"
    applications.declare_network(costs("tenant/costs"))
    for wish in (ANY, NetworkWish("costs")):
        assert key_of(chosen(applications, "tenant", wish)) == "tenant/costs"
        assert key_of(chosen(applications, "victim", wish)) == "kube-system/costs"
    assert key_of(chosen(applications, "tenant", NetworkWish("kube-system/costs"))) == "kube-system/costs"


def test_two_of_one_tenant_are_its_own_trouble() -> None:
    applications = known(costs("kube-system/costs"), costs("tenant/a"), costs("tenant/b"), scope=WITH_TENANTS)
    assert chosen(applications, "tenant").lack is Lack.AMBIGUOUS
    assert key_of(chosen(applications, "victim")) == "kube-system/costs"


def test_a_network_that_would_take_long_to_compute_counts_beside_no_other() -> None:
    wide = "\n".join(f"n-{number} n-{number + 1} 1" for number in range(MOST_PLACES))
    applications = known(costs("tenant/wide", wide), scope=WITH_TENANTS)
    choice = chosen(applications, "tenant")
    assert choice.network is None
    assert "tenant/wide" in choice.message
    assert key_of(chosen(known(costs("kube-system/wide", wide)), "tenant")) == "kube-system/wide"


def test_changes_of_what_does_not_count_change_nothing_for_others() -> None:
    applications = known(costs("kube-system/costs"))
    version = applications.version
    assert not applications.declare_network(costs("tenant/costs"))
    assert not applications.declare_network(costs("tenant/costs", "n-1 n-2 9"))
    assert not applications.withdraw_network("tenant/costs")
    assert applications.version == version
    assert applications.declare_network(costs("kube-system/costs", "n-1 n-2 9"))
    assert applications.withdraw_network("kube-system/costs")


def test_a_scope_that_is_said_later_holds_for_what_is_there() -> None:
    applications = known(costs("kube-system/costs"), costs("tenant/costs"), scope=ALL_NAMESPACES)
    assert chosen(applications).lack is Lack.AMBIGUOUS
    assert applications.limit(OPERATORS)
    assert key_of(chosen(applications)) == "kube-system/costs"
