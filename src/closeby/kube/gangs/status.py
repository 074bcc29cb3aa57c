"""What the status of a gang's PodGroup says: pure functions of what is known about the gang.

``Scheduled`` is the condition that tells how far the gang is; ``Valid`` is there when something is wrong with
what the gang asks for, ``PriorityLimited`` when the priority that it names does not count, ``VolumesBound``
when a volume of a member could not be had, ``ConstraintsMet`` when bound members do not meet what is asked.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from closeby.kube.writing.writer import LONGEST_MESSAGE
from closeby.objects.bounds import sentences
from closeby.objects.groups import PodGroup
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.objects.recorded import DecisionStatus
from closeby.reading.common.plans import PlanWire, planned_nodes
from closeby.scheduling.outcomes import Leftover, Outcome, Place, Reservation

SCHEDULED: Final = "Scheduled"
VALID: Final = "Valid"
#: False where a volume of a member could not be had as it was decided, until the gang is placed.
VOLUMES_BOUND: Final = "VolumesBound"
#: True where the priority that the gang names does not count: its pods were admitted with less.
PRIORITY_LIMITED: Final = str(Reason.PRIORITY_LIMITED)
#: False where bound members do not meet what the gang asks for by now.
CONSTRAINTS_MET: Final = "ConstraintsMet"
#: Reasons of ``Scheduled`` besides the tokens of refusals: all is well, and bindings are on their way.
PLACED: Final = "Placed"
STARTING: Final = "Starting"
#: Some members are bound and it is not known yet what becomes of the others.
PARTLY_PLACED: Final = "PartlyPlaced"
#: Another scheduler is to bind the members, and says that it can't bind some.
NOT_BOUND: Final = "NotBound"


class GangStanding(Struct, frozen=True, kw_only=True):
    """How a gang stands."""

    group: PodGroup
    #: Members that hold a node, with its name, be it that their binding is still on the way.
    held: tuple[tuple[Pod, str], ...]
    #: uids of members whose binding is on the way; some of them may hold their node no more.
    on_the_way: frozenset[str] = frozenset()
    #: Why another scheduler can't bind members that were placed for it; these are on the way too.
    not_bound: tuple[str, ...] = ()
    waiting: tuple[Pod, ...]
    #: Why other pods that name it are no members, and what to do; empty where there are none.
    no_members: str = ""
    #: Members that have done their work.
    done: int = 0
    #: The newest decision, if one is remembered.
    outcome: Outcome | None = None
    #: The nodes that are kept free for it now.
    reservation: Reservation | None = None
    #: uid -> rank of the members that hold a node.
    ranks: Mapping[str, int] = {}
    #: Whether its start was written down and has not come to its end.
    begun: bool = False
    #: Whether it was complete before, and lost members since.
    reduced: bool = False
    #: Where the members that hold a node are now; None when that was not asked, or is not known.
    place: Place | None = None
    #: Members that can't be bound where they were placed.
    unbound: tuple[Leftover, ...] = ()
    #: What it asks for and its members do not meet, likewise.
    unmet: Condition | None = None

    @property
    def present(self) -> bool:
        """Whether there is any member: of a gang whose pods are all gone nothing new can be said."""
        return bool(self.held or self.waiting or self.done)

    @property
    def bound(self) -> int:
        """Members that are bound."""
        return sum(pod.uid not in self.on_the_way for pod, _ in self.held)

    @property
    def refused(self) -> str:
        """What the server says where it refuses a binding, or what comes before it; empty if it does not."""
        return next((one.message for one in self.unbound if one.reason is Reason.BINDING_REFUSED), "")

    @property
    def no_volume(self) -> str:
        """Which volume of which member could not be had as it was decided; empty if all could."""
        found = (one for one in self.unbound if one.reason is Reason.VOLUME_NOT_BINDABLE)
        return next((f"{one.pod.name}: {one.message}" for one in found), "")

    @property
    def unfinished(self) -> bool:
        """Whether some members of a start are bound, but too few."""
        return self.begun and bool(self.bound) and not self.enough

    @property
    def enough(self) -> bool:
        """Whether as many are bound (or have done their work) as the gang needs."""
        return self.bound + self.done >= self.group.min_member

    @property
    def starting(self) -> bool:
        """Whether the plan of its start must stay written down."""
        return self.begun and bool(self.held) and (bool(self.on_the_way) or self.unfinished)


class Said(Struct, frozen=True):
    """A condition without its times."""

    type: str
    true: bool
    reason: str
    message: str


def scheduled(standing: GangStanding) -> Said:
    """How far the gang is."""
    bound, refused = standing.bound, standing.refused
    if standing.on_the_way and not standing.enough:
        count = bound + len(standing.on_the_way)
        message = f"{bound} of {count} members are bound, the others are on their way{_where(standing)}"
        reason = NOT_BOUND if standing.not_bound else STARTING
        if refused:
            reason = str(Reason.BINDING_REFUSED)
            message = f"{bound} of {count} members are bound{_where(standing)}; {refused}"
        return Said(SCHEDULED, False, reason, message + _in_the_way(standing))
    refusal = _refusal(standing)
    if standing.enough and (bound or standing.done or refusal is None):
        message = f"{_members(bound)} placed{_where(standing)}"
        if standing.done:
            message += f", {standing.done} finished"
        if refusal is not None:
            message += f"; {_members(len(standing.waiting))} waiting: {refusal[1]}"
        elif refused:
            message += f"; {refused}"
        return Said(SCHEDULED, True, PLACED, message + _in_the_way(standing))
    others = "the others are to be placed again" if standing.waiting else "the others have not appeared"
    reason, why = refusal or (PARTLY_PLACED if bound else str(Reason.GANG_INCOMPLETE), others)
    if not standing.present:
        why = "no member is there"
    if reason == Reason.GANG_INCOMPLETE and standing.no_members:
        why = f"{why}; {standing.no_members}"
    if bound:
        minimum = standing.group.min_member
        why = f"{bound} of at least {minimum} members are placed{_where(standing)}; {why}"
    return Said(SCHEDULED, False, reason, why)


def valid(standing: GangStanding) -> Said | None:
    """What is wrong with what the gang asks for; None if nothing is, as far as that is known."""
    conditions = [one for one in _conditions(standing) if one.reason is not Reason.PRIORITY_LIMITED]
    if not conditions:
        return None
    found = tuple(dict.fromkeys(one.located() for one in conditions))
    return Said(VALID, False, str(conditions[0].reason), sentences(found, most=LONGEST_MESSAGE))


def volumes_bound(no_volume: str) -> Said:
    """Which volume could not be had last, or that all are there."""
    if no_volume:
        return Said(VOLUMES_BOUND, False, str(Reason.VOLUME_NOT_BINDABLE), no_volume)
    return Said(VOLUMES_BOUND, True, VOLUMES_BOUND, "the members have their volumes")


def constraints_met(standing: GangStanding) -> Said:
    """What the bound members do not meet of what the gang asks for now, or that they do."""
    unmet = standing.unmet
    if unmet is None or not standing.bound:
        return Said(CONSTRAINTS_MET, True, CONSTRAINTS_MET, "the members meet what it asks for")
    why = f"members run where it does not ask for any more: {unmet.sentence()}"
    remedy = "delete them to have the gang placed again, or ask for what they meet"
    return Said(CONSTRAINTS_MET, False, str(unmet.reason), f"{why}; {remedy}")


def limited(standing: GangStanding) -> Said | None:
    """Which field of the pods' template to set, where the priority that the gang names does not count."""
    for one in _conditions(standing):
        if one.reason is Reason.PRIORITY_LIMITED:
            return Said(PRIORITY_LIMITED, True, str(one.reason), one.located())
    return None


