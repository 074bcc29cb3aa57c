"""From a seed to a world."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from tests.random_worlds.facts import GROUP, ZONE, Document, Facts, facts_of
from tests.random_worlds.gangs import DrawnGang
from tests.random_worlds.networks import alone, let_talk
from tests.random_worlds.nodes import draw_levels, draw_nodes, topology
from tests.random_worlds.others import DrawnOthers
from tests.random_worlds.switches import Size, Switch, Switches

#: All is left to chance.
ANY = Switches()


@dataclass(frozen=True)
class World:
    """Plain manifests, with one gang that waits."""

    seed: int
    switches: frozenset[Switch]
    size: Size
    documents: Sequence[Document]

    @cached_property
    def facts(self) -> Facts:
        """What the manifests say."""
        return facts_of(self.documents)


def draw_world(seed: int, switches: Switches = ANY) -> World:
    """The world of a seed."""
    random = Random(seed)
    on, size = switches.drawn(seed)
    levels = draw_levels(random)
    nodes = draw_nodes(random, on, size)
    zones = {one["metadata"]["labels"][ZONE] for one in nodes}
    others = DrawnOthers(random, on, size, nodes, levels)
    gang = DrawnGang(random, on, size, levels, len(zones))
    documents = [topology(levels), *nodes, *others.documents, *gang.storage]
    if Switch.NETWORK in on:
        documents += let_talk(random, gang.pods, sorted(zones))
    if Switch.NETWORK in on and random.random() < 0.5:
        alone(gang.pods, GROUP)
    else:
        documents.append(gang.group)
    others.begin(gang)
    return World(seed, on, size, [*documents, *gang.pods])
