"""Turns what happens to a cluster's objects into events for the engine; does no input or output itself.

The engine gets only what differs: a node's heartbeat or a pod's status says nothing to it. What can't be
read becomes a problem to be logged, and counts as absent until it is fixed; a pod, node or volume that was
read before counts as it was, because it still takes or gives what it did.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.networks import ALL_NAMESPACES, Counts, NetworkScope
from closeby.kube.state.claims_of_pods import ClaimsOfPods
from closeby.kube.state.decoding import Decoder, held_for_its_gang, in_its_task
from closeby.kube.state.label_topologies import LabelTopologies
from closeby.kube.state.mirrors import SharedGangs
from closeby.kube.state.names import SharedNames, clash
from closeby.kube.state.ownership import ForeignMembers, scheduler_of
from closeby.kube.state.unknown_groups import APP_GROUP, UnknownGroups
from closeby.kube.state.volumes_of_pods import VolumesOfPods
from closeby.kube.watch.changes import Change, Deleted, Upserted
from closeby.kube.watch.resources import NAMESPACES, NODES, PODS, RESOURCE_CLAIM, SERVICES, Resource
from closeby.objects.applications import AppGroup
from closeby.objects.disruption import PodDisruptionBudget
from closeby.objects.groups import PodGroup
from closeby.objects.networks import NetworkTopology
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PriorityClass
from closeby.objects.reasons import Condition, Reason
from closeby.objects.resource_claims import ResourceClaim
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import Topology
from closeby.objects.volumes import StorageObject
from closeby.reading.dialects.grouping import held_for_the_grouper, undecided
from closeby.reading.registry import Record
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    BudgetChanged,
    BudgetDeleted,
    Event,
    NetworkTopologyChanged,
    NetworkTopologyDeleted,
    NodeDeleted,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    PriorityClassChanged,
    PriorityClassDeleted,
    SelectionChanged,
    StorageChanged,
    StorageDeleted,
    TopologyChanged,
    TopologyDeleted,
)
from closeby.topology.node_groups import QOS_ANNOTATION

_STORAGE: Final[Mapping[str, type[StorageObject]]] = {one.__name__: one for one in get_args(StorageObject)}


class Fed(Struct, frozen=True):
    """What a batch of changes amounts to."""

    events: tuple[Event, ...]
    #: What is wrong with objects and was not reported before.
    problems: tuple[Condition, ...] = ()


class Feed:
    """The cluster as last known, as far as that is needed to tell what differs."""

    def __init__(
        self,
        scheduler_name: str,
        *,
        pod_grouper: bool = False,
        networks: NetworkScope = ALL_NAMESPACES,
        unknown: UnknownGroups | None = None,
        volumes: VolumesOfPods | None = None,
    ) -> None:
        """Of the pods that wait, those that name this scheduler are the engine's business.

        With a ``pod_grouper`` at work in the cluster they wait for its word before they are placed.
        ``networks``: whose NetworkTopologies count; it is a problem of each other one that it does not.
        ``unknown`` gets AppGroups and the pods that may wait for them, ``volumes`` the pods with claims.
        """
        self._volumes = volumes or VolumesOfPods()
        self._unknown = unknown or UnknownGroups(grace=0.0)
        self._scope = networks
        self.foreign = ForeignMembers()
        self._scheduler_name = scheduler_name
        self._pod_grouper = pod_grouper
        self._decoder = Decoder()
        self._nodes: dict[str, Node] = {}
        #: By uid: pods that the engine knows.
        self._pods: dict[str, Pod] = {}
        self._claims = ClaimsOfPods()
        #: uids of members that are finished and still there.
        self._done: set[str] = set()
        self._label_topologies = LabelTopologies()
        self._gangs = SharedGangs()
        self._topologies = SharedNames(TopologyDeleted)
        self._app_groups = SharedNames(AppGroupDeleted)
        self._networks = SharedNames(NetworkTopologyDeleted)
        #: By resource, key: what is wrong with an object now.
        self._problems: dict[tuple[Resource | None, str], tuple[Condition, ...]] = {}
        self._labelled: frozenset[str] = frozenset()
        #: Usable Topology objects, before which only network labels count.
        self._declared: set[tuple[Resource, str]] = set()

    def can_keep_plans(self, can: bool) -> None:
        """Whether closeby's own PodGroups are served, in which the plans of others' gangs are kept."""
        self._gangs.can_keep_plans(can)

    def take(self, changes: Iterable[tuple[Resource, Change]]) -> Fed:
        """One batch, in order."""
        events: list[Event] = []
        problems: list[Condition] = []
        for resource, change in changes:
            match change:
                case Upserted():
                    problems += self._upserted(resource, change, events)
                case Deleted():
                    self._problems.pop((resource, change.key), None)
                    self._deleted(resource, change, events)
                case _:
                    self._volumes.rights(resource, change)
        problems += self._read_labels()
        for names in (self._topologies, self._networks, self._app_groups, self._gangs.names):
            events += names.news()
        # After the AppGroups: their pods are placed together.
        events += [PodUpserted(pod) for pod in self._unknown.released()]
        events += [PodUpserted(pod) for pod in self._volumes.released()]
        return Fed(tuple(events), tuple(problems))

    # Objects that appear or change

    def _upserted(self, resource: Resource, change: Upserted, events: list[Event]) -> Iterator[Condition]:
        if resource.kind == APP_GROUP:
            self._unknown.group_seen(resource, change.key)
        read = self._decoder.read(resource, change)
        if isinstance(read, Condition):
            self._unreadable(resource, change)
            yield from self._news_of(resource, change.key, (read,))
            return
        record = read.record
        own: tuple[Condition, ...] = ()
        match record:
            case Node():
                self._node(record, events)
            case Pod():
                self._pod(record, events)
            case PriorityClass():
                events.append(PriorityClassChanged(record))
            case PodDisruptionBudget():
                events.append(BudgetChanged(record))
            case Namespace() | PodOwner():
                events.append(SelectionChanged(record))
            case _ if isinstance(record, StorageObject):
                events.append(StorageChanged(record))
            case ResourceClaim():
                self._claims.put(record)
                self._claim_changed(record.key, events)
            case _:
                own = self._named(resource, change.key, record)
        yield from self._news_of(resource, change.key, (*read.notices, *own))

    def _unreadable(self, resource: Resource, change: Upserted) -> None:
        self._drop(change.key, resource)

    def _drop(self, key: str, resource: Resource) -> None:
        """An object that others name is not there, or can't be read."""
        if resource.kind == RESOURCE_CLAIM:
            self._claims.drop(key)
        names = self._names(resource)
        self._declared.discard((resource, key))
        if resource.kind == "PodGroup":
            self._gangs.drop(key, resource)
        elif names is not None:
            names.drop(key, resource)

    def _node(self, node: Node, events: list[Event]) -> None:
        # Agents write annotations every few seconds. A change that no decision depends on is ignored.
        kept = {key: value for key, value in node.annotations.items() if key == QOS_ANNOTATION}
        if len(kept) < len(node.annotations):
            node = replace(node, annotations=kept)
        before = self._nodes.get(node.name)
        if before == node:
            return
        self._nodes[node.name] = node
        self._label_topologies.see(node.name, node)
        events.append(NodeUpserted(node))

    def _pod(self, pod: Pod, events: list[Event]) -> None:
        known = self._pods.get(pod.uid)
        if pod.finished or pod.node_name is not None:
            self.foreign.forget(pod.uid)
            self._claims.forget(pod.uid)
            self._volumes.forget(pod.uid)
        if pod.finished:
            self._finished(in_its_task(pod), known, events)
            return
        if pod.node_name is None:
            if scheduler_of(pod) != self._scheduler_name:
                self.foreign.put(pod)
                return
            pod = self._claims.resolved(pod)
            waits = self._pod_grouper and undecided(pod)
            pod = held_for_the_grouper(pod) if waits else held_for_its_gang(pod)
        pod = in_its_task(pod)
        if pod == known:
            return
        if pod.node_name is None and not pod.terminating:
            self._unknown.pod_seen(pod, known)
            self._volumes.pod_seen(pod)
        else:
            self._unknown.forget(pod.uid)
            self._volumes.forget(pod.uid)
        self._pods[pod.uid] = pod
        events.append(PodUpserted(pod))

    def _claim_changed(self, key: str, events: list[Event]) -> None:
        """The pods that wait and name this ResourceClaim are read by it."""
        for pod in self._claims.waiting_for(key):
            self._pod(pod, events)

    def _finished(self, pod: Pod, known: Pod | None, events: list[Event]) -> None:
        """It holds nothing any more; its gang must know that it did its work, for as long as it is there."""
        member = pod.group is not None and pod.uid not in self._done
        self._unknown.forget(pod.uid)
        if known is not None or member:
            self._pods.pop(pod.uid, None)
            events.append(PodUpserted(pod))
        if member:
            self._done.add(pod.uid)

    def _named(self, resource: Resource, key: str, record: Record | None) -> tuple[Condition, ...]:
        """An object that others name; returns what is wrong with it."""
        if isinstance(record, PodGroup):
            self._gangs.put(key, resource, record)
            return (*record.conditions, *clash(resource, key, self._gangs.names.sources(key)))
        names = self._names(resource)
        if names is None:
            return ()
        match record:
            case Topology():
                names.put(key, resource, TopologyChanged(record))
                if record.usable:
                    self._declared.add((resource, key))
                else:
                    self._declared.discard((resource, key))
            case AppGroup():
                names.put(key, resource, AppGroupChanged(record))
            case NetworkTopology():
                names.put(key, resource, NetworkTopologyChanged(record))
            case _:
                names.drop(key, resource)
                return ()
        return (*record.conditions, *clash(resource, key, names.sources(key)), *self._not_counted(record))

    def _not_counted(self, record: Record) -> Iterator[Condition]:
        if not isinstance(record, NetworkTopology):
            return
        counts = self._scope.counts(record)
        if counts in (Counts.NOT_HERE, Counts.TOO_LARGE):
            yield Condition(
                reason=Reason.NETWORK_TOPOLOGY_NOT_COUNTED,
                object=f"NetworkTopology/{record.key}",
                message=f"its costs do not count ({counts})",
                remedy=self._scope.remedy(counts),
            )

    # Objects that are gone

    def _deleted(self, resource: Resource, change: Deleted, events: list[Event]) -> None:
        if resource.kind == APP_GROUP:
            self._unknown.group_gone(resource, change.key)
        if resource == NODES:
            if self._nodes.pop(change.key, None) is not None:
                self._label_topologies.see(change.key, None)
                events.append(NodeDeleted(change.key))
        elif resource == PODS:
            self._unknown.forget(change.uid)
            self._claims.forget(change.uid)
            self._volumes.forget(change.uid)
            self.foreign.forget(change.uid)
            known = self._pods.pop(change.uid, None) is not None
            if known or change.uid in self._done:
                self._done.discard(change.uid)
                events.append(PodDeleted(change.uid))
        elif resource.kind == RESOURCE_CLAIM:
            self._claims.drop(change.key)
            self._claim_changed(change.key, events)
        elif resource == NAMESPACES:
            events.append(SelectionChanged(Namespace(name=change.key), gone=True))
        elif resource == SERVICES:
            namespace, _, name = change.key.partition("/")
            owner = PodOwner(kind=resource.kind, namespace=namespace, name=name)
            events.append(SelectionChanged(owner, gone=True))
        elif resource.kind in _STORAGE:
            events.append(StorageDeleted(_STORAGE[resource.kind], change.key))
        elif resource.kind == "PriorityClass":
            events.append(PriorityClassDeleted(change.key))
        elif resource.kind == "PodDisruptionBudget":
            events.append(BudgetDeleted(change.key))
        else:
            self._drop(change.key, resource)

    # All of a kind

    def _names(self, resource: Resource) -> SharedNames | None:
        return {
            "Topology": self._topologies,
            "AppGroup": self._app_groups,
            "NetworkTopology": self._networks,
        }.get(resource.kind)

    def _read_labels(self) -> Iterator[Condition]:
        """Topologies out of node labels, if a node's labels changed in this batch."""
        found = self._label_topologies.news(self._nodes.values(), declared=bool(self._declared))
        if found is None:
            return
        for one in found:
            self._topologies.put(one.topology.name, None, one)
        names = frozenset(one.topology.name for one in found)
        for gone in sorted(self._labelled - names):
            self._topologies.drop(gone, None)
        self._labelled = names
        yield from self._news_of(None, "", self._label_topologies.conditions)

    def _news_of(
        self, resource: Resource | None, key: str, problems: tuple[Condition, ...]
    ) -> Iterator[Condition]:
        """Notes what is wrong with an object now, and yields what was not reported before."""
        before = self._problems.get((resource, key), ())
        if problems:
            self._problems[resource, key] = problems
        else:
            self._problems.pop((resource, key), None)
        yield from (one for one in problems if one not in before)
