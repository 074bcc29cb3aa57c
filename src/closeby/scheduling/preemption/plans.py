"""The plans in force: from the decision until the preemptor has its place, or the plan is given up.

While victims leave there is no second plan for an item. The nodes of a plan are kept free from all that goes
after the preemptor, and no other plan has its victims.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from closeby.objects.pods import Pod, gang_key
from closeby.scheduling.judging.holds import Comer, Hold, HoldKind
from closeby.scheduling.outcomes import ItemKind, Preemption, PreemptionEnded, kind_of
from closeby.scheduling.placing.tools import Tools

#: Seconds for which a preemptor backs off after its first plans came to nothing, and at most; they double.
_BACKOFF: Final = 5.0
_LONGEST_BACKOFF: Final = 600.0
#: Plans of one preemptor that may come to nothing before it backs off.
_AT_ONCE: Final = 1


class PlanState(Enum):
    """What becomes of victims of a plan that may still be spared."""

    #: The item fits only without some of them.
    NEEDED = "needed"
    #: The item fits as soon as the other victims are gone.
    ENOUGH = "enough"
    #: The item does not fit, even without all victims.
    LOST = "lost"
    #: The plan is in force no more.
    ENDED = "ended"


class PlanInForce(NamedTuple):
    """A plan, and what is known of it here."""

    said: Preemption
    #: Who gets the room: the item's key, or of an application the pod's uid.
    by: str
    number: int
    victims: frozenset[str]


def by_of(said: Preemption) -> str:
    """Who gets the room, as in ``PlanInForce.by``."""
    return said.places[0][0] if kind_of(said.item) is ItemKind.APPLICATION else said.item


class Plans:
    """All plans in force, the oldest first. Plans share neither victims nor nodes."""

    def __init__(self, tools: Tools, pods: Mapping[str, Pod]) -> None:
        """``pods``: all that are there, by uid."""
        self._tools = tools
        self._pods = pods
        self._plans: dict[str, PlanInForce] = {}
        self._number = 0
        #: What an item had to keep off last.
        self._hold: Hold | None = None
        self._ended: list[PreemptionEnded] = []
        #: By preemptor: plans that came to nothing, and until when it backs off (seconds since the epoch).
        self._backoffs: dict[str, tuple[int, float]] = {}

    def __iter__(self) -> Iterator[PlanInForce]:
        return iter(tuple(self._plans.values()))

    def __bool__(self) -> bool:
        return bool(self._plans)

    def of(self, by: str) -> PlanInForce | None:
        """The plan of one preemptor."""
        return self._plans.get(by)

    def find(self, said: Preemption) -> PlanInForce | None:
        """This very plan; None when it is in force no more."""
        plan = self._plans.get(by_of(said))
        return plan if plan is not None and (plan.said is said or plan.said == said) else None

    def take(self, said: Preemption, now: float | None) -> None:
        """A plan is in force. Plans of less priority that had some of its nodes or victims have lost them.

        So have those that count on other members of a gang that loses members: both together may leave less
        of it than its minimum.
        """
        nodes, victims = set(said.nodes), frozenset(pod.uid for pod in said.victims)
        gangs = _gangs(said.victims)
        for plan in self:
            if not nodes.isdisjoint(plan.said.nodes):
                self.end(plan.by, "pods of higher priority take its nodes", now)
            elif plan.said.priority < said.priority and (
                not victims.isdisjoint(plan.victims) or not gangs.isdisjoint(_gangs(self.left(plan)))
            ):
                self.end(plan.by, "pods of higher priority take its victims", now)
        by = by_of(said)
        self._number += 1
        self._plans[by] = PlanInForce(said, by, self._number, victims)

    def end(self, by: str, why: str, now: float | None) -> bool:
        """The preemptor has its place (``why`` is empty), or its plan is given up; False without a plan."""
        plan = self._plans.pop(by, None)
        if plan is None:
            return False
        self._ended.append(PreemptionEnded(plan=plan.said, why=why))
        self._tools.holds.version += 1
        if why and now is not None:
            count = self._backoffs.get(by, (0, 0.0))[0] + 1
            backoff = 0.0 if count <= _AT_ONCE else min(_BACKOFF * 2.0 ** min(count, 16), _LONGEST_BACKOFF)
            self._backoffs[by] = count, now + backoff
        return True

    @property
    def any_failed(self) -> bool:
        """Whether plans of any preemptor that waits came to nothing."""
        return bool(self._backoffs)

    def backoff(self, by: str, now: float) -> float | None:
        """Until when a preemptor backs off whose plans came to nothing; None if it does not."""
        until = self._backoffs[by][1] if by in self._backoffs else now
        return until if now < until else None

    def forget(self, by: str) -> None:
        """The preemptor was placed, or is gone."""
        self._backoffs.pop(by, None)

    def take_ended(self) -> list[PreemptionEnded]:
        """The plans that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def planned(self, priority: int) -> set[str]:
        """uids of the victims of all plans of at least this priority; those of others may be had."""
        plans = (plan for plan in self._plans.values() if plan.said.priority >= priority)
        return {uid for plan in plans for uid in plan.victims}

    def left(self, plan: PlanInForce) -> tuple[Pod, ...]:
        """The victims that are still there, as they are now."""
        return tuple(pod for one in plan.said.victims if (pod := self._pods.get(one.uid)) is not None)

    def any_left(self, plan: PlanInForce) -> bool:
        """Whether a victim is still there. That is asked for each one that leaves."""
        return not self._pods.keys().isdisjoint(plan.victims)

    def last_victim_of(self, uid: str) -> str | None:
        """The item whose plan waited for this pod alone, which is gone; None if there is none."""
        for plan in self._plans.values():
            if uid in plan.victims:
                return None if self.any_left(plan) else plan.said.item
        return None

    def off(self, comer: Comer) -> Hold | None:
        """The nodes that an item must keep off: those cleared for others of at least its priority.

        Of an application it may also be one pod (by uid), which keeps off those of its other pods too.
        """
        plans = [
            plan
            for plan in self._plans.values()
            if comer.key not in (plan.said.item, plan.by) and plan.said.priority >= comer.priority
        ]
        if not plans:
            return None
        cluster = self._tools.cluster
        number = cluster.structure, frozenset(plan.number for plan in plans)
        if self._hold is None or self._hold.number != number:
            mask = np.zeros(cluster.capacity, dtype=np.bool_)
            found = (cluster.slot(node) for plan in plans for node in plan.said.nodes)
            mask[[slot for slot in found if slot is not None]] = True
            self._hold = Hold(HoldKind.PLAN, number, mask, _cleared)
        return self._hold

    def validate(self) -> None:
        """Assert that plans share neither victims nor nodes."""
        victims = [uid for plan in self._plans.values() for uid in plan.victims]
        assert len(victims) == len(set(victims)), "two plans have a victim in common"
        nodes = [node for plan in self._plans.values() for node in plan.said.nodes]
        assert len(nodes) == len(set(nodes)), "two plans share a node"


def _cleared(slot: int, namespace: str) -> str:
    """Why an item must keep off."""
    return "it is cleared for pods of at least the same priority"


def _gangs(victims: Iterable[Pod]) -> set[str]:
    """The gangs of victims that do not leave yet."""
    return {gang_key(pod) for pod in victims if pod.group is not None and not pod.terminating}
