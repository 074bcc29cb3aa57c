"""What changes around pods, nodes and gangs: topologies, applications, networks, measurements and volumes.

Each change makes doubtful what it may concern: decisions that are being carried out, and refusals.
"""

from collections.abc import Callable, Iterable
from functools import partial

from closeby.objects.selectors import PodOwner
from closeby.scheduling.events import (
    AppGroupChanged,
    AppGroupDeleted,
    MeasurementsChanged,
    NetworkEvent,
    NetworkScopeChanged,
    NetworkTopologyChanged,
    NetworkTopologyDeleted,
    ProblemSolved,
    SelectionChanged,
    StorageChanged,
    StorageDeleted,
    TopologyChanged,
    TopologyDeleted,
    VolumeRefused,
)
from closeby.scheduling.intake.cluster_events import ClusterEvent
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import namespace_of
from closeby.scheduling.placing.rechecking import Invalidations
from closeby.scheduling.placing.tools import Tools
from closeby.scheduling.rounds.pending import PendingItems

EnvironmentEvent = (
    TopologyChanged
    | TopologyDeleted
    | AppGroupChanged
    | AppGroupDeleted
    | NetworkEvent
    | MeasurementsChanged
    | SelectionChanged
    | StorageChanged
    | StorageDeleted
    | VolumeRefused
    | ProblemSolved
)


class Environment:
    """Takes in such events for an engine."""

    def __init__(
        self,
        tools: Tools,
        state: SchedulingState,
        invalidations: Invalidations,
        pending: PendingItems,
        doubt: Callable[[Iterable[str]], None],
    ) -> None:
        """``doubt`` learns of which claims (by key) something changed."""
        self._tools = tools
        self._cluster = tools.cluster
        self._topologies = tools.topologies
        self._applications = state.applications
        self._state = state
        self._invalidations = invalidations
        self._pending = pending
        self._doubt = doubt

    def take(self, event: EnvironmentEvent) -> None:
        """Takes in one event."""
        match event:
            case StorageChanged() | StorageDeleted():
                self._storage_event(event)
            case TopologyChanged() | TopologyDeleted():
                self._topology_event(event)
            case AppGroupChanged() | AppGroupDeleted():
                self._app_group_event(event)
            case NetworkTopologyChanged() | NetworkTopologyDeleted() | NetworkScopeChanged():
                self._network_event(event)
            case MeasurementsChanged() | SelectionChanged():
                self._judged_otherwise(event)
            case ProblemSolved(item, program, solution):
                self._tools.note_solved(program, solution)
                self._pending.try_now(item)
            case VolumeRefused(failure):
                if self._cluster.volumes.refused.add(failure):
                    self._claims_judged_otherwise((failure.claim,))

    def passed(self, now: float) -> None:
        """It is that time, by the clock of the ticks: nodes may be tried again for volumes."""
        ended = self._cluster.volumes.refused.passed(now)
        if ended:
            self._claims_judged_otherwise(ended)

    def _topology_event(self, event: TopologyChanged | TopologyDeleted) -> None:
        match event:
            case TopologyChanged(topology, ignored):
                self._topologies.declare(topology, ignored)
            case TopologyDeleted(name):
                self._topologies.withdraw(name)
        self._tools.rooms.forget()
        self._invalidations.everything()
        self._pending.note_event(ClusterEvent.TOPOLOGY)

    def _app_group_event(self, event: AppGroupChanged | AppGroupDeleted) -> None:
        match event:
            case AppGroupChanged(app_group):
                key, change = app_group.key, partial(self._applications.declare, app_group)
            case AppGroupDeleted(key):
                change = partial(self._applications.withdraw, key)
        for item in self._state.regroup(key, change):
            self._pending.requeue_or_forget(item)
        namespace = namespace_of(key)
        self._invalidations.namespace(namespace)
        self._pending.note_app_group_change(namespace)

    def _network_event(self, event: NetworkEvent) -> None:
        namespace = ""
        match event:
            case NetworkTopologyChanged(network):
                counted, namespace = self._applications.declare_network(network), network.namespace
            case NetworkTopologyDeleted(key):
                counted, namespace = self._applications.withdraw_network(key), namespace_of(key)
            case NetworkScopeChanged(scope):
                counted = self._applications.limit(scope)
        if not counted:
            return
        if namespace and not self._applications.scope.is_operators(namespace):
            self._invalidations.namespace(namespace)
            self._pending.note_app_group_change(namespace)
        else:
            self._invalidations.everything()
            self._pending.note_event(ClusterEvent.NETWORK)

    def _storage_event(self, event: StorageChanged | StorageDeleted) -> None:
        match event:
            case StorageChanged(one):
                concerned = self._cluster.volumes.put(one)
            case StorageDeleted(kind, key):
                concerned = self._cluster.volumes.remove(kind, key)
        if concerned is None:
            self._pending.note_storage_event(ClusterEvent.ATTACHMENT, None)
            return
        self._claims_judged_otherwise(concerned)

    def _claims_judged_otherwise(self, keys: Iterable[str]) -> None:
        keys = tuple(keys)
        self._doubt(keys)
        users = self._state.waiting_users_of(keys)
        for pod in users:
            slot = self._cluster.placement(pod.uid)
            if slot is not None:
                self._invalidations.node(slot)
        # A volume may concern thousands of pods of one gang.
        items = tuple(dict.fromkeys(map(self._state.item_key, users)))
        for item in items:
            self._invalidations.gang(item)
        self._pending.note_storage_event(ClusterEvent.VOLUME, items)

    def _judged_otherwise(self, event: MeasurementsChanged | SelectionChanged) -> None:
        if isinstance(event, SelectionChanged):
            if not self._cluster.population.selection_changed(event.subject, event.gone):
                return
            if isinstance(event.subject, PodOwner):
                self._invalidations.namespace(event.subject.namespace)
                self._pending.note_owner_change(event.subject.namespace)
            else:
                self._invalidations.everything()
                self._pending.note_event(ClusterEvent.SELECTION)
            return
        for plugin in self._tools.profile.measured:
            if plugin.name == event.plugin and plugin.take(event.measurements):
                self._tools.table.forget_all()
                self._invalidations.everything()
                self._pending.note_event(ClusterEvent.MEASUREMENT)
