"""NetworkMinCost: pods of an application go where traffic with the others costs least (network-aware KEP).

The cost of a node is the sum, over the replicas that were placed of every workload at the other end of an
edge, of the network cost to their nodes. Edges count both ways by default: counted one way, callers that are
placed first would find nothing to be near to. Nodes of one location cost the same but for those that hold a
replica themselves, so that costs are worked out by location.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from msgspec import Struct

from closeby.applications.networks import WITHOUT_COSTS, WITHOUT_LIMITS, Lack, NetworkWish
from closeby.applications.registry import Application, Pull, replica_of
from closeby.applications.traffic import (
    Distances,
    EdgeCost,
    Network,
    Replicas,
    edge_costs,
    pulled,
    reached,
    within,
)
from closeby.objects.applications import APP_GROUP_LABEL
from closeby.objects.arrays import Bools, Scores
from closeby.objects.bounds import some
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason, Rejection, invalid
from closeby.reading.dialects.link_costs import GREATEST_COST
from closeby.scheduling.extension import Filter, Handle, NormalizeScore, Reserve, Scope, Undo
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.repeats import UNSCORED, Repeats
from closeby.scheduling.services import DependencyCost, Traffic
from closeby.topology.costs import ALGORITHMS


class NetworkMinCostArguments(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All have defaults."""

    #: ``name`` or ``namespace/name``; needed where the cluster has more than one NetworkTopology.
    network_topology_name: str = ""
    #: Which of its weight sets; by default ``UserDefined``, else that of the algorithm, else the first.
    weights_name: str = ""
    #: ``Dijkstra`` or ``BellmanFord``; by default what the NetworkTopology says.
    topology_algorithm: str = ""
    #: What an unknown cost counts; by default the greatest known one + 1.
    unknown_cost: float | None = None
    #: ``dependencies`` draws a pod to what it needs only, as the KEP's sum does.
    #: Limits hold from both ends whatever this says.
    direction: Literal["both", "dependencies"] = "both"

    def __post_init__(self) -> None:
        if self.topology_algorithm and self.topology_algorithm not in ALGORITHMS:
            known = " or ".join(ALGORITHMS)
            raise ValueError(f"topologyAlgorithm must be {known}, not {self.topology_algorithm!r}")
        if self.unknown_cost is not None and not 0 <= self.unknown_cost <= GREATEST_COST:
            allowed = f"a number from 0 to {GREATEST_COST:,}"
            raise ValueError(f"unknownCost must be {allowed}, not {self.unknown_cost}")

    @property
    def wish(self) -> NetworkWish:
        """Which costs these arguments ask for."""
        return NetworkWish(self.network_topology_name, self.weights_name, self.topology_algorithm)


