"""The cost of an application's traffic is a service that any plugin may offer."""

from collections.abc import Iterator, Mapping

from closeby.applications.registry import Application
from closeby.applications.traffic import EdgeCost, Replicas
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.plugins.network_min_cost import NetworkMinCost
from closeby.plugins.registry import BUILT_IN, dependency_cost
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.plugin_view import CycleState
from closeby.scheduling.profile import Profile, build_profile
from closeby.scheduling.services import DependencyCost, Traffic
from tests.plugins.asking import handle_of


class FlatRate(DependencyCost):
    """Every dependency costs one."""

    name = "flat-rate"

    def traffic(self, state: CycleState, pods: tuple[Pod, ...]) -> Traffic | None:
        return None

    def edges(
        self, application: Application, replicas: Mapping[str, Replicas]
    ) -> tuple[EdgeCost, ...] | None:
        return tuple(EdgeCost(edge=edge, pairs=1, cost=1.0, unknown=0, over=0) for edge in application.edges)

    def unknown_costs(self, application: Application) -> Iterator[Condition]:
        yield Condition(reason=Reason.NETWORK_COST_UNKNOWN, object=application.key, message="a guess")


def profile(*entries: PluginEntry) -> Profile:
    available = {**BUILT_IN, FlatRate.name: FlatRate}
    return build_profile(Configuration(plugins=entries), available, handle_of([]), ["PrioritySort"])


def test_the_first_plugin_that_offers_costs_is_asked() -> None:
    offered = profile(PluginEntry(name="flat-rate"), PluginEntry(name="NetworkMinCost"))
    assert isinstance(dependency_cost(offered), FlatRate)
    assert [one.name for one in offered.dependency_costs] == ["flat-rate", "NetworkMinCost"]


def test_traffic_has_a_cost_where_no_plugin_offers_one() -> None:
    bare = profile()
    assert bare.dependency_costs == ()
    assert isinstance(dependency_cost(bare), NetworkMinCost)
