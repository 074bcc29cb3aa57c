"""How well the Online Boutique is placed: beside the optimum, and beside placement that knows no network."""

from collections.abc import Sequence

import pytest

from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.moving.layout import Sites
from closeby.scheduling.moving.local_search import Searched, improve
from closeby.scheduling.outcomes import Improvement
from closeby.scheduling.placing import application_cycle
from closeby.scheduling.services import Traffic
from closeby.scheduling.steps import Steps
from closeby.simulator.runs import Run, simulate
from tests.simulator.boutique import NODES_A_ZONE, Boutique, boutique, small_boutique
from tests.simulator.least_cost import least_cost

#: NodeResourcesFit prefers the emptiest nodes by default.
LEAST_ALLOCATED = Configuration(plugins=(PluginEntry(name="NetworkMinCost", enabled=False),))


def placed_entirely(run: Run) -> Run:
    assert [pod.key for pod in run.pods if run.node_of(pod) is None] == []
    return run


def improvement(run: Run) -> Improvement:
    found = run.app_outcomes["default/online-boutique"].improvement
    assert found is not None
    return found


def needs_several_zones(instance: Boutique) -> bool:
    return instance.cpu > NODES_A_ZONE * instance.free_cpu


@pytest.mark.parametrize("seed", range(20))
def test_it_costs_at_most_60_percent_of_least_allocated_placement(seed: int) -> None:
    """18 to 25 pods on 12 nodes; the seed names the instance."""
    instance = boutique(seed)
    assert needs_several_zones(instance)

    ours = instance.cost_of(placed_entirely(simulate(instance.manifests, Configuration())))
    theirs = instance.cost_of(placed_entirely(simulate(instance.manifests, LEAST_ALLOCATED)))

    assert ours <= 0.6 * theirs


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_small_ones_cost_at_most_5_percent_more_than_the_optimum(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 pods on 12 nodes, all of which the solver solves."""
    instance = small_boutique(seed)
    assert needs_several_zones(instance)
    least: list[float | None] = []

    def solved(traffic: Traffic, sites: Sites, start: Sequence[int | None], steps: Steps) -> Searched:
        least.append(least_cost(traffic, sites))
        return improve(traffic, sites, start, steps)

    monkeypatch.setattr(application_cycle, "improve", solved)
    run = placed_entirely(simulate(instance.manifests, Configuration()))
    theirs = instance.cost_of(placed_entirely(simulate(instance.manifests, LEAST_ALLOCATED)))

    found = improvement(run)
    (optimum,) = least
    assert optimum is not None
    assert found.final == instance.cost_of(run) >= optimum
    assert found.final <= 1.05 * optimum
    assert found.final <= 0.6 * theirs