class NetworkMinCost(Filter, NormalizeScore, Reserve, DependencyCost):
    """Scores by cost, filters by ``maxNetworkCost``, and offers the cost of traffic to others."""

    name: ClassVar[str] = "NetworkMinCost"
    Arguments = NetworkMinCostArguments
    filter_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    only_narrows: ClassVar[bool] = True
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    reason: ClassVar[Reason | None] = Reason.NETWORK_COST_TOO_HIGH
    #: As in the KEP's example, so that nearness goes before an even load.
    default_weight: ClassVar[float] = 5.0

    def __init__(self, arguments: NetworkMinCostArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._arguments = arguments
        self._applications = handle.applications
        #: AppGroup key and workload -> slot -> placed replicas.
        self._replicas: dict[tuple[str, str], dict[int, int]] = {}
        self._distances = Distances(
            handle.applications, handle.cluster, handle.topologies, arguments.wish, arguments.unknown_cost
        )
        self._limits: tuple[int, bool] = (-1, False)
        #: AppGroup key -> workload -> where its limits let it go, until a replica there comes or goes.
        self._reach: dict[str, dict[str, tuple[Application, Network, Bools]]] = {}

    # Which pods

    @property
    def shares_by_spec(self) -> bool:
        """As long as no edge has a limit nothing is cached by class."""
        return not self._any_limits()

    def class_key(self, pod: Pod) -> Hashable:
        """The workload, where it has limits; one of an AppGroup that was changed is another one."""
        if not self._any_limits():
            return None
        application, limits = self._limits_of(pod)
        return (application, application.workload_of(pod)) if application is not None and limits else None

    def concerns(self, pod: Pod) -> bool:
        """Pods at an edge with a limit."""
        return bool(self._limits_of(pod)[1])

    @property
    def scores_any(self) -> bool:
        """Only where there are AppGroups."""
        return len(self._applications) > 0

    def scores(self, pod: Pod) -> bool:
        """Pods at any edge."""
        return bool(self._pulls_of(pod))

    def repeats(self, state: CycleState, pod: Pod, nodes: Nodes) -> Repeats | None:
        """Every replica pulls at the next ones."""
        return None if self.scores(pod) else UNSCORED

    # Filter and score

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        network = self._distances.network(pod.namespace)
        application, limits = self._limits_of(pod)
        state.steps.take(len(limits) // 2)
        allowed = nodes.all(True)
        if application is not None and limits:
            reach = self._within_reach(application, application.workload_of(pod) or "", network)
            allowed &= reach[nodes.index]
        return allowed

    def rejection(self, state: CycleState, pod: Pod, slot: int) -> Rejection:
        """The first edge whose limit the node breaks."""
        network = self._distances.network(pod.namespace)
        application, limits = self._limits_of(pod)
        for other, edge in limits:
            limit = np.inf if edge.limit is None else edge.limit
            replicas = {} if application is None else self._replicas.get((application.key, other), {})
            far = self._too_far(network, limit, slot, replicas)
            if far is not None:
                text = f"{other} on {far}, and maxNetworkCost is {limit}"
                choice = self._distances.choice(pod.namespace)
                if choice.lack is not None:
                    text += f": {choice.message}"
                return Rejection(Reason.NETWORK_COST_TOO_HIGH, text)
        return Rejection(
            Reason.NETWORK_COST_TOO_HIGH, "it is too far from a workload that the pod depends on"
        )

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """Minus the cost, so that higher is better."""
        application, network = self._applications.of(pod), self._distances.network(pod.namespace)
        state.steps.take(len(self._pulls_of(pod)) // 2)
        if application is None:
            return np.zeros(len(nodes))
        total = self._cost(application, network, self._pulls_of(pod))
        return np.zeros(len(nodes)) if total is None else -total[nodes.index]

    def normalize(self, state: CycleState, pod: Pod, scores: Scores) -> Scores:
        """``100 - 100 x (cost - min) / (max - min)``; 100 for all when all are equal."""
        least, greatest = float(scores.min()), float(scores.max())
        if greatest == least:
            return np.full(len(scores), self.max_score)
        found: Scores = self.max_score * (scores - least) / (greatest - least)
        return found

    # Placed pods

    def notes_any(self, pods: Sequence[Pod]) -> bool:
        # Nearly no pods of most clusters, so that is asked first.
        return bool([pod for pod in pods if APP_GROUP_LABEL in pod.labels])

    def pod_assumed(self, pod: Pod, slot: int) -> Undo | None:
        return self._note(pod, slot, 1)

    def pod_forgotten(self, pod: Pod, slot: int) -> Undo | None:
        return self._note(pod, slot, -1)

    # The whole application

    def traffic(self, state: CycleState, pods: tuple[Pod, ...]) -> Traffic | None:
        """Pods of one work item, which are those of one namespace."""
        if not len(self._applications) or all(self._applications.of(pod) is None for pod in pods):
            return None
        network = self._distances.network(pods[0].namespace)
        kind_of: dict[tuple[str, str], int] = {}
        kinds = []
        for pod in pods:
            application = self._applications.of(pod)
            workload = None if application is None else application.workload_of(pod)
            key = ("", "") if application is None or workload is None else (application.key, workload)
            kinds.append(kind_of.setdefault(key, len(kind_of)))
        size = len(kind_of)
        weights, limits = np.zeros((size, size)), np.full((size, size), np.inf)
        standing = np.zeros((size, len(network.locations)))
        for (app_key, workload), kind in kind_of.items():
            application = self._applications.get(app_key) if workload else None
            if application is None:
                continue
            state.steps.take(50 + 2 * len(application.edges_of[workload]))
            cost = self._cost(application, network, self._pulls(application, workload))
            standing[kind] = 0.0 if cost is None else cost
            if application.limits_of[workload]:
                standing[kind][~self._within_reach(application, workload, network)] = np.inf
            for edge in application.edges_of[workload]:
                far = kind_of.get((app_key, edge.callee if edge.caller == workload else edge.caller))
                # Each edge is met at both ends; it is written at the caller's.
                if far is None or edge.caller != workload:
                    continue
                limit = np.inf if edge.limit is None else float(edge.limit)
                for one, two in {(kind, far), (far, kind)}:
                    weights[one, two] += edge.weight
                    limits[one, two] = min(limits[one, two], limit)
        if not weights.any() and np.isinf(limits).all() and not standing.any():
            return None
        return Traffic(
            kinds=np.asarray(kinds, dtype=np.intp),
            locations=network.locations,
            between=network.between,
            weights=weights,
            limits=reached(limits, network),
            unknown=network.unknown,
            standing=standing,
        )

    # For people

    def edges(
        self, application: Application, replicas: Mapping[str, Replicas] | None = None
    ) -> tuple[EdgeCost, ...]:
        """What each edge of an application costs now, or how far its ends are apart in the tree.

        ``replicas``: where its workloads are, instead of where they are now.
        """
        network = self._distances.network(application.group.namespace)
        if replicas is None:
            replicas = {name: self._replicas.get((application.key, name), {}) for name in application.index}
        return edge_costs(network, application, replicas)

    def conditions(self) -> tuple[Condition, ...]:
        """What is wrong with the choice of the network, or noteworthy about its costs."""
        found = tuple(self._choice_conditions())
        costs = self._distances.costs("")
        return found if costs is None else (*found, *costs.conditions)

    def unknown_costs(self, application: Application) -> Iterator[Condition]:
        """Why the costs of an application are unknown; nothing where they are known, or it has no calls."""
        choice = self._distances.choice(application.group.namespace)
        if not application.edges or choice.lack is None:
            return
        owner = f"AppGroup/{application.key}"
        yield Condition(
            reason=Reason.NETWORK_COST_UNKNOWN,
            object=owner,
            message=f"{choice.message}, so {WITHOUT_COSTS}",
            remedy=choice.remedy,
        )
        limited = [f"{edge.caller} to {edge.callee}" for edge in application.edges if edge.limit is not None]
        if limited:
            yield Condition(
                reason=Reason.NETWORK_COST_UNKNOWN,
                object=owner,
                field="maxNetworkCost",
                message=f"{WITHOUT_LIMITS}: {some(limited)}",
                remedy=f"{choice.remedy}, or drop maxNetworkCost",
            )

    def knows_costs(self, application: Application) -> bool:
        """Whether ``edges`` are costs."""
        return self._distances.costs(application.group.namespace) is not None

    # Inside

    def _pulls_of(self, pod: Pod) -> Sequence[Pull]:
        application = self._applications.of(pod)
        workload = None if application is None else application.workload_of(pod)
        if application is None or workload is None:
            return ()
        return self._pulls(application, workload)

    def _pulls(self, application: Application, workload: str) -> Sequence[Pull]:
        pulls = application.pulls_of[workload]
        if self._arguments.direction == "both":
            return pulls
        return [pull for pull in pulls if pull.edge.caller == workload]

    def _limits_of(self, pod: Pod) -> tuple[Application | None, Sequence[Pull]]:
        """The application of a pod, and how far its workload may be from others."""
        application = self._applications.of(pod)
        workload = None if application is None else application.workload_of(pod)
        if application is None or workload is None:
            return None, ()
        return application, application.limits_of[workload]

    def _within_reach(self, application: Application, workload: str, network: Network) -> Bools:
        """Where the limits of a workload let it go; shape (capacity,)."""
        known = self._reach.setdefault(application.key, {})
        found = known.get(workload)
        if found is not None and found[0] is application and found[1] is network:
            return found[2]
        slots: list[int] = []
        limits: list[float] = []
        for other, edge in application.limits_of[workload]:
            replicas = self._replicas.get((application.key, other))
            if replicas and edge.limit is not None:
                slots += replicas
                limits += [edge.limit] * len(replicas)
        allowed = within(network, np.asarray(slots, dtype=np.intp), np.asarray(limits, dtype=np.float64))
        known[workload] = application, network, allowed
        return allowed

    def _cost(self, application: Application, network: Network, pulls: Sequence[Pull]) -> Scores | None:
        """Cost of each slot; None while nothing at the other ends is placed. Shape (capacity,)."""
        peers = [
            (edge.weight, replicas)
            for other, edge in pulls
            if (replicas := self._replicas.get((application.key, other)))
        ]
        return pulled(network, peers) if peers else None

    def _too_far(self, network: Network, limit: float, slot: int, replicas: dict[int, int]) -> str | None:
        names = self.handle.cluster.names
        for other in sorted(replicas, key=lambda one: names[one] or ""):
            if other == slot:
                continue
            here, there = network.locations[slot], network.locations[other]
            if network.unknown[here, there]:
                return f"{names[other]} is at an unknown distance"
            if network.between[here, there] > limit:
                return f"{names[other]} is {network.between[here, there]:g} away"
        return None

    def _note(self, pod: Pod, slot: int, change: int) -> Undo | None:
        if APP_GROUP_LABEL not in pod.labels:
            return None
        key = replica_of(pod)
        if key is None:
            return None
        self._count(key, slot, change)
        return lambda: self._count(key, slot, -change)

    def _count(self, key: tuple[str, str], slot: int, change: int) -> None:
        self._reach.pop(key[0], None)
        replicas = self._replicas.setdefault(key, {})
        replicas[slot] = replicas.get(slot, 0) + change
        if not replicas[slot]:
            del replicas[slot]
        if not replicas:
            del self._replicas[key]

    def _any_limits(self) -> bool:
        version, found = self._limits
        if version != self._applications.version:
            found = any(edge.limit is not None for one in self._applications for edge in one.edges)
            self._limits = (self._applications.version, found)
        return found

    def _choice_conditions(self) -> Iterator[Condition]:
        """What is wrong with the arguments, seen from those AppGroups that have no network of their own."""
        networks, choice = self._applications.networks, self._distances.choice("")
        wanted, weights = self._arguments.network_topology_name, self._arguments.weights_name
        owner = f"Plugin/{self.name}"
        if choice.network is None and (wanted or (len(networks) > 1 and len(self._applications))):
            names = some([one.key for one in networks]) or "none"
            asked = (
                f"not one NetworkTopology is {wanted}" if wanted else "it is not said which network counts"
            )
            yield invalid(
                owner,
                "arguments.networkTopologyName",
                f"{asked}; usable are: {names}",
                f"name one of them; until then {WITHOUT_COSTS}",
            )
        if choice.network is not None and choice.lack is Lack.NO_WEIGHTS:
            names = some([one.name for one in choice.network.weight_sets]) or "none"
            yield invalid(
                owner,
                "arguments.weightsName",
                f"{choice.network.key} has no weight set {weights or 'at all'}; it has: {names}",
                f"name one of them; until then {WITHOUT_COSTS}",
            )
