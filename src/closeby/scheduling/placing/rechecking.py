"""Asks again whether a decision holds, before it is carried out: the cluster may have changed since.

What is asked is what was asked when it was decided: each pod's filters on its own node, with the pod itself
taken away, and the gang's constraint, minimum and levels over all its members. Where nothing has happened to
the nodes in question since, that costs a look at a version number, and at the nodes to which something did.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from closeby.cluster.columns import Cluster
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod, gang_key
from closeby.objects.reasons import Condition, Reason, ReasonToken
from closeby.objects.words import path_text
from closeby.scheduling.extension import Scope
from closeby.scheduling.gangs.places import place_of, split_part
from closeby.scheduling.gangs.rosters import constraints_of, missing, tree_of
from closeby.scheduling.intake.scheduling_state import SchedulingState
from closeby.scheduling.outcomes import Binding, ItemKind, Place, kind_of, namespace_of
from closeby.scheduling.placing.statement import Holdings, running_members
from closeby.scheduling.placing.tools import (
    Placed,
    Tools,
    WaitingGang,
    gang_refusal,
    waiting_gang,
)
from closeby.scheduling.plugin_view import CycleState
from closeby.topology.tree import Tree

#: Gangs, and namespaces, of which it is kept when something last happened to them.
_KEPT: Final = 10_000


class Invalidations:
    """By node, gang and namespace: since when earlier decisions that depend on it may not hold any more.

    What the engine itself decides is not noted: it is consistent with what it decided before.
    """

    def __init__(self) -> None:
        #: Of the newest one.
        self.version = 0
        #: slot -> version, the newest last.
        self._nodes: dict[int, int] = {}
        self._gangs = _Newest()
        self._namespaces = _Newest()
        self._everything = 0

    def node(self, slot: int) -> None:
        """The node in this slot is another than before, or something else was put on it."""
        self.version += 1
        self._nodes.pop(slot, None)
        self._nodes[slot] = self.version

    def gang(self, key: str) -> None:
        """The gang's object says something else, or its members or their nodes are others.

        Of other work items nothing is kept.
        """
        self.version += 1
        if kind_of(key) is ItemKind.GANG:
            self._gangs.note(key, self.version)

    def namespace(self, name: str) -> None:
        """Something changed that any decision about pods of this namespace may depend on."""
        self.version += 1
        self._namespaces.note(name, self.version)

    def everything(self) -> None:
        """Something changed that any decision may depend on, such as a topology."""
        self.version += 1
        self._everything = self.version

    def at_node(self, slot: int, since: int) -> bool:
        """Whether something happened to the node since that version."""
        return self._nodes.get(slot, 0) > since or self._everything > since

    def at_namespace(self, name: str, since: int) -> bool:
        """Whether something happened to all of the namespace since that version."""
        return self._namespaces.of(name) > since or self._everything > since

    def at_gang(self, key: str, since: int) -> bool:
        """Whether something happened to the gang itself, or to all of its namespace, since that version."""
        return self._gangs.of(key) > since or self.at_namespace(namespace_of(key), since)

    def slots(self, since: int) -> Iterator[int]:
        """Those of the nodes to which something happened since that version, the newest first."""
        for slot, version in reversed(self._nodes.items()):
            if version <= since:
                return
            yield slot


class _Newest:
    """name -> version, of the names that were noted last; of others, the newest that they may have."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}
        self._dropped = 0

    def note(self, name: str, version: int) -> None:
        self._versions.pop(name, None)
        self._versions[name] = version
        if len(self._versions) > _KEPT:
            self._dropped = self._versions.pop(next(iter(self._versions)))

    def of(self, name: str) -> int:
        return self._versions.get(name, self._dropped)


class Checked(Struct, frozen=True):
    """What is known of a decision: whether it held at some version of the cluster."""

    version: int
    #: Why it does not hold; None when it does.
    broken: Condition | None = None
    #: Of a gang: the slots of all nodes that it depends on. None where it depends on more, or was not asked.
    slots: frozenset[int] | None = None


#: Nothing is known.
NEVER: Final = Checked(-1)


