"""Placed pods are counted by what selectors select; equal ones together come out as one by one."""

from random import Random

import pytest
from msgspec.structs import replace

from closeby.cluster.columns import Cluster
from closeby.objects.labels import HOSTNAME, ZONE
from closeby.objects.pods import Pod
from closeby.objects.selectors import (
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    WeightedPodTerm,
)
from tests.worlds import node, pods, spec

SELECTOR = LabelSelector((LabelRequirement("app", "In", ("new",)),))
KEYS = (None, ZONE, HOSTNAME)


def counted(cluster: Cluster) -> dict[object, object]:
    """How many pods each domain holds, of those that are selected and of those that carry the term."""
    population, structure = cluster.population, cluster.structure
    tallies = [population.tally_in("default", SELECTOR), *population._carried.values()]
    found: dict[object, object] = {
        (at, key): (view.by_code.tolist(), tally.total)
        for at, tally in enumerate(tallies)
        for key in KEYS
        for view in [tally.domains(structure, key)]
    }
    weights = population.weights
    for at, sums in enumerate(
        [*map(weights.of_own, weights.sets), *(weights.of_placed(one, 3) for one in weights.classes)]
    ):
        found["weights", at] = {
            key: some.tolist() for key, some in sums.by_key(structure).items() if some.any()
        }
    return found


def marks(cluster: Cluster) -> list[tuple[int, int]]:
    tally = cluster.population.tally_in("default", SELECTOR)
    views = [tally.domains(cluster.structure, key) for key in KEYS]
    return [(view.version, view.flips) for view in views]


def some_affinity(dice: Random) -> PodAffinity:
    term = PodAffinityTerm(HOSTNAME, SELECTOR)
    preferred = (WeightedPodTerm(dice.choice([-3, 5]), PodAffinityTerm(ZONE, SELECTOR)),)
    match dice.choice(["forbidden", "required", "preferred", "all"]):
        case "forbidden":
            return PodAffinity(forbidden=(term,))
        case "required":
            return PodAffinity(required=(term,))
        case "preferred":
            return PodAffinity(preferred=preferred)
        case _:
            return PodAffinity(required=(term,), forbidden=(term,), preferred=preferred)


def drawn(dice: Random) -> tuple[list[Cluster], list[Pod]]:
    """The same cluster twice, and equal pods with a term, or without."""
    needs = replace(spec(), pod_affinity=some_affinity(dice) if dice.random() < 0.7 else None)
    made = pods(None, dice.randint(8, 30), needs, labels={"app": dice.choice(["new", "other"])})
    clusters = [Cluster(), Cluster()]
    for index in range(6):
        for cluster in clusters:
            cluster.add_node(node(f"n{index}", {ZONE: f"z{index // 3}", HOSTNAME: f"n{index}"}, {"pods": 99}))
    return clusters, made


@pytest.mark.parametrize("seed", range(20))
def test_equal_pods_are_counted_together_as_one_by_one(seed: int) -> None:
    dice = Random(seed)
    (together, singly), made = drawn(dice)
    slots = [dice.randrange(5) for _ in made]
    for cluster in (together, singly):
        cluster.population.expect(replace(made[0], spec=replace(spec(), pod_affinity=PodAffinity())))
        counted(cluster)
    before = counted(together)
    for sign in (1, -1):
        seen = marks(together)
        together.population.note_all(made, slots, sign, together.structure)
        for pod, slot in zip(made, slots, strict=True):
            singly.population.note_all([pod], [slot], sign, singly.structure)
        assert counted(together) == counted(singly), f"seed {seed}"
        if made[0].labels["app"] == "new":
            assert all(
                new[0] > old[0] and new[1] > old[1] for new, old in zip(marks(together), seen, strict=True)
            )
        else:
            assert marks(together) == seen
    assert {key: value for key, value in counted(together).items() if key in before} == before
