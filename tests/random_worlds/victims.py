"""The cheapest set of pods without which the gang of a world fits, by trying one set after the other."""

from collections.abc import Iterator
from itertools import combinations, product
from math import prod

from tests.random_worlds.costs import VictimCost, cost_of_victims
from tests.random_worlds.facts import TRAIN, Facts
from tests.random_worlds.judge import Truth, judge

#: In worlds with more sets, or where more are cheaper than one that helps, nothing is said.
SETS, LOOKED_AT = 4096, 60


def cheapest(facts: Facts) -> VictimCost | None:
    """The least cost; None: no set helps, or there are too many."""
    ways = [list(one) for one in _ways(facts)]
    if prod(map(len, ways)) > SETS:
        return None
    sets = [frozenset(name for some in chosen for name in some) for chosen in product(*ways)]
    for gone in sorted(sets, key=lambda one: (cost_of_victims(facts, one), sorted(one)))[:LOOKED_AT]:
        if judge(facts, gone).truth is Truth.FITS:
            return cost_of_victims(facts, gone)
    return None


def _ways(facts: Facts) -> Iterator[Iterator[tuple[str, ...]]]:
    """For each gang and each pod alone the sets of its pods that may go."""
    most = facts.gang.priority
    for pod in facts.running:
        if pod.group is None and pod.priority < most:
            yield iter([(), (pod.name,)])
    for gang in facts.gangs.values():
        if gang.name != TRAIN and gang.priority < most:
            yield _ways_of([pod.name for pod in gang.members], gang.whole.minimum)


def _ways_of(members: list[str], minimum: int) -> Iterator[tuple[str, ...]]:
    """Of a gang some members beyond its minimum, or all."""
    for count in range(len(members) - minimum + 1):
        yield from combinations(members, count)
    if minimum > 0:
        yield tuple(members)
