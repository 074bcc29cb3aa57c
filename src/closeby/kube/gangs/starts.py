"""The starts of gangs, and all bindings in flight: a state machine without input or output.

A binding can't be undone, so the plan of a gang's start is written before its first binding: should the
process end at any moment after that, the next leader finds in it where each member was to go.

An event goes in (``start_events``), and actions come out: what to write, what to bind, what to give back to
the engine. The plan of a start and its bindings have no other owner.
"""

from collections.abc import Callable, Iterator, Sequence

from closeby.kube.gangs.flights import Flights
from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import (
    BindingTurn,
    Bound,
    Decided,
    GivenBack,
    GroupGone,
    MemberGone,
    QueuePlan,
    Reconciled,
    Restarted,
    Review,
    StartAction,
    StartEvent,
    StatusWritten,
)
from closeby.kube.gangs.status import GangStanding
from closeby.kube.state.gated_pods import GatedPods
from closeby.kube.state.ownership import OwnGangs
from closeby.objects.pods import gang_key
from closeby.objects.reasons import Condition
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import BindFailed, BindingsWithdrawn
from closeby.scheduling.outcomes import Binding, Place


class _Plan:
    """The plan of one gang's start."""

    __slots__ = ("begun", "made", "reduced", "written")

    def __init__(self) -> None:
        #: Whether the start needs the plan and has not ended.
        self.begun = False
        #: Whether the gang was complete before, and lost members since.
        self.reduced = False
        #: When it was made (RFC 3339).
        self.made = ""
        #: Whether it stands in the status that was written last.
        self.written = False


