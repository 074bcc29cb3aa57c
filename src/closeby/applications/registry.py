"""The applications and networks of a cluster as last known, and to which of them a pod belongs."""

from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from closeby.applications.networks import ALL_NAMESPACES, Counts, Judged, NetworkScope
from closeby.applications.sorts import TopologyOrder, topology_order
from closeby.objects.applications import APP_GROUP_LABEL, WORKLOAD_LABEL, AppGroup, NetworkTopology
from closeby.objects.bounds import quoted
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, invalid
from closeby.objects.words import guess, plural

#: Workloads among which the one that was meant is looked for, which takes time for each.
_MOST_GUESSED: Final = 200
#: Greater than any cost: larger limits say the same.
_MOST_LIMIT: Final = 1 << 62


class Edge(Struct, frozen=True, kw_only=True):
    """One workload needs another; names are those of the graph."""

    caller: str
    callee: str
    weight: float
    #: Greatest network cost allowed between two replicas; None means no limit.
    limit: int | None


class Pull(NamedTuple):
    """An edge as seen from one of its ends; one to itself has one end."""

    other: str
    edge: Edge


class Application(Struct, frozen=True, kw_only=True, eq=False):
    """An AppGroup with what follows from it."""

    group: AppGroup
    order: TopologyOrder
    #: Index of each workload in the order, from 1.
    index: Mapping[str, int]
    edges: tuple[Edge, ...]
    #: Edges at either end of each workload.
    edges_of: Mapping[str, tuple[Edge, ...]]
    #: The same with the workload at the other end; ``limits_of`` only those with a greatest cost.
    pulls_of: Mapping[str, tuple[Pull, ...]]
    limits_of: Mapping[str, tuple[Pull, ...]]

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.group.key

    def workload_of(self, pod: Pod) -> str | None:
        """The workload a pod belongs to, by its label, else by its own name; None for an undeclared one."""
        name = workload_name(pod)
        return name if name in self.index else None


def application(group: AppGroup) -> Application:
    """Work out what follows from an AppGroup."""
    order = topology_order(group)
    edges = tuple(
        Edge(
            caller=workload.name,
            callee=need.workload,
            weight=need.weight,
            limit=None if need.max_network_cost is None else min(need.max_network_cost, _MOST_LIMIT),
        )
        for workload in group.workloads
        for need in workload.dependencies
    )
    edges_of: dict[str, list[Edge]] = {name: [] for name in order.names}
    for edge in edges:
        for end in dict.fromkeys((edge.caller, edge.callee)):
            edges_of[end].append(edge)
    pulls_of = {
        name: tuple(Pull(edge.callee if edge.caller == name else edge.caller, edge) for edge in found)
        for name, found in edges_of.items()
    }
    return Application(
        group=group,
        order=order,
        index=order.index,
        edges=edges,
        edges_of={name: tuple(found) for name, found in edges_of.items()},
        pulls_of=pulls_of,
        limits_of={
            name: tuple(pull for pull in pulls if pull.edge.limit is not None)
            for name, pulls in pulls_of.items()
        },
    )


def app_group_key(pod: Pod) -> str | None:
    """``namespace/name`` of the AppGroup that a pod names, whether there is one or not."""
    name = pod.labels.get(APP_GROUP_LABEL)
    return None if name is None else f"{pod.namespace}/{name}"


def workload_name(pod: Pod) -> str:
    """What a pod calls its workload: a label, else its own name."""
    return pod.labels.get(WORKLOAD_LABEL, pod.name)


def replica_of(pod: Pod) -> tuple[str, str] | None:
    """The AppGroup (``namespace/name``) and the workload that a pod names; None when it names no AppGroup."""
    key = app_group_key(pod)
    return None if key is None else (key, workload_name(pod))


def unknown_dependencies(group: AppGroup, carried: Container[str]) -> tuple[Condition, ...]:
    """What is wrong where a dependency names a workload that the AppGroup does not list, and none of its pods
    carries (``carried``): mostly a slip in the name, and that dependency pulls no pod.
    """
    listed = dict.fromkeys(one.name for one in group.workloads)
    missing = {
        call.workload: one.name
        for one in group.workloads
        for call in one.dependencies
        if call.workload not in listed and call.workload not in carried
    }
    if not missing:
        return ()
    name, caller = next(iter(missing.items()))
    more = f" (and {plural(len(missing) - 1, 'other')} likewise)" if len(missing) > 1 else ""
    what = "which is no workload of it, and no pod is called so"
    message = f"{quoted(caller)} depends on {quoted(name)}, {what}{more}"
    others = (one for one in listed if one != caller)
    remedy = f"{guess(name, islice(others, _MOST_GUESSED))}list it as a workload, or drop the dependency"
    return (invalid(f"AppGroup/{group.key}", "spec", message, remedy),)


