"""A tenant tries to decide by costs of its own where pods of others go.

It may create NetworkTopologies in its namespace (`closeby-edit` gives it that), with any costs and any names.
Costs that count are the operator's: in kube-system, in closeby's own namespace, and in namespaces that the
configuration names. What is not looked at, and why costs are unknown, is told where it can be seen.
"""

import asyncio

from closeby.reading.configuration import Configuration, read_configuration
from tests.attacks.applications import (
    HOSTS,
    MIDDLE_IS_NEAR,
    OPERATOR,
    WEST_IS_NEAR,
    create_network,
    database,
    declare_app,
    member,
    neighbour,
    networks,
    path_of,
)
from tests.control_plane.cluster import ControlPlane
from tests.kube.live_world import DEFAULT, World, until, world

NOT_COUNTED, UNKNOWN = "NetworkTopologyNotCounted", "NetworkCostUnknown"


async def node_of(it: World, name: str) -> str:
    """Waits until a pod has its node."""
    found: dict[str, str] = {}

    async def placed() -> bool:
        found.update(await it.placed())
        return name in found

    await until(placed)
    return found[name]


def told(it: World, reason: str, *of: World) -> list[str]:
    """The objects of these namespaces of which the scheduler's log tells this reason, as often as it does."""
    objects = sorted(str(one["object"]) for one in it.said("problem") if one["reason"] == reason)
    namespaces = {one.namespace for one in of}
    return [one for one in objects if one.split("/")[1] in namespaces]


def test_costs_of_a_tenant_beside_the_operators(control_plane: ControlPlane, namespace: str) -> None:
    """The tenant's NetworkTopology was there first, and another one comes while the scheduler runs.

    The victim's limit holds by the operator's costs all the while; as one of several that count the tenant's
    made all of them unknown.
    """

    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            neighbour(it) as tenant,
            networks(
                it.api,
                {(tenant.namespace, "costs"): MIDDLE_IS_NEAR, (OPERATOR, "costs"): WEST_IS_NEAR},
            ),
        ):
            await declare_app(it, limit=5)
            await database(it)
            await it.create(member(it, "web-0", "web"))
            async with it.scheduling():
                assert await node_of(it, "web-0") == "west"
                await create_network(it.api, tenant.namespace, "more", MIDDLE_IS_NEAR)

                async def heard() -> bool:
                    return f"NetworkTopology/{tenant.namespace}/more" in told(it, NOT_COUNTED, tenant)

                await until(heard)
                await it.create(member(it, "web-1", "web"))
                assert await node_of(it, "web-1") == "west"
            # Each of the tenant's is told of once, although its status was written after it was made.
            assert told(it, NOT_COUNTED, tenant) == [
                f"NetworkTopology/{tenant.namespace}/{name}" for name in ("costs", "more")
            ]
            assert not told(it, UNKNOWN, it, tenant)

    asyncio.run(run())


def test_invented_costs_where_the_operator_gives_none(control_plane: ControlPlane, namespace: str) -> None:
    """The tenant's is the only NetworkTopology: it draws nobody, and the victim is told that none counts.

    What is told names nothing of the tenant's.
    """

    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            neighbour(it) as tenant,
            networks(it.api, {(tenant.namespace, "costs"): WEST_IS_NEAR}),
        ):
            await declare_app(it)
            await declare_app(tenant)
            await database(it)
            async with it.scheduling():
                await it.create(member(it, "web", "web"))
                # As without any costs: of equally empty nodes the first by name.
                assert await node_of(it, "web") == "middle"

                async def both() -> bool:
                    return len(told(it, UNKNOWN, it, tenant)) == 2

                await until(both)
            apps = sorted(f"AppGroup/{one.namespace}/app" for one in (it, tenant))
            assert told(it, UNKNOWN, it, tenant) == apps
            said = {str(one["object"]): str(one["problem"]) for one in it.said("problem")}
            assert tenant.namespace not in said[f"AppGroup/{it.namespace}/app"]
            assert f"{tenant.namespace}/costs" in said[f"AppGroup/{tenant.namespace}/app"]

    asyncio.run(run())


def test_the_name_that_the_configuration_gives(control_plane: ControlPlane, namespace: str) -> None:
    """The configuration says `networkTopologyName: costs`, and the tenant calls its own so."""
    named = read_configuration("plugins: [{name: NetworkMinCost, arguments: {networkTopologyName: costs}}]")
    placed(control_plane, namespace, named, victim="west", tenants="west")


def test_a_tenants_costs_may_count_for_its_own_applications(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Where the operator allows it the tenant's own pods go by its costs, all others by the operator's."""
    allowed = read_configuration("tenantNetworkTopologies: true")
    placed(control_plane, namespace, allowed, victim="west", tenants="middle")


def test_costs_of_a_namespace_that_the_configuration_does_not_name(
    control_plane: ControlPlane, namespace: str
) -> None:
    placed(control_plane, namespace, DEFAULT, victim="west", tenants="west")


def placed(
    control_plane: ControlPlane,
    namespace: str,
    configuration: Configuration,
    *,
    victim: str,
    tenants: str,
) -> None:
    """By the operator's costs the west is near, by the tenant's the middle: where the pods of both go."""

    async def run() -> None:
        async with (
            world(control_plane, namespace, *HOSTS) as it,
            neighbour(it) as tenant,
            networks(
                it.api,
                {(OPERATOR, "costs"): WEST_IS_NEAR, (tenant.namespace, "costs"): MIDDLE_IS_NEAR},
            ),
        ):
            for one in (it, tenant):
                await declare_app(one, limit=5)
                await database(one)
            async with it.scheduling(configuration):
                for one in (it, tenant):
                    await one.create(member(one, "web", "web"))
                assert (await node_of(it, "web"), await node_of(tenant, "web")) == (victim, tenants)

    asyncio.run(run())


def test_closebys_own_namespace_and_those_of_the_configuration_count(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The counterpart: what the operator names does count, and where closeby runs as a pod."""

    async def run() -> None:
        async with world(control_plane, namespace, *HOSTS) as it, neighbour(it) as own:
            await declare_app(it, limit=5)
            await database(it)
            configured = read_configuration(f"networkTopologyNamespaces: [{own.namespace}]")
            async with networks(it.api, {(own.namespace, "costs"): WEST_IS_NEAR}):
                async with it.scheduling(configured):
                    await it.create(member(it, "web-0", "web"))
                    assert await node_of(it, "web-0") == "west"
                async with it.scheduling(own_namespace=own.namespace) as scheduler:
                    await it.create(member(it, "web-1", "web"))
                    assert await node_of(it, "web-1") == "west"
                    # Without it, nothing is known any more: the limit is kept by waiting.
                    await it.api.delete(path_of(own.namespace, "costs"))

                    async def heard() -> bool:
                        return not scheduler.engine.applications.networks

                    await until(heard)
                    await it.create(member(it, "web-2", "web"))
                    assert "NetworkCostTooHigh" in await it.refusal("web-2")
                await create_network(it.api, own.namespace, "costs", WEST_IS_NEAR)

    asyncio.run(run())
