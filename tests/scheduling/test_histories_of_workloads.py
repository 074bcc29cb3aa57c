"""Whatever happens to Workloads, their places are as many as are asked for, and where these are required."""

from collections import Counter
from collections.abc import Iterable, Iterator

from hypothesis import given, note, settings
from hypothesis import strategies as st

from closeby.objects.groups import POD_SET, PodGroup, SubGroup
from closeby.objects.pods import Pod
from tests.scheduling.workload_histories import QueuedJob, WorkloadHistory
from tests.worlds import draw

#: Room for all.
RELIEF = "z3 r9 : x1=40 x2=40"


class Watcher:
    """Looks at a history after each step."""

    def __init__(self, history: WorkloadHistory) -> None:
        self.history = history
        #: By Workload what its status was to say before.
        self._before: dict[str, tuple[object, ...]] = {}

    def look(self) -> None:
        """The scheduler decides, and what is so then is right."""
        history = self.history
        news = history.tick()
        engine = history.engine
        engine.validate_state()
        assert (engine.cluster.requested <= engine.cluster.allocatable).all()
        for job in history.jobs:
            if job.asked is None:
                assert job.key not in engine.placeholders and job.key not in engine.state.members
                self._before.pop(job.name, None)
                continue
            said = self._numbers(job)
            if said is not None:
                assert said == self._before.get(job.name) or job.key in news, "nothing is said of it"
                self._before[job.name] = said
            if job.steady and not job.gang:
                self._is_as_required(job)

    def forget(self) -> None:
        """Another process has said nothing yet."""
        self._before.clear()

    def _numbers(self, job: QueuedJob) -> tuple[object, ...] | None:
        """Asserts how many placeholders there are; returns what is to be said, None while a pod is ending."""
        engine = self.history.engine
        members, placed = engine.state.members.get(job.key), self.history.placed(job)
        standing = [] if members is None else [*members.placed.values(), *members.waiting.values()]
        waiting = 0 if members is None else len(members.waiting)
        there = _by_set(pod for pod in placed if not pod.terminating)
        stand, wanted = _by_set(standing), {one.name: max(one.count - there[one.name], 0) for one in job.sets}
        assert all(number <= wanted[name] for name, number in stand.items())
        lost = sum(wanted.values()) - len(standing)
        assert engine.placeholders.lost(job.key) == lost
        assert engine.state.groups[job.key].min_member == len(standing)
        if there:
            assert not waiting
        elif not placed:
            assert not lost
        ending = any(pod.terminating for pod in placed)
        return None if ending else (self.history.held(job), waiting, lost)

    def _is_as_required(self, job: QueuedJob) -> None:
        history, group = self.history, self.history.engine.state.groups[job.key]
        members = history.engine.state.members.get(job.key)
        held, standing = history.held(job), {} if members is None else members.placed
        where = [(pod, held[uid]) for uid, pod in standing.items() if uid in held]
        where += [(pod, pod.node_name or "") for pod in history.placed(job) if not pod.terminating]
        labels = [(pod, history.full[node].labels) for pod, node in where]
        parts: list[PodGroup | SubGroup] = [group, *group.subgroups]
        for part in parts:
            own = [(pod, at) for pod, at in labels if part is group or pod.labels[POD_SET] == part.name]
            if part.constraint is not None and part.constraint.required is not None:
                assert len({at[part.constraint.required] for _, at in own}) <= 1
            # Which pods are done is not known, and so not to which segment the others belong.
            if part.layers and job.indexed and all(one.count == job.most[one.name] for one in job.sets):
                racks = {(pod.labels[POD_SET], (pod.index or 0) // 2, at["rack"]) for pod, at in own}
                assert len(racks) == len({(name, segment) for name, segment, _ in racks})


def _by_set(members: Iterable[Pod]) -> Counter[str]:
    return Counter(pod.labels[POD_SET] for pod in members)


def steps_of(history: WorkloadHistory, watcher: Watcher) -> Iterator[None]:
    """Each step, and now and then a look at what came of it."""
    while True:
        before = history.engine
        history.step()
        if history.engine is not before:
            watcher.forget()
        if history.dice.random() < 0.7 or history.engine is not before:
            watcher.look()
        yield


def all_find_room(history: WorkloadHistory, watcher: Watcher) -> None:
    """There is room for all: what is asked for is held, what comes takes it, and nothing is left behind."""
    for uid in sorted(history.binding):
        history.bound(uid)
    history.full |= {one.name: one for one in draw(RELIEF)}
    for node in history.full.values():
        history.node_comes(node)
    for pod in list(history.pods.values()):
        history.ends(pod)
    for _ in range(2):
        watcher.look()
    for job in history.jobs:
        if job.asked is None:
            continue
        held = sorted(history.held(job).values())
        assert len(held) == sum(one.count for one in job.sets)
        for one in job.sets:
            for index in range(one.count):
                history.comes(job, one.name, index)
        watcher.look()
        assert sorted(pod.node_name or "" for pod in history.placed(job)) == held
        assert not history.held(job)
        history.gives_up(job)
    for pod in list(history.pods.values()):
        history.ends(pod)
    watcher.look()
    assert not history.engine.state.pods and not history.engine.cluster.requested.any()
    placeholders = history.engine.placeholders
    kept = [value for owner in (placeholders, placeholders._places) for value in vars(owner).values()]
    assert not any(value for value in kept if isinstance(value, dict | set | list))


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_whatever_happens_to_workloads_they_have_the_places_that_they_ask_for(seed: int) -> None:
    history = WorkloadHistory(seed)
    watcher = Watcher(history)
    try:
        for _, _ in zip(range(40), steps_of(history, watcher), strict=False):
            pass
        all_find_room(history, watcher)
    finally:
        note("\n".join(history.log))


@settings(max_examples=30)
@given(st.integers(0, 1 << 32), st.booleans())
def test_another_process_holds_the_places_that_were_written(seed: int, takeover: bool) -> None:
    history = WorkloadHistory(seed)
    watcher = Watcher(history)
    try:
        for _, _ in zip(range(history.dice.randint(3, 30)), steps_of(history, watcher), strict=False):
            pass
        watcher.look()
        history.write()
        sound = len(history.nodes) == len(history.full)
        sound = sound and not any(node.unschedulable for node in history.nodes.values())
        before = {job.name: Counter(nodes_of(history, job)) for job in history.jobs}
        settled = {
            job.name
            for job in history.jobs
            if job.steady
            and not job.gang
            and len(history.placed(job)) == sum(map(job.owns, history.pods.values()))
            and not any(pod.terminating for pod in history.placed(job))
            and all(_by_set(history.placed(job))[one.name] <= one.count for one in job.sets)
        }
        history.begin_again(takeover=takeover)
        watcher.forget()
        watcher.look()
        for job in history.jobs:
            if sound and job.asked is not None and job.name in settled:
                assert not before[job.name] - Counter(nodes_of(history, job))
    finally:
        note("\n".join(history.log))


def nodes_of(history: WorkloadHistory, job: QueuedJob) -> list[str]:
    """The nodes of bound pods and of the places of all others."""
    way = [node for _, node in history.engine.placeholders.on_the_way(job.key)]
    bound = [pod.node_name for pod in history.pods.values() if job.owns(pod) and pod.node_name is not None]
    return [*bound, *way, *history.held(job).values()]
