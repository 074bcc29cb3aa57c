"""A gang's start in a model of a cluster: the engine and the state machine are real, all else is played.

A history is a sequence of moves. What must hold is asserted at each move; ``finish`` plays to the end and
asserts what must have come of it. The cluster (what is bound, the plan in the PodGroup's status, the steps
that were done) outlives a process; the engine and the state machine do not.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from closeby.kube.gangs.objects import GangObjects
from closeby.kube.gangs.start_events import (
    BindingTurn,
    BindRefused,
    Bound,
    Decided,
    GiveBack,
    GivenBack,
    LeadLost,
    MemberGone,
    Missed,
    NoEffect,
    PlanRefused,
    PlanTurn,
    PlanWritten,
    PreparationFailed,
    Prepare,
    Prepared,
    QueueBinding,
    QueuePlan,
    ReadPod,
    Reconciled,
    Restarted,
    Review,
    SendBinding,
    StartAction,
    StartEvent,
    StatusWritten,
    Undo,
    WritePlan,
)
from closeby.kube.gangs.starts import Starts
from closeby.kube.gangs.status import plan
from closeby.kube.state.ownership import ForeignMembers, OwnGangs
from closeby.objects.pods import DEFAULT_SCHEDULER, Pod
from closeby.reading.common.plans import PlanWire
from closeby.scheduling.events import (
    BindFailed,
    BindingsWithdrawn,
    GroupChanged,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    Tick,
)
from closeby.scheduling.outcomes import Binding, Decision
from tests.worlds import GPU, fabric, gang, node, pods, world

KEY = "default/train"
NOW = "2026-01-01T00:00:00Z"
Move = tuple[str, int]
#: What a history may have a few of.
DISTURBANCES = (
    "plan missed",
    "plan refused",
    "no effect",
    "answer lost, bound",
    "answer lost, not bound",
    "refused",
    "step fails",
    "rack moves",
    "member goes",
    "restart",
    "lead lost",
)


class Writing(Struct):
    """A plan on its way to the server: one at a time, of what is so when it is its turn."""

    bindings: tuple[Binding, ...]
    wire: PlanWire | None = None


class Play:
    """One history of a gang of ``size`` with one GPU each, that needs a rack of its own."""

    def __init__(
        self, size: int, *, disturbances: tuple[str, ...], most: int, steps: bool = False, late: bool = False
    ) -> None:
        """With ``most`` disturbances and ``steps`` before bindings; ``late``: the watch takes its time."""
        self.size = size
        self.allowed = disturbances
        self.left = most
        self.steps = steps
        self.late = late
        # The cluster.
        self.racks = {f"{rack}{i}": f"rack-{rack}" for rack in "ab" for i in range(size)}
        self.pods = {pod.uid: pod for pod in pods("train", size)}
        self.bound: dict[str, str] = {}
        self.plan: dict[str, str] = {}
        self.done: dict[str, str] = {}
        self.moved = ""
        self.follows_plan = True
        self.lead_lost = self.ended_early = False
        self._start_process()

    # The process

    def _start_process(self) -> None:
        self.engine = world(
            [node(name, {"rack": rack}, {GPU: 1}) for name, rack in self.racks.items()],
            fabric("rack", "kubernetes.io/hostname"),
            levels=("rack",),
        ).engine
        own = OwnGangs(DEFAULT_SCHEDULER, self.engine.state, ForeignMembers())
        self.starts = Starts(self.engine, GangObjects(), own, (lambda binding: True) if self.steps else None)
        self.plans: list[tuple[Binding, ...]] = []
        self.writing: list[Writing] = []
        self.preparing: list[Binding] = []
        self.queued: list[Binding] = []
        self.sent: list[Binding] = []
        self.reading: list[Binding] = []
        self.failures: list[BindFailed | BindingsWithdrawn] = []
        self.doubted: set[str] = set()
        #: uids whose steps an earlier process did: the steps before the next binding take them over.
        self.done_before = set(self.done)
        #: uid -> its binding that has not ended.
        self.open: dict[str, Binding] = {}
        self.unseen: list[str] = []
        self.review = False
        self.group = replace(gang(min_member=self.size, required="rack"), plan=dict(self.plan))
        seen = [replace(pod, node_name=self.bound.get(uid)) for uid, pod in self.pods.items()]
        self.engine.handle(GroupChanged(self.group), *map(PodUpserted, seen))
        self.tick = True
        self.handle(Restarted(NOW))

    def handle(self, event: StartEvent) -> StartAction | None:
        answer: StartAction | None = None
        for action in self.starts.handle(event):
            if self.lead_lost:
                assert isinstance(action, GiveBack | Review), (event, action)
            match action:
                case QueuePlan(_, bindings):
                    self.plans.append(bindings)
                case QueueBinding(binding):
                    self.queued.append(binding)
                case Prepare(binding):
                    self._plan_stands(binding)
                    self.preparing.append(binding)
                case Undo(binding):
                    assert binding not in self.sent and binding.pod.uid not in self.bound
                    self.done.pop(binding.pod.uid, None)
                case GiveBack(failure):
                    self._give_back(failure)
                case Review():
                    self.review = True
                case _:
                    answer = action
        return answer

    # What must hold

    def _plan_stands(self, binding: Binding) -> None:
        if len(self.bound) + 1 < self.size:
            assert self.plan.get(binding.pod.uid) == binding.node, "sent without its plan"

    def _may_be_sent(self, binding: Binding) -> None:
        uid = binding.pod.uid
        assert not self.lead_lost
        assert self.open.get(uid) is binding, "it had ended"
        self._plan_stands(binding)
        assert not self.steps or self.done.get(uid) == binding.node, "its steps are not done"
        cluster = self.engine.cluster
        slots = [cluster.placement(pod.uid) for pod in self.engine.state.placed(KEY)]
        racks = {cluster.node_at(slot).labels["rack"] for slot in slots if slot is not None}
        assert len(racks) == 1, "the decision does not hold"

    def _give_back(self, failure: BindFailed | BindingsWithdrawn) -> None:
        if isinstance(failure, BindFailed):
            uids: tuple[str, ...] = (failure.uid,)
        else:
            uids = failure.uids
            assert not self.sent, "withdrawn while an attempt is on its way"
            assert not self.doubted, "withdrawn while a member is in doubt"
            assert not self.preparing, "withdrawn while a step runs"
        for uid in uids:
            del self.open[uid]  # Each ends once.
            assert uid not in self.bound or uid not in self.pods
            undone = uid not in self.done or uid in self.done_before
            assert undone or self.lead_lost, "its steps were not undone"
        self.failures.append(failure)

    # Moves

    def moves(self) -> list[Move]:
        found = list(self._moves())
        if found and self.left:
            found += [move for move in self._disturbances() if move[0] in self.allowed]
        return found

    def _moves(self) -> Iterator[Move]:
        for name, items in (
            ("plan turn", self.plans),
            ("plan written", self.writing[:1]),
            ("prepared", self.preparing),
            ("turn", self.queued),
            ("bound", self.sent),
            ("read", self.reading),
            ("seen", self.unseen),
        ):
            yield from ((name, index) for index in range(len(items)))
        if self.failures:
            yield "taken in", 0
        if self.review and not self.writing:
            yield "status", 0
        if self.tick and not self.lead_lost:
            yield "tick", 0

    def _disturbances(self) -> Iterator[Move]:
        for name, items in (("plan missed", self.writing[:1]), ("plan refused", self.writing[:1])):
            yield from ((name, index) for index in range(len(items)))
        for index, binding in enumerate(self.sent):
            # What stands is answered so, however it came about.
            if self.bound.get(binding.pod.uid) != binding.node:
                for name in ("no effect", "answer lost, bound", "answer lost, not bound"):
                    yield name, index
                if binding.pod.uid not in self.doubted:
                    yield "refused", index
        yield from (("step fails", index) for index in range(len(self.preparing)))
        if self.lead_lost:
            return
        yield from (("rack moves", index) for index in (range(1) if not self.moved else ()))
        yield from (("member goes", index) for index in range(len(self.pods)))
        yield "restart", 0
        yield "lead lost", 0

    def move(self, name: str, index: int) -> None:
        self.left -= name in DISTURBANCES
        {
            "plan turn": self._plan_turn,
            "plan written": self._plan_written,
            "plan missed": lambda _: self.plans.append(self._written().bindings),
            "plan refused": lambda _: self.handle(PlanRefused(self._written().bindings, "refused")),
            "prepared": self._prepared,
            "step fails": lambda at: self.handle(PreparationFailed(self.preparing.pop(at), "no volume")),
            "turn": self._turn,
            "bound": lambda at: self._bound(self.sent.pop(at)),
            "read": self._read,
            "seen": self._seen,
            "taken in": self._taken_in,
            "status": self._status,
            "tick": self._tick,
            "no effect": lambda at: self._missed(at, bound=False, in_doubt=False),
            "answer lost, bound": lambda at: self._missed(at, bound=True, in_doubt=True),
            "answer lost, not bound": lambda at: self._missed(at, bound=False, in_doubt=True),
            "refused": self._refused,
            "rack moves": self._rack_moves,
            "member goes": self._member_goes,
            "restart": self._restart,
            "lead lost": self._lead_is_lost,
        }[name](index)
        assert self.starts.in_flight == len(self.open)

    def _wire(self) -> PlanWire | None:
        standing = self.starts.standing(KEY)
        return None if standing is None else plan(standing, self.starts.plan_made(KEY))

    def _plan_turn(self, index: int) -> None:
        bindings = self.plans.pop(index)
        if self.handle(PlanTurn(bindings)) == WritePlan(KEY):
            assert not self.lead_lost
            self.writing.append(Writing(bindings))
            if len(self.writing) == 1:
                self.writing[0].wire = self._wire()

    def _written(self) -> Writing:
        writing = self.writing.pop(0)
        if self.writing:
            self.writing[0].wire = self._wire()
        return writing

    def _stands(self, wire: PlanWire | None) -> None:
        before, self.plan = self.plan, {}
        if wire is not None:
            assert wire.made
            self.plan = {pod.uid: each.name for each in wire.nodes for pod in each.pods}
        elif before:
            placed = self.engine.state.placed(KEY)
            standing = self.starts.standing(KEY)
            assert standing is not None and not standing.on_the_way
            assert len(placed) in (0, self.size), "the plan is removed before the start is over"
        self.group = replace(self.group, plan=dict(self.plan))
        self.engine.handle(GroupChanged(self.group))
        self.handle(StatusWritten(KEY, planned=wire is not None))

    def _plan_written(self, _: int) -> None:
        writing = self.writing.pop(0)
        self._stands(writing.wire)
        if self.writing:
            self.writing[0].wire = self._wire()
        self.handle(PlanWritten(writing.bindings))

    def _prepared(self, index: int) -> None:
        binding = self.preparing.pop(index)
        self.done_before.discard(binding.pod.uid)
        self.done[binding.pod.uid] = binding.node
        self.handle(Prepared(binding))

    def _turn(self, index: int) -> None:
        binding = self.queued.pop(index)
        match self.handle(BindingTurn(binding)):
            case SendBinding():
                self._may_be_sent(binding)
                self.sent.append(binding)
            case ReadPod():
                assert binding.pod.uid in self.doubted
                self.reading.append(binding)

    def _bind(self, binding: Binding) -> None:
        uid = binding.pod.uid
        if uid in self.pods and uid not in self.bound:
            self.bound[uid] = binding.node
            self.unseen.append(uid)
            if not self.late:
                self._seen(len(self.unseen) - 1)

    def _bound(self, binding: Binding) -> None:
        uid = binding.pod.uid
        self.doubted.discard(uid)
        if uid not in self.pods:
            self.handle(Missed(binding, in_doubt=False))
            self.handle(BindRefused(binding, BindFailed(uid, "gone", final=True)))
            return
        self._bind(binding)
        assert self.bound[uid] == binding.node
        del self.open[uid]
        self.handle(Bound(binding))

    def _read(self, index: int) -> None:
        binding = self.reading.pop(index)
        if binding.pod.uid not in self.pods or self.bound.get(binding.pod.uid) == binding.node:
            self._bound(binding)
            return
        self.doubted.discard(binding.pod.uid)
        self.handle(NoEffect(binding))
        self.queued.append(binding)

    def _missed(self, index: int, *, bound: bool, in_doubt: bool) -> None:
        binding = self.sent.pop(index)
        if bound:
            self._bind(binding)
        if in_doubt:
            self.doubted.add(binding.pod.uid)
        self.handle(Missed(binding, in_doubt))
        self.queued.append(binding)

    def _refused(self, index: int) -> None:
        binding = self.sent.pop(index)
        self.follows_plan = False  # It is void for this member.
        self.handle(Missed(binding, in_doubt=False))
        self.handle(BindRefused(binding, BindFailed(binding.pod.uid, "refused")))

    def _seen(self, index: int) -> None:
        uid = self.unseen.pop(index)
        if uid in self.pods:
            self.engine.handle(PodUpserted(replace(self.pods[uid], node_name=self.bound[uid])))
            self.tick = True

    def _taken_in(self, _: int) -> None:
        failures, self.failures = tuple(self.failures), []
        self.engine.handle(*failures)
        self.handle(GivenBack(failures))
        self.tick = True

    def _status(self, _: int) -> None:
        self.review = False
        if not self.lead_lost:
            self.handle(Reconciled())
            self._stands(self._wire())

    def _tick(self, _: int) -> None:
        self.tick = False
        promised = {uid: self.plan[uid] for uid in self.plan if uid in self.pods and uid not in self.bound}
        for decision in self.engine.handle(Tick()):
            if isinstance(decision, Decision) and decision.bindings:
                for binding in decision.bindings:
                    uid = binding.pod.uid
                    assert uid not in self.open
                    self.open[uid] = binding
                    if self.follows_plan and uid in promised:
                        assert binding.node == promised[uid], "not along the plan"
                self.handle(Decided(decision.bindings, NOW))

    # Disturbances

    def _rack_moves(self, _: int) -> None:
        """One node of the rack that the gang is on, or would be on, gets another label."""
        placed = self.engine.state.placed(KEY)
        slots = [self.engine.cluster.placement(pod.uid) for pod in placed]
        names = [self.engine.cluster.names[slot] for slot in slots if slot is not None]
        self.moved = max((name for name in names if name), default="a0")
        self.follows_plan = False
        self.engine.handle(NodeUpserted(node(self.moved, {"rack": "rack-9"}, {GPU: 1})))
        self.racks[self.moved] = "rack-9"
        self.tick = True

    def _rack_is_back(self) -> None:
        if self.moved:
            self.racks[self.moved] = f"rack-{self.moved[0]}"
            self.engine.handle(NodeUpserted(node(self.moved, {"rack": self.racks[self.moved]}, {GPU: 1})))
            self.moved, self.tick = "", True

    def _member_goes(self, index: int) -> None:
        """Its controller makes another one of that name at once."""
        uid = list(self.pods)[index]
        pod = self.pods.pop(uid)
        self.bound.pop(uid, None)
        self.done.pop(uid, None)
        self.follows_plan = False
        self.engine.handle(PodDeleted(uid))
        self.handle(MemberGone(KEY, NOW))
        new: Pod = replace(pod, uid=f"{uid}'")
        self.pods[new.uid] = new
        self.engine.handle(PodUpserted(new))
        self.tick = True

    def _restart(self, _: int) -> None:
        for (
            binding
        ) in self.sent:  # What was sent may arrive, or not: of one it does, of the next it does not.
            if len(self.bound) % 2 == 0:
                self._bind(binding)
        self.lead_lost, self.ended_early = False, True
        self.follows_plan = self.follows_plan and not self.moved
        self._start_process()

    def _lead_is_lost(self, _: int) -> None:
        self.lead_lost = True
        self.handle(LeadLost())

    # The end

    def state(self) -> object:
        """All that what follows depends on: two histories that meet here have one future."""

        def named(bindings: Iterable[Binding]) -> list[tuple[str, str, bool]]:
            return sorted((one.pod.uid, one.node, self.open.get(one.pod.uid) is one) for one in bindings)

        standing, engine = self.starts.standing(KEY), self.engine
        assert standing is not None
        flights = self.starts._flights
        item = flights._gangs.get(KEY)
        return repr(
            (
                [sorted(one.items()) for one in (self.bound, self.plan, self.done, self.racks)],
                [list(self.pods), sorted(self.doubted), sorted(self.unseen), self.failures],
                [self.moved, self.lead_lost, self.left, self.tick, self.review, self.follows_plan],
                [named(one) for one in (self.preparing, self.queued, self.sent, self.reading)],
                [named(one) for one in self.plans],
                [(named(one.bindings), one.wire) for one in self.writing],
                [(pod.uid, name) for pod, name in standing.held],
                [standing.begun, standing.reduced, sorted(standing.on_the_way), engine.unschedulable],
                [self.starts.plan_made(KEY), self.starts.plan_may_stand(KEY)],
                [(uid, one.prepared, sorted(one.batch)) for uid, one in sorted(flights._by_uid.items())],
                None if item is None else (item.broken, item.took_effect, sorted(item.flights)),
            )
        )

    def finish(self, choose: Callable[["Play", list[Move]], Move | None]) -> list[Move]:
        """Plays until nothing is left to do, and asserts what came of it; returns the moves.

        It stops early when None is chosen.
        """
        played: list[Move] = []
        while True:
            moves = self.moves()
            if moves:
                chosen = choose(self, moves)
                if chosen is None:
                    return played
                played.append(chosen)
                self.move(*chosen)
            elif self.lead_lost:
                self._restart(0)
            elif self.moved:
                self._rack_is_back()
            else:
                break
            assert len(played) < 200, "it does not end"
        self.engine.validate_state()
        assert self.bound.keys() == self.pods.keys(), "not all members are bound"
        assert len({self.racks[name] for name in self.bound.values()}) == 1
        assert self.starts.in_flight == 0 and not self.open and not self.doubted
        assert not self.plan and not self.starts.plan_may_stand(KEY)
        # A process that lost the lead undoes nothing, also not what it did for a pod that is gone.
        done = {uid: name for uid, name in self.done.items() if uid in self.pods or not self.ended_early}
        assert not self.steps or done == self.bound
        return played


def every_order(begin: Callable[[], Play]) -> int:
    """Plays all histories, and each state once; returns how many histories that took.

    A failure names the moves that led to it.
    """
    path: list[int] = []
    visited: set[object] = set()
    for count in itertools.count(1):
        widths: list[int] = []
        moves: list[Move] = []
        _play(begin(), path, widths, moves, visited)
        taken = [*path, *[0] * (len(widths) - len(path))]
        while taken and taken[-1] + 1 >= widths[len(taken) - 1]:
            taken.pop()
        if not taken:
            return count
        path = [*taken[:-1], taken[-1] + 1]
    raise AssertionError


def _play(play: Play, path: list[int], widths: list[int], taken: list[Move], visited: set[object]) -> None:
    def choose(play: Play, moves: list[Move]) -> Move | None:
        depth = len(widths)
        if depth >= len(path):
            state = play.state()
            if state in visited:
                return None
            visited.add(state)
        widths.append(len(moves))
        taken.append(moves[path[depth] if depth < len(path) else 0])
        return taken[-1]

    try:
        play.finish(choose)
    except Exception as error:
        error.add_note(f"after {taken}")
        raise
