"""Turns what happens to a cluster's objects into events for the engine; does no input or output itself.

The engine gets only what differs: a node's heartbeat or a pod's status says nothing to it. What can't be
read becomes a problem to be logged, and counts as absent until it is fixed; a pod, node or volume that was
read before counts as it was, because it still takes or gives what it did.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from closeby.applications.networks import ALL_NAMESPACES, Counts, NetworkScope
from closeby.kube.state.asked_places import PlacesOfWorkloads, not_standing_in
from closeby.kube.state.awaited_kinds import AwaitedKinds
from closeby.kube.state.claims_of_pods import ClaimsOfPods
from closeby.kube.state.decoding import Decoder, in_its_task
from closeby.kube.state.hypernode_labels import HyperNodeLabels
from closeby.kube.state.label_topologies import LabelTopologies
from closeby.kube.state.mirrors import SharedGangs
from closeby.kube.state.names import SharedNames, clash
from closeby.kube.state.ownership import ForeignMembers, OurPods
from closeby.kube.state.unknown_groups import APP_GROUP, UnknownGroups
from closeby.kube.watch.changes import Change, Deleted, Upserted
from closeby.kube.watch.resources import (
    ABOUT_OWNERS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM,
    SERVICES,
    Resource,
)
from closeby.objects.applications import AppGroup, NetworkTopology
from closeby.objects.groups import PodGroup
from closeby.objects.nodes import Node
from closeby.objects.pods import Pod, PodDisruptionBudget, PriorityClass, ResourceClaim
from closeby.objects.reasons import Condition, Reason
from closeby.objects.selectors import Namespace, PodOwner
from closeby.objects.topologies import HYPERNODES, HyperNode, Topology
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
    PlacesAsked,
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
from closeby.topology.families import QOS_ANNOTATION

#: Where the topology comes from that all HyperNodes make together.
_OF_HYPERNODES: Final = Resource(
    group="topology.volcano.sh", version="v1alpha1", kind="Topology", plural="hypernodes", namespaced=False
)
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
        ours: OurPods | str,
        *,
        pod_grouper: bool = False,
        networks: NetworkScope = ALL_NAMESPACES,
        unknown: UnknownGroups | None = None,
        awaited: Sequence[AwaitedKinds] = (),
        own_namespace: str | None = None,
    ) -> None:
        """Of the pods that wait, ``ours`` (or those that name this scheduler) are the engine's business.

        With a ``pod_grouper`` at work in the cluster they wait for its word before they are placed.
        ``networks``: whose NetworkTopologies count; it is a problem of each other one that it does not.
        ``unknown`` gets AppGroups and the pods that may wait for them, ``awaited`` those that wait for more.
        Places for pods to come are asked for in ``own_namespace``; None: nowhere.
        """
        self._ours = OurPods(ours) if isinstance(ours, str) else ours
        self._places = PlacesOfWorkloads(self._ours, own_namespace)
        self._awaited = tuple(awaited)
        self._unknown = unknown or UnknownGroups(grace=0.0)
        self._scope = networks
        self.foreign = ForeignMembers()
        self._pod_grouper = pod_grouper
        self._decoder = Decoder(selectors=True)
        self._nodes: dict[str, Node] = {}
        #: By uid: pods that the engine knows.
        self._pods: dict[str, Pod] = {}
        self._claims = ClaimsOfPods()
        #: uids of members that are finished and still there.
        self._done: set[str] = set()
        self._label_topologies = LabelTopologies()
        self._hypernodes = HyperNodeLabels()
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
                    for kinds in self._awaited:
                        kinds.rights(resource, change)
        problems += self._read_hypernodes(events)
        problems += self._read_labels()
        for names in (self._topologies, self._networks, self._app_groups, self._gangs.names):
            events += names.news()
        self._take_places(events)
        # After the AppGroups: their pods are placed together.
        events += [PodUpserted(pod) for pod in self._unknown.released()]
        released = [pod for one in self._awaited for pod in one.released()]
        events += [PodUpserted(pod) for pod in released if not self._places.ask_again(pod)]
        self._take_places(events)
        return Fed(tuple(events), tuple(problems))

    def _take_places(self, events: list[Event]) -> None:
        """Places that are asked for, or not any more; they depend on kinds as the pods to come do."""
        asked = self._places.news()
        events += asked
        for each in asked:
            key = each.group.key if isinstance(each, PlacesAsked) else each.key
            for uid in self._places.forget_templates(key):
                self._await_no_more(uid)
            if isinstance(each, PlacesAsked):
                for template in self._places.templates(each.group):
                    for one in self._awaited:
                        one.pod_seen(template)
                for pod in self._places.waiting_for(each.group):
                    self._pod(pod, events)

    # Objects that appear or change

    def _upserted(self, resource: Resource, change: Upserted, events: list[Event]) -> Sequence[Condition]:
        if resource.kind == APP_GROUP:
            self._unknown.group_seen(resource, change.key)
        read = self._decoder.read(resource, change)
        if isinstance(read, Condition):
            self._unreadable(resource, change, events)
            return self._news_of(resource, change.key, (read,))
        record = read.record
        own: tuple[Condition, ...] = ()
        match record:
            case Pod():
                self._pod(record, events)
            case _ if isinstance(record, StorageObject):
                events.append(StorageChanged(record))
            case Node():
                self._node(record, events)
            case PriorityClass():
                events.append(PriorityClassChanged(record))
            case PodDisruptionBudget():
                events.append(BudgetChanged(record))
            case Namespace() | PodOwner():
                events.append(SelectionChanged(record))
            case HyperNode():
                self._hypernodes.put(record)
                own = record.conditions
            case ResourceClaim():
                self._read_again(self._claims.put(record), events)
            case _:
                own = self._named(resource, change.key, record)
        return self._news_of(resource, change.key, (*read.notices, *own))

    def _unreadable(self, resource: Resource, change: Upserted, events: list[Event]) -> None:
        if resource.kind == RESOURCE_CLAIM:
            self._read_again(self._claims.drop(change.key), events)
        else:
            self._drop(change.key, resource)

    def _drop(self, key: str, resource: Resource) -> None:
        """An object that others name is not there, or can't be read."""
        names = self._names(resource)
        self._declared.discard((resource, key))
        if resource.kind == "PodGroup":
            self._places.drop(key)
            self._gangs.drop(key, resource)
        elif resource.kind == "HyperNode":
            self._hypernodes.drop(key)
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
        events.append(NodeUpserted(self._hypernodes.labelled(node)))

    def _pod(self, pod: Pod, events: list[Event]) -> None:
        known = self._pods.get(pod.uid)
        if pod.finished or pod.node_name is not None:
            self._places.forget(pod.uid)
            self.foreign.forget(pod.uid)
            self._await_no_more(pod.uid)
        if pod.finished:
            self._leave_claims(pod.uid, events)
            self._finished(in_its_task(pod), known, events)
            return
        if pod.node_name is not None:
            self._read_again(self._claims.placed(pod), events)
        else:
            if not self._ours.wait(pod):
                self._not_ours(pod, known, events)
                return
            resolved = self._claims.resolved(pod)
            if pod.terminating:
                self._leave_claims(pod.uid, events)
            pod = resolved
            waits = self._pod_grouper and undecided(pod)
            pod = held_for_the_grouper(pod) if waits else self._places.held(pod)
        pod = not_standing_in(in_its_task(self._ours.for_engine(pod)))
        if pod == known:
            return
        if pod.node_name is None and not pod.terminating:
            self._unknown.pod_seen(pod, known)
            for one in self._awaited:
                one.pod_seen(pod)
        else:
            self._unknown.forget(pod.uid)
            self._await_no_more(pod.uid)
        self._pods[pod.uid] = pod
        events.append(PodUpserted(pod))

    def _not_ours(self, pod: Pod, known: Pod | None, events: list[Event]) -> None:
        """It waits for another scheduler; it may have waited for us before."""
        self.foreign.put(pod)
        self._places.forget(pod.uid)
        self._leave_claims(pod.uid, events)
        if known is not None:
            self._unknown.forget(pod.uid)
            self._await_no_more(pod.uid)
            del self._pods[pod.uid]
            events.append(PodDeleted(pod.uid))

    def _await_no_more(self, uid: str) -> None:
        for one in self._awaited:
            one.forget(uid)

    def _leave_claims(self, uid: str, events: list[Event]) -> None:
        """A pod uses no ResourceClaims any more: others may."""
        self._read_again(self._claims.forget(uid), events)

    def _read_again(self, pods: Iterable[Pod], events: list[Event]) -> None:
        """Pods that wait are read by what their ResourceClaims say now."""
        for pod in pods:
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
        if isinstance(record, PodGroup) and record.places is not None:
            return self._places.put(key, record)
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
            self._node_gone(change.key, events)
        elif resource == PODS:
            self._unknown.forget(change.uid)
            self._await_no_more(change.uid)
            self._leave_claims(change.uid, events)
            self.foreign.forget(change.uid)
            self._places.forget(change.uid)
            gone = self._pods.pop(change.uid, None)
            if gone is not None or change.uid in self._done:
                self._done.discard(change.uid)
                events.append(PodDeleted(change.uid))
        elif resource.kind == RESOURCE_CLAIM:
            self._read_again(self._claims.drop(change.key), events)
        elif resource == NAMESPACES:
            events.append(SelectionChanged(Namespace(name=change.key), gone=True))
        elif resource == SERVICES or resource.kind in ABOUT_OWNERS:
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

    def _node_gone(self, name: str, events: list[Event]) -> None:
        if self._nodes.pop(name, None) is not None:
            self._label_topologies.see(name, None)
            events.append(NodeDeleted(name))

    # All of a kind

    def _names(self, resource: Resource) -> SharedNames | None:
        return {
            "Topology": self._topologies,
            "ClusterTopologyBinding": self._topologies,
            "AppGroup": self._app_groups,
            "NetworkTopology": self._networks,
        }.get(resource.kind)

    def _read_hypernodes(self, events: list[Event]) -> Sequence[Condition]:
        """The topology of the HyperNodes, and the labels that they give to nodes, if one changed."""
        found = self._hypernodes.news(self._nodes.values())
        if found is None:
            return ()
        topology, relabelled = found
        events += map(NodeUpserted, relabelled)
        wrong: tuple[Condition, ...] = ()
        if topology is None:
            self._drop(HYPERNODES, _OF_HYPERNODES)
        else:
            wrong = self._named(_OF_HYPERNODES, HYPERNODES, topology)
        return self._news_of(_OF_HYPERNODES, HYPERNODES, wrong)

    def _read_labels(self) -> Sequence[Condition]:
        """Topologies out of node labels, if a node's labels changed in this batch."""
        found = self._label_topologies.news(self._nodes.values(), declared=bool(self._declared))
        if found is None:
            return ()
        for one in found:
            self._topologies.put(one.topology.name, None, one)
        names = frozenset(one.topology.name for one in found)
        for gone in sorted(self._labelled - names):
            self._topologies.drop(gone, None)
        self._labelled = names
        return self._news_of(None, "", self._label_topologies.conditions)

    def _news_of(
        self, resource: Resource | None, key: str, problems: tuple[Condition, ...]
    ) -> Sequence[Condition]:
        """Notes what is wrong with an object now, and returns what was not reported before."""
        if not problems:
            if self._problems:
                self._problems.pop((resource, key), None)
            return ()
        before = self._problems.get((resource, key), ())
        self._problems[resource, key] = problems
        return [one for one in problems if one not in before]
