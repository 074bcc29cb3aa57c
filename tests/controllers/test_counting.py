"""Controllers tell NetworkTopologies whether they count, and AppGroups whether their costs are known."""

import asyncio

import pytest

from closeby.applications.networks import Counts, live_scope
from closeby.controllers.applications.controller import AppGroupController
from closeby.controllers.counting import Counting, counting_of, counts_condition
from closeby.controllers.networks.controller import NetworkTopologyController
from closeby.errors import ConfigurationError
from closeby.reading.configuration import read_configuration
from tests.control_plane.api import Object, create_namespace, delete_namespace
from tests.control_plane.cluster import ControlPlane
from tests.controllers.at_work import Site, published, site
from tests.kube.live import eventually

APP = "spec: {numMembers: 2, Pods: [{name: web, dependencies: [{name: db}]}, {name: db}]}"
ALONE = "spec: {numMembers: 1, Pods: [{name: web}]}"
NETWORK = "spec: {configmapName: none}"
WEIGHTS = {
    "status": {
        "weights": [
            {
                "algorithmName": "UserDefined",
                "costList": [{"origin": "n-1", "destination": "n-2", "cost": 5}],
            }
        ]
    }
}


def test_the_configuration_of_the_scheduler() -> None:
    counting = counting_of(
        read_configuration(
            "networkTopologyNamespaces: [net]\n"
            "plugins: [{name: NetworkMinCost, arguments: {networkTopologyName: costs, weightsName: w}}]"
        ),
        "closeby-system",
    )
    assert counting.scope.namespaces == frozenset(("kube-system", "closeby-system", "net"))
    assert counting.wish is not None
    assert (counting.wish.network, counting.wish.weights) == ("costs", "w")
    off = read_configuration("plugins: [{name: NetworkMinCost, enabled: false}]")
    assert counting_of(off, None).wish is None
    wrong = read_configuration("plugins: [{name: NetworkMinCost, arguments: {networkName: costs}}]")
    with pytest.raises(ConfigurationError, match="networkName is not a known argument"):
        counting_of(wrong, None)


@pytest.mark.parametrize("counts", list(Counts))
def test_what_the_status_of_a_network_topology_says(counts: Counts) -> None:
    condition = counts_condition(live_scope([], None), counts)
    assert condition.reason == counts.value
    assert condition.status == ("False" if counts in (Counts.NOT_HERE, Counts.TOO_LARGE) else "True")
    assert (condition.message == "") == (counts is Counts.EVERYWHERE)


def condition(status: Object, kind: str) -> tuple[str, str] | None:
    for one in status.get("conditions", ()):
        if one["type"] == kind:
            return one["status"], one["reason"]
    return None


def controllers(it: Site, counting: Counting) -> tuple[AppGroupController, NetworkTopologyController]:
    return (
        AppGroupController(it.writer, it.say, counting=counting),
        NetworkTopologyController(it.writer, it.say, counting=counting),
    )


async def until(it: Site, plural: str, name: str, kind: str, wanted: tuple[str, str]) -> None:
    await it.until(plural, name, lambda status: condition(status, kind) == wanted)


def test_statuses_follow_networks_that_come_and_go(control_plane: ControlPlane, namespace: str) -> None:
    """A tenant's own does not count: the costs of its AppGroup are unknown until the operator's are there."""

    async def run() -> None:
        async with site(control_plane, namespace) as it:
            operators = Site(it.api, it.transport, await create_namespace(it.api))
            counting = Counting(live_scope([operators.namespace], None))
            try:
                async with it.running(*controllers(it, counting)):
                    await it.create("networktopologies", "mine", NETWORK)
                    await it.create("appgroups", "app", APP)
                    await it.create("appgroups", "alone", ALONE)
                    await until(it, "networktopologies", "mine", "Counts", ("False", "NamespaceNotCounted"))
                    await until(it, "appgroups", "app", "CostsKnown", ("False", "NoNetworkTopology"))
                    await operators.create("networktopologies", "costs", NETWORK)
                    await until(operators, "networktopologies", "costs", "Counts", ("True", "Counted"))
                    await until(it, "appgroups", "app", "CostsKnown", ("False", "WeightsNotFound"))
                    path = f"{operators.path('networktopologies', 'costs')}/status"
                    await it.api.patch(path, WEIGHTS)
                    await until(it, "appgroups", "app", "CostsKnown", ("True", "Known"))
                    await operators.create("networktopologies", "more", NETWORK)
                    await it.api.patch(f"{operators.path('networktopologies', 'more')}/status", WEIGHTS)
                    await until(it, "appgroups", "app", "CostsKnown", ("False", "NetworkTopologyAmbiguous"))
                    assert condition(await it.status("appgroups", "alone"), "CostsKnown") is None
            finally:
                await delete_namespace(it.api, operators.namespace)

    asyncio.run(run())


def test_the_published_kinds_get_events(control_plane: ControlPlane, namespace: str) -> None:
    """They have no conditions."""
    kinds = (("appgroup.diktyo.x-k8s.io", "AppGroup"), ("networktopology.diktyo.x-k8s.io", "NetworkTopology"))
    schema = """
spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
    calls = """
spec:
  workloads:
    - {workload: {selector: web}, dependencies: [{workload: {selector: db}}]}
    - {workload: {selector: db}}
"""

    async def run() -> None:
        async with (
            site(control_plane, namespace) as it,
            published(it.api, *kinds[0], schema),
            published(it.api, *kinds[1], schema),
            it.running(*controllers(it, Counting(live_scope([], None)))),
        ):
            await it.create("networktopologies", "mine", NETWORK, f"{kinds[1][0]}/v1alpha1")
            await it.create("appgroups", "app", calls, f"{kinds[0][0]}/v1alpha1")

            async def told() -> bool:
                reasons = ("NetworkTopologyNotCounted", "NetworkCostUnknown")
                return all([await it.events(one) for one in reasons])

            await eventually(told)

    asyncio.run(run())
