"""Which topology a cluster has without a Topology object: the levels of one family of labels.

Of the families below those count of which at least half of the nodes carry a level. Nodes are those with
accelerators, if there are any: gangs run there, and other nodes often carry less. A family whose levels are
all another's gives way to it. Of what is left the first in the order below counts: labels that describe the
network go before zones. Levels of two families are never mixed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from closeby.objects.labels import HOSTNAME, is_label_key
from closeby.objects.nodes import Node, is_accelerator
from closeby.objects.topologies import Found, Topology, TopologyLevel
from closeby.topology.network_labels import NetworkLabels, read_network_labels
from closeby.topology.presets import (
    COREWEAVE,
    EKS,
    EKS_CAPACITY_BLOCK,
    EKS_ULTRASERVER,
    GKE,
    GPU_CLIQUE,
    NETWORK_LABELS,
    OKE,
    TOPOGRAPH,
    TOPOGRAPH_NVIDIA,
    ZONES,
    LabelFamily,
)
from closeby.topology.quality import Quality

#: Families that are found, by precedence. ``kep4962`` is not: it shares its labels with the first one and
#: means other things by them.
FOUND: Final = (
    NETWORK_LABELS,
    TOPOGRAPH,
    TOPOGRAPH_NVIDIA,
    GKE,
    EKS,
    EKS_ULTRASERVER,
    EKS_CAPACITY_BLOCK,
    OKE,
    COREWEAVE,
    GPU_CLIQUE,
    ZONES,
)
_KEYS: Final = frozenset(key for family in FOUND for key in family.labels)
_PREFIXES: Final = tuple(
    prefix for family in FOUND for prefix in (family.tiers, family.custom) if prefix is not None
)

#: How the levels of a network are called in labels.
_LEVEL_NAME: Final = re.compile(
    r"rack|block|switch|spine|zone|(?<![a-z])(leaf|row|tor|island|superpod)(?![a-z])"
)


def says_where(key: str) -> bool:
    """Whether a label belongs to a family that is found."""
    return key in _KEYS or key.startswith(_PREFIXES)


def likely_levels(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Labels of no known family that look like levels of a topology, closest first.

    Such a label is called like one, at least half of the nodes carry it, and several nodes share its values.
    The domains of each level nest in those of the next. Labels that say the same as a zone are left out.
    """
    nodes = tuple(nodes)
    keys = {key for node in nodes for key in node.labels}
    named = sorted(key for key in keys if _called_like_a_level(key) and is_label_key(key))
    columns = {key: [node.labels.get(key) or None for node in nodes] for key in named}
    domains = {key: len({*column} - {None}) for key, column in columns.items()}
    shared = [
        key
        for key in named
        if 2 * sum(one is not None for one in columns[key]) >= len(nodes)
        and 1 < domains[key] < sum(one is not None for one in columns[key])
    ]
    known = [[node.labels.get(key) or None for node in nodes] for key in ZONES.labels]
    found: list[str] = []
    for key in sorted(shared, key=lambda key: -domains[key]):
        if any(_nests(column, columns[key]) for column in known):
            continue
        if not found or (domains[key] < domains[found[-1]] and _nests(columns[found[-1]], columns[key])):
            found.append(key)
    return tuple(found)


def _called_like_a_level(key: str) -> bool:
    return not says_where(key) and _LEVEL_NAME.search(key.rpartition("/")[2].lower()) is not None


def _nests(finer: Sequence[str | None], coarser: Sequence[str | None]) -> bool:
    """Whether each value of one label goes with one value of another; False where they never meet."""
    pairs = {pair for pair in zip(finer, coarser, strict=True) if None not in pair}
    return 0 < len(pairs) == len({one for one, _ in pairs})


