"""A fault while one item is decided: it is refused, nothing of it is left behind, and all others go on."""

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.applications import AppGroup, AppWorkload, Dependency
from closeby.objects.arrays import Bools, Scores
from closeby.objects.labels import HOSTNAME
from closeby.objects.pods import Pod
from closeby.objects.reasons import Condition, Reason
from closeby.plugins.registry import profile_for
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.scheduling.commit_points import Bind, Permit, PreBind
from closeby.scheduling.engine import Engine
from closeby.scheduling.events import (
    AppGroupChanged,
    Event,
    GroupChanged,
    NetworkTopologyChanged,
    NodeUpserted,
    PodUpserted,
    Tick,
    TopologyChanged,
)
from closeby.scheduling.extension import Filter, PostFilter, PreFilter, Reserve, Scope, Score, Undo
from closeby.scheduling.outcomes import Decision, Output, bindings_of, outcomes_of
from closeby.scheduling.plugin_view import CycleState, Nodes
from closeby.scheduling.preemption.rule import Preemptible
from tests.applications.networks import network, replicas
from tests.talking import PAIRS
from tests.worlds import draw, fabric, gang, pods, spec

TWO_RACKS = """
zone-a rack-1 : a1=2 a2=2
zone-a rack-2 : b1=4 b2=4
"""


class Stumbling(PreFilter, Filter, Score, Reserve, Permit, PostFilter, PreBind, Bind):
    """Is asked at every point, and stumbles over pods called odd-... when asked for the ``at``-th time."""

    name: ClassVar[str] = "Stumbling"
    filter_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    score_scope: ClassVar[Scope] = Scope.PER_PLACEMENT
    at: ClassVar[int] = 1
    asked: ClassVar[int] = 0
    #: uids of the pods that hold a node.
    holding: ClassVar[set[str]] = set()

    def _step(self, pod: Pod) -> None:
        if pod.name.startswith("odd"):
            cls = type(self)
            cls.asked += 1
            if cls.asked == cls.at:
                raise KeyError(f"asked for the {cls.at}th time")

    def pre_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> Condition | None:
        self._step(pods[0])
        return None

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        self._step(pod)
        return np.ones(len(nodes), dtype=np.bool_)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        self._step(pod)
        return np.zeros(len(nodes))

    def pod_assumed(self, pod: Pod, slot: int) -> Undo | None:
        self._step(pod)
        self.holding.add(pod.uid)
        return lambda: self.holding.remove(pod.uid)

    def pod_forgotten(self, pod: Pod, slot: int) -> Undo | None:
        self.holding.remove(pod.uid)
        return lambda: self.holding.add(pod.uid)

    def permit(self, state: CycleState, placements: tuple[tuple[Pod, int], ...]) -> Condition | None:
        self._step(placements[0][0])
        return None

    def post_filter(self, state: CycleState, pods: tuple[Pod, ...]) -> None:
        self._step(pods[0])

    def pre_bind(self, pod: Pod, slot: int) -> dict[str, str]:
        self._step(pod)
        return {}

    def bind(self, pod: Pod, node_name: str) -> bool:
        self._step(pod)
        return False


def engine(at: int, *, contain: bool = True, plugin: str = "Stumbling", reserve_after: float = 0.0) -> Engine:
    """With two racks; the plugin stumbles when it is asked for the ``at``-th time."""
    Stumbling.at, Stumbling.asked = at, 0
    Stumbling.holding.clear()
    entry = PluginEntry(name=f"{__name__}:{plugin}")
    made = Engine(
        lambda handle: profile_for(Configuration(plugins=(entry,)), handle),
        contain_faults=contain,
        reserve_after=reserve_after,
    )
    made.handle(*map(NodeUpserted, draw(TWO_RACKS)), TopologyChanged(fabric("zone", "rack", HOSTNAME)))
    return made


def odd(kind: str, members: int, gpus: int) -> list[Event]:
    group = None if kind == "pod" else "odd"
    if kind == "application":
        talk = (AppWorkload(name="a", dependencies=(Dependency(workload="b"),)), AppWorkload(name="b"))
        callers = replicas("a", members, app="odd", prefix="odd-a", gpus=gpus)
        called = replicas("b", 1, app="odd", prefix="odd-b", gpus=gpus)
        declared = (
            AppGroupChanged(AppGroup(namespace="default", name="odd", workloads=talk)),
            NetworkTopologyChanged(network(PAIRS)),
        )
        return [*declared, *map(PodUpserted, (*callers, *called))]
    events: list[Event] = [PodUpserted(one) for one in pods(group, members, spec(gpu=gpus), prefix="odd")]
    if kind == "gang":
        events.insert(0, GroupChanged(gang("odd", min_member=members, required="rack")))
    return events


def bound(decisions: list[Output]) -> dict[str, str]:
    return {one.pod.name: one.node for one in bindings_of(decisions)}


