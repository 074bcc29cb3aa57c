"""What a scheduler says about a pod, gang or application: in its status, and in the story that it serves."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from closeby.objects.reasons import Problem
from closeby.objects.words import path_text, plural

#: Pods of a plan that are written with their names; of more their uids alone. etcd keeps no object above
#: 1.5 MiB.
MOST_NAMES: Final = 2_000


class Recorded(Struct, frozen=True, kw_only=True):
    """One entry of ``status.conditions``, and whose it is (``Kind/namespace/name``)."""

    #: Whose it is.
    object: str
    #: The condition's type.
    type: str
    #: `True`, `False` or `Unknown`.
    status: str
    reason: str
    message: str
    #: ``lastTransitionTime``; empty when it is not set.
    since: str


class DecisionStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``status.lastDecision`` of a PodGroup: what the scheduler decided last, and since when it does."""

    #: RFC 3339.
    time: str
    #: Why the gang, or some of its members, wait: a reason token; None when all of them got a node.
    reason: str | None = None
    message: str = ""


class ReservationStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``status.reservation`` of a PodGroup: the nodes that the scheduler keeps free for the gang."""

    #: How many they are.
    nodes: int
    #: The topology of the tightest domain that holds them.
    topology: str = ""
    #: The level of that domain; not there when only the whole cluster holds them.
    level: str | None = None
    #: The path of that domain.
    domain: tuple[str, ...] = ()
    #: Since when nodes are kept: RFC 3339, or ``second 600`` of a clock without a date.
    since: str
    #: By when the gang is expected to have the room on them, likewise; not there where that is not known.
    expected: str | None = None
    #: Pods of the gang without room on these nodes when they were chosen.
    missing: int = 0
    #: Why they are not kept any more: ``ReservationBudgetSpent``; not there while they are.
    reason: str | None = None
    #: From when on the gang may keep nodes again, as ``since``; there with ``reason``.
    resumes: str | None = None

    @property
    def where(self) -> str:
        """Such as ``16 nodes of zone-a/rack-1``."""
        return f"{plural(self.nodes, 'node')} of {path_text(self.domain)}"

    @property
    def are(self) -> str:
        """The verb that agrees with the number of nodes."""
        return "is" if self.nodes == 1 else "are"

    @property
    def why(self) -> str:
        """Why they are not kept any more."""
        return f"as much has idled there as its reserveBudget allows, so it keeps none until {self.resumes}"

    def released(self, why: str) -> str:
        """For the gang, once they are not kept any more."""
        return f"{self.where} {self.are} no longer reserved for it: {why}"

    def sentence(self) -> str:
        """For the gang."""
        if self.resumes is not None:
            return self.released(self.why)
        said = f"{self.where} {self.are} reserved for it since {self.since}"
        return said if self.expected is None else f"{said}, expected to have the room by {self.expected}"


class PlannedMember(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``nodes[].pods[]`` of a plan of preemption."""

    name: str = ""
    uid: str = ""


class ClearedNode(Struct, frozen=True, kw_only=True):
    """``nodes[]`` of a plan of preemption: a node that is kept free, and the members that are to go there."""

    name: str
    pods: tuple[PlannedMember, ...] = ()