class Carried(Struct):
    """How many nodes carry each label, and how many there are: of all nodes, and of those with accelerators.

    Follows nodes that come and go.
    """

    keys: Counter[str]
    nodes: int
    accelerated_keys: Counter[str]
    accelerated: int

    @staticmethod
    def none() -> "Carried":
        """No node yet."""
        return Carried(Counter(), 0, Counter(), 0)

    def count(self, node: Node, change: int = 1) -> None:
        """A node comes, or goes with -1. An empty value is a missing label."""
        keys = [key for key, value in node.labels.items() if value and (key == HOSTNAME or says_where(key))]
        self.nodes += change
        for key in keys:
            self.keys[key] += change
        if any(amount and is_accelerator(name) for name, amount in node.allocatable.items()):
            self.accelerated += change
            for key in keys:
                self.accelerated_keys[key] += change

    @property
    def usual(self) -> frozenset[str]:
        """Labels that at least half of the nodes that count carry."""
        keys, nodes = (
            (self.accelerated_keys, self.accelerated) if self.accelerated else (self.keys, self.nodes)
        )
        return frozenset(key for key, count in keys.items() if count and 2 * count >= nodes)


class FoundFamily(Struct, frozen=True):
    """The family by which a cluster's topology is known, and whether its nodes carry their names."""

    family: LabelFamily | None = None
    hosts: bool = False
    #: Whether any node carries a network label: these make a topology whatever else there is.
    network: bool = False


def choose(carried: Carried) -> FoundFamily:
    """The family that counts by the rule above.

    Network labels that fewer nodes carry count where no other family does.
    """
    usual = carried.usual
    levels = {family.name: {key for key in usual if family.place(key) is not None} for family in FOUND}
    network = any(count > 0 and NETWORK_LABELS.covers(key) for key, count in carried.keys.items())
    for family in FOUND:
        own = levels[family.name]
        if own and not any(own < other for other in levels.values()):
            return FoundFamily(family, HOSTNAME in usual, network)
    return FoundFamily(NETWORK_LABELS if network else None, HOSTNAME in usual, network)


def beside(carried: Carried, preset: str) -> Iterator[tuple[str, int]]:
    """Families of the network that nodes carry beside the one that counts, and how many nodes at most.

    Labels that belong to it too are not those of another; zones are beside every network.
    """
    chosen = next(family for family in FOUND if family.name == preset)
    for family in FOUND:
        keys = [key for key in carried.keys if family.place(key) is not None and not chosen.covers(key)]
        number = max((carried.keys[key] for key in keys), default=0)
        if number and family not in (chosen, ZONES):
            yield family.name, number


def find(nodes: Iterable[Node], choice: FoundFamily, *, declared: bool) -> NetworkLabels:
    """The topologies of the labels: that of the family that counts, and that of the network labels.

    ``declared``: there is a usable Topology object, before which other labels than these do not count.
    """
    nodes = tuple(nodes)
    main = choice.family
    families = [NETWORK_LABELS] if choice.network else []
    if main is not None and main is not NETWORK_LABELS and not declared:
        families.append(main)
    read = [(family, read_network_labels(nodes, family)) for family in families]
    topologies: list[Topology] = []
    quality: dict[tuple[str, str], Quality] = {}
    ignored: dict[str, Mapping[str, frozenset[str]]] = {}
    for family, one in read:
        quality.update(one.quality)
        ignored.update(one.ignored)
        topologies += _marked(family, one.topologies, main=family is main, hosts=choice.hosts)
    return NetworkLabels(
        topologies=tuple(topologies),
        quality=quality,
        ignored=ignored,
        conditions=tuple(dict.fromkeys(condition for _, one in read for condition in one.conditions)),
    )


def found_topologies(nodes: Sequence[Node], *, declared: bool) -> NetworkLabels:
    """What the labels of all nodes say; ``declared`` as for ``find``."""
    carried = Carried.none()
    for node in nodes:
        carried.count(node)
    return find(nodes, choose(carried), declared=declared)


def _marked(
    family: LabelFamily, topologies: Iterable[Topology], *, main: bool, hosts: bool
) -> Iterable[Topology]:
    for one in topologies:
        own = one.name == family.name
        levels = (*one.levels, TopologyLevel(HOSTNAME)) if own and hosts else one.levels
        yield replace(one, levels=levels, found=Found(family.name, main=main and own))
