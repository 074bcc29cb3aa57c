"""network-topology: nodes near the job's first task score higher (Volcano network-topology proposal).

Score = weight x (K - i) for the first of K label keys on which a node equals the node of the job's first
placed task. The proposal's drawback (a first task in a domain too small for the rest) is removed by looking
ahead: a gang without a constraint of its own is offered the domains of the keys that hold it, nearest first.

With the type ``static`` the keys are configured. With ``dynamic`` they are those of the network labels that
nodes carry at the time, as discovery writes them: no keys need be named, and none before they are there.
"""

from collections.abc import Iterable
from typing import ClassVar

import numpy as np
from msgspec import Struct, field

from closeby.objects.arrays import Scores
from closeby.objects.pods import Pod, gang_key
from closeby.scheduling.extension import (
    Candidate,
    Handle,
    PartView,
    PlacementGenerate,
    PreScore,
    Reserve,
    Scope,
    Score,
    Undo,
)
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.topology.families import NETWORK_LABELS
from closeby.topology.tree import ROOT, Domain, Tree

#: The topology of accelerators' networks that do not nest in racks.
_ACCELERATORS = f"{NETWORK_LABELS.name}-accelerator"
#: Running members by age and name, then members placed since in their order.
Seniority = tuple[int, float, str]


class NetworkTopologyArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Names as in the proposal. ``keys`` is a comma-separated list, nearest first.

    With ``dynamic`` keys are only needed where discovery writes other labels than the standard's.
    """

    type: str = field(default="static", name="network-topology.type")
    keys: str = field(default="", name="network-topology.keys")
    weight: float = field(default=1.0, name="network-topology.weight")

    def __post_init__(self) -> None:
        if self.type not in ("static", "dynamic"):
            raise ValueError(f"network-topology.type must be static or dynamic, not {self.type!r}")


class NetworkTopology(PlacementGenerate, PreScore, Score, Reserve):
    """Remembers each job's first task and scores nodes by the labels they share with its node."""

    name: ClassVar[str] = "network-topology"
    Arguments = NetworkTopologyArguments
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    #: The proposal's numbers as they are: how much one key more counts is its weight's to say.
    unbounded: ClassVar[bool] = True

    def __init__(self, arguments: NetworkTopologyArguments, handle: Handle) -> None:
        super().__init__(arguments, handle)
        self._configured = tuple(key.strip() for key in arguments.keys.split(",") if key.strip())
        self._discovered = arguments.type == "dynamic" and not self._configured
        self._weight = arguments.weight
        #: gang -> its placed members' uid -> (seniority, slot)
        self._members: dict[str, dict[str, tuple[Seniority, int]]] = {}
        self._sequence = 0
        if self._configured:
            handle.topologies.declare_levels(self.name, tuple(reversed(self._configured)))

    @property
    def keys(self) -> tuple[str, ...]:
        """Label keys, nearest first: the configured ones, or those that nodes carry now."""
        if not self._discovered:
            return self._configured
        topologies = (self.handle.topologies.declared(name) for name in (_ACCELERATORS, NETWORK_LABELS.name))
        return tuple(
            level.node_label
            for topology in topologies
            if topology is not None
            for level in reversed(topology.levels)
        )

    @property
    def scores_any(self) -> bool:
        """Only with keys, or where some may be found."""
        return not self.idle

    def scores(self, pod: Pod) -> bool:
        """Only with keys, or where some may be found, and only for members of a gang."""
        return not self.idle and pod.group is not None

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        """Without a first task there is nothing to be near to."""
        return self._record(pod) is not None

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        """``weight x (K - i)`` for the first key on which the nodes agree, as the proposal gives it."""
        record = self._record(pod)
        scores = np.zeros(len(nodes))
        if record is None:
            return scores
        open_ = np.ones(len(nodes), dtype=np.bool_)
        labels = self.handle.cluster.labels.labels(record)
        keys = self.keys
        for index, key in enumerate(keys):
            value = labels.get(key)
            if not value:  # A missing or empty value never matches.
                continue
            matches = open_ & (nodes.label_codes(key) == nodes.label_column(key).code(value))
            scores[matches] = self._weight * (len(keys) - index)
            open_ &= ~matches
        return scores

    def placement_generate(self, state: CycleState, part: PartView) -> Iterable[Candidate] | None:
        """Look-ahead: domains of the nearest key that hold the gang, then of the next, at last all nodes."""
        tree = self.handle.topologies.tree(NETWORK_LABELS.name if self._discovered else self.name)
        constrained = part.group.constraint is not None or part.group.subgroups
        if tree is None or constrained or not part.group.wants_closeness or len(part.anchors):
            return None
        return self._domains(part, tree)

    def _domains(self, part: PartView, tree: Tree) -> Iterable[Candidate]:
        for level in range(tree.node_level - 1, -1, -1):
            room = part.room(tree, level)
            holds = np.flatnonzero((room >= part.needed) & tree.labelled[level][: len(room)])
            scores = part.mean_scores(tree, level, holds) if len(holds) > 1 else None
            order = np.lexsort((room[holds],) if scores is None else (-scores, room[holds]))
            for index in holds[order].tolist():
                yield Candidate(tree=tree, domain=Domain(level, index))
        if int(part.room(tree, -1)[0]) >= part.needed:
            yield Candidate(tree=tree, domain=ROOT, fill_level=max(tree.node_level - 1, 0))

    @property
    def idle(self) -> bool:
        """Without keys no node is near another."""
        return not self._configured and not self._discovered

    def pod_assumed(self, pod: Pod, slot: int) -> Undo | None:
        """Note a member; the oldest running one, else the first placed one, is the job's first task."""
        if self.idle or pod.group is None:
            return None
        if pod.node_name is not None:
            seniority = (0, float("inf") if pod.created is None else pod.created, pod.name)
        else:
            self._sequence += 1
            seniority = (1, float(self._sequence), pod.name)
        self._add(pod, (seniority, slot))

        def undo() -> None:
            self._drop(pod)

        return undo

    def pod_forgotten(self, pod: Pod, slot: int) -> Undo | None:
        """Drop a member that left its node."""
        gone = None if pod.group is None else self._drop(pod)
        return None if gone is None else lambda: self._add(pod, gone)

    def _add(self, pod: Pod, member: tuple[Seniority, int]) -> None:
        self._members.setdefault(gang_key(pod), {})[pod.uid] = member

    def _drop(self, pod: Pod) -> tuple[Seniority, int] | None:
        """Forgets a member, and its gang with the last one."""
        gang = gang_key(pod)
        members = self._members.get(gang, {})
        gone = members.pop(pod.uid, None)
        if gone is not None and not members:
            del self._members[gang]
        return gone

    def _record(self, pod: Pod) -> int | None:
        members = self._members.get(gang_key(pod))
        return min(members.values())[1] if members else None