class Recheck:
    """Answers from the present state, and leaves it as it is."""

    def __init__(
        self, tools: Tools, state: SchedulingState, holdings: Holdings, invalidations: Invalidations
    ) -> None:
        self._tools = tools
        self._state = state
        self._holdings = holdings
        self._invalidations = invalidations
        #: Filters whose answer depends on more than the node itself.
        self._blind = tuple(one for one in tools.profile.filters if one.filter_scope is Scope.PER_PLACEMENT)

    @property
    def _cluster(self) -> Cluster:
        return self._tools.cluster

    @property
    def version(self) -> int:
        """Of the cluster: as long as it is the same, what held holds."""
        return self._invalidations.version

    def now(self) -> Checked:
        """Of what is decided at this moment: it holds."""
        return Checked(self.version)

    def place(self, key: str) -> Place | None:
        """Where a gang's members are placed now, bound or not; None when that is not known."""
        group = self._state.groups.get(key)
        running = running_members(self._tools.cluster, self._state, key)
        if group is None or not running or len(running) < len(self._state.placed(key)):
            return None
        tree = tree_of(constraints_of(group, self._tools.topologies, self._tools.profile.close_by_default))
        return None if tree is None else place_of(tree, running)

    def unmet(self, key: str) -> Condition | None:
        """What a gang asks for, and its members do not meet where they are; None where they do."""
        group = self._state.groups.get(key)
        if group is None or not running_members(self._tools.cluster, self._state, key):
            return None
        gang = waiting_gang(self._tools, self._state, group, (), in_order=False)
        return _constraint_broken(group, gang, started=True)

    def still_holds(self, binds: Sequence[Binding], before: Checked, *, started: bool) -> Checked:
        """Whether bindings of one work item could be decided so now.

        ``binds``: all of which it is not known that they took effect, at each call at most those of the one
        before. ``before``: what this function, or ``now``, answered last for this decision. ``started``: some
        binding of the item took effect, so that its gang's minimum is no condition for the others any more.
        """
        version = self._invalidations.version
        if before.broken is None and before.version == version:
            return before
        since = NEVER.version if before.broken is not None else before.version
        if not binds:
            return Checked(version)
        if self._untouched(gang_key(binds[0].pod), before):
            return replace(before, version=version)
        broken = self._broken(binds, since, started)
        return Checked(version, broken, None if broken is not None else self._slots(binds))

    def _untouched(self, key: str, before: Checked) -> bool:
        """Whether nothing happened to a gang, nor to its nodes; this takes no look at each member."""
        slots, since = before.slots, before.version
        if slots is None or self._invalidations.at_gang(key, since):
            return False
        return slots.isdisjoint(self._invalidations.slots(since))

    def _slots(self, binds: Sequence[Binding]) -> frozenset[int] | None:
        """All that a gang's decision depends on, if that is its nodes alone."""
        if binds[0].pod.group is None:
            return None
        pods = self._state.pods
        if any(plugin.concerns(pods[bind.pod.uid]) for plugin in self._blind for bind in binds):
            return None
        # A pod whose labels were changed meanwhile may be no member any more.
        return self._slots_of((*self._state.placed(gang_key(binds[0].pod)), *(bind.pod for bind in binds)))

    def _slots_of(self, pods: Iterable[Pod]) -> frozenset[int]:
        found = (self._cluster.placement(pod.uid) for pod in pods)
        return frozenset(slot for slot in found if slot is not None)

    def _broken(self, binds: Sequence[Binding], since: int, started: bool) -> Condition | None:
        placed: list[Placed] = []
        for bind in binds:
            slot, pod = self._cluster.placement(bind.pod.uid), self._state.pods.get(bind.pod.uid)
            if slot is None or pod is None or self._cluster.names[slot] != bind.node:
                return _broken(bind.pod, bind.node, Reason.NODE_UNSCHEDULABLE, "the node is gone")
            placed.append((pod, slot))
        if binds[0].pod.group is None:
            return self._refused(CycleState(), placed, self._suspects(placed, since))
        return self._gang_broken(gang_key(binds[0].pod), binds, placed, since, started)

    def _gang_broken(
        self, key: str, binds: Sequence[Binding], placed: Sequence[Placed], since: int, started: bool
    ) -> Condition | None:
        group = self._state.groups.get(key)
        if group is None:
            return gang_refusal(key, Reason.GANG_INCOMPLETE, f"PodGroup {key} does not exist")
        suspects = self._suspects(placed, since)
        if not suspects and not self._gang_touched(key, since):
            return None
        gang = waiting_gang(self._tools, self._state, group, (), in_order=False)
        started = started or any(pod.node_name is not None for pod, _ in gang.running)
        broken = _constraint_broken(group, gang, started) or _elsewhere(gang, binds, placed)
        if broken is not None:
            return broken
        own = {pod.uid for pod, _ in placed}
        anchors = tuple(slot for pod, slot in gang.running if pod.uid not in own)
        return self._refused(CycleState(group, tree_of(gang.constraints), anchors), placed, suspects)

    def _gang_touched(self, key: str, since: int) -> bool:
        """Whether something happened to the gang, or to a node that any of its members holds."""
        invalidations = self._invalidations
        if invalidations.at_gang(key, since):
            return True
        return not self._slots_of(self._state.placed(key)).isdisjoint(invalidations.slots(since))

    def _suspects(self, placed: Sequence[Placed], since: int) -> Collection[str]:
        """uids of pods to whose node something happened, or which depend on more than their node."""
        at_node, blind = self._invalidations.at_node, self._blind
        around = self._invalidations.at_namespace(placed[0][0].namespace, since)
        return {
            pod.uid
            for pod, slot in placed
            if around or at_node(slot, since) or any(plugin.concerns(pod) for plugin in blind)
        }

    def _refused(
        self, state: CycleState, placed: Sequence[Placed], suspects: Collection[str]
    ) -> Condition | None:
        """What the filters say to pods that are taken off their nodes and put back one by one."""
        if not suspects:
            return None
        again = [(pod, slot) for pod, slot in placed if pod.uid in suspects]
        state.placed.extend((pod, slot) for pod, slot in placed if pod.uid not in suspects)
        volumes = self._cluster.volumes
        chosen = [one for pod, _ in again if pod.spec.claims for one in volumes.chosen(pod)]
        broken = self._tools.pre_filter(state, tuple(pod for pod, _ in again))
        for pod, _ in again:
            self._holdings.release(pod.uid)
        try:
            for pod, slot in again:
                broken = broken or self._kept_off(state, pod, slot)
                self._holdings.hold(pod, slot)
                state.placed.append((pod, slot))
        finally:
            for pod, slot in again:
                if self._cluster.placement(pod.uid) is None:  # A plugin has failed.
                    self._holdings.hold(pod, slot)
            volumes.choose_again(chosen)
        return broken or self._tools.permit(state, tuple(state.placed))

    def _kept_off(self, state: CycleState, pod: Pod, slot: int) -> Condition | None:
        if self._tools.allows(state, pod, slot):
            return None
        refusals = self._tools.diagnosis.refusals(state, pod, np.asarray([slot], dtype=np.intp))
        node = self._cluster.node_at(slot).name
        if not refusals:  # Of two plugins that answer for one node alone and for all, one says no.
            return _broken(pod, node, Reason.INSUFFICIENT_RESOURCES, "the node has no room")
        found = refusals[0].plugin.rejection(state, pod, slot)
        return _broken(pod, node, found.reason, found.message)