def placed_replicas(placed: Iterable[tuple[Pod, int]]) -> dict[str, dict[str, dict[int, int]]]:
    """The replicas on each slot, by AppGroup and workload: key -> workload -> slot -> number."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    for pod, slot in placed:
        replica = replica_of(pod)
        if replica is not None:
            slots = found.setdefault(replica[0], {}).setdefault(replica[1], {})
            slots[slot] = slots.get(slot, 0) + 1
    return found


class Applications:
    """Owner of the AppGroups and NetworkTopologies. Unusable ones are kept, so that they can be reported."""

    def __init__(self) -> None:
        #: Whose NetworkTopologies count.
        self.scope = ALL_NAMESPACES
        self._applications: dict[str, Application] = {}
        #: By key: the networks that count for all AppGroups.
        self._networks: dict[str, NetworkTopology] = {}
        #: By namespace and key: those that count in their own namespace at most.
        self._local: dict[str, dict[str, Judged]] = {}
        #: Grows with every change of an AppGroup, and of a network that counts.
        self.version = 0
        #: Grows with every change of a network.
        self.networks_version = 0

    def declare(self, group: AppGroup) -> None:
        self._applications[group.key] = application(group)
        self.version += 1

    def withdraw(self, key: str) -> None:
        """Remove an AppGroup; unknown keys are fine."""
        if self._applications.pop(key, None) is not None:
            self.version += 1

    def declare_network(self, network: NetworkTopology) -> bool:
        """Add or replace a NetworkTopology; returns whether that changes what counts for any application."""
        counted = self._drop_network(network.key)
        counts = self.scope.counts(network)
        if counts is Counts.EVERYWHERE:
            self._networks[network.key] = network
        else:
            self._local.setdefault(network.namespace, {})[network.key] = Judged(network, counts)
        return self._networks_changed(counted or counts in (Counts.EVERYWHERE, Counts.BESIDE))

    def withdraw_network(self, key: str) -> bool:
        """Remove a NetworkTopology (unknown keys are fine); returns whether that changes what counts."""
        return self._networks_changed(self._drop_network(key))

    def limit(self, scope: NetworkScope) -> bool:
        """Say whose NetworkTopologies count; returns whether that changes what counts for any application."""
        known = [
            *self._networks.values(),
            *(one.network for by in self._local.values() for one in by.values()),
        ]
        self.scope = scope
        return sum(self.declare_network(one) for one in known) > 0

    def __len__(self) -> int:
        return len(self._applications)

    def __iter__(self) -> Iterator[Application]:
        return iter(sorted(self._applications.values(), key=lambda one: one.key))

    def get(self, key: str) -> Application | None:
        """The usable application of that key."""
        found = self._applications.get(key)
        return found if found is not None and found.group.usable else None

    def of(self, pod: Pod) -> Application | None:
        """The usable application that a pod names."""
        if not self._applications:
            return None
        key = app_group_key(pod)
        return None if key is None else self.get(key)

    @property
    def networks(self) -> tuple[NetworkTopology, ...]:
        """The usable networks that count for all AppGroups, by key."""
        return tuple(one for _, one in sorted(self._networks.items()) if one.usable)

    def networks_for(self, namespace: str) -> tuple[Judged, ...]:
        """The usable networks that count for all AppGroups, and all usable ones of that namespace, by key."""
        local = (one for _, one in sorted(self._local.get(namespace, {}).items()) if one.network.usable)
        return (*(Judged(one, Counts.EVERYWHERE) for one in self.networks), *local)

    def has(self, network: NetworkTopology) -> bool:
        """Whether this very record still stands for its NetworkTopology."""
        if self._networks.get(network.key) is network:
            return True
        local = self._local.get(network.namespace, {}).get(network.key)
        return local is not None and local.network is network

    def _drop_network(self, key: str) -> bool:
        """Forget a network; returns whether it counted for any application."""
        if self._networks.pop(key, None) is not None:
            return True
        namespace = key.partition("/")[0]
        local = self._local.get(namespace, {})
        found = local.pop(key, None)
        if not local:
            self._local.pop(namespace, None)
        return found is not None and found.counts is Counts.BESIDE

    def _networks_changed(self, counted: bool) -> bool:
        self.networks_version += 1
        self.version += counted
        return counted