def last_decision(standing: GangStanding, before: DecisionStatus | None, now: str) -> DecisionStatus | None:
    """The newest decision; ``before``, which was written last, stays where nothing was decided since."""
    outcome = standing.outcome
    if outcome is None:
        return before
    reason, message = outcome.reason, outcome.message or ""
    if reason is None and outcome.left:
        reason, message = outcome.left[0].reason, outcome.left[0].message
    decided = DecisionStatus(time=now, reason=None if reason is None else str(reason), message=message)
    same = before is not None and (before.reason, before.message) == (decided.reason, decided.message)
    return before if same else decided


def plan(standing: GangStanding, made: str) -> PlanWire | None:
    """Where each member goes: that of those which hold a node, and what was promised to those that do not."""
    if not standing.starting:
        return None
    before = standing.group.plan
    promised = [(pod, before[pod.uid]) for pod in standing.waiting if pod.uid in before]
    place = standing.place
    return PlanWire(
        topology=place.topology if place is not None else None,
        level=place.level if place is not None else None,
        domain=[value or "" for value in place.path] if place is not None else None,
        made=made,
        nodes=planned_nodes([*standing.held, *promised]),
    )


def path_of(place: Place | None) -> str:
    """Path of the tightest domain that holds the gang; empty when that is the whole cluster or not known."""
    return "" if place is None or place.level is None else "/".join(value or "" for value in place.path)


def _conditions(standing: GangStanding) -> Sequence[Condition]:
    outcome = standing.outcome
    return standing.group.conditions if outcome is None else outcome.conditions


def _where(standing: GangStanding) -> str:
    place = path_of(standing.place)
    return f" in {place}" if place else ""


def _in_the_way(standing: GangStanding) -> str:
    """Of the first member that can't be bound, what is in the way."""
    found = standing.not_bound
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"; {found[0]}{more}"


def _members(count: int) -> str:
    return "1 member is" if count == 1 else f"{count} members are"


def _refusal(standing: GangStanding) -> tuple[str, str] | None:
    """Reason and message of the newest decision, if members wait for it."""
    outcome = standing.outcome
    if outcome is None or not standing.waiting:
        return None
    if outcome.reason is not None:
        kept = standing.reservation
        message = outcome.message or ""
        return str(outcome.reason), message if kept is None else f"{message}; {kept.sentence()}"
    if outcome.left:
        return str(outcome.left[0].reason), outcome.left[0].message
    return None
