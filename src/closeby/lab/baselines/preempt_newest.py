"""preempt-newest: whole gangs, those of the lowest priority that started last first.

That is Kueue's rule inside one queue (0.20, pkg/scheduler/preemption, ``CandidatesOrdering`` and
``minimalPreemptions``): candidates go one after another until the item fits, the one of lower priority first,
of equal ones the one that was admitted last; then those that are not needed come back, the last one first.
Which domain that frees does not matter to the order. Quotas and queues are no part of it.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from closeby.objects.arrays import Amounts, Bools, Ints
from closeby.objects.pods import Pod
from closeby.scheduling.placing.tools import Placed
from closeby.scheduling.preemption.domains import DomainChoice, GangQuestion
from closeby.scheduling.preemption.nodes import NodeChoice, PodQuestion
from closeby.scheduling.preemption.room import NodeRoom, of_domains, room_of
from closeby.scheduling.preemption.rule import Preempts
from closeby.scheduling.preemption.units import Victims, as_unit, cost_of
from closeby.topology.tree import ROOT, ROOT_LEVEL, Domain, Tree


class PreemptNewest(Preempts):
    """Chooses victims by age alone."""

    name: ClassVar[str] = "preempt-newest"

    def domain_for(self, question: GangQuestion, victims: Victims) -> DomainChoice | None:
        gone = self._chosen(victims, question, question.tree, question.level)
        placed = None if gone is None else question.places_without(victims, _pods(victims, gone))
        if gone is None or not placed:
            return None
        tree, level = question.tree, question.level
        slot = np.asarray([placed[0][1]], dtype=np.intp)
        at = ROOT if level == ROOT_LEVEL else Domain(level, int(tree.owners_of_slots(slot, level)[0]))
        return DomainChoice(
            tree=tree,
            domain=at,
            cost=cost_of(victims.running, gone),
            units=(as_unit(victims.running, gone),),
            placed=placed,
            exact=False,
        )

    def node_for(self, question: PodQuestion, victims: Victims) -> NodeChoice | None:
        gone = self._chosen(victims, question, question.tree, ROOT_LEVEL)
        placed: tuple[Placed, ...] | None = None
        if gone is not None:
            placed = question.places_without(victims, _pods(victims, gone))
        if gone is None or not placed:
            return None
        return NodeChoice(
            node=self.handle.cluster.node_at(placed[0][1]).name,
            cost=cost_of(victims.running, gone),
            units=(as_unit(victims.running, gone),),
            placed=placed,
        )

    def _chosen(
        self, victims: Victims, question: GangQuestion | PodQuestion, tree: Tree, level: int
    ) -> list[int] | None:
        """Indices of the pods that go; None where all of them are not enough."""
        running = victims.running
        room = room_of(running, question.kinds, victims.leaving, victims.pods)
        holders: dict[int, list[int]] = {}
        for one in victims.pods.tolist():
            if victims.whole[running.holder_of[one]]:
                holders.setdefault(int(running.holder_of[one]), []).append(one)
        ordered = sorted(
            holders.values(),
            key=lambda pods: (
                int(running.priorities[pods].max()),
                -float(running.started[pods].max()),
                running.pods[pods[0]].key,
            ),
        )
        free = room.free.copy()
        taken: list[list[int]] = []
        for pods in ordered:
            if _enough(room, free, tree, level):
                break
            _give(running.slots, room, free, pods, 1)
            taken.append(pods)
        if not taken or not _enough(room, free, tree, level):
            return None
        for pods in taken[-2::-1]:
            _give(running.slots, room, free, pods, -1)
            if _enough(room, free, tree, level):
                taken.remove(pods)
            else:
                _give(running.slots, room, free, pods, 1)
        return [one for pods in taken for one in pods]


def _pods(victims: Victims, gone: Sequence[int]) -> list[Pod]:
    return [victims.running.pods[one] for one in gone]


def _give(slots: Ints, room: NodeRoom, free: Amounts, pods: Sequence[int], sign: int) -> None:
    """What some pods take becomes free; with -1 they are back."""
    for row, amounts in enumerate(room.taken):
        np.add.at(free[row], slots[list(pods)], sign * amounts[list(pods)])


def _enough(room: NodeRoom, free: Amounts, tree: Tree, level: int) -> bool:
    """Whether all pods fit into one domain of the level."""
    holds: Bools = np.ones(1, dtype=np.bool_) if level == ROOT_LEVEL else tree.labelled[level].copy()
    for kind in room.kinds:
        holds &= of_domains(tree, level, kind.fits(free)) >= kind.wanted
    return bool(holds.any())
