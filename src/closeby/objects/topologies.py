"""Topologies as declared, Volcano's HyperNodes, and Kueue's flavors and queues that lead to topologies."""

from typing import Final

from msgspec import Struct

from closeby.objects.bounds import whole_number
from closeby.objects.nodes import Taint
from closeby.objects.pods import Toleration
from closeby.objects.reasons import Condition
from closeby.objects.selectors import LabelSelector


class TopologyLevel(Struct, frozen=True):
    """One level; ``alias`` is an optional friendly name that constraints may use."""

    node_label: str
    alias: str | None = None


class Found(Struct, frozen=True):
    """How a topology is known without an object: from one family of labels that nodes carry."""

    #: Name of the family, for ``closeby discover labels --preset``.
    preset: str
    #: Whether it is the one by which gangs without a constraint are close, as long as there is no object.
    main: bool = False


class Topology(Struct, frozen=True, kw_only=True):
    """Levels from coarse to fine (Topology of ``kueue.x-k8s.io``, ``kai.scheduler`` or ``closeby.dev``)."""

    name: str
    levels: tuple[TopologyLevel, ...]
    source: str = ""
    #: None where an object or a configuration declares it; these go before what is found.
    found: Found | None = None
    #: A blocking condition disables this topology alone.
    conditions: tuple[Condition, ...] = ()

    @property
    def usable(self) -> bool:
        return not any(condition.blocking for condition in self.conditions)


#: The topology that all HyperNodes make, and how to get them.
HYPERNODES: Final = "hypernodes"
GET_HYPERNODES: Final = "kubectl get hypernodes -o yaml"


#: Begins the node labels that are made of HyperNodes; the number of the tier ends them.
TIER: Final = "hypernodes.closeby.dev/tier-"


def tier_level(tier: int) -> str:
    """The node label of the level that a tier of HyperNodes is."""
    return f"{TIER}{tier}"


def tier_of(label: str) -> int | None:
    """The tier of HyperNodes of which ``label`` is the level; None for any other label."""
    number = label.removeprefix(TIER)
    return whole_number(number) if number != label else None


class HyperMember(Struct, frozen=True, kw_only=True):
    """Members of a HyperNode: one by its name, or the nodes that a pattern or a selector means."""

    #: Whether ``name`` is that of a HyperNode, and not of a node.
    nested: bool = False
    name: str = ""
    #: A regular expression that is found in the node's name.
    pattern: str = ""
    labels: LabelSelector | None = None


class HyperNode(Struct, frozen=True, kw_only=True):
    """A domain of Volcano's network topology; the greater its ``tier``, the farther are its nodes."""

    name: str
    tier: int
    tier_name: str = ""
    members: tuple[HyperMember, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ResourceFlavor(Struct, frozen=True, kw_only=True):
    """``node_labels`` (sorted) select the flavor's nodes, which have ``taints``; ``topology_name`` names
    their Topology.
    """

    name: str
    node_labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    taints: tuple[Taint, ...] = ()
    topology_name: str | None = None


class ResourceGroup(Struct, frozen=True):
    """The flavors that give some resources (all of them where none is named), in their declared order."""

    flavors: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


class ClusterQueue(Struct, frozen=True, kw_only=True):
    """A pod set gets one flavor of each group that gives a resource which it requests."""

    name: str
    groups: tuple[ResourceGroup, ...] = ()

    @property
    def flavors(self) -> tuple[str, ...]:
        """All of them, in their declared order, without repeats."""
        return tuple(dict.fromkeys(name for group in self.groups for name in group.flavors))


class LocalQueue(Struct, frozen=True, kw_only=True):
    """A namespace's way into a cluster queue."""

    namespace: str
    name: str
    cluster_queue: str
