"""What happens to bindings and to the starts of gangs, and what is to be done about it.

``Starts.handle`` takes an event and returns actions. A binding is named by its record: of two for one pod
only the newer one counts.
"""

from msgspec import Struct

from closeby.scheduling.events import BindFailed, BindingsWithdrawn
from closeby.scheduling.outcomes import Binding

# Events. ``now`` is the present time as RFC 3339.


class Decided(Struct, frozen=True):
    """The engine decided these bindings together: members of one gang, or plain pods."""

    bindings: tuple[Binding, ...]
    now: str


class PlanTurn(Struct, frozen=True):
    """The plan for these bindings could be written now."""

    bindings: tuple[Binding, ...]


class PlanWritten(Struct, frozen=True):
    """The plan for these bindings stands in the cluster."""

    bindings: tuple[Binding, ...]


class PlanRefused(Struct, frozen=True):
    """The plan for these bindings can't be written."""

    bindings: tuple[Binding, ...]
    why: str


class Prepared(Struct, frozen=True):
    """The steps before this binding are done."""

    binding: Binding


class StepFailed(Struct, frozen=True):
    """A step before this binding failed: no member of its gang is wanted where it was to go."""

    binding: Binding
    why: str


class PreparationFailed(Struct, frozen=True):
    """The same, after a rest: it is given back. Some steps may have had an effect."""

    binding: Binding
    why: str


class BindingTurn(Struct, frozen=True):
    """This binding could be sent now."""

    binding: Binding


class Missed(Struct, frozen=True):
    """An attempt to bind had no effect, or (``in_doubt``) that is not known."""

    binding: Binding
    in_doubt: bool


class NoEffect(Struct, frozen=True):
    """The pod was read: no attempt to bind it had an effect, and none will have one."""

    binding: Binding


class Bound(Struct, frozen=True):
    """The pod is bound."""

    binding: Binding


class BindRefused(Struct, frozen=True):
    """The pod is not bound, and no attempt is on its way."""

    binding: Binding
    failure: BindFailed


class GivenBack(Struct, frozen=True):
    """The engine took in failures that a ``GiveBack`` named: the pods hold no node any more."""

    failures: tuple[BindFailed | BindingsWithdrawn, ...]


class MemberGone(Struct, frozen=True):
    """The gang lost a member."""

    key: str
    now: str


class GroupGone(Struct, frozen=True):
    """The PodGroup was deleted; another one of its name may follow."""

    key: str
    now: str


class StatusWritten(Struct, frozen=True):
    """The status of the gang's PodGroup was written, with a plan (``planned``) or without one."""

    key: str
    planned: bool


class Restarted(Struct, frozen=True):
    """This process leads from now on: the plans that stand in the cluster are its own."""

    now: str


class Reconciled(Struct, frozen=True):
    """Some time has passed: members may have finished, or the minimum may be another one."""


class LeadLost(Struct, frozen=True):
    """This process may bind nothing more: it lost the lead, or it stops."""


#: What concerns bindings in flight alone, besides turns and what is bound.
FlightEvent = (
    PlanTurn
    | PlanWritten
    | PlanRefused
    | Prepared
    | StepFailed
    | PreparationFailed
    | Missed
    | NoEffect
    | BindRefused
    | LeadLost
)
StartEvent = (
    FlightEvent
    | BindingTurn
    | Bound
    | Decided
    | GivenBack
    | MemberGone
    | GroupGone
    | StatusWritten
    | Restarted
    | Reconciled
)

# Actions


class QueuePlan(Struct, frozen=True):
    """Ask by a ``PlanTurn`` as soon as the plan for these bindings can be written."""

    key: str
    bindings: tuple[Binding, ...]


class WritePlan(Struct, frozen=True):
    """Write the plan of the gang now."""

    key: str


class Prepare(Struct, frozen=True):
    """Run the steps that this binding needs before it."""

    binding: Binding


class Undo(Struct, frozen=True):
    """Undo the steps that ran before this binding: it is not sent."""

    binding: Binding


class QueueBinding(Struct, frozen=True):
    """Ask by a ``BindingTurn`` as soon as this binding can be sent."""

    binding: Binding


class SendBinding(Struct, frozen=True):
    """Send the binding now."""

    binding: Binding


class ReadPod(Struct, frozen=True):
    """Send nothing; read the pod to learn whether an earlier attempt had an effect."""

    binding: Binding


class GiveBack(Struct, frozen=True):
    """Pass this on to the engine, then report it by ``GivenBack``."""

    failure: BindFailed | BindingsWithdrawn


class Review(Struct, frozen=True):
    """What the status of the gang says may not be true any more.

    ``waits``: members wait again, which is written only if that is still so in a moment.
    """

    key: str
    waits: bool = False


StartAction = (
    QueuePlan | WritePlan | Prepare | Undo | QueueBinding | SendBinding | ReadPod | GiveBack | Review
)
