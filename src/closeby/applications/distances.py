"""How far the nodes of a cluster are from each other for the applications of a namespace, as things stand."""

from closeby.applications.networks import Choice, NetworkWish, choose_network
from closeby.applications.registry import Applications
from closeby.applications.traffic import Network, network_in, network_of
from closeby.cluster.columns import Cluster
from closeby.objects.networks import NetworkTopology, WeightSet
from closeby.topology.costs import NetworkCosts, locate, network_costs
from closeby.topology.registry import Topologies
from closeby.topology.tree import Tree


class _Known:
    """The costs of one weight set, and the distances of the nodes at one cursor of their changes."""

    def __init__(self, network: NetworkTopology, weights: WeightSet, costs: NetworkCosts) -> None:
        self.network = network
        self.weights = weights
        self.costs = costs
        self.distances: tuple[int, Network] | None = None


class Distances:
    """Owner of what was worked out of the NetworkTopologies that count; follows every change.

    Where none counts, nodes are as far from each other as in the tree of the topology that counts.
    """

    def __init__(
        self,
        applications: Applications,
        cluster: Cluster,
        topologies: Topologies,
        wish: NetworkWish,
        unknown_cost: float | None,
    ) -> None:
        """``unknown_cost`` stands for what is unknown; None: the greatest known cost + 1."""
        self._applications = applications
        self._cluster = cluster
        self._topologies = topologies
        self._wish = wish
        self._unknown_cost = unknown_cost
        self._version = -1
        #: By namespace, for one version of the networks.
        self._choices: dict[str, Choice] = {}
        #: By key of the NetworkTopology.
        self._known: dict[str, _Known] = {}
        self._in_tree: tuple[Tree, Network] | None = None

    def choice(self, namespace: str) -> Choice:
        """The NetworkTopology that counts for the AppGroups of a namespace; "": for those of most."""
        applications = self._applications
        if self._version != applications.networks_version:
            self._version = applications.networks_version
            self._choices.clear()
            self._known = {key: one for key, one in self._known.items() if applications.has(one.network)}
        found = self._choices.get(namespace)
        if found is None:
            judged = applications.networks_for(namespace)
            found = self._choices[namespace] = choose_network(judged, applications.scope, self._wish)
        return found

    def costs(self, namespace: str) -> NetworkCosts | None:
        """What is known of the network; None where nothing counts."""
        known = self._worked_out(namespace)
        return None if known is None else known.costs

    def network(self, namespace: str) -> Network:
        """The distances of the nodes as they are now: costs, else those in the tree, which are no costs."""
        known = self._worked_out(namespace)
        if known is None:
            return self._tree_distances()
        cluster, cursor = self._cluster, self._cluster.node_changes.cursor
        if known.distances is None or known.distances[0] != cursor:
            unknown = known.costs.largest + 1 if self._unknown_cost is None else self._unknown_cost
            located = locate(known.costs, cluster.names, cluster.labels)
            known.distances = cursor, network_of(located, unknown)
        return known.distances[1]

    @property
    def tree(self) -> Tree:
        """The tree whose distances count where there are no costs."""
        return self._topologies.only_tree() or self._topologies.flat()

    def _tree_distances(self) -> Network:
        tree = self.tree
        if self._in_tree is None or self._in_tree[0] is not tree:
            self._in_tree = tree, network_in(tree, len(self._cluster.names))
        return self._in_tree[1]

    def _worked_out(self, namespace: str) -> _Known | None:
        choice = self.choice(namespace)
        network, weights = choice.network, choice.weights
        if network is None or weights is None:
            return None
        known = self._known.get(network.key)
        if known is None or known.network is not network or known.weights is not weights:
            costs = network_costs(network, weights, self._wish.algorithm)
            known = self._known[network.key] = _Known(network, weights, costs)
        return known
