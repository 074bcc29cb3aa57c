"""Trials: the engine decides as it would, and is afterwards in the very state that it was in before."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from closeby.objects.pods import Pod
from closeby.reading.configuration import Configuration, PluginEntry
from closeby.reading.manifests import Manifests
from closeby.scheduling.fork import Change
from closeby.simulator.runs import simulate
from closeby.whatif.trials import Trials
from tests.crowded import worlds
from tests.worlds import draw, fabric, gang, pods, spec


def state(trials: Trials) -> object:
    """All that a decision can depend on."""
    engine = trials.engine
    engine.validate_state()
    cluster, state = engine.cluster, engine.state
    return (
        cluster.requested.tolist(),
        cluster.allocatable.tolist(),
        {pod.uid: slot for pod, slot in cluster.placed_pods()},
        state.groups,
        {key: [list(members.placed), sorted(members.waiting)] for key, members in state.members.items()},
        sorted(state.waiting_pods),
        [node for node in cluster.nodes if node is not None],
    )


@settings(max_examples=40, deadline=None)
@given(worlds(), st.data())
def test_everything_is_undone(manifests: Manifests, data: st.DataObject) -> None:
    trials = Trials(simulate(manifests, Configuration()))
    before = state(trials)
    everybody = list(trials.pods)
    for _ in range(3):
        gone = data.draw(st.lists(st.sampled_from(everybody), unique_by=lambda pod: pod.uid))
        groups = [
            replace(group, constraint=None, min_member=1)
            for group in manifests.groups
            if data.draw(st.booleans())
        ]
        nodes = [replace(node, ready=False) for node in manifests.nodes if data.draw(st.booleans())]
        changed = [pod for pod in everybody if pod.node_name is None and data.draw(st.booleans())]
        change = Change(
            gone=tuple(gone),
            groups=tuple(groups),
            nodes=tuple(nodes),
            waiting=tuple(replace(pod, spec=spec(gpu=1)) for pod in changed if pod not in gone),
        )
        for key in trials.waiting[:1]:
            trials.try_out(key, change)
            assert state(trials) == before


def test_what_stands_before_it_in_the_queue_takes_the_room() -> None:
    """Two gangs wait for r1; the first of them would get what is freed."""
    waiting = [*pods("first", 2, needs=spec(gpu=2)), *pods("second", 2, needs=spec(gpu=2))]
    manifests = Manifests(
        nodes=tuple(draw("a r1 : n1=2 n2=2")),
        pods=(*waiting, *pods(None, 2, prefix="old", on="n1")),
        groups=(gang("first", min_member=2), gang("second", min_member=2)),
        topologies=(fabric("zone", "rack"),),
        whole=True,
    )
    trials = Trials(simulate(manifests, Configuration()))
    assert trials.waiting == ["default/first", "default/second"]
    gone = Change(gone=tuple(pod for pod in trials.pods if pod.node_name == "n1"))
    assert trials.try_out("default/second", gone) is None
    result = trials.try_out("default/first", gone)
    assert result is not None
    assert {one.node for one in result.bindings} == {"n1", "n2"}


def test_trials_are_bounded_by_their_number() -> None:
    manifests = Manifests(
        nodes=tuple(draw("a r1 : n1=2")), pods=tuple(pods(None, 1, needs=spec(gpu=4))), whole=True
    )
    trials = Trials(simulate(manifests, Configuration()))
    number = 0
    while not trials.spent:
        trials.try_out("pod:default/pod-0", Change())
        number += 1
    # Each costs one decision, and one for the item that waits.
    assert number == 1000
    trials.forget_after("pod:default/pod-0")
    assert not trials.spent


def test_plugins_forget_what_was_only_tried() -> None:
    """Buckets of a task-topology, the record of network-topology, and what a waiting gang would talk."""
    annotations = {
        "volcano.sh/task-topology-affinity": "ps,worker",
        "closeby.dev/task-traffic": "ps-worker=10",
    }
    roles = [("ps", 2), ("worker", 2)]

    def members(name: str) -> list[Pod]:
        return [one for role, count in roles for one in pods(name, count, prefix=f"{name}-{role}", role=role)]

    old = [
        replace(one, node_name=node)
        for one, node in zip(members("old"), ("n1", "n1", "n2", "n2"), strict=True)
    ]
    manifests = Manifests(
        nodes=tuple(draw("a r1 : n1=2 n2=2\na r2 : n3=2 n4=2")),
        pods=(*members("late"), *members("early"), *old),
        groups=tuple(
            replace(gang(name, 4, required="rack"), annotations=annotations)
            for name in ("early", "late", "old")
        ),
        topologies=(fabric("zone", "rack"),),
        whole=True,
    )
    plugins = (
        PluginEntry(name="network-topology", arguments={"network-topology.keys": "rack,zone"}),
        PluginEntry(name="task-topology"),
    )
    run = simulate(manifests, Configuration(plugins=plugins))
    assert run.places["default/early"].path == ("a", "r2")
    trials = Trials(run)
    assert trials.waiting == ["default/late"]
    gone = Change(gone=tuple(pod for pod in trials.pods if pod.group == "old"))
    before = state(trials)
    first = trials.try_out("default/late", gone)
    assert first is not None and first.place is not None and first.place.path == ("a", "r1")
    assert state(trials) == before
    assert trials.try_out("default/late", Change()) is None
    again = trials.try_out("default/late", gone)
    assert again is not None and again.place == first.place
    assert [(one.pod, one.node, one.rank) for one in again.bindings] == [
        (one.pod, one.node, one.rank) for one in first.bindings
    ]