@given(
    at=st.integers(1, 60),
    kind=st.sampled_from(["pod", "gang", "application"]),
    members=st.integers(1, 5),
    gpus=st.integers(1, 3),
    before=st.integers(0, 3),
)
def test_wherever_it_happens_nothing_is_left_behind(**case: Any) -> None:
    kind = case["kind"]
    members = 1 if kind == "pod" else case["members"]
    it = engine(case["at"])
    it.handle(*map(PodUpserted, pods(None, case["before"], prefix="sound")), Tick())
    held, requested = set(Stumbling.holding), it.cluster.requested.copy()
    decisions = it.handle(*odd(kind, members, case["gpus"]), Tick())
    it.validate_state()
    faults = [one for one in decisions if isinstance(one, Decision) and one.fault is not None]
    if Stumbling.asked < case["at"]:
        assert not faults
        return
    assert [one.outcome.key for one in faults] == ["default/odd-0" if kind == "pod" else "default/odd"]
    assert bound(decisions) == {}
    assert Stumbling.holding == held
    assert (it.cluster.requested[: len(requested)] == requested).all()
    assert not it.cluster.requested[len(requested) :].any()
    (told,) = outcomes_of(decisions)
    assert told.reason is Reason.SCHEDULER_ERROR
    assert len(told.refused) == members + (kind == "application")
    assert "KeyError" in (told.message or "") and "(test_faults.py:" in (told.message or "")

    # Others go on; whom it befell is looked at again as soon as anything happens, and then the same comes
    # out as if nothing had been.
    later = it.handle(*map(PodUpserted, pods(None, 1, prefix="later")), Tick())
    assert set(bound(later)) == {"later-0"}
    again = it.handle(NodeUpserted(draw("zone-b rack-3 : c1=8")[0]), Tick())
    it.validate_state()
    afresh = engine(0)
    afresh.handle(*map(PodUpserted, pods(None, case["before"], prefix="sound")), Tick())
    afresh.handle(*map(PodUpserted, pods(None, 1, prefix="later")), Tick())
    afresh.handle(NodeUpserted(draw("zone-b rack-3 : c1=8")[0]))
    assert bound(again) == bound(afresh.handle(*odd(kind, members, case["gpus"]), Tick()))


@pytest.mark.parametrize(("kind", "members"), [("pod", 1), ("gang", 3), ("application", 4)])
def test_a_fault_while_victims_are_looked_for_leaves_nothing_behind(kind: str, members: int) -> None:
    low = [
        pod
        for name, count in (("a1", 2), ("a2", 2), ("b1", 3), ("b2", 4))
        for pod in pods(None, count, replace(spec(gpu=1), priority=-1), prefix=f"low-{name}", on=name)
    ]
    at = 0
    while Stumbling.asked >= at:
        it = engine(at := at + 1)
        it.preempt(Preemptible())
        it.handle(*map(PodUpserted, low), Tick())
        requested = it.cluster.requested.copy()
        outputs = it.handle(*odd(kind, members, 2 if kind == "pod" else 1), Tick())
        it.validate_state()
        decisions = [one for one in outputs if isinstance(one, Decision)]
        (decided,) = [one for one in decisions if one.outcome.key.startswith("default/odd")]
        stumbled = Stumbling.asked >= at
        assert (decided.fault is not None) is stumbled, at
        assert bool(decided.outcome.preemptions) is not stumbled, at
        taken = bindings_of(outputs)
        assert it.cluster.requested.sum() == requested.sum() + 2 * len(taken), at
        assert {pod.uid for pod in low} <= Stumbling.holding, at
        assert len(Stumbling.holding) == len(low) + len(taken), at
        assert bool(taken) or not stumbled or decided.outcome.reason is Reason.SCHEDULER_ERROR, at


class Weighing(Stumbling):
    """Stumbles when it is asked how well the second pod fits that is called odd-..."""

    name: ClassVar[str] = "Weighing"

    def filter(self, state: CycleState, pod: Pod, nodes: Nodes) -> Bools:
        return np.ones(len(nodes), dtype=np.bool_)

    def score(self, state: CycleState, pod: Pod, nodes: Nodes) -> Scores:
        if any(uid.startswith("default/odd") for uid in self.holding):
            raise KeyError("no weight")
        return np.zeros(len(nodes))


def test_a_fault_while_nodes_to_keep_free_are_looked_for_leaves_nothing_behind() -> None:
    it = engine(0, plugin="Weighing", reserve_after=100.0)
    old = [one for name in ("b1", "b2") for one in pods(None, 4, prefix=f"old-{name}", on=name)]
    members = [one for gpus in (1, 2) for one in pods("odd", 1, spec(gpu=gpus), prefix=f"odd-{gpus}")]
    it.handle(*map(PodUpserted, old), *map(PodUpserted, pods(None, 4, prefix="short")))
    it.handle(Tick(0.0), GroupChanged(gang("odd", 2, required="rack")), *map(PodUpserted, members))
    requested, holding = it.cluster.requested.copy(), set(Stumbling.holding)
    (waits,) = outcomes_of(it.handle(Tick(1.0)))
    assert waits.reason is Reason.GANG_DOES_NOT_FIT
    (found,) = (one for one in it.handle(Tick(200.0)) if isinstance(one, Decision))
    assert isinstance(found.fault, KeyError) and found.outcome.reason is Reason.SCHEDULER_ERROR
    it.validate_state()
    assert (it.cluster.requested == requested).all() and Stumbling.holding == holding
    assert it.handle(Tick(201.0)) == []


def test_what_is_not_to_be_contained_is_raised_with_what_it_came_of() -> None:
    it = engine(1, contain=False)
    it.handle(*odd("pod", 1, 1))
    with pytest.raises(KeyError, match="asked for the 1th time") as raised:
        it.handle(Tick())
    assert raised.value.__notes__ == [f"This came of {Tick()!r}"]


def test_a_fault_outside_of_decisions_is_raised_with_what_it_came_of() -> None:
    it = engine(1)
    (pod,) = pods(None, 1, prefix="odd", on="a1")
    with pytest.raises(KeyError) as raised:
        it.handle(PodUpserted(pod))
    assert raised.value.__notes__[0].startswith(
        "This came of PodUpserted(pod=Pod(namespace='default', name='odd-0'"
    )