class Starts:
    """All starts and bindings of one engine. Reads the engine and the gangs' objects, and changes neither."""

    def __init__(
        self,
        engine: Engine,
        objects: GangObjects,
        own: OwnGangs,
        needs_steps: Callable[[Binding], bool] | None = None,
        gated: GatedPods | None = None,
    ) -> None:
        """``own``: the gangs that this scheduler schedules.

        ``needs_steps``: whether something must be done before this binding, as for the pod's volumes.
        ``gated``: what is known of pods that another scheduler binds, where ours places them alone; that is
        what a binding stands for then.
        """
        self._engine = engine
        self._state = engine.state
        self._objects = objects
        self.own = own
        self._gated = gated
        self._flights = Flights(engine.recheck, needs_steps)
        self._plans: dict[str, _Plan] = {}

    def handle(self, event: StartEvent) -> list[StartAction]:
        """Takes in what happened; returns what is to be done, in this order."""
        match event:
            case BindingTurn(binding):
                return self._flights.turn(binding)
            case Decided(bindings, now):
                return self._decided(bindings, now)
            case Bound(binding):
                actions = self._flights.bound(binding)
                return (
                    actions if binding.pod.group is None else actions + self._settled(gang_key(binding.pod))
                )
            case GivenBack(failures):
                return [action for one in failures for action in self._given_back(one)]
            case Restarted(now):
                return self._restarted(now)
            case Reconciled():
                return [Review(key) for key in tuple(self._plans) if self._ended(key)]
            case MemberGone(key, now):
                self._member_gone(key, now)
            case GroupGone(key, now):
                self._group_gone(key, now)
            case StatusWritten(key, planned):
                self._status_written(key, planned)
            case _:
                return self._flights.handle(event)
        return []

    # What others ask

    @property
    def in_flight(self) -> int:
        """Bindings that have not ended."""
        return len(self._flights)

    @property
    def preparing(self) -> int:
        """Those of them that wait for steps before bindings, such as that volumes are bound."""
        return self._flights.preparing

    def wanted(self, binding: Binding) -> bool:
        """Whether the pod is still to be bound as this says."""
        return binding.pod.uid in self._state.pods and self._flights.wanted(binding)

    def standing(self, key: str, *, with_place: bool = False) -> GangStanding | None:
        """How a gang stands, if asked for with its members' place; None when there is none of that name."""
        state = self._state
        group = state.groups.get(key)
        if group is None:
            return None
        plan, cluster = self._plans.get(key), self._engine.cluster
        on = [(pod, cluster.placement(pod.uid)) for pod in state.placed(key)]
        waiting, told = state.waiting(key), self._engine.stories.refused
        nodes = [(pod, pod.node_name if slot is None else cluster.names[slot]) for pod, slot in on]
        return GangStanding(
            group=group,
            held=tuple([(pod, node) for pod, node in nodes if node]),
            on_the_way=self._on_the_way(key),
            not_bound=() if self._gated is None else self._gated.not_bound(key),
            waiting=waiting,
            unbound=tuple([told[one.uid] for one in (*state.placed(key), *waiting) if one.uid in told]),
            no_members=self.own.no_members(key),
            done=len(state.done(key)),
            outcome=self._engine.outcome(key),
            reservation=self._engine.reservation_of(key),
            ranks=state.ranks(key),
            begun=plan is not None and plan.begun,
            reduced=plan is not None and plan.reduced,
            place=self.place(key) if with_place else None,
            unmet=self.unmet(key) if with_place else None,
        )

    def _on_the_way(self, key: str) -> frozenset[str]:
        """uids of members that are there: what becomes of the binding of another is not said of its gang."""
        flying = self._flights.of_gang(key)
        if self._gated is not None:
            flying |= self._gated.of_gang(key)
        return frozenset(uid for uid in flying if uid in self._state.pods)

    def place(self, key: str) -> Place | None:
        """Where the gang's members are now; None when that is not known."""
        return self._engine.recheck.place(key)

    def unmet(self, key: str) -> Condition | None:
        """What the gang asks for, and its members do not meet where they are now; None where they do."""
        return self._engine.recheck.unmet(key)

    def unfinished(self) -> Iterator[GangStanding]:
        """Gangs with some members of a start bound, but too few."""
        for key in [key for key, plan in self._plans.items() if plan.begun and not plan.reduced]:
            standing = self.standing(key)
            if standing is not None and standing.unfinished:
                yield standing

    def plan_made(self, key: str) -> str:
        """When the plan of the gang's start was made (RFC 3339); empty when there is none."""
        plan = self._plans.get(key)
        return plan.made if plan is not None and plan.made else self._found(key)

    def plan_may_stand(self, key: str) -> bool:
        """Whether a plan may stand in the gang's status, by what was written or read last."""
        plan, group = self._plans.get(key), self._state.groups.get(key)
        return (plan is not None and plan.written) or (group is not None and bool(group.plan))

    # Decisions and their ends

    def _decided(self, bindings: Sequence[Binding], now: str) -> list[StartAction]:
        if not bindings or bindings[0].pod.group is None:
            return self._flights.begin(bindings) + self._flights.prepare(bindings)
        key = gang_key(bindings[0].pod)
        needs_plan = self._needs_plan(key, bindings)
        actions = self._flights.begin(bindings)
        if needs_plan:
            plan = self._begin(key, now)
            if plan.reduced:  # This start makes up for members that were lost.
                plan.reduced, plan.made = False, now
            return [*actions, QueuePlan(key, tuple(bindings))]
        group = self._state.groups.get(key)
        if group is not None and any(binding.pod.uid in group.plan for binding in bindings):
            self._begin(key, now)
        return actions + self._flights.prepare(bindings)

    def _needs_plan(self, key: str, bindings: Sequence[Binding]) -> bool:
        """Whether these bindings could leave the gang with some members bound but too few.

        What stands in the cluster already need not be written again.
        """
        group = self._state.groups.get(key)
        if group is None:
            return False
        plan = self._plans.get(key)
        if plan is not None and plan.begun:
            return any(group.plan.get(binding.pod.uid) != binding.node for binding in bindings)
        flying = {*self._flights.of_gang(key), *(binding.pod.uid for binding in bindings)}
        before = sum(pod.uid not in flying for pod in self._state.placed(key))
        return len(bindings) > 1 and before < group.min_member and group.can_be_partial

    def _given_back(self, failure: BindFailed | BindingsWithdrawn) -> list[StartAction]:
        if isinstance(failure, BindFailed):
            return self._settled(self._flights.given_back(failure.uid))
        for uid in failure.uids:
            self._flights.given_back(uid)
        if failure.gang is None:
            return []
        self._ended(failure.gang)
        return [Review(failure.gang, waits=True)]

    def _settled(self, key: str | None) -> list[StartAction]:
        """The gang's status is to be written once none of its bindings is in flight."""
        if key is None or self._flights.any_of_gang(key):
            return []
        self._ended(key)
        return [Review(key)]

    # Plans

    def _begin(self, key: str, now: str) -> _Plan:
        """The gang's start needs a plan. One that is planned again began when it was planned first."""
        plan = self._plans.setdefault(key, _Plan())
        plan.begun = True
        plan.made = plan.made or self._found(key) or now
        return plan

    def _found(self, key: str) -> str:
        """When the plan that stands in the cluster was made (RFC 3339); empty when there is none."""
        group = self._state.groups.get(key)
        record = None if group is None else self._objects.record_of(group)
        return "" if record is None else record.plan_made

    def _ended(self, key: str) -> bool:
        """Ends a start that needs its plan no more; returns whether it did so now.

        While the PodGroup is gone that is not known: it may be made again, and then the plan must be written
        on the new one.
        """
        plan, standing = self._plans.get(key), self.standing(key)
        if plan is None or not plan.begun:
            return False
        if standing is None:
            over = not self._flights.any_of_gang(key) and not self._state.placed(key)
        else:
            over = not standing.starting
        if over:
            plan.begun = plan.reduced = False
            self._tidy(key, plan)
        return over

    def _status_written(self, key: str, planned: bool) -> None:
        plan = self._plans.setdefault(key, _Plan())
        plan.written = planned
        self._tidy(key, plan)

    def _group_gone(self, key: str, now: str) -> None:
        plan = self._plans.get(key)
        self.own.forget(key)
        if plan is not None:
            plan.written, plan.made = False, now
            self._tidy(key, plan)

    def _tidy(self, key: str, plan: _Plan) -> None:
        if not plan.begun and not plan.written:
            self._plans.pop(key, None)

    def _member_gone(self, key: str, now: str) -> None:
        """Fewer members than a gang of ours needs never stand there without a plan."""
        standing = self.standing(key) if key in self.own else None
        if standing is not None and standing.bound and not standing.enough and not standing.begun:
            self._begin(key, now).reduced = True

    def _restarted(self, now: str) -> list[StartAction]:
        """Each start that was begun earlier has come to its end, or the next decision carries it on.

        Another scheduler's starts are its own affair.
        """
        groups = self._state.groups.values()
        planned = [group for group in groups if group.plan and self.own.may_write(group)]
        for group in planned:
            if group.key not in self.own:  # No member is left that could be bound.
                continue
            # The plan of a start names members that are not bound yet.
            bound = {pod.uid for pod in self._state.placed(group.key)}
            self._begin(group.key, now).reduced = group.plan.keys() <= bound
        return [Review(group.key, waits=True) for group in planned]
