"""Whose NetworkTopologies count, as the conditions of NetworkTopologies and AppGroups tell it.

The scheduler decides by its configuration. The controllers are given the same one, and say it on the objects.
"""

from typing import Final

from msgspec import Struct

from closeby.applications.networks import (
    WITHOUT_COSTS,
    WITHOUT_LIMITS,
    Choice,
    Counts,
    NetworkScope,
    NetworkWish,
    live_scope,
)
from closeby.kube.writing.writer import StatusCondition
from closeby.objects.reasons import Condition, Reason
from closeby.plugins.network_min_cost import NetworkMinCost, NetworkMinCostArguments
from closeby.reading.configuration import Configuration
from closeby.scheduling.profile import decode_arguments

#: Of a NetworkTopology: whether the scheduler goes by it.
COUNTS: Final = "Counts"
#: Of an AppGroup: whether the scheduler knows what its calls cost.
COSTS_KNOWN: Final = "CostsKnown"


class Counting(Struct, frozen=True):
    """What the scheduler goes by."""

    scope: NetworkScope
    #: None: it does not go by costs at all.
    wish: NetworkWish | None = NetworkWish()


def counting_of(configuration: Configuration, own_namespace: str | None) -> Counting:
    """What a scheduler of this configuration goes by, whose pods are in ``own_namespace``.

    Raises:
        ConfigurationError: the arguments of NetworkMinCost make no sense.
    """
    scope = live_scope(
        configuration.network_topology_namespaces,
        own_namespace,
        beside=configuration.tenant_network_topologies,
    )
    wish: NetworkWish | None = NetworkWish()
    for entry in configuration.plugins:
        if entry.name == NetworkMinCost.name:
            arguments = decode_arguments(NetworkMinCostArguments, entry, configuration.source)
            assert isinstance(arguments, NetworkMinCostArguments)
            wish = None if entry.enabled is False else arguments.wish
    return Counting(scope, wish)


def counts_condition(scope: NetworkScope, counts: Counts) -> StatusCondition:
    """The condition of a NetworkTopology."""
    ignored = counts in (Counts.NOT_HERE, Counts.TOO_LARGE)
    message = scope.remedy(counts) if ignored else ""
    if counts is Counts.BESIDE:
        message = "it counts for the AppGroups of its namespace"
    return StatusCondition(
        type=COUNTS, status="False" if ignored else "True", reason=counts.value, message=message
    )


def costs_condition(choice: Choice) -> StatusCondition:
    """The condition of an AppGroup with dependencies."""
    if choice.lack is None and choice.network is not None:
        message = f"by NetworkTopology {choice.network.key}"
        return StatusCondition(type=COSTS_KNOWN, status="True", reason="Known", message=message)
    return StatusCondition(
        type=COSTS_KNOWN,
        status="False",
        reason="" if choice.lack is None else choice.lack.value,
        message=f"{choice.message}, so {WITHOUT_COSTS}, and {WITHOUT_LIMITS}; {choice.remedy}",
    )


def costs_problem(key: str, choice: Choice) -> Condition | None:
    """The same for an AppGroup whose kind has no conditions; None where the costs are known."""
    if choice.lack is None:
        return None
    return Condition(
        reason=Reason.NETWORK_COST_UNKNOWN,
        object=f"AppGroup/{key}",
        message=choice.message,
        remedy=choice.remedy,
    )