def _constraint_broken(group: PodGroup, gang: WaitingGang, started: bool) -> Condition | None:
    """What the gang asks for now, and its members do not meet."""
    blocking = (one for one in (*group.conditions, *gang.constraints.conditions) if one.blocking)
    first = next(blocking, None)
    if first is not None:
        return first
    lack = None if started else missing(group, gang.members)
    if lack is not None:
        return gang_refusal(group.key, Reason.GANG_INCOMPLETE, lack)
    split = split_part(gang.parts(everyone=True), {})
    if split is None:
        return None
    return gang_refusal(group.key, Reason.TOPOLOGY_PLACEMENT_FAILED, split.sentence())


def _elsewhere(gang: WaitingGang, binds: Sequence[Binding], placed: Sequence[Placed]) -> Condition | None:
    """The domain that was chosen for the gang does not hold a node any more that a member was to go to."""
    tree = tree_of(gang.constraints)
    if tree is None:
        return None
    for bind, (pod, slot) in zip(binds, placed, strict=True):
        path = _path(tree, slot)
        if path[: len(bind.domain)] != bind.domain:
            why = f"the node is no longer in {path_text(bind.domain)}"
            return _broken(pod, bind.node, Reason.TOPOLOGY_PLACEMENT_FAILED, why)
    return None


def _path(tree: Tree, slot: int) -> tuple[str | None, ...]:
    domain = tree.node_domain(slot)
    return () if domain is None else tree.path(domain)


def _broken(pod: Pod, node: str, reason: ReasonToken, why: str) -> Condition:
    message = f"{pod.key} can't go to {node} any more: {why}"
    return Condition(reason=reason, object=f"Pod/{pod.key}", message=message, blocking=True)
