"""The features that a random world may have, each of which can be forced on or kept off."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Switch(StrEnum):
    """One feature. What is drawn of it follows from the seed of the world."""

    #: Pods of several sizes.
    UNEQUAL = "unequal"
    #: CPU, memory and places for pods besides GPUs.
    RESOURCES = "resources"
    REQUIRED = "required"
    PREFERRED = "preferred"
    #: Parts of the gang with a minimum and a level of their own.
    SUBGROUPS = "subgroups"
    #: Segments, in one to three layers.
    LAYERS = "layers"
    #: Segments of several sizes, or a smaller last one.
    UNLIKE_SEGMENTS = "unlike-segments"
    MAX_DOMAINS = "max-domains"
    #: Domains that segments have for themselves, of the gang and of others that run.
    EXCLUSIVE = "exclusive"
    SPREAD = "spread"
    MIN_DOMAINS = "min-domains"
    ANTI_AFFINITY = "anti-affinity"
    AFFINITY = "affinity"
    SELECTORS = "selectors"
    TAINTS = "taints"
    PORTS = "ports"
    #: Volumes that are bound to a zone, or can only be made in some.
    VOLUMES = "volumes"
    #: More pods than the minimum.
    ELASTIC = "elastic"
    #: Domains are tried from the emptiest on.
    STRATEGY = "strategy"
    #: Pods of lower and of higher priority run.
    PREEMPTION = "preemption"
    #: Pods that call each other; half of the time they are no gang.
    NETWORK = "network"
    #: Nodes that are cordoned, or not ready.
    UNHEALTHY = "unhealthy"
    #: Nodes that lack the label of a level.
    UNLABELLED = "unlabelled"
    #: Others run.
    USED = "used"
    #: Some members run already.
    BEGUN = "begun"


class Size(StrEnum):
    """How large a world is."""

    #: Few enough pods and nodes for brute force.
    TINY = "tiny"
    SMALL = "small"
    #: Some hundred nodes.
    MEDIUM = "medium"


#: How often a feature is on where nothing else is said.
_CHANCES = {
    Switch.UNEQUAL: 0.35,
    Switch.RESOURCES: 0.4,
    Switch.REQUIRED: 0.5,
    Switch.LAYERS: 0.35,
    Switch.UNLIKE_SEGMENTS: 0.35,
    Switch.SUBGROUPS: 0.2,
    Switch.USED: 0.6,
    Switch.SPREAD: 0.25,
    Switch.MAX_DOMAINS: 0.15,
    Switch.EXCLUSIVE: 0.15,
    Switch.STRATEGY: 0.1,
    Switch.BEGUN: 0.1,
    Switch.NETWORK: 0.1,
    Switch.AFFINITY: 0.15,
    Switch.ANTI_AFFINITY: 0.15,
    Switch.UNHEALTHY: 0.15,
    Switch.UNLABELLED: 0.15,
}
_CHANCE = 0.2


@dataclass(frozen=True)
class Switches:
    """What every world of a run has, what none has, and how large they are; the rest is left to chance."""

    on: frozenset[Switch] = frozenset()
    off: frozenset[Switch] = frozenset()
    size: Size | None = None

    @staticmethod
    def of(
        on: Collection[Switch | str] = (), off: Collection[Switch | str] = (), size: Size | str | None = None
    ) -> "Switches":
        """From names."""
        return Switches(
            frozenset(map(Switch, on)), frozenset(map(Switch, off)), None if size is None else Size(size)
        )

    def drawn(self, seed: int) -> tuple[frozenset[Switch], Size]:
        """The features of one world, and its size; a new feature leaves worlds without it as they are."""
        every = {one for one in Switch if Random(f"{seed} {one}").random() < _CHANCES.get(one, _CHANCE)}
        size = Random(f"{seed} size").choices(list(Size), (25, 70, 5))[0]
        return frozenset((every | self.on) - self.off), self.size or size