class PreemptionVictim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``victims[]`` of a plan of preemption."""

    uid: str
    #: Of a pod in the preemptor's namespace: its owner does not learn the names of others.
    name: str = ""


class PreemptionCost(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """``cost`` of a plan of preemption, as in the report of a simulation."""

    #: Victims whose eviction a PodDisruptionBudget does not allow.
    pdb_violations: int = 0
    #: The highest priority of a victim; null without victims.
    highest_priority: int | None = None
    #: Gangs that are left with fewer members than their minimum.
    gangs_broken: int = 0
    #: Accelerators times the seconds since each victim's start or last checkpoint, and `restartCost`.
    lost_accelerator_seconds: float = 0.0
    #: Accelerators of the victims; thousandths of a CPU where no node has an accelerator.
    accelerators: int = 0
    #: Those of them on nodes outside of the domain.
    outside: int = 0
    #: How many victims there are.
    pods: int = 0
    #: Seconds until the last of them is gone: the longest grace to terminate.
    seconds_to_end: int = 0


class PreemptionStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``status.preemption`` of a PodGroup: the plan by which pods are evicted for the gang.

    It is written before the first eviction, and stands until the gang is placed or the plan is given up, or
    longer while victims are left that may have to go all the same.
    """

    #: Names the plan, in Events too.
    id: str
    #: RFC 3339.
    made: str
    #: The topology of the domain that is cleared.
    topology: str = ""
    #: Its level; not there for the whole cluster.
    level: str | None = None
    #: Its path.
    domain: tuple[str, ...] = ()
    nodes: tuple[ClearedNode, ...] = ()
    victims: tuple[PreemptionVictim, ...] = ()
    cost: PreemptionCost = PreemptionCost()


class EvictionStatus(Struct, frozen=True, kw_only=True):
    """``evictions[]`` of a PodGroup's status: pods of the gang were evicted for a plan of preemption."""

    #: RFC 3339.
    time: str
    #: The preemptor's.
    priority: int
    #: Names the plan.
    plan: str = ""


class PodDecision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest decision about one pod: its node, or why it waits."""

    name: str
    uid: str
    node: str | None = None
    #: A reason token.
    reason: str | None = None
    #: Empty where it is that of the whole item.
    message: str = ""
    #: RFC 3339; empty where the scheduler's clock is not known.
    time: str = ""


class StoryLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a story."""

    #: How many events the engine had handled by then.
    event: int
    #: What happened.
    what: str
    #: Of a decision: when it was made.
    time: str = ""
    #: Of a decision: why something waits.
    reason: str | None = None
    message: str | None = None
    #: Of a decision: how many pods got a node.
    placed: int = 0
    #: Of a decision: how many pods wait.
    waiting: int = 0


class RefusedVolume(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The volume of a claim could not be had for a node of late."""

    #: ``namespace/name`` of the claim.
    claim: str
    node: str
    #: For people.
    why: str
    #: Name of the volume that was to be bound; empty where one was to be made.
    volume: str = ""
    #: Whether that holds for all nodes of which its driver says that they reach the same volumes.
    near: bool = False
    #: For how long the node is not chosen again for the claim.
    seconds: float = 0.0


class Story(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a scheduler at work knows of one name, as it serves it; the oldest entries first."""

    api_version: str
    kind: str
    namespace: str
    name: str
    #: Whose pods it schedules; empty from a version that did not say.
    scheduler: str = ""
    entries: tuple[StoryLine, ...] = ()
    last_decision: DecisionStatus | None = None
    pods: tuple[PodDecision, ...] = ()
    reservation: ReservationStatus | None = None
    #: Of the claims of its pods that wait.
    refused_volumes: tuple[RefusedVolume, ...] = ()


class PodCondition(Struct, frozen=True, kw_only=True):
    """``PodScheduled`` of one pod: whether it is bound, and since when."""

    bound: bool
    #: The condition's reason, such as ``Unschedulable``; a bound pod has none.
    reason: str
    message: str
    since: str


class SchedulerStatus(Struct, frozen=True, kw_only=True):
    """What schedulers say about a pod, gang or application; empty where nothing is known.

    An older version may have written it in another way, which is not known either.
    """

    conditions: tuple[Recorded, ...] = ()
    last_decision: DecisionStatus | None = None
    reservation: ReservationStatus | None = None
    #: By name, of the pods that were read.
    pods: Mapping[str, PodCondition] = {}
    #: Of the scheduler at work; None where it was not asked, did not answer, or knows nothing.
    story: Story | None = None
    #: Why the scheduler could not be asked.
    unasked: Problem | None = None
